//! Socket activation by systemd: clients that connect before the server runs are served once it
//! does.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::wire::{MessageHeader, hello, kind};

use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);
const CONFIG: &str = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";

#[test]
fn clients_before_the_start_are_served_after_activation() {
    let Some(python) = find_or_skip("python3") else { return };
    let _turn = shared_turn();
    // By the names that the unit gives them, and by their ports as in one unit with three of them;
    // one further port is not assigned.
    served(&python, "http:stream:control", [1, 2, 0], &[]);
    let by_port = ["stream=127.0.0.1:PORT0", "control=[::1]:PORT1", "http=PORT3"];
    let said = served(&python, "a.socket:a.socket:a.socket:a.socket", [0, 1, 3], &by_port);
    assert_eq!(said.matches("not used by the configuration").count(), 1, "{said}");
}

/// Starts a server with the sockets `NAMES`, of which those with these indices are stream, control
/// and http; returns its output.
fn served(python: &Path, names: &str, which: [usize; 3], listen: &[&str]) -> String {
    let scratch = ScratchDir::new("activation").unwrap();
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let mut through = Command::new(python);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/activation.py");
    through.arg(script).args([text(scratch.path()), names]);
    let (ports, go) = (scratch.join("ports"), scratch.join("go"));
    let early = std::thread::spawn(move || {
        wait_for("the ports", PATIENCE, || ports.exists());
        let ports: Vec<u16> = std::fs::read_to_string(&ports)
            .unwrap()
            .split(' ')
            .map(|port| port.parse().unwrap())
            .collect();
        let early = which.map(|one| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports[one]));
            (address, ask(address))
        });
        let mut player = &early[0].1;
        player.write_all(&hello(1)).unwrap();
        let mut controller = &early[1].1;
        let call = "{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"Server.GetRPCVersion\"}\n";
        controller.write_all(call.as_bytes()).unwrap();
        let mut browser = &early[2].1;
        browser.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        std::fs::write(go, "").unwrap();
        early
    });
    let server = AulosServer::start_through(&scratch, through, |command| {
        command.arg("--config").arg(&config);
        for listen in listen {
            command.args(["--set", &format!("listen.{listen}")]);
        }
    })
    .unwrap();
    let [player, controller, browser] = early.join().unwrap();
    assert_eq!([player.0, controller.0, browser.0], [server.stream, server.control, server.http]);
    let mut bytes = [0; 26];
    let mut socket = &player.1;
    socket.read_exact(&mut bytes).unwrap();
    assert_eq!(MessageHeader::parse(&bytes).unwrap().kind, kind::SERVER_SETTINGS);
    let line = |socket: &TcpStream| {
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).unwrap();
        line
    };
    assert!(line(&controller.1).contains("\"major\":23"));
    assert!(line(&browser.1).starts_with("HTTP/1.1 200"));
    let said = server.printed().unwrap();
    server.stop().unwrap();
    said
}

fn ask(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

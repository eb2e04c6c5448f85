//! The server's mDNS announcements, as another implementation (python-zeroconf) sees them from the
//! other end of a pair of virtual interfaces.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{Process, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{quiet_turn, wait_for};

const CONFIG: &str = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";

/// Several times what a loaded machine needs; the browser repeats its queries meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn reachable_services_are_announced_and_withdrawn() {
    let _turn = quiet_turn();
    let Some(judge) = judge() else { return skip("python-packages") };
    let Some(net) = network() else { return skip("network namespaces") };
    let scratch = ScratchDir::new("mdns").unwrap();
    let browser = Browser::start(&net, &judge, &scratch, "browser", "10.77.0.2");

    // The page is on loopback only, and announcing the control port is disabled.
    let sets = ["listen.stream=0.0.0.0:0", "mdns.name=House of. sound"];
    let server = start(&net, &scratch, &sets);
    let stream = server.stream.port();
    let found = format!(
        "found House of. sound._snapcast._tcp.local. port {stream} at 10.77.0.1 text none\n"
    );
    browser.waits_for(&found);
    assert!(has_thread(&server));
    server.stop().unwrap();
    browser.waits_for("gone House of. sound._snapcast._tcp.local.\n");

    // Everything that is configured instead, on one address.
    let sets = ["listen.stream=10.77.0.1:0", "listen.control=10.77.0.1:0", "listen.http=[::]:0"];
    let server = start(&net, &scratch, &sets);
    for (kind, port) in [
        ("snapcast", server.stream.port()),
        ("snapcast-ctrl", server.control.port()),
        ("snapcast-http", server.http.port()),
    ] {
        browser.waits_for(&format!(
            "found Snapcast._{kind}._tcp.local. port {port} at 10.77.0.1 text none\n"
        ));
    }
    server.stop().unwrap();
    for kind in ["snapcast", "snapcast-ctrl", "snapcast-http"] {
        browser.waits_for(&format!("gone Snapcast._{kind}._tcp.local.\n"));
    }
    // Clients without TLS are refused, and therefore not invited.
    let sets = [
        "listen.stream=0.0.0.0:0",
        "listen.control=0.0.0.0:0",
        "listen.http=0.0.0.0:0",
        "mdns.name=Safe",
        "tls.require=true",
    ];
    let server = start(&net, &scratch, &sets);
    let port = server.http.port();
    browser.waits_for(&format!(
        "found Safe._snapcast-https._tcp.local. port {port} at 10.77.0.1 text none\n"
    ));
    server.stop().unwrap();
    browser.waits_for("gone Safe._snapcast-https._tcp.local.\n");
    let all = browser.said();
    let safe: Vec<&str> = all.lines().filter(|line| line.contains("Safe")).collect();
    assert!(safe.iter().all(|line| line.contains("._snapcast-https._tcp.")), "{all}");
    let first: Vec<&str> = all.lines().filter(|line| line.contains("House of")).collect();
    assert!(first.iter().all(|line| line.contains("._snapcast._tcp.")), "{all}");
}

#[test]
fn servers_discover_each_other_and_notice_an_end() {
    let _turn = quiet_turn();
    let Some(net) = network() else { return skip("network namespaces") };
    let [one, two] = [ScratchDir::new("mdns-one").unwrap(), ScratchDir::new("mdns-two").unwrap()];
    let upstairs = start(&net, &one, &["listen.stream=0.0.0.0:0", "mdns.name=Upstairs"]);
    let downstairs =
        start_at(&net, 1, &two, &["listen.stream=10.77.0.2:0", "mdns.name=Downstairs"]);
    let found = |end: usize, server: &AulosServer| -> Vec<Value> {
        let servers = net.run_inside(end, || {
            Rpc::connect(server.control).call("Aulos.GetServers", &json!({}))["servers"].clone()
        });
        servers.as_array().unwrap().clone()
    };
    for (end, asked, other, name, address) in [
        (0, &upstairs, &downstairs, "Downstairs", "10.77.0.2"),
        (1, &downstairs, &upstairs, "Upstairs", "10.77.0.1"),
    ] {
        // Its own instance is not among them, and an address may arrive just after the name.
        wait_for(name, PATIENCE, || {
            let servers = found(end, asked);
            assert!(servers.iter().all(|one| one["name"] == name), "{servers:?}");
            servers.iter().any(|one| {
                one["port"] == other.stream.port()
                    && one["addresses"].as_array().unwrap().contains(&json!(address))
                    && one["host"].as_str().unwrap().ends_with(".local")
            })
        });
    }
    downstairs.stop().unwrap();
    wait_for("its end", PATIENCE, || found(0, &upstairs).is_empty());
    upstairs.stop().unwrap();
}

#[test]
fn of_two_servers_with_one_name_both_are_found_when_one_is_started_again() {
    let _turn = quiet_turn();
    let Some(judge) = judge() else { return skip("python-packages") };
    let Some(net) = network() else { return skip("network namespaces") };
    let [one, two] = [ScratchDir::new("same-one").unwrap(), ScratchDir::new("same-two").unwrap()];
    let browser = Browser::start(&net, &judge, &one, "browser", "10.77.0.2");
    // Both servers have one host name here, so the browser may know the address of the other too.
    let found = |name: &str, server: &AulosServer, address: &str| {
        let begin = format!("found {name}._snapcast._tcp.local. port {} at ", server.stream.port());
        browser.waits_until(&begin, |said| {
            let mut found = said.lines().filter_map(|line| line.strip_prefix(&begin));
            found.any(|addresses| addresses.split(' ').any(|one| one == address))
        });
    };
    let sets = ["listen.stream=0.0.0.0:0", "mdns.name=Same"];
    let first = start(&net, &one, &sets);
    found("Same", &first, "10.77.0.1");
    let second = start_at(&net, 1, &two, &sets);
    found("Same (2)", &second, "10.77.0.2");
    let renamed = |server: &AulosServer| {
        server.printed().unwrap().matches("announced under another name").count()
    };
    wait_for("its new name", PATIENCE, || renamed(&second) == 1);
    first.stop().unwrap();
    browser.waits_for("gone Same._snapcast._tcp.local.\n");
    let first = start(&net, &one, &sets);
    found("Same", &first, "10.77.0.1");
    assert_eq!((renamed(&first), renamed(&second)), (0, 1), "{}", browser.said());
    first.stop().unwrap();
    second.stop().unwrap();
}

#[test]
fn without_the_mdns_port_the_server_logs_it_once() {
    let _turn = quiet_turn();
    let Some(net) = network() else { return skip("network namespaces") };
    let scratch = ScratchDir::new("mdns-port").unwrap();
    // Exclusive: without SO_REUSEADDR.
    let _taken = net.run_inside(0, || UdpSocket::bind("0.0.0.0:5353").unwrap());
    let warned =
        |server: &AulosServer| server.printed().unwrap().matches("port 5353 exclusively").count();

    let server = start(&net, &scratch, &["listen.stream=0.0.0.0:0"]);
    wait_for("a warning", PATIENCE, || warned(&server) > 0);
    let near =
        net.run_inside(0, || std::net::TcpStream::connect(("127.0.0.1", server.stream.port())));
    near.unwrap();
    assert_eq!(warned(&server), 1, "{}", server.printed().unwrap());
    assert!(!has_thread(&server), "a thread for nothing");
    server.stop().unwrap();

    for sets in [&[][..], &["listen.stream=0.0.0.0:0", "mdns.enabled=false"]] {
        let server = start(&net, &scratch, sets);
        // A response means that startup is past the warning.
        net.run_inside(0, || aulos_blackbox::http::get(server.http, "/api/v1/status").unwrap());
        assert_eq!(warned(&server), 0, "{sets:?}: {}", server.printed().unwrap());
        assert!(!has_thread(&server), "{sets:?}");
        server.stop().unwrap();
    }
}

fn start(net: &NetNamespaces, scratch: &ScratchDir, sets: &[&str]) -> AulosServer {
    start_at(net, 0, scratch, sets)
}

pub(crate) fn start_at(
    net: &NetNamespaces,
    end: usize,
    scratch: &ScratchDir,
    sets: &[&str],
) -> AulosServer {
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, CONFIG).unwrap();
    net.run_inside(end, || {
        AulosServer::start_with(scratch, |command| {
            command.arg("--config").arg(&config);
            for set in sets {
                command.args(["--set", set]);
            }
        })
        .unwrap()
    })
}

fn has_thread(server: &AulosServer) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    threads.filter_map(Result::ok).any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "mDNS_daemon")
    })
}

pub(crate) fn network() -> Option<NetNamespaces> {
    NetNamespaces::new().inspect_err(|e| println!("{e}")).ok()
}

/// A Python with zeroconf.
fn judge() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = std::env::var_os("AULOS_TEST_VENV")
        .map_or_else(|| root.join("../../target/test-venv"), PathBuf::from);
    let python = venv.join("bin/python");
    let there = Command::new(&python).args(["-c", "import zeroconf"]).output();
    there.is_ok_and(|done| done.status.success()).then_some(python)
}

/// Observes the network from its other end while it lives.
struct Browser {
    _process: Process,
    printed: [PathBuf; 2],
}

impl Browser {
    fn start(
        net: &NetNamespaces,
        python: &Path,
        scratch: &ScratchDir,
        name: &str,
        address: &str,
    ) -> Self {
        let printed = ["out", "err"].map(|end| scratch.join(format!("{name}.{end}")));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mdns.py");
        let process = net.run_inside(1, || {
            let mut command = Command::new(python);
            Process::start(command.arg(script).arg(address), &printed[0], &printed[1]).unwrap()
        });
        let browser = Self { _process: process, printed };
        browser.waits_for("ready\n");
        browser
    }

    fn said(&self) -> String {
        self.printed.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
    }

    fn waits_for(&self, line: &str) {
        self.waits_until(line, |said| said.contains(line));
    }

    fn waits_until(&self, what: &str, is_said: impl Fn(&str) -> bool) {
        let start = std::time::Instant::now();
        while !is_said(&self.said()) {
            assert!(start.elapsed() < PATIENCE, "no `{}` in:\n{}", what.trim(), self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

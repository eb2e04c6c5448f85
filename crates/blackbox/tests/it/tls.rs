//! TLS and passwords with other implementations: openssl, curl, Python's ssl and a real snapclient;
//! and peers that attack the TLS handshake.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use aulos_blackbox::load::LoadTest;
use aulos_blackbox::net::NetNamespaces;
use aulos_blackbox::peer::{RESYNC, Snapclient, find_or_skip, lines_with, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_or_short, quiet_turn, shared_turn, text, wait_for};

const STATION: &str = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"demo://\"]\n";
const USERS: &str = "[[user]]\nname = \"kitchen\"\nrole = \"listen\"\npassword = \"pass of a kitchen\"\n\
    [[user]]\nname = \"anna\"\nrole = \"admin\"\npassword = \"pass of anna\"\n";

/// A server and its certificate.
struct House {
    server: AulosServer,
    scratch: ScratchDir,
}

impl House {
    fn start(name: &str, more: &str) -> Self {
        let scratch = ScratchDir::new(name).unwrap();
        let server = AulosServer::start(&scratch, &format!("{STATION}{more}")).unwrap();
        Self { server, scratch }
    }

    fn certificate(&self) -> PathBuf {
        self.scratch.join("state/tls/cert.pem")
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.server.http.port())
    }

    fn counters(&self) -> Value {
        let mut rpc = Rpc::connect(self.server.control);
        let login = json!({ "scheme": "Plain", "param": "anna:pass of anna" });
        rpc.call("Server.Authenticate", &login);
        rpc.call("Aulos.GetStatus", &json!({}))["counters"].clone()
    }

    /// A client in Python, with its OpenSSL.
    fn python(&self, python: &Path, seconds: f64, auth: &[&str]) -> Value {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls.py");
        let output = Command::new(python)
            .arg(script)
            .arg(self.server.stream.port().to_string())
            .arg(seconds.to_string())
            .arg(self.certificate())
            .args(auth)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&said)
            .unwrap_or_else(|_| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// One handshake by openssl, with this certificate as the only trusted one.
fn s_client(openssl: &Path, port: SocketAddr, certificate: &Path, more: &[&str]) -> Output {
    Command::new(openssl)
        .args(["s_client", "-connect", &port.to_string(), "-servername", "localhost"])
        .args(["-verify_hostname", "localhost", "-verify_return_error", "-CAfile"])
        .args([text(certificate)])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn curl(program: &Path, arguments: &[&str]) -> (String, Vec<u8>) {
    let output = Command::new(program)
        .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "20"])
        .args(["--write-out", "%{stderr}%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
}

#[test]
fn openssl_and_curl_find_tls_on_every_port_beside_plain_text() {
    let (Some(openssl), Some(curl_program)) = (find_or_skip("openssl"), find_or_skip("curl"))
    else {
        return;
    };
    let _turn = shared_turn();
    let house = House::start("tls-ports", "");
    let certificate = house.certificate();
    for port in [house.server.stream, house.server.control, house.server.http] {
        for version in ["-tls1_3", "-tls1_2"] {
            let output = s_client(&openssl, port, &certificate, &[version]);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{port} {version}: {said}");
            assert!(said.contains("Verification: OK"), "{port} {version}: {said}");
        }
        assert!(!s_client(&openssl, port, &certificate, &["-tls1_1"]).status.success());
    }
    let pinned = ["--cacert", text(&certificate)];
    let (code, body) = curl(&curl_program, &[&pinned[..], &[&house.url("/healthz")]].concat());
    assert_eq!((code.as_str(), &body[..]), ("200", &b"ok\n"[..]));
    let plain = format!("http://{}/healthz", house.server.http);
    assert_eq!(curl(&curl_program, &[&plain]).0, "200");
    // Endless audio, from a reactor.
    let (_, sound) = curl(&curl_program, &["-k", "--max-time", "2", &house.url("/listen/default")]);
    assert!(sound.starts_with(b"RIFF") && sound.len() > 200_000, "{} bytes", sound.len());
    house.server.stop().unwrap();
}

#[test]
fn a_player_with_tls_plays_beside_a_real_one_without() {
    let (Some(python), Some(snapclient)) = (find_or_skip("python3"), find_or_skip("snapclient"))
    else {
        return;
    };
    let _turn = shared_turn();
    let house = House::start("tls-beside", "");
    let port = house.server.stream.port();
    let mut real = Snapclient::start(&snapclient, port, &house.scratch, "real").unwrap();
    let heard = house.python(&python, long_or_short(60, 6).as_secs_f64(), &[]);
    assert_eq!((&heard["settings"], &heard["headers"]), (&json!(1), &json!(1)), "{heard}");
    assert!(heard["chunks"].as_u64().is_some_and(|chunks| chunks > 250), "{heard}");
    assert_eq!(heard["gaps"], 0, "{heard}");
    // Both clocks are this machine's; the rest is the uneven scheduling of a loaded machine.
    assert!(heard["offset_us"].as_f64().is_some_and(|offset| offset.abs() < 5_000.0), "{heard}");
    let sound = real.stop().unwrap();
    assert!(sound.iter().any(|byte| *byte != 0), "{} bytes of silence", sound.len());
    let log = real.log().unwrap();
    assert!(log.contains("Connected to"), "{log}");
    assert_eq!(lines_with(&log, &RESYNC[1..2]), Vec::<&str>::new());
    house.server.stop().unwrap();
}

#[test]
fn a_required_client_certificate_is_checked() {
    let (Some(python), Some(curl_program)) = (find_or_skip("python3"), find_or_skip("curl")) else {
        return;
    };
    let _turn = shared_turn();
    let house = House::start("tls-users", USERS);
    let basic = "a2l0Y2hlbjpwYXNzIG9mIGEga2l0Y2hlbg==";
    for auth in [&["Plain", "kitchen:pass of a kitchen"][..], &["Basic", basic]] {
        let heard = house.python(&python, 1.5, auth);
        assert!(heard["chunks"].as_u64().is_some_and(|chunks| chunks > 20), "{heard}");
    }
    for auth in [&[][..], &["Plain", "kitchen:wrong"]] {
        let heard = house.python(&python, 5.0, auth);
        // The Hello's number is 2.
        assert_eq!(heard["error"], json!([401, "Unauthorized", 2]), "{heard}");
        assert_eq!(heard["chunks"], 0, "{heard}");
        assert!(heard.get("closed").is_some(), "{heard}");
    }
    let ask = |user: &[&str], path: &str| {
        curl(&curl_program, &[&["-k"], user, &[&house.url(path)]].concat())
    };
    let kitchen = ["--user", "kitchen:pass of a kitchen"];
    assert_eq!(ask(&[], "/").0, "401");
    assert_eq!(ask(&["--user", "kitchen:x"], "/").0, "401");
    assert_eq!(ask(&kitchen, "/").0, "200");
    assert_eq!(ask(&[], "/listen/default").0, "401");
    let (_, sound) = ask(&[&kitchen[..], &["--max-time", "2"]].concat(), "/listen/default");
    assert!(sound.starts_with(b"RIFF") && sound.len() > 200_000, "{} bytes", sound.len());
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"Aulos.Reload"}"#;
    let (code, body) = ask(&[&kitchen[..], &["--data", call]].concat(), "/jsonrpc");
    assert!(code == "200" && body.windows(3).any(|part| part == b"403"), "{code}");
    let counters = house.counters();
    assert_eq!(
        (&counters["logins_failed"], &counters["sessions_cut_unauthorized"]),
        (&json!(2), &json!(2))
    );
    house.server.stop().unwrap();
}

#[test]
fn aulos_rpc_speaks_tls_and_logs_in() {
    let _turn = shared_turn();
    let house = House::start("tls-rpc", &format!("{USERS}[tls]\nrequire = true\n"));
    let login = house.scratch.join("login");
    std::fs::write(&login, "anna:pass of anna\n").unwrap();
    let run = |more: &[&str]| {
        Command::new(aulos_blackbox::server::binary())
            .args(["rpc", "Aulos.GetStatus", "--server"])
            .arg(format!("localhost:{}", house.server.control.port()))
            .args(more)
            .output()
            .unwrap()
    };
    let pinned = house.certificate();
    let tls = ["--tls-ca", text(&pinned)];
    let all = run(&[&tls[..], &["--login", text(&login)]].concat());
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stderr));
    assert!(String::from_utf8_lossy(&all.stdout).contains("\"stations\""));
    let nameless = run(&tls);
    assert_eq!(nameless.status.code(), Some(1), "{}", String::from_utf8_lossy(&nameless.stderr));
    assert_eq!(run(&["--login", text(&login)]).status.code(), Some(69));
    house.server.stop().unwrap();
}

#[test]
fn limits_per_address_hold_for_other_machines_on_every_port_and_not_for_this_one() {
    let _turn = shared_turn();
    let Ok(net) = NetNamespaces::new().inspect_err(|e| println!("{e}")) else {
        return skip("network namespaces");
    };
    let scratch = ScratchDir::new("tls-limits").unwrap();
    let limits = "[limits]\nsessions_per_address = 16\nconnections_per_second = 1\n\
        failed_logins_per_minute = 2\n";
    let config = scratch.join("aulos.toml");
    std::fs::write(&config, format!("{STATION}{USERS}{limits}")).unwrap();
    let server = net.run_inside(0, || {
        AulosServer::start_with(&scratch, |command| {
            command.arg("--config").arg(&config);
            for key in ["stream", "control", "http"] {
                command.args(["--set", &format!("listen.{key}=0.0.0.0:0")]);
            }
        })
        .unwrap()
    });
    let far = |port: SocketAddr| SocketAddr::from(([10, 77, 0, 1], port.port()));
    let login = |rpc: &mut Rpc, secret: &str| {
        let params = json!({ "scheme": "Plain", "param": format!("anna:{secret}") });
        rpc.answer("Server.Authenticate", &params)["error"]["code"].as_i64()
    };
    let answers = net.run_inside(1, || {
        let mut rpc = Rpc::connect(far(server.control));
        ["wrong", "wrong too", "pass of anna"].map(|secret| login(&mut rpc, secret))
    });
    assert_eq!(answers, [Some(401), Some(401), Some(403)]);
    let crowds: Vec<Vec<TcpStream>> = net.run_inside(1, || {
        let crowd = |port| (0..24).map(|_| TcpStream::connect(far(port)).unwrap()).collect();
        [server.stream, server.control, server.http].map(crowd).into()
    });
    net.run_inside(0, || {
        let mut rpc = Rpc::connect(server.control);
        assert_eq!(login(&mut rpc, "pass of anna"), None);
        let near: Vec<_> =
            (0..50).map(|_| TcpStream::connect(("127.0.0.1", server.stream.port()))).collect();
        let mut count = |names: [&str; 2]| {
            let counters = rpc.call("Aulos.GetStatus", &json!({}))["counters"].clone();
            names.iter().map(|name| counters[*name].as_u64().unwrap()).sum::<u64>()
        };
        // Some may have connected again after a second.
        wait_for("the stream port's refusals", CUT_WITHIN, || {
            count(["connections_refused_same_address", "connections_refused_too_fast"]) >= 6
        });
        wait_for("the other ports' refusals", CUT_WITHIN, || {
            count(["control_refused_same_address", "control_refused_too_fast"]) >= 12
        });
        assert!(count(["logins_failed", "logins_slowed"]) == 3);
        drop(near);
    });
    drop(crowds);
    server.stop().unwrap();
}

/// Longer than any handshake timeout of the server (5 s).
const CUT_WITHIN: Duration = Duration::from_secs(15);

#[test]
fn hostile_handshakes_are_closed_and_counted_without_loss_for_others() {
    let _turn = quiet_turn();
    let house = House::start("tls-hostile", "");
    let stream = house.server.stream;
    let load = LoadTest {
        server: stream,
        clients: 10,
        settle: Duration::from_secs(1),
        listen: long_or_short(60, 12),
    };
    let good = std::thread::spawn(move || load.run(|_| ()));
    let before = house.counters();
    let attackers: Vec<_> = [house.server.stream, house.server.control, house.server.http]
        .into_iter()
        .flat_map(|port| ATTACKS.map(|attack| (port, attack)))
        .map(|(port, attack)| std::thread::spawn(move || is_cut(port, attack)))
        .collect();
    let attacks = attackers.len() as u64;
    for attacker in attackers {
        assert!(attacker.join().unwrap(), "not cut within {CUT_WITHIN:?}");
    }
    // Two hundred that begin a handshake and stop.
    let silent: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = TcpStream::connect(stream).unwrap();
            socket.write_all(CLIENT_HELLO_START).unwrap();
            socket
        })
        .collect();
    let report = good.join().unwrap().unwrap();
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{:#}", report.json());
    let since = |names: &[&str]| -> u64 {
        let after = house.counters();
        let of = |all: &Value, name: &str| all[name].as_u64().unwrap();
        names.iter().map(|name| of(&after, name) - of(&before, name)).sum()
    };
    wait_for("every cut is counted", CUT_WITHIN, || {
        since(&[
            "sessions_cut_tls_failed",
            "sessions_cut_tls_unfinished",
            "control_cut_tls_failed",
            "control_cut_tls_unfinished",
        ]) == attacks + silent.len() as u64
    });
    drop(silent);
    house.server.stop().unwrap();
}

#[test]
fn tls_renegotiation_is_rejected() {
    let Some(openssl) = find_or_skip("openssl") else { return };
    let _turn = shared_turn();
    let house = House::start("tls-again", "");
    let mut peer = Command::new(openssl)
        .args(["s_client", "-tls1_2", "-connect", &house.server.stream.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = peer.stdin.take().unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        if input.write_all(b"R\n").is_err() {
            break;
        }
    }
    wait_for("its end", CUT_WITHIN, || peer.try_wait().unwrap().is_some());
    let counters = house.counters();
    let cut = |name: &str| counters[name].as_u64().unwrap();
    // openssl itself disconnects on a refusal; otherwise it is disconnected.
    assert_eq!(cut("tls_sessions"), 1, "{counters}");
    assert!(cut("sessions_cut_tls_failed") + cut("sessions_closed") >= 1, "{counters}");
    drop(input);
    house.server.stop().unwrap();
}

/// The header of a record with a handshake of 512 bytes, and of a `ClientHello`.
const CLIENT_HELLO_START: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3];

type Attack = fn(&mut TcpStream);

const ATTACKS: [Attack; 4] = [
    // Garbage after the first byte.
    |socket| drop(socket.write_all(&[&[0x16, 3, 1, 2, 0][..], &[0xA5; 512]].concat())),
    // A record longer than allowed (RFC 8446, 5.1), sent as far as possible.
    |socket| {
        drop(socket.write_all(&[0x16, 3, 3, 0xFF, 0xFF]));
        (0..64).for_each(|_| drop(socket.write_all(&[0; 4_096])));
    },
    // It stops half-way.
    |socket| drop(socket.write_all(CLIENT_HELLO_START)),
    // A handshake message of 16 MB, announced and begun.
    |socket| drop(socket.write_all(&[0x16, 3, 1, 0, 8, 1, 0xFF, 0xFF, 0xFF, 3, 3, 0, 0])),
];

/// Whether the server closes the connection.
fn is_cut(server: SocketAddr, attack: Attack) -> bool {
    let mut socket = TcpStream::connect(server).unwrap();
    attack(&mut socket);
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let start = Instant::now();
    let mut block = [0; 1_024];
    while start.elapsed() < CUT_WITHIN {
        match socket.read(&mut block) {
            Ok(0) => return true,
            Err(error)
                if !matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

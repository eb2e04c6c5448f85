//! Relays of a server that runs: they come and go while others go on without a lost packet.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use aulos_config::ResolvedConfig;
use aulos_server::exit::Exit;
use aulos_server::server;
use aulos_server::systemd::InheritedSockets;

use crate::common::{PATIENCE, Server, TWO_STATIONS, eventually, resolve};
use serde_json::{Value, json};

const PCMU: u8 = 0;
const PCMA: u8 = 8;
/// Packets that are under way at most: no buffer of the system overflows.
const WINDOW: usize = 20;

/// Somebody who sends RTP to a relay, and somebody who gets what it makes of it.
struct Line {
    sender: UdpSocket,
    dest: UdpSocket,
    next: u16,
    /// The sequence numbers that came out.
    heard: Vec<u16>,
}

impl Line {
    fn new() -> Self {
        let [sender, dest] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        dest.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { sender, dest, next: 1_000, heard: Vec::new() }
    }

    /// Where it wants its packets.
    fn dest(&self) -> SocketAddr {
        self.dest.local_addr().unwrap()
    }

    fn call(&self, server: &Server, name: &str) {
        self.sender.connect(listen(server, name)).unwrap();
    }

    fn send(&mut self) {
        let mut packet = vec![0x80, PCMU];
        packet.extend(self.next.to_be_bytes());
        packet.extend((u32::from(self.next) * 160).to_be_bytes());
        packet.extend(0x1234_5678_u32.to_be_bytes());
        packet.extend([0xff; 160]);
        self.sender.send(&packet).unwrap();
        self.next += 1;
    }

    /// The next packet: another encoding, as much of it.
    fn hear(&mut self) {
        let mut packet = [0; 2_048];
        let size = self.dest.recv(&mut packet).expect("a packet that was relayed");
        assert_eq!((size, packet[0], packet[1] & 0x7f), (172, 0x80, PCMA));
        self.heard.push(u16::from_be_bytes([packet[2], packet[3]]));
    }

    fn relay(&mut self, count: usize) {
        for _ in 0..count {
            self.send();
        }
        for _ in 0..count {
            self.hear();
        }
    }

    /// Everything that was sent came, once and in order.
    fn is_whole(&self) {
        assert_eq!(self.heard.len(), usize::from(self.next - 1_000));
        let gap = self.heard.windows(2).find(|two| two[1] != two[0].wrapping_add(1));
        assert_eq!(gap, None);
    }
}

fn table(name: &str, line: &Line, more: &str) -> String {
    format!(
        "[[relay]]\nname = \"{name}\"\nlisten = \"udp://127.0.0.1:0\"\nfrom = \"pcmu\"\n\
         to = \"pcma\"\ndest = \"udp://{}\"\nrtcp = false\n{more}\n",
        line.dest()
    )
}

fn wish(name: &str, line: &Line) -> Value {
    json!({
        "name": name, "listen": "udp://127.0.0.1:0", "from": "pcmu", "to": "pcma",
        "dest": format!("udp://{}", line.dest()), "rtcp": false, "hold_ms": 1_000,
    })
}

fn of(tables: &[String]) -> ResolvedConfig {
    resolve(&format!("{TWO_STATIONS}\n{}", tables.concat()))
}

fn call(server: &Server, method: &str, params: Value) -> Value {
    server.controller().call(method, params)
}

fn relays(server: &Server) -> Vec<Value> {
    let answer = call(server, "Aulos.GetRelays", json!({}));
    answer["result"]["relays"].as_array().unwrap().clone()
}

fn relay(server: &Server, name: &str) -> Value {
    let relays = relays(server);
    relays.into_iter().find(|relay| relay["name"] == name).expect("a relay of this name")
}

fn listen(server: &Server, name: &str) -> SocketAddr {
    let listen = relay(server, name)["listen"].clone();
    listen.as_str().unwrap().strip_prefix("udp://").unwrap().parse().unwrap()
}

fn names(server: &Server) -> Vec<(String, bool)> {
    let name = |relay: Value| {
        (relay["name"].as_str().unwrap().to_owned(), relay["added"].as_bool().unwrap())
    };
    relays(server).into_iter().map(name).collect()
}

/// Runs `change` while a line has packets under way; none of them may be lost.
fn meanwhile<T>(line: &mut Line, change: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    line.relay(WINDOW);
    let (before, result) = std::thread::scope(|scope| {
        let relaying = scope.spawn(|| {
            let before = line.heard.len();
            while !done.load(Ordering::Relaxed) && line.heard.len() < 40_000 {
                line.relay(WINDOW);
            }
            before
        });
        let result = change();
        done.store(true, Ordering::Relaxed);
        (relaying.join().unwrap(), result)
    });
    line.relay(WINDOW);
    assert!(line.heard.len() > before);
    line.is_whole();
    result
}

#[test]
fn a_relay_is_removed_and_another_added_while_a_third_continues() {
    let [mut desk, mut hall, mut attic] = [(); 3].map(|()| Line::new());
    let server = Server::of(of(&[table("desk", &desk, ""), table("hall", &hall, "")]));
    desk.call(&server, "desk");
    hall.call(&server, "hall");
    hall.relay(WINDOW);
    meanwhile(&mut desk, || {
        let removed = call(&server, "Aulos.RemoveRelay", json!({ "name": "hall" }));
        assert_eq!(removed["result"], json!({ "name": "hall" }));
        let added = call(&server, "Aulos.AddRelay", wish("attic", &attic));
        let listen = added["result"]["listen"].as_str().unwrap();
        attic.sender.connect(listen.strip_prefix("udp://").unwrap()).unwrap();
        attic.relay(WINDOW);
    });
    hall.is_whole();
    attic.is_whole();
    let wanted = [("desk".to_owned(), false), ("attic".to_owned(), true)];
    assert_eq!(names(&server), wanted);
    let sent = u64::from(desk.next - 1_000);
    eventually(|| relay(&server, "desk")["sent"] == sent);
    let status = call(&server, "Aulos.GetRelays", json!({ "streams": true }))["result"].clone();
    assert_eq!(status["streams"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&status["relays"][0]["lost"], &status["relays"][0]["late"]),
        (&json!(0), &json!(0))
    );
    let whole = call(&server, "Aulos.GetStatus", json!({}))["result"]["relays"].clone();
    let known: Vec<&Value> = whole.as_array().unwrap().iter().map(|relay| &relay["name"]).collect();
    assert_eq!(known, ["desk", "attic"]);
    // A host's name is looked up.
    let mut named = wish("cellar", &attic);
    named["dest"] = format!("udp://localhost:{}", attic.dest().port()).into();
    assert!(call(&server, "Aulos.AddRelay", named)["result"]["listen"].is_string());
    call(&server, "Aulos.RemoveRelay", json!({ "name": "cellar" }));
    // Without a relay there are no threads for them.
    for name in ["desk", "attic"] {
        call(&server, "Aulos.RemoveRelay", json!({ "name": name }));
    }
    let nothing = json!({ "relays": [], "threads": [] });
    assert_eq!(call(&server, "Aulos.GetRelays", json!({}))["result"], nothing);
}

#[test]
fn what_a_relay_still_holds_is_sent_when_it_is_removed() {
    let mut line = Line::new();
    let server = Server::start();
    assert!(call(&server, "Aulos.AddRelay", wish("desk", &line)).get("error").is_none());
    line.call(&server, "desk");
    line.relay(WINDOW);
    // One is missing, so that the next ones wait.
    line.next += 1;
    line.send();
    line.send();
    let sent = WINDOW as u64 + 2;
    eventually(|| relay(&server, "desk")["received"] == sent);
    call(&server, "Aulos.RemoveRelay", json!({ "name": "desk" }));
    line.hear();
    line.hear();
    let last = line.heard[WINDOW - 1];
    assert_eq!(line.heard[WINDOW..], [last.wrapping_add(2), last.wrapping_add(3)]);
}

#[test]
fn all_problems_of_an_invalid_relay_are_reported() {
    let line = Line::new();
    let server = Server::of(of(&[table("desk", &line, "")]));
    let error = |params: Value| {
        let answer = call(&server, "Aulos.AddRelay", params);
        let error = answer["error"].clone();
        (error["code"].as_i64().unwrap(), error["data"].as_str().unwrap().to_owned())
    };
    let (code, why) = error(json!({
        "listen": "127.0.0.1:0", "from": "pcmx", "dest": "udp://192.0.2.7:0", "hold": 5,
    }));
    assert_eq!(code, -32_602);
    for part in [
        "`relay` has no `name` (as in name = \"desk\")",
        "it must begin with udp:// or trunk:// (as in listen = \"udp://0.0.0.0:6000-6999\")",
        "unknown codec `pcmx`; did you mean `pcmu`?",
        "`relay` has no `to` (as in to = \"pcma\")",
        "packets cannot be sent to port 0 (a port from 1 to 65535)",
        "`hold`",
    ] {
        assert!(why.contains(part), "{part} is not in: {why}");
    }
    let with = |key: &str, value: &str| {
        let mut params = wish("attic", &line);
        params[key] = value.into();
        error(params)
    };
    // A name that nobody can know (RFC 6761, 6.4).
    let (code, why) = with("dest", "udp://attic.invalid:5004");
    let named = why.contains("dest attic.invalid: ") && why.contains("write the address");
    assert_eq!((code, named), (-32_603, true), "{why}");
    let (code, why) = with("name", "desk");
    assert_eq!((code, why.contains("duplicate relay name `desk`")), (-32_603, true), "{why}");
    // A port that somebody else has, and one of our own.
    for taken in [line.dest(), listen(&server, "desk")] {
        let (code, why) = with("listen", &format!("udp://{taken}"));
        let hint = why.contains(&format!("ss -ulpn 'sport = :{}'", taken.port()));
        assert_eq!((code, hint), (-32_603, true), "{why}");
    }
    let nobody = call(&server, "Aulos.RemoveRelay", json!({ "name": "attic" }));
    assert_eq!(nobody["error"]["data"], "there is no relay `attic`");
    assert_eq!(names(&server), [("desk".to_owned(), false)]);
}

#[test]
fn a_reload_changes_only_what_differs() {
    let [mut desk, mut hall, mut attic] = [(); 3].map(|()| Line::new());
    let tables = [table("desk", &desk, ""), table("hall", &hall, "")];
    let server = Server::of(of(&tables));
    let reload = |tables: &[String]| {
        let next = ResolvedConfig { state_dir: server.state_dir.clone(), ..of(tables) };
        *server.next.lock().unwrap() = Ok(next);
        let mut done = call(&server, "Aulos.Reload", json!({}))["result"]["relays"].take();
        done.as_object_mut().unwrap().retain(|_, names| *names != json!([]));
        done
    };
    desk.call(&server, "desk");
    hall.call(&server, "hall");
    hall.relay(WINDOW);
    call(&server, "Aulos.AddRelay", wish("attic", &attic));
    attic.call(&server, "attic");
    assert_eq!(reload(&tables), json!({}));
    // On the port that it has: the old one has to be gone from there.
    let port = listen(&server, "hall");
    let other = table("hall", &hall, "hold_ms = 20").replace("127.0.0.1:0", &port.to_string());
    let cellar = table("cellar", &hall, "");
    let tables = [tables[0].clone(), other, cellar];
    let done = meanwhile(&mut desk, || reload(&tables));
    assert_eq!(done, json!({ "added": ["cellar"], "changed": ["hall"] }));
    assert_eq!(relay(&server, "hall")["received"], 0);
    hall.relay(WINDOW);
    assert_eq!(hall.heard.len(), 2 * WINDOW);
    attic.relay(WINDOW);
    attic.is_whole();
    // What cannot be had leaves what was there before, and is said.
    let guard = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = guard.local_addr().unwrap().to_string();
    let wrong = table("hall", &hall, "").replace("127.0.0.1:0", &taken);
    let done = meanwhile(&mut desk, || reload(&[tables[0].clone(), wrong]));
    drop(guard);
    let why = done["failed"][0].as_str().unwrap();
    assert!(why.starts_with(&format!("relay `hall`: udp://{taken}: ")), "{why}");
    assert_eq!(done["removed"], json!(["cellar"]));
    let running: Vec<String> = names(&server).into_iter().map(|(name, _)| name).collect();
    assert_eq!(running, ["desk", "attic", "hall"]);
    // A call's is the file's from now on, and goes with it.
    let tables = [tables[0].clone(), table("attic", &attic, "")];
    let done = reload(&tables);
    assert_eq!(done, json!({ "changed": ["attic"], "removed": ["hall"] }));
    assert_eq!(reload(&tables[..1]), json!({ "removed": ["attic"] }));
    desk.relay(WINDOW);
    desk.is_whole();
}

#[test]
fn a_used_port_fails_the_start() {
    let line = Line::new();
    let taken = line.sender.local_addr().unwrap();
    let text = table("desk", &line, "").replace("127.0.0.1:0", &taken.to_string());
    let resolved = of(&[text]);
    let bound = server::bind(&resolved.listen, &mut InheritedSockets::default()).unwrap();
    let failure = bound.with_relays(&resolved.relays).unwrap_err();
    assert_eq!(failure.exit, Exit::Unavailable);
    let start = format!("relay `desk`: udp://{taken}: ");
    assert!(failure.message.starts_with(&start), "{}", failure.message);
    let hint = format!("\n    hint: ss -ulpn 'sport = :{}'", taken.port());
    assert!(failure.message.contains(&hint), "{}", failure.message);
}

//! A configuration reload during playback: stations that do not change are not affected.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use aulos_blackbox::client::{ListenerClient, ListenerStats};
use aulos_blackbox::process_usage::{descriptors, read};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_or_short, shared_turn, soak, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);
const HOUSE: &str = "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n";

/// The other station, as it is added, and as it is changed.
const OTHER: [&str; 2] = [
    "[[station]]\nname = \"other\"\nsources = [\"tone://?hz=440\"]\n",
    "[[station]]\nname = \"other\"\ncodec = \"pcm\"\nbuffer_ms = 700\nsources = [\"demo://\"]\n",
];

/// A server and its configuration file.
struct House {
    scratch: ScratchDir,
    server: AulosServer,
    reloads: usize,
}

impl House {
    fn start(scratch: ScratchDir) -> Self {
        let server = AulosServer::start(&scratch, HOUSE).unwrap();
        Self { scratch, server, reloads: 0 }
    }

    fn write(&self, config: &str) {
        std::fs::write(self.scratch.join("aulos.toml"), config).unwrap();
    }

    fn hang_up(&self) {
        let id = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(id, Signal::HUP).unwrap();
    }

    /// Reloads another configuration by SIGHUP; returns the log message.
    fn turn_into(&mut self, config: &str) -> String {
        self.write(config);
        self.hang_up();
        self.reloads += 1;
        self.log_line("configuration read again", self.reloads)
    }

    /// The `count`-th line with these words.
    fn log_line(&self, words: &str, count: usize) -> String {
        let mut found = None;
        wait_for(words, PATIENCE, || {
            let log = self.server.printed().unwrap();
            // An incomplete line is ignored.
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            found =
                whole.lines().filter(|line| line.contains(words)).nth(count - 1).map(Into::into);
            found.is_some()
        });
        found.unwrap()
    }
}

/// Clients on a separate thread, until their statistics are requested.
pub(crate) struct Listeners {
    stop: Arc<AtomicBool>,
    /// The smallest number of chunks of a client since its last codec header.
    fewest: Arc<AtomicU64>,
    thread: JoinHandle<Vec<ListenerStats>>,
}

impl Listeners {
    pub(crate) fn start(server: &AulosServer, ids: std::ops::Range<usize>) -> Self {
        let mut clients: Vec<ListenerClient> =
            ids.map(|id| ListenerClient::connect(server.stream, id).unwrap()).collect();
        let (stop, fewest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, shown) = (Arc::clone(&stop), Arc::clone(&fewest));
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                clients.iter_mut().for_each(|client| client.read(&mut buffer, &mut |_, _| ()));
                let fewest = clients.iter().map(|client| client.stats.chunks).min();
                shown.store(fewest.unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
            clients.into_iter().map(|client| client.stats).collect()
        });
        Self { stop, fewest, thread }
    }

    /// Waits until each client has received more.
    pub(crate) fn go_on(&self) {
        let before = self.fewest.load(Ordering::Relaxed);
        wait_for("sound", PATIENCE, || self.fewest.load(Ordering::Relaxed) > before + 3);
    }

    pub(crate) fn end(self) -> Vec<ListenerStats> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn changes_of_one_station_do_not_affect_listeners_of_another() {
    let _turn = shared_turn();
    let (clients, rounds) = if soak() { (100, 100) } else { (20, 20) };
    let mut house = House::start(ScratchDir::new("reload").unwrap());
    let crowd = Listeners::start(&house.server, 0..clients);
    crowd.go_on();
    // One more client moves to the other station whenever there is one.
    let wanderer = Listeners::start(&house.server, 9_000..9_001);
    wanderer.go_on();
    let mut rpc = Rpc::connect(house.server.control);
    let group = rpc.group_of("02:00:00:00:23:28").unwrap()["id"].clone();
    let pause = long_or_short(1, 0);
    let mut accounts = Vec::new();
    for _ in 0..rounds {
        let line = house.turn_into(&format!("{HOUSE}{}", OTHER[0]));
        assert!(line.ends_with("added other"), "{line}");
        rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": "other" }));
        wanderer.go_on();
        let line = house.turn_into(&format!("{HOUSE}{}", OTHER[1]));
        assert!(line.ends_with("changed other"), "{line}");
        wanderer.go_on();
        let line = house.turn_into(HOUSE);
        assert!(line.ends_with("removed other"), "{line}");
        wanderer.go_on();
        std::thread::sleep(pause);
        let id = house.server.id();
        accounts.push((read(id).unwrap(), descriptors(id).unwrap()));
    }
    crowd.go_on();
    let (stayed, wandered) = (crowd.end(), wanderer.end());
    for heard in &stayed {
        assert_eq!((heard.headers, heard.gaps, heard.early), (1, 0, 0), "{heard:?}");
        assert!(!heard.cut && heard.strange == 0, "{heard:?}");
    }
    // To the other station, its change, and back again: each time a codec header, and a timeline
    // without a gap until the next.
    let [heard] = &wandered[..] else { panic!("{wandered:?}") };
    assert_eq!((heard.headers, heard.gaps), (1 + 3 * rounds, 0), "{heard:?}");
    assert!(!heard.cut && heard.strange == 0, "{heard:?}");
    let [(first, files), .., (last, files_left)] = &accounts[..] else { panic!("{accounts:?}") };
    println!("{rounds} rounds: {first:?}, {files} files; then {last:?}, {files_left} files");
    assert_eq!((first.threads, files), (last.threads, files_left));
    house.server.stop().unwrap();
}

#[test]
fn an_invalid_configuration_changes_nothing_and_is_reported_with_its_position() {
    let _turn = shared_turn();
    let mut house = House::start(ScratchDir::new("broken").unwrap());
    let crowd = Listeners::start(&house.server, 0..2);
    crowd.go_on();
    house.write(&format!("{HOUSE}codec = \"mp4\"\n{}", OTHER[0]));
    house.hang_up();
    let line = house.log_line("aulos.toml:4:9: ", 1);
    let mut rpc = Rpc::connect(house.server.control);
    let answer = rpc.answer("Aulos.Reload", &Value::Null);
    let told = answer["error"]["data"].as_str().unwrap();
    assert!(line.ends_with(told.lines().next().unwrap()), "{told} and {line}");
    assert!(rpc.stream("other").is_none() && rpc.stream("default").is_some());
    // Once corrected, the file is loaded; an API call has the same effect as the signal.
    house.write(&format!("[listen]\nhttp = 1\n{HOUSE}{}", OTHER[0]));
    let done = rpc.call("Aulos.Reload", &json!({}));
    // The ports of this server were given on its command line, which takes precedence over the
    // file.
    let wanted = json!({ "added": ["other"], "changed": [], "adjusted": [], "removed": [], "settings": [],
        "needs_restart": [], "failed": [],
        "relays": { "added": [], "changed": [], "removed": [], "failed": [] } });
    assert_eq!(done, wanted);
    house.write(&format!("[http]\ndoc_root = \"/nowhere\"\n{HOUSE}"));
    let done = rpc.call("Aulos.Reload", &json!({}));
    assert_eq!(done["removed"], json!(["other"]));
    assert_eq!(done["needs_restart"], json!(["http.doc_root"]));
    crowd.go_on();
    for heard in crowd.end() {
        assert_eq!((heard.headers, heard.gaps, heard.cut), (1, 0, false), "{heard:?}");
    }
    house.reloads = 2;
    assert!(house.turn_into(HOUSE).ends_with("nothing has changed"));
    house.server.stop().unwrap();
}

/// The socket of systemd, as `NOTIFY_SOCKET` names it.
struct Notifications(UnixDatagram);

impl Notifications {
    fn new(scratch: &ScratchDir) -> Self {
        let socket = UnixDatagram::bind(scratch.join("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn hear(&self) -> String {
        let mut block = [0; 1_024];
        let count = self.0.recv(&mut block).unwrap();
        String::from_utf8_lossy(&block[..count]).into_owned()
    }
}

#[test]
fn systemd_is_notified_of_start_and_end_of_a_reload() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("notify").unwrap();
    let systemd = Notifications::new(&scratch);
    std::fs::write(scratch.join("aulos.toml"), HOUSE).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(scratch.join("aulos.toml"));
        command.env("NOTIFY_SOCKET", scratch.join("notify"));
    })
    .unwrap();
    assert_eq!(systemd.hear(), "READY=1\nSTATUS=1 station(s): default");
    let house = House { scratch, server, reloads: 0 };
    house.write(&format!("{HOUSE}{}", OTHER[0]));
    house.hang_up();
    assert!(systemd.hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(systemd.hear(), "READY=1\nSTATUS=2 station(s): default, other");
    house.write("nonsense");
    house.hang_up();
    assert!(systemd.hear().starts_with("RELOADING=1\n"));
    let told = systemd.hear();
    assert!(told.starts_with("READY=1\nSTATUS=2 station(s): default, other; "), "{told}");
    assert!(told.contains("aulos.toml:1:"), "{told}");
    house.server.stop().unwrap();
    assert_eq!(systemd.hear(), "STOPPING=1");
}

#[test]
fn systemd_gets_watchdog_notifications_until_the_server_ends() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("watchdog").unwrap();
    let systemd = Notifications::new(&scratch);
    std::fs::write(scratch.join("aulos.toml"), HOUSE).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(scratch.join("aulos.toml"));
        command.env("NOTIFY_SOCKET", scratch.join("notify"));
        command.env("WATCHDOG_USEC", "1000000");
    })
    .unwrap();
    assert!(systemd.hear().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(systemd.hear(), "WATCHDOG=1");
    }
    server.stop().unwrap();
    // Whatever is still in transit, the end comes last, and nothing after it.
    while systemd.hear() != "STOPPING=1" {}
    systemd.0.set_nonblocking(true).unwrap();
    assert!(systemd.0.recv(&mut [0; 16]).is_err());
}

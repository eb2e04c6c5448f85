//! A real mosquitto, and what its clients see.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;

use crate::{text, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// A broker on loopback, which stores nothing on the disk.
pub(super) struct Mosquitto {
    program: PathBuf,
    pub(super) folder: ScratchDir,
    more: String,
    process: Option<Process>,
    pub(super) port: u16,
    /// Arguments by which its own clients reach it.
    client: Vec<String>,
}

impl Mosquitto {
    /// Starts one that everybody may use; `None` where there is no mosquitto.
    pub(super) fn start() -> Option<Self> {
        Self::start_with(|_| ("allow_anonymous true\n".to_owned(), Vec::new()))
    }

    /// Starts one with these lines of configuration and arguments of its clients, made for its
    /// folder.
    pub(super) fn start_with(
        more: impl FnOnce(&ScratchDir) -> (String, Vec<String>),
    ) -> Option<Self> {
        // Debian has it where only root's PATH leads.
        let debian = Path::new("/usr/sbin/mosquitto");
        let found = || find_or_skip("mosquitto");
        let program = if debian.is_file() { Some(debian.to_path_buf()) } else { found() }?;
        let folder = ScratchDir::new("mosquitto").unwrap();
        let port = free_port().unwrap();
        let (more, client) = more(&folder);
        let mut broker = Self { program, folder, more, process: None, port, client };
        broker.restart();
        Some(broker)
    }

    /// Kills it as `kill -9` does.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again on its port, without what it had retained.
    pub(super) fn restart(&mut self) {
        self.kill();
        let config = self.folder.join("mosquitto.conf");
        let lines = format!("listener {} 127.0.0.1\n{}user root\n", self.port, self.more);
        fs::write(&config, lines).unwrap();
        let printed = ["out", "err"].map(|name| self.folder.join(name));
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&config);
        let mut process = Process::start(&mut command, &printed[0], &printed[1]).unwrap();
        wait_for("mosquitto", PATIENCE, || {
            let ended = process.ended().unwrap();
            assert!(ended.is_none(), "{ended:?} {}", fs::read_to_string(&printed[1]).unwrap());
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
        });
        self.process = Some(process);
    }

    /// Subscribes to everything.
    pub(super) fn subscribe(&self) -> Subscriber {
        let scratch = ScratchDir::new("mosquitto_sub").unwrap();
        let out = scratch.join("out");
        let mut command = self.command("mosquitto_sub");
        command.args(["-t", "#", "-F", "%r %t %p"]);
        let process = Process::start(&mut command, &out, &scratch.join("err")).unwrap();
        Subscriber { _process: process, _scratch: scratch, out }
    }

    /// Publishes a message for each payload.
    pub(super) fn publish(&self, topic: &str, payloads: &[&str]) {
        let mut command = self.command("mosquitto_pub");
        command.args(["-t", topic, "-l"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines: String = payloads.iter().map(|payload| format!("{payload}\n")).collect();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(find_or_skip(program).unwrap());
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]).args(&self.client);
        command
    }
}

/// What `mosquitto_sub` has printed.
pub(super) struct Subscriber {
    _process: Process,
    _scratch: ScratchDir,
    out: PathBuf,
}

impl Subscriber {
    /// Every message: whether it was retained, its topic and payload.
    pub(super) fn messages(&self) -> Vec<(bool, String, String)> {
        let text = fs::read_to_string(&self.out).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let parse = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            (word() == "1", word(), word())
        };
        whole.lines().map(parse).collect()
    }

    /// The last payload of each topic.
    pub(super) fn last(&self) -> BTreeMap<String, String> {
        self.messages().into_iter().map(|(_, topic, payload)| (topic, payload)).collect()
    }

    /// Waits for a payload of a topic.
    pub(super) fn wait(&self, topic: &str, payload: &str) {
        wait_for(&format!("{topic} {payload}"), PATIENCE, || {
            self.last().get(topic).is_some_and(|last| last == payload)
        });
    }
}

/// A certificate for 127.0.0.1 and its key; `None` without openssl.
pub(super) fn certificate(scratch: &ScratchDir) -> Option<[PathBuf; 2]> {
    let [cert, key] = ["broker.pem", "broker.key"].map(|name| scratch.join(name));
    let done = Command::new(find_or_skip("openssl")?)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=broker"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-out", text(&cert)])
        .args(["-keyout", text(&key)])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some([cert, key])
}

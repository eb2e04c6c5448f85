//! The machine on which the commands of a page run: a folder with what they name, an address of the
//! loopback network, and a command `aulos` that ends what runs until it is stopped.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use aulos_blackbox::peer::skip;
use aulos_blackbox::scratch::ScratchDir;
use rustix::process::{Pid, Signal, kill_process_group};

use super::blocks::Block;

/// Longer than any block needs on a busy machine; what hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Folders that pages name by their absolute path: below the page's folder here.
const FOLDERS: [&str; 6] = ["/etc/", "/run/", "/srv/", "/tmp/", "/usr/local/", "/var/"];

/// Hosts that pages name: the page's address here.
const HOSTS: [&str; 6] =
    ["0.0.0.0", "127.0.0.1", "192.0.2.7", "kitchen.local", "living-room.local", "localhost"];

/// A web radio, which is a file here.
const RADIO: &str = "https://radio.example/live";

/// Folders that configurations and commands write to.
const DIRECTORIES: [&str; 6] =
    ["run/aulos", "srv/raw", "srv/rec", "tmp", "var/lib/aulos", "var/log/aulos"];

/// Files with a secret that configurations name.
const SECRETS: [&str; 13] = [
    "etc/aulos/barn",
    "etc/aulos/dj",
    "etc/aulos/home",
    "etc/aulos/mqtt",
    "etc/aulos/phone.token",
    "etc/aulos/prometheus.token",
    "etc/aulos/push",
    "etc/aulos/s3",
    "etc/aulos/srt",
    "run/credentials/aulos.service/dj",
    "run/secrets/board",
    "run/secrets/complaints",
    "run/secrets/kitchen",
];

/// Other files with their contents: a seed of NATS with its checksum, which is no secret, and what
/// snapserver leaves.
const FILES: [(&str, &str); 3] = [
    ("etc/aulos/nats.nk", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n"),
    ("etc/snapserver.conf", "[stream]\nsource = pipe:///tmp/snapfifo?name=default\n"),
    ("var/lib/snapserver/server.json", SNAPSERVER_STATE),
];

const SNAPSERVER_STATE: &str = r#"{"ConfigVersion": 2, "Groups": [{
    "id": "g1", "muted": false, "name": "Downstairs", "stream_id": "default", "clients": [{
        "id": "00:16:3e:12:34:56", "lastSeen": {"sec": 1700000000, "usec": 0},
        "config": {"instance": 1, "latency": 0, "name": "Kitchen",
            "volume": {"muted": false, "percent": 60}},
        "host": {"arch": "x86_64", "ip": "192.0.2.8", "mac": "00:16:3e:12:34:56",
            "name": "kitchen", "os": "Debian"},
        "snapclient": {"name": "Snapclient", "protocolVersion": 2, "version": "0.27.0"}
    }]
}]}"#;

/// Sound files, with the one that they are a copy of.
const SOUNDS: [(&str, &str); 10] = [
    ("in.wav", "song.wav"),
    ("music/one.flac", "song.flac"),
    ("music/two.flac", "song.flac"),
    ("song.flac", "song.flac"),
    ("srv/bells/dinner.wav", "song.wav"),
    ("srv/bells/door.wav", "song.wav"),
    ("srv/bells/timer.wav", "song.wav"),
    ("srv/jingles/name.wav", "song.wav"),
    ("srv/loop.flac", "song.flac"),
    ("srv/music/reserve.flac", "song.flac"),
];

/// Programs of the reader that do nothing here.
const PROGRAMS: [&str; 6] = [
    "bin/gpioset",
    "bin/mail",
    "usr/local/bin/alarm",
    "usr/local/bin/alarm-mail",
    "usr/local/bin/radio-play",
    "usr/local/bin/relay",
];

/// Programs that commands may lack, because distributions have them in packages of their own; their
/// blocks are skipped then.
const PEERS: [&str; 7] =
    ["curl", "ffmpeg", "jq", "openssl", "promtool", "snapclient", "snapserver"];

/// Files that all pages share.
#[derive(Debug)]
pub(super) struct Fixtures {
    folder: ScratchDir,
}

impl Fixtures {
    pub(super) fn new() -> Self {
        let folder = ScratchDir::new("book").unwrap();
        fs::write(folder.join("song.wav"), wave(48_000 * 2)).unwrap();
        let made = Command::new(env!("CARGO_BIN_EXE_aulos"))
            .args(["normalize", "--quiet", "song.wav", "song.flac"])
            .current_dir(&*folder)
            .status()
            .unwrap();
        assert!(made.success());
        Self { folder }
    }
}

/// Two channels of 16 bits and 48 kHz: a tone that swells.
fn wave(frames: u32) -> Vec<u8> {
    let length = frames * 4;
    let mut out = Vec::new();
    out.extend(b"RIFF");
    out.extend((length + 36).to_le_bytes());
    out.extend(b"WAVEfmt \x10\0\0\0\x01\0\x02\0");
    out.extend(48_000_u32.to_le_bytes());
    out.extend(192_000_u32.to_le_bytes());
    out.extend(b"\x04\0\x10\0data");
    out.extend(length.to_le_bytes());
    for frame in 0..frames {
        let time = f64::from(frame) / 48_000.0;
        let gain = 0.2 + 0.1 * (time * 3.0).sin();
        #[expect(clippy::cast_possible_truncation, reason = "below 0.3 of full scale")]
        let sample = (gain * (time * 440.0 * std::f64::consts::TAU).sin() * 32_767.0) as i16;
        out.extend(sample.to_le_bytes());
        out.extend(sample.to_le_bytes());
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Skipped,
}

#[derive(Debug)]
pub(super) struct PageMachine<'a> {
    folder: ScratchDir,
    /// An address of the loopback network, so that the usual ports are free.
    address: String,
    fixtures: &'a Fixtures,
}

impl<'a> PageMachine<'a> {
    pub(super) fn new(number: usize, fixtures: &'a Fixtures) -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let machine = Self {
            folder: ScratchDir::new("page").unwrap(),
            address: format!("127.{}.{high}.{low}", 32 + number % 200),
            fixtures,
        };
        machine.furnish();
        machine
    }

    /// Checks a configuration, and keeps it as `aulos.toml` and, if its first line is a comment
    /// with a path, under that name.
    ///
    /// A tutorial names nothing that its reader does not have, so its configurations have no
    /// warnings.
    pub(super) fn check(
        &self,
        block: &Block,
        below: Option<&str>,
        is_tutorial: bool,
    ) -> Result<Outcome, String> {
        // A feature of the build.
        if block.content.contains("upload =") && !cfg!(feature = "s3") {
            skip("s3");
            return Ok(Outcome::Skipped);
        }
        for command in block.first() {
            self.bash(&self.on_this_machine(command))?;
        }
        let header = below.map(|header| format!("{header}\n")).unwrap_or_default();
        let name = if header.contains("[[station]]") { "name = \"page\"\n" } else { "" };
        let text = self.on_this_machine(&block.content);
        fs::write(self.folder.join("aulos.toml"), format!("{header}{name}{text}")).unwrap();
        let path = text.lines().next().and_then(|line| line.strip_prefix("# "));
        if let Some(path) = path.filter(|path| path.ends_with(".toml") && !path.contains(' ')) {
            let path = self.folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &text).unwrap();
        }
        let judged =
            if is_tutorial { " && aulos check aulos.toml 2>&1 | grep -q warnings=0" } else { "" };
        self.bash(&format!("aulos check aulos.toml{judged}"))
    }

    /// Runs commands after what their comment asks for.
    pub(super) fn run(&self, block: &Block) -> Result<Outcome, String> {
        let first: String = block.first().map(|command| format!("{command}\n")).collect();
        self.bash(&self.on_this_machine(&(first + &block.content)))
    }

    /// Stops the server of the page, if there is one.
    pub(super) fn stop_server(&self) -> Result<(), String> {
        self.bash("aulos stop-server").map(drop)
    }

    fn furnish(&self) {
        let folder = &self.folder;
        let create = |name: &str| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        for name in DIRECTORIES {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in SECRETS {
            fs::write(create(name), "a secret of 24 characters\n").unwrap();
        }
        for (name, content) in FILES {
            fs::write(create(name), self.on_this_machine(content)).unwrap();
        }
        for (name, sound) in SOUNDS {
            fs::copy(self.fixtures.folder.join(sound), create(name)).unwrap();
        }
        // Links, because a program that this process has just written may still be open for writing
        // in a child of another thread, and cannot be started then.
        for name in PROGRAMS {
            symlink("/bin/true", create(name)).unwrap();
        }
        let commands = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/book/commands.sh");
        for name in ["bin/aulos", "bin/snapclient"] {
            symlink(&commands, create(name)).unwrap();
        }
        symlink(super::root().join("contrib"), folder.join("contrib")).unwrap();
    }

    /// The text with this machine's folders and address in place of those of the page.
    fn on_this_machine(&self, text: &str) -> String {
        let folder = self.folder.to_str().unwrap();
        let (mut out, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            // A folder of a URL, such as http://host/run/, is none of this machine.
            let in_word = out.ends_with(|last: char| last.is_alphanumeric() || last == '.');
            if let Some(after) = rest.strip_prefix(RADIO) {
                write!(out, "file://{folder}/song.flac").unwrap();
                rest = after;
                continue;
            }
            let host = HOSTS.iter().find(|host| !in_word && rest.starts_with(**host));
            if let Some(host) = host {
                out += &self.address;
                rest = &rest[host.len()..];
                continue;
            }
            if !in_word && FOLDERS.iter().any(|name| rest.starts_with(name)) {
                out += folder;
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
        out
    }

    fn bash(&self, commands: &str) -> Result<Outcome, String> {
        let (out, path) = (self.folder.join("block.out"), std::env::var("PATH").unwrap());
        let file = File::create(&out).unwrap();
        let mut child = Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(&*self.folder)
            .env("PATH", format!("{}:{path}", self.folder.join("bin").display()))
            .env("HOME", &*self.folder)
            .env("XDG_RUNTIME_DIR", self.folder.join("tmp"))
            .env_remove("XDG_STATE_HOME")
            .env("BACKUP", "a secret of 24 characters")
            .env("BOARD_TOKEN", "a token of 24 characters")
            .env("BOOK_AULOS", env!("CARGO_BIN_EXE_aulos"))
            .env("BOOK_ADDRESS", &self.address)
            .env("BOOK_FOLDER", &*self.folder)
            .env("BOOK_PATH", path)
            .env("BOOK_ROOT", super::root())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0)
            .spawn()
            .unwrap();
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if started.elapsed() > PATIENCE {
                kill_process_group(Pid::from_child(&child), Signal::KILL).ok();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        judge(status, &out)
    }
}

/// Whether the commands succeeded, or a program of another project is missing.
fn judge(status: Option<ExitStatus>, out: &Path) -> Result<Outcome, String> {
    let said = String::from_utf8_lossy(&fs::read(out).unwrap()).into_owned();
    let missing = PEERS.iter().find(|peer| said.contains(&format!("{peer}: command not found")));
    match (status, missing) {
        (None, _) => Err(format!("it did not end in {PATIENCE:?}: {said}")),
        (Some(status), _) if status.success() => Ok(Outcome::Done),
        (Some(status), Some(peer)) if status.code() == Some(127) => {
            skip(peer);
            Ok(Outcome::Skipped)
        }
        (Some(status), _) => Err(format!("{status}: {said}")),
    }
}

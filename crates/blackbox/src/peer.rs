//! Other programs: finding, starting and terminating them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::ports::free_port;
use crate::scratch::ScratchDir;

/// The path of a program, also of one in the tests' python venv, or a message that the test is
/// skipped without it.
///
/// The message bypasses the test harness's capture, so that a skip is always visible.
#[must_use]
pub fn find_or_skip(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let venv = std::env::var_os("AULOS_TEST_VENV").map(|venv| PathBuf::from(venv).join("bin"));
    let found = std::env::split_paths(&paths)
        .chain(venv)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file());
    if found.is_none() {
        skip(program);
    }
    found
}

/// Prints that a test is skipped because `what` is missing.
pub fn skip(what: &str) {
    // Without standard error the message cannot be printed.
    drop(io::stderr().lock().write_all(format!("\nskipped: no {what}\n").as_bytes()));
}

/// A child process that does not outlive this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts it without input, and with its output in the given files.
    ///
    /// # Errors
    /// If it cannot be started, or a file cannot be created.
    pub fn start(command: &mut Command, out: &Path, err: &Path) -> io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(out)?)
            .stderr(File::create(err)?)
            .spawn()?;
        Ok(Self { child, name })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status; `None` while it runs.
    ///
    /// # Errors
    /// The system's error.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// `TimedOut` if it has not ended by then; it keeps running.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                let text = format!("{} (pid {}) did not end in {limit:?}", self.name, self.id());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Terminates the process (SIGTERM) and waits.
    ///
    /// # Errors
    /// `TimedOut` if it has not ended by then; it is killed when this value is dropped.
    pub fn terminate(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        self.wait(limit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; errors cannot be handled here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A real `snapclient` that writes what it plays into a file, in real time.
#[derive(Debug)]
pub struct Snapclient {
    process: Process,
    /// Raw frames: 2 bytes a sample for 16 bits, 4 for 24.
    pub sound: PathBuf,
    log: PathBuf,
}

/// Messages of `snapclient` when the chunks' times shifted and it had to resync (0.26).
pub const RESYNC: [&str; 5] =
    ["->full() &&", "abs(age >", "age > 0", "dropping old chunks", "Oldest chunk too old"];

/// Messages of `snapclient` when it had nothing to play. Normal before the first chunk, a gap
/// afterwards.
pub const STARVED: [&str; 2] = ["Failed to get chunk", "No chunks available"];

impl Snapclient {
    /// Starts it with a server on loopback. `name` distinguishes it from others in the same folder.
    ///
    /// It gets a higher priority if possible: a client that wakes up late because the machine is
    /// busy corrects itself, and then its output is no evidence about the server.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, port: u16, scratch: &ScratchDir, name: &str) -> io::Result<Self> {
        let sound = scratch.join(format!("{name}.pcm"));
        let log = scratch.join(format!("{name}.log"));
        let process = Process::start(
            before_others(program)
                .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--hostID", name])
                .arg("--player")
                .arg(format!("file:filename={}", sound.display()))
                .args(["--logsink", "stderr", "--logfilter", "*:debug"]),
            &scratch.join(format!("{name}.out")),
            &log,
        )?;
        Ok(Self { process, sound, log })
    }

    /// Its log so far.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn log(&self) -> io::Result<String> {
        std::fs::read_to_string(&self.log)
    }

    /// Terminates it and returns the audio that it played.
    ///
    /// # Errors
    /// If it does not end, or the file cannot be read.
    pub fn stop(&mut self) -> io::Result<Vec<u8>> {
        self.process.terminate(Duration::from_secs(5))?;
        std::fs::read(&self.sound)
    }
}

/// A command that runs with a higher priority, if the system grants it.
#[must_use]
pub fn before_others(program: &Path) -> Command {
    let first = ["-f", "5"];
    let granted = Command::new("chrt").args(first).arg("true").stderr(Stdio::null()).status();
    let mut command = if granted.is_ok_and(|status| status.success()) {
        let mut command = Command::new("chrt");
        command.args(first);
        command
    } else {
        // Runs it with the default priority if not even this is granted.
        let mut command = Command::new("nice");
        command.args(["-n", "-15"]);
        command
    };
    command.arg(program);
    command
}

/// The lines of a log that contain one of the words.
#[must_use]
pub fn lines_with<'a>(log: &'a str, words: &[&str]) -> Vec<&'a str> {
    log.lines().filter(|line| words.iter().any(|word| line.contains(word))).collect()
}

/// A real `snapserver` on loopback that plays a FIFO.
#[derive(Debug)]
pub struct Snapserver {
    /// The process, for its resource usage and its termination.
    pub process: Process,
    /// Port for clients.
    pub port: u16,
    /// Port for controllers.
    pub control: u16,
    /// Port for web browsers.
    pub http: Option<u16>,
}

impl Snapserver {
    /// Starts it on a free port and waits until it listens. `spec` is a sample spec such as
    /// `48000:16:2`.
    ///
    /// # Errors
    /// If it does not listen within five seconds.
    pub fn start(
        program: &Path,
        scratch: &ScratchDir,
        fifo: &Path,
        codec: &str,
        spec: &str,
    ) -> io::Result<Self> {
        Self::start_command(Command::new(program), scratch, fifo, [codec, spec], None)
    }

    /// Starts it with its web server too, 16 bits in FLAC.
    ///
    /// # Errors
    /// If it does not listen within five seconds.
    pub fn start_with_http(program: &Path, scratch: &ScratchDir, fifo: &Path) -> io::Result<Self> {
        let (command, port) = (Command::new(program), free_port()?);
        Self::start_command(command, scratch, fifo, ["flac", "48000:16:2"], Some(port))
    }

    fn start_command(
        mut command: Command,
        scratch: &ScratchDir,
        fifo: &Path,
        [codec, spec]: [&str; 2],
        http: Option<u16>,
    ) -> io::Result<Self> {
        let (port, control) = (free_port()?, free_port()?);
        let option = |key: &str, value: &dyn AsRef<OsStr>| {
            let mut text = std::ffi::OsString::from(format!("--{key}="));
            text.push(value.as_ref());
            text
        };
        let source = format!("pipe://{}?name=default&mode=read", fifo.display());
        let mut process = Process::start(
            command.args([
                option("config", &"/dev/null"),
                option("server.datadir", &scratch.path()),
                option("server.mdns_enabled", &"false"),
                option("http.enabled", &http.is_some().to_string()),
                option("http.port", &http.unwrap_or(1_780).to_string()),
                option("http.bind_to_address", &"127.0.0.1"),
                option("tcp.port", &control.to_string()),
                option("tcp.bind_to_address", &"127.0.0.1"),
                option("stream.port", &port.to_string()),
                option("stream.bind_to_address", &"127.0.0.1"),
                option("stream.source", &source),
                option("stream.codec", &codec),
                option("stream.sampleformat", &spec),
                option("logging.sink", &"stderr"),
                option("logging.filter", &"*:warning"),
            ]),
            &scratch.join("snapserver.out"),
            &scratch.join("snapserver.log"),
        )?;
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if process.ended()?.is_some() || start.elapsed() > Duration::from_secs(5) {
                return Err(io::Error::other("snapserver does not listen"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { process, port, control, http })
    }
}

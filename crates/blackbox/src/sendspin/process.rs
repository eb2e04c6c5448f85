//! The programs in Python.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Dialect, Event, Received, SendspinPeer, SendspinTools};
use crate::scratch::ScratchDir;

/// A client or a server of aiosendspin. It ends with this value.
#[derive(Debug)]
pub struct SendspinProcess {
    child: Child,
    commands: Option<ChildStdin>,
    events: Receiver<Event>,
    received: Received,
    /// What it said when it was ready: `client_id` and `token`, or `server_id` and `port`.
    pub ready: Value,
    /// The client's decoded samples, in the order of arrival.
    pub sound: PathBuf,
    errors: PathBuf,
}

/// A loaded machine starts a Python program slowly.
const PATIENCE: Duration = Duration::from_secs(60);

impl SendspinProcess {
    /// Starts a client and waits until it is ready. `name` distinguishes it from others in the same
    /// folder, and is the name that it gives itself; for `options` see `client.py`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn client(
        tools: &SendspinTools,
        dialect: Dialect,
        scratch: &ScratchDir,
        name: &str,
        options: &[&str],
    ) -> io::Result<Self> {
        let sound = scratch.join(format!("{name}.pcm"));
        let mut command = python(tools, dialect, "client.py");
        command.arg("--name").arg(name).arg("--sound").arg(&sound).args(options);
        Self::start(command, scratch, name, sound)
    }

    /// Starts a server on a free port of loopback that plays a WAV file, and waits until it
    /// listens. For `options` see `server.py`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn server(
        tools: &SendspinTools,
        dialect: Dialect,
        scratch: &ScratchDir,
        wav: &Path,
        options: &[&str],
    ) -> io::Result<Self> {
        let mut command = python(tools, dialect, "server.py");
        command.arg("--wav").arg(wav).args(options);
        Self::start(command, scratch, "sendspin-server", PathBuf::new())
    }

    fn start(
        mut command: Command,
        scratch: &ScratchDir,
        name: &str,
        sound: PathBuf,
    ) -> io::Result<Self> {
        let errors = scratch.join(format!("{name}.err"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let mut child = command.spawn()?;
        let commands = child.stdin.take();
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (events, received) = (read_events(output), Received::default());
        let mut peer =
            Self { child, commands, events, received, ready: Value::Null, sound, errors };
        peer.ready = peer.wait_for("its start", PATIENCE, |event| event.named("ready"))?;
        Ok(peer)
    }

    /// Gives it a command; `what` is its `do`.
    ///
    /// # Errors
    /// If it has ended.
    pub fn command(&mut self, what: &str, mut values: Value) -> io::Result<()> {
        values["do"] = json!(what);
        let commands = self.commands.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(commands, "{values}")
    }

    /// The URL of a server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}/sendspin", self.ready["port"])
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it say goodbye and end, and returns what it received.
    ///
    /// # Errors
    /// `TimedOut` if it does not end.
    pub fn quit(mut self) -> io::Result<Received> {
        self.command("quit", json!({}))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next_event(deadline) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(io::ErrorKind::TimedOut.into()),
                Err(_) if self.child.wait()?.success() => {
                    return Ok(std::mem::take(&mut self.received));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl SendspinPeer for SendspinProcess {
    fn next_event(&mut self, deadline: Instant) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                self.received.add(&event);
                Ok(Some(event))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ended: {said}")))
            }
        }
    }

    fn received(&self) -> &Received {
        &self.received
    }
}

impl Drop for SendspinProcess {
    fn drop(&mut self) {
        // It may have ended by itself; errors cannot be handled here.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn python(tools: &SendspinTools, dialect: Dialect, program: &str) -> Command {
    let tools = &tools.0;
    let path = [tools.join(dialect.folder()), tools.join("common")];
    let mut command = Command::new(tools.join("python"));
    command.env("PYTHONPATH", path.map(|dir| dir.into_os_string()).join(OsStr::new(":")));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sendspin").join(program));
    command
}

/// A line that is no event would be the program's error; it is passed on as a complaint.
fn read_events(from: impl Read + Send + 'static) -> Receiver<Event> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let event =
                serde_json::from_str(&line).ok().and_then(Event::parse).unwrap_or_else(|| Event {
                    at_us: 0,
                    values: json!({ "event": "log", "level": "error", "text": line }),
                });
            if send.send(event).is_err() {
                return;
            }
        }
    });
    receive
}

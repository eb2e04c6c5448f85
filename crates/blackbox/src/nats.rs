//! A real `nats-server`, and a client that publishes any bytes.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::peer::Process;
use crate::scratch::ScratchDir;

/// A NATS server on loopback, with a folder of its own for `JetStream`.
#[derive(Debug)]
pub struct NatsServer {
    program: PathBuf,
    folder: ScratchDir,
    more: String,
    has_jetstream: bool,
    process: Option<Process>,
    /// Its port, the same after a restart.
    pub port: u16,
}

/// Timeout until a server accepts connections. Not a target.
const START_TIMEOUT: Duration = Duration::from_secs(20);

impl NatsServer {
    /// Starts it.
    ///
    /// # Errors
    /// If it ends, or accepts no connection.
    pub fn start(program: &Path) -> io::Result<Self> {
        Self::start_with(program, |_| String::new())
    }

    /// Starts it with more lines of configuration, made for its folder.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        program: &Path,
        more: impl FnOnce(&ScratchDir) -> String,
    ) -> io::Result<Self> {
        Self::start_either(program, more, true)
    }

    /// Starts it without `JetStream`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_without_jetstream(program: &Path) -> io::Result<Self> {
        Self::start_either(program, |_| String::new(), false)
    }

    fn start_either(
        program: &Path,
        more: impl FnOnce(&ScratchDir) -> String,
        has_jetstream: bool,
    ) -> io::Result<Self> {
        let folder = ScratchDir::new("nats")?;
        // The system does not give the same port again so soon.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let more = more(&folder);
        let program = program.to_path_buf();
        let mut server = Self { program, folder, more, has_jetstream, process: None, port };
        server.restart()?;
        Ok(server)
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again on its port, with what `JetStream` has stored.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let (config, store) = (self.folder.join("nats.conf"), self.folder.join("jetstream"));
        let jetstream = format!("jetstream: {{ store_dir: \"{}\" }}", store.display());
        let jetstream = if self.has_jetstream { jetstream.as_str() } else { "" };
        let text = format!("listen: \"127.0.0.1:{}\"\n{jetstream}\n{}\n", self.port, self.more);
        std::fs::write(&config, text)?;
        let printed = [self.folder.join("nats.out"), self.folder.join("nats.err")];
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(&config);
        let mut process = Process::start(&mut command, &printed[0], &printed[1])?;
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let ended = process.ended()?;
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                let why = std::fs::read_to_string(&printed[1])?;
                return Err(io::Error::other(format!("no nats-server; {ended:?}: {why}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.process = Some(process);
        Ok(())
    }
}

/// A client in a few lines, so that nothing keeps it from publishing what is wrong.
#[derive(Debug)]
pub struct RawNatsClient {
    socket: TcpStream,
    lines: BufReader<TcpStream>,
}

impl RawNatsClient {
    /// Connects.
    ///
    /// # Errors
    /// If that fails.
    pub fn connect(port: u16) -> io::Result<Self> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(START_TIMEOUT))?;
        let mut client = Self { lines: BufReader::new(socket.try_clone()?), socket };
        client.socket.write_all(b"CONNECT {\"verbose\":false}\r\n")?;
        client.flush()?;
        Ok(client)
    }

    /// Publishes a message.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> io::Result<()> {
        write!(self.socket, "PUB {subject} {}\r\n", payload.len())?;
        self.socket.write_all(&[payload, b"\r\n"].concat())
    }

    /// Publishes a message that asks for an answer on another subject.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn publish_request(
        &mut self,
        subject: &str,
        reply: &str,
        payload: &[u8],
    ) -> io::Result<()> {
        self.publish(&format!("{subject} {reply}"), payload)
    }

    /// Waits until the server has taken everything.
    ///
    /// # Errors
    /// If the connection fails, or the server reports an error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(b"PING\r\n")?;
        loop {
            match self.line()?.as_str() {
                "PONG" => return Ok(()),
                "PING" => self.socket.write_all(b"PONG\r\n")?,
                error if error.starts_with("-ERR") => return Err(io::Error::other(error)),
                _ => {}
            }
        }
    }

    /// The payload of the next message on a subject.
    ///
    /// # Errors
    /// If the connection fails, or nothing comes in time.
    pub fn receive(&mut self, subject: &str) -> io::Result<Vec<u8>> {
        self.receive_request(subject).map(|(_, payload)| payload)
    }

    /// The next message on a subject: where its answer goes, empty if nowhere, and its payload.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_request(&mut self, subject: &str) -> io::Result<(String, Vec<u8>)> {
        write!(self.socket, "SUB {subject} 1\r\n")?;
        loop {
            let line = self.line()?;
            // Subject, number of the subscription, perhaps a subject for the answer, size.
            let Some(parts) = line.strip_prefix("MSG ") else { continue };
            let parts: Vec<&str> = parts.split(' ').collect();
            let reply = if parts.len() == 4 { parts[2].to_owned() } else { String::new() };
            let Some(size) = parts.last() else { continue };
            let mut payload = vec![0; size.parse().map_err(io::Error::other)?];
            io::Read::read_exact(&mut self.lines, &mut payload)?;
            self.socket.write_all(b"UNSUB 1\r\n")?;
            return Ok((reply, payload));
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

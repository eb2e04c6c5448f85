//! A running `aulos serve`, started as by a user and observed by its output.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::peer::Process;
use crate::scratch::ScratchDir;

/// A server on loopback with ports of its own choice.
#[derive(Debug)]
pub struct AulosServer {
    process: Process,
    /// Address for Snapcast clients.
    pub stream: SocketAddr,
    /// Snapcast's control API.
    pub control: SocketAddr,
    /// The web page.
    pub http: SocketAddr,
    /// Time from the start of the process to the last printed address.
    pub started_in: Duration,
    printed: [PathBuf; 2],
}

/// Timeout until a server prints its addresses. Not a target: a loaded machine starts a debug build
/// slowly.
const START_TIMEOUT: Duration = Duration::from_secs(20);

impl AulosServer {
    /// Starts it with a configuration file of this content.
    ///
    /// # Errors
    /// If it ends, or does not print its addresses.
    pub fn start(scratch: &ScratchDir, config: &str) -> io::Result<Self> {
        let file = scratch.join("aulos.toml");
        std::fs::write(&file, config)?;
        Self::start_with(scratch, |command| {
            command.arg("--config").arg(&file);
        })
    }

    /// Starts it with the arguments and environment that `more` adds to the command.
    ///
    /// # Errors
    /// If it ends, or does not print its addresses.
    pub fn start_with(scratch: &ScratchDir, more: impl FnOnce(&mut Command)) -> io::Result<Self> {
        Self::start_command(scratch, Command::new(binary()), more)
    }

    /// Starts it through a program that execs it (`unshare`, a shell with `exec "$@"`), so that the
    /// process id is the server's.
    ///
    /// # Errors
    /// If it ends, or does not print its addresses.
    pub fn start_through(
        scratch: &ScratchDir,
        mut through: Command,
        more: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        through.arg(binary());
        Self::start_command(scratch, through, more)
    }

    fn start_command(
        scratch: &ScratchDir,
        mut command: Command,
        more: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        command.arg("serve").arg("--state-dir").arg(scratch.join("state"));
        for key in ["stream", "control", "http"] {
            command.args(["--set", &format!("listen.{key}=127.0.0.1:0")]);
        }
        more(&mut command);
        let printed = [scratch.join("aulos.out"), scratch.join("aulos.err")];
        let start = Instant::now();
        let mut process = Process::start(&mut command, &printed[0], &printed[1])?;
        loop {
            let text = read_both(&printed)?;
            if let [Some(stream), Some(control), Some(http)] = addresses(&text) {
                let started_in = start.elapsed();
                return Ok(Self { process, stream, control, http, started_in, printed });
            }
            let gone = process.ended()?;
            if gone.is_some() || start.elapsed() > START_TIMEOUT {
                let why = gone.map_or_else(|| "still runs".to_owned(), |status| status.to_string());
                let text = format!("no addresses of stream, control and http; {why}; {text}");
                return Err(io::Error::other(text));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its output so far.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn printed(&self) -> io::Result<String> {
        read_both(&self.printed)
    }

    /// Terminates it. It must end with status 0, within a second.
    ///
    /// # Errors
    /// If it does not.
    pub fn stop(mut self) -> io::Result<()> {
        let status = self.process.terminate(Duration::from_secs(1))?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("ended with {status}: {}", self.printed()?)))
    }
}

/// The server's program: `AULOS_BIN`, otherwise the one next to the caller's own program.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("AULOS_BIN") {
        return path.into();
    }
    let me = std::env::current_exe().unwrap_or_default();
    let beside = |dir: &Path| Some(dir.join("aulos")).filter(|path| path.is_file());
    me.ancestors().skip(1).take(2).find_map(beside).unwrap_or_else(|| "aulos".into())
}

fn read_both(files: &[PathBuf; 2]) -> io::Result<String> {
    Ok(std::fs::read_to_string(&files[0])? + &std::fs::read_to_string(&files[1])?)
}

/// The first printed address of each of stream, control and http.
///
/// Only whole lines count: a port may be incomplete otherwise.
fn addresses(text: &str) -> [Option<SocketAddr>; 3] {
    let mut found = [None; 3];
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let Some(address) = line
            .split(|c: char| !(c.is_ascii_hexdigit() || ".:[]".contains(c)))
            .find_map(|word| word.trim_matches(|c| c == ':' || c == '.').parse().ok())
        else {
            continue;
        };
        let line = line.to_ascii_lowercase();
        let which = match () {
            () if line.contains("http") => 2,
            () if line.contains("control") => 1,
            () if line.contains("stream") || line.contains("snapcast") => 0,
            () => continue,
        };
        found[which] = found[which].or(Some(address));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_whole_lines_only() {
        let text = "aulos: stream   tcp://127.0.0.1:40001\n\
                    control  127.0.0.1:40002 (JSON-RPC)\npage http://127.0.0.1:40003/\n";
        let [stream, control, http] = addresses(text);
        assert_eq!(stream.unwrap().port(), 40001);
        assert_eq!(control.unwrap().port(), 40002);
        assert_eq!(http.unwrap().port(), 40003);
        assert_eq!(addresses(text.trim_end_matches("3/\n"))[2], None);
        assert_eq!(addresses("stream [::1]:7\n")[0].unwrap().port(), 7);
    }
}

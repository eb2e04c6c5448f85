//! Standard error of a program: kept to its last line, and passed on.

use core::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ExitStatus};

use aulos_core::{Instant, Span};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// How a program ended: its exit status, and the last line of its standard error, which usually is
/// the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramExit {
    status: Option<i32>,
    line: [u8; MAX_LINE],
    length: usize,
}

impl ProgramExit {
    /// Whether the program reported success.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.status, Some(0))
    }
}

impl fmt::Display for ProgramExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the program has exited")?;
        if let Some(status) = self.status.filter(|status| *status != 0) {
            write!(f, " with status {status}")?;
        }
        let line = String::from_utf8_lossy(self.line.get(..self.length).unwrap_or_default());
        let line = line.trim_matches(char::REPLACEMENT_CHARACTER).trim();
        if line.is_empty() { Ok(()) } else { write!(f, ": {}", without_userinfo(line)) }
    }
}

/// The line without user names and passwords in its URLs, which programs repeat in their messages.
fn without_userinfo(line: &str) -> String {
    let mut parts = line.split("://");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("://");
        let end = part.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(part.len());
        let (authority, rest) = part.split_at(end);
        out.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        out.push_str(rest);
    }
    out
}

/// Reads a program's standard error.
#[derive(Debug)]
pub(super) struct ProcessLog {
    pipe: ChildStderr,
    /// A FIFO that gets a copy.
    copy: Option<File>,
    logged: Option<LoggedLines>,
    line: LastLine,
}

impl ProcessLog {
    pub(super) fn new(
        pipe: ChildStderr,
        copy: Option<File>,
        logged: Option<LoggedLines>,
    ) -> io::Result<Self> {
        set_nonblocking(pipe.as_fd())?;
        Ok(Self { pipe, copy, logged, line: LastLine::default() })
    }

    /// Takes what there is, without waiting. What does not fit into the copy is lost: neither the
    /// program nor this thread waits for a reader.
    pub(super) fn drain(&mut self, scratch: &mut [u8]) {
        for _ in 0..MAX_READS {
            let room = scratch.len().min(PIECE);
            let Ok(count @ 1..) = self.pipe.read(&mut scratch[..room]) else { return };
            let piece = &scratch[..count];
            self.line.push(piece);
            if let Some(copy) = &mut self.copy {
                drop(copy.write(piece));
            }
            if let Some(logged) = &mut self.logged {
                logged.push(piece);
            }
        }
    }

    /// Begins anew to count the lines of a program whose lines are limited.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some(logged) = &mut self.logged {
            logged.handle_timeout(now);
        }
    }

    /// The end of the program, with the last line so far.
    pub(super) fn exit(&mut self, status: Option<ExitStatus>) -> ProgramExit {
        if let Some(logged) = &mut self.logged {
            logged.end_line();
        }
        let (line, length) = self.line.last();
        ProgramExit { status: status.and_then(|status| status.code()), line, length }
    }
}

/// Makes reads of a child's output return at once.
pub(super) fn set_nonblocking(end: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(end)?;
    Ok(fcntl_setfl(end, flags | OFlags::NONBLOCK)?)
}

/// Logs a line of a program, which is named first. It is called on the thread that reads the
/// program's sound, and must not wait.
pub type LogLine = fn(&Path, &str);

/// The lines of a program for the log.
#[derive(Debug)]
pub(super) struct LoggedLines {
    program: PathBuf,
    log: LogLine,
    open: Vec<u8>,
    /// What a program may log that writes without end; none is no limit.
    budget: Option<LineBudget>,
}

/// How many lines are logged.
#[derive(Debug)]
struct LineBudget {
    left: usize,
    next: Instant,
    omitted: u64,
}

impl LoggedLines {
    pub(super) fn new(program: &Path, log: LogLine) -> Self {
        Self { program: program.to_owned(), log, open: Vec::new(), budget: None }
    }

    /// The same, with [`LINES_PER_INTERVAL`] at most; the others are counted.
    pub(super) fn limited(program: &Path, log: LogLine, now: Instant) -> Self {
        let budget = LineBudget { left: LINES_PER_INTERVAL, next: now + LINE_INTERVAL, omitted: 0 };
        Self { budget: Some(budget), ..Self::new(program, log) }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Some(budget) = self.budget.as_mut().filter(|budget| now >= budget.next) else { return };
        (budget.left, budget.next) = (LINES_PER_INTERVAL, now + LINE_INTERVAL);
        let omitted = std::mem::take(&mut budget.omitted);
        if omitted > 0 {
            (self.log)(&self.program, &format!("[{omitted} more lines]"));
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                // A progress line ends with a return.
                b'\n' | b'\r' => self.end_line(),
                byte => self.open.push(*byte),
            }
            if self.open.len() >= MAX_LOGGED_LINE {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if self.open.is_empty() {
            return;
        }
        match &mut self.budget {
            Some(budget) if budget.left == 0 => budget.omitted += 1,
            budget => {
                budget.iter_mut().for_each(|budget| budget.left -= 1);
                (self.log)(&self.program, &String::from_utf8_lossy(&self.open));
            }
        }
        self.open.clear();
    }
}

/// A program that is heard all day may not fill the log.
const LINES_PER_INTERVAL: usize = 20;
const LINE_INTERVAL: Span = Span::from_secs(60);

/// A longer line is logged in pieces.
const MAX_LOGGED_LINE: usize = 1_024;

/// The last line that is not blank, cut at [`MAX_LINE`] bytes.
#[derive(Debug)]
struct LastLine {
    whole: ([u8; MAX_LINE], usize),
    open: ([u8; MAX_LINE], usize),
}

impl Default for LastLine {
    fn default() -> Self {
        let none = ([0; MAX_LINE], 0);
        Self { whole: none, open: none }
    }
}

impl LastLine {
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let (line, length) = &mut self.open;
            match byte {
                // A progress line ends with a return.
                b'\n' | b'\r' => {
                    if *length > 0 {
                        self.whole = self.open;
                    }
                    self.open.1 = 0;
                }
                byte if byte.is_ascii_control() || (*length == 0 && *byte == b' ') => {}
                byte => {
                    if let Some(place) = line.get_mut(*length) {
                        *place = *byte;
                        *length += 1;
                    }
                }
            }
        }
    }

    const fn last(&self) -> ([u8; MAX_LINE], usize) {
        if self.open.1 > 0 { self.open } else { self.whole }
    }
}

/// Bytes of a line that are kept.
const MAX_LINE: usize = 160;

/// Bytes per read: a FIFO takes a write of up to 4,096 whole or not at all (POSIX, `PIPE_BUF`).
const PIECE: usize = 4_096;

/// Reads per tick.
const MAX_READS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn last(pieces: &[&str]) -> String {
        let mut line = LastLine::default();
        pieces.iter().for_each(|piece| line.push(piece.as_bytes()));
        let (line, length) = line.last();
        ProgramExit { status: Some(2), line, length }.to_string()
    }

    #[test]
    fn a_program_is_logged_line_by_line() {
        static LOGGED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let log: LogLine =
            |path, line| LOGGED.lock().unwrap().push(format!("{}: {line}", path.display()));
        let mut lines = LoggedLines::new(Path::new("p"), log);
        let long = "x".repeat(MAX_LOGGED_LINE + 1);
        for piece in ["one\ntw", "o\n\n50 %\r100 %\r\n", &long] {
            lines.push(piece.as_bytes());
        }
        lines.end_line();
        let logged = LOGGED.lock().unwrap();
        let whole = format!("p: {}", &long[1..]);
        assert_eq!(*logged, ["p: one", "p: two", "p: 50 %", "p: 100 %", &whole, "p: x"]);
    }

    #[test]
    fn a_program_that_writes_without_end_is_logged_in_part() {
        static LOGGED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
        let now = Instant::ZERO + Span::from_secs(1);
        let log: LogLine = |_, line| LOGGED.lock().unwrap().push(line.to_owned());
        let mut lines = LoggedLines::limited(Path::new("p"), log, now);
        (0..1_000).for_each(|_| lines.push(b"x\n"));
        lines.handle_timeout(now + LINE_INTERVAL - Span::from_millis(1));
        assert_eq!(LOGGED.lock().unwrap().len(), LINES_PER_INTERVAL);
        lines.handle_timeout(now + LINE_INTERVAL);
        lines.push(b"y\n");
        assert_eq!(LOGGED.lock().unwrap()[LINES_PER_INTERVAL..], ["[980 more lines]", "y"]);
    }

    #[test]
    fn the_last_line_is_the_reason() {
        let exited = "the program has exited with status 2";
        assert_eq!(last(&[]), exited);
        assert_eq!(last(&["one\ntwo\n", "\n  \r\n"]), format!("{exited}: two"));
        assert_eq!(last(&["one\nt", "wo"]), format!("{exited}: two"));
        assert_eq!(last(&["\x1b[31mno\u{7} card\n"]), format!("{exited}: [31mno card"));
        let url = last(&["https://me:p@ss@h/a: failed, then icecast://x:y@h:8000 and a@b"]);
        assert_eq!(url, format!("{exited}: https://h/a: failed, then icecast://h:8000 and a@b"));
        let long = "ä".repeat(1_000);
        assert_eq!(last(&[&long]), format!("{exited}: {}", "ä".repeat(MAX_LINE / 2)));
    }
}

//! What a command writes besides its result: the log, notes and the progress on standard error, and
//! the startup message of a server on standard output.
//!
//! A server must play on when nobody reads its log, and when the disk on which it lies is full. So
//! nothing here waits and nothing panics, as the macros of the standard library do: lines go
//! through a bounded queue to a thread ([`aulos_rt::line_queue()`]).

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::thread::Builder;
use std::time::Duration;

use aulos_rt::{LineSender, LostLines, line_queue};

/// Prints a line for people on standard error, as `eprintln!` would.
macro_rules! note {
    ($($argument:tt)*) => {
        $crate::cli::output::console::write_error(format!($($argument)*) + "\n")
    };
}
pub(crate) use note;

/// The queue of standard error, which belongs to the process. The thread of a command starts with
/// its first line: most print none, and one that was told to use one thread has no other.
static STDERR: OnceLock<LineSender> = OnceLock::new();

/// Makes the line that says what is missing.
type LostLinesReport = fn(&LostLines) -> Vec<u8>;

/// The queue of the log, if that is not standard error.
static LOG: OnceLock<LineSender> = OnceLock::new();

/// Set when the log starts.
static LOST_LINES_REPORT: OnceLock<LostLinesReport> = OnceLock::new();

/// Where lines go.
#[derive(Clone)]
pub(crate) enum LineOutput {
    Stderr,
    Queue(LineSender),
}

impl LineOutput {
    /// Writes a line without waiting.
    pub(crate) fn push(&self, line: Vec<u8>) {
        match (self, LOST_LINES_REPORT.get()) {
            (Self::Queue(lines), _) => lines.push(line),
            (Self::Stderr, Some(report)) => STDERR.get_or_init(|| start_stderr(*report)).push(line),
            // Before the log has started, or without it, as in a test.
            (Self::Stderr, None) => drop(io::stderr().write_all(&line)),
        }
    }
}

/// From now on standard error has a queue; `report` makes the line that says what is missing. The
/// thread of a server starts now, because its number of threads is fixed.
pub(crate) fn start(report: LostLinesReport, is_server: bool) -> LineOutput {
    LOST_LINES_REPORT.get_or_init(|| report);
    if is_server {
        STDERR.get_or_init(|| start_stderr(report));
    }
    LineOutput::Stderr
}

/// The log has a queue of its own.
pub(crate) fn set_log(queue: &LineSender) {
    LOG.get_or_init(|| queue.clone());
}

/// How many lines of the log, and of standard error, were lost.
pub(crate) fn lost_lines() -> u64 {
    [&STDERR, &LOG].into_iter().filter_map(OnceLock::get).map(LineSender::lost).sum()
}

fn start_stderr(report: LostLinesReport) -> LineSender {
    match output(io::stderr()) {
        Ok(stderr) => start_writer("aulos-log", stderr, report),
        // Without a descriptor there is nothing to write to, and all lines are lost.
        Err(_) => line_queue().0,
    }
}

/// A copy of a descriptor of this process: it has no lock that another thread could hold while it
/// waits.
fn output(stream: impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(|own: OwnedFd| File::from(own))
}

/// Starts a thread that writes to `out`. Without a thread all lines are lost.
pub(crate) fn start_writer(
    name: &str,
    mut out: impl Write + Send + 'static,
    report: LostLinesReport,
) -> LineSender {
    let (sender, writer) = line_queue();
    drop(Builder::new().name(name.to_owned()).spawn(move || writer.run(&mut out, report)));
    sender
}

/// Writes a text to standard error, without waiting: a line, or a piece of one.
pub(crate) fn write_error(text: String) {
    LineOutput::Stderr.push(text.into_bytes());
}

/// Writes a line to standard error before a progress bar is drawn again.
pub(crate) fn write_now(line: impl Display) {
    note!("{line}");
    flush();
}

/// Waits a moment until standard error has everything.
pub(crate) fn flush() {
    if let Some(stderr) = STDERR.get() {
        stderr.flush(FLUSH_LIMIT);
    }
}

/// The message of a server on standard output. It starts without a reader of that, too.
pub(crate) struct StartupMessage(LineSender);

impl StartupMessage {
    pub(crate) fn print(text: String) -> Self {
        let sender = match output(io::stdout()) {
            Ok(stdout) => start_writer("aulos-stdout", stdout, |_| Vec::new()),
            Err(_) => line_queue().0,
        };
        sender.push(text.into_bytes());
        Self(sender)
    }
}

impl Drop for StartupMessage {
    fn drop(&mut self) {
        self.0.flush(FLUSH_LIMIT);
    }
}

/// How long the end of a command waits for an output that stands still: a server ends within a
/// second.
const FLUSH_LIMIT: Duration = Duration::from_millis(200);

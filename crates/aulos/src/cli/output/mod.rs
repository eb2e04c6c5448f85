//! Printing to standard output, and the failure of invalid arguments.

pub(super) mod console;
pub(super) mod figures;
pub(super) mod output_file;

use std::io::{self, Write};

use aulos_server::exit::{Exit, Failure};
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorMode {
    Auto,
    Always,
    Never,
}

impl ColorMode {
    /// Whether to use colors on a stream; `terminal` tells whether it is one.
    pub(super) fn colors(self, terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }
}

/// Writes to standard output; a closed pipe counts as success.
pub(super) fn print(bytes: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    is_stdout_open(out.write_all(bytes).and_then(|()| out.flush())).map(|_| Exit::Ok)
}

/// Whether standard output is still open; other errors are failures.
pub(super) fn is_stdout_open(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(Exit::Io, format!("standard output: {error}"))),
    }
}

/// Lines on standard output about work that goes on without them, as the names of recorded files.
/// An error ends the lines and not the work: the exit code reports it when the work is done.
#[derive(Debug)]
pub(super) struct SideReport(io::Result<()>);

impl SideReport {
    pub(super) const fn new() -> Self {
        Self(Ok(()))
    }

    /// Writes text, and flushes, because the reader may be waiting.
    pub(super) fn print(&mut self, text: &str) {
        self.print_with(|| {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        });
    }

    /// As [`SideReport::print`], with a function that writes.
    pub(super) fn print_with(&mut self, write: impl FnOnce() -> io::Result<()>) {
        if self.0.is_ok() {
            self.0 = write();
        }
    }

    /// Whether lines can still be written.
    pub(super) const fn is_open(&self) -> bool {
        self.0.is_ok()
    }

    /// The error that ended the lines; a closed pipe is none.
    pub(super) fn finish(self) -> Result<(), Failure> {
        is_stdout_open(self.0).map(drop)
    }
}

/// All problems of command line arguments, with their hints.
pub(super) fn usage_failure(problems: &[aulos_config::Problem]) -> Failure {
    let lines = problems.iter().map(|aulos_config::Problem { message, hint, .. }| match hint {
        Some(hint) => format!("{message}\n    hint: {hint}"),
        None => message.clone(),
    });
    Failure::new(Exit::Usage, lines.collect::<Vec<_>>().join("\n"))
}

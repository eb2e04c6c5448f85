//! Exit codes of commands: a contract with scripts (sysexits.h where it has one).

use std::process::ExitCode;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Ok = 0,
    /// The answer is no.
    Negative = 1,
    /// Invalid command line.
    Usage = 2,
    /// Some of several files failed.
    SomeFailed = 3,
    /// Invalid input data.
    Data = 65,
    /// The input does not exist.
    NoInput = 66,
    /// A port, a server or a device is not available.
    Unavailable = 69,
    /// Internal error.
    Internal = 70,
    /// An output cannot be created.
    CannotCreate = 73,
    /// Reading or writing failed.
    Io = 74,
    /// Permission denied.
    Permission = 77,
    /// Invalid configuration.
    Config = 78,
    /// Ctrl-C, or another termination signal: 128 and the signal's number, as in shells.
    Stopped = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failed command: its message and exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The message for standard error, without a trailing line break.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Creates a failure.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

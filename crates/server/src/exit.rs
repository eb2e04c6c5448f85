//! How a command ends: the numbers are a contract with scripts (sysexits.h where it has one).

use std::process::ExitCode;

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// The answer is no.
    Negative = 1,
    /// The command line cannot be understood.
    Usage = 2,
    /// Some of several files failed.
    SomeFailed = 3,
    /// What came in is not what it should be.
    Data = 65,
    /// There is no such input.
    NoInput = 66,
    /// A port, a server or a device cannot be had.
    Unavailable = 69,
    /// A fault of ours.
    Internal = 70,
    /// An output cannot be made.
    CannotCreate = 73,
    /// Reading or writing failed.
    Io = 74,
    /// It is not allowed.
    Permission = 77,
    /// The configuration is wrong.
    Config = 78,
    /// Ctrl-C, or another signal that asks to end: 128 and the signal's number, as shells have it.
    Stopped = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that failed: what to say, and how to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How to end.
    pub exit: Exit,
    /// What to say on standard error, without a line break at its end.
    pub message: String,
}

impl Failure {
    /// A failure.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

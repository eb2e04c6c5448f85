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

impl Exit {
    /// Every exit code, in ascending order.
    pub const ALL: [Self; 13] = [
        Self::Ok,
        Self::Negative,
        Self::Usage,
        Self::SomeFailed,
        Self::Data,
        Self::NoInput,
        Self::Unavailable,
        Self::Internal,
        Self::CannotCreate,
        Self::Io,
        Self::Permission,
        Self::Config,
        Self::Stopped,
    ];

    /// What it means, in the words of the help.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success",
            Self::Negative => "negative result",
            Self::Usage => "usage",
            Self::SomeFailed => "some files failed",
            Self::Data => "invalid data",
            Self::NoInput => "no input",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal error",
            Self::CannotCreate => "cannot create output",
            Self::Io => "I/O error",
            Self::Permission => "permission denied",
            Self::Config => "invalid configuration",
            Self::Stopped => "stopped by a signal",
        }
    }

    /// When a command ends with it, and what a script can do then: a sentence of the reference.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Ok => "The command did what it was asked for.",
            Self::Negative => {
                "The answer is no: a server refused a call, a part of a reload failed, an \
                 announcement was not played to its end. The message has the reason."
            }
            Self::Usage => "The command line is wrong. The same command fails again.",
            Self::SomeFailed => {
                "Some of several files could not be processed; the others were. Each failed file \
                 has its reason in the output."
            }
            Self::Data => "The input is not what it should be: a damaged file, an unknown format.",
            Self::NoInput => "The input does not exist or cannot be opened.",
            Self::Unavailable => {
                "A port is in use, a server does not answer, a device or a network is not there. \
                 The same command may succeed later."
            }
            Self::Internal => "A bug, or the system refuses what every program gets.",
            Self::CannotCreate => {
                "An output file, directory or device cannot be created or opened."
            }
            Self::Io => "Reading or writing failed after it had begun, as on a full disk.",
            Self::Permission => "The system or the server denies permission.",
            Self::Config => {
                "The configuration has a problem; every problem was printed with its line. Under \
                 systemd the unit is not started again."
            }
            Self::Stopped => {
                "A signal such as Ctrl-C ended the command before its work was done. Commands that \
                 run until they are stopped, such as a server or a player, end with 0."
            }
        }
    }
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

//! Errors of pushes, by how long to wait before the next attempt, with remedies.

use core::fmt;
use std::io;

use aulos_proto::http::HeadError;

/// Why a server does not accept a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// The host name is unknown.
    Name(String),
    /// The server refused the connection or is unreachable.
    Connect(io::ErrorKind),
    /// It took too long.
    TimedOut,
    /// TLS failed, and why.
    Tls(String),
    /// The connection broke before the stream began.
    Io(io::ErrorKind),
    /// The answer is not that of Icecast.
    InvalidAnswer,
    /// The server does not support `PUT`.
    MethodUnsupported,
    /// The name or the password is wrong.
    WrongPassword,
    /// A password is required, and none is configured.
    NoPassword,
    /// The mount is in use.
    MountInUse,
    /// The server refused, with status and reason.
    Refused(u16, String),
    /// The server accepted the stream, and hung up.
    HungUp,
    /// The server accepted the stream, and stopped reading.
    NotReading,
    /// The connection broke in the middle of the stream.
    Broken,
    /// The station has restarted, or is busy.
    Busy,
    /// The request cannot be encoded.
    Request(HeadError),
}

/// The names of the counters, in the order of [`PushError::counter_index`].
pub(super) const COUNTER_NAMES: [&str; 9] = [
    "push_failures_name",
    "push_failures_connect",
    "push_failures_timeout",
    "push_failures_tls",
    "push_failures_password",
    "push_failures_taken",
    "push_failures_refused",
    "push_failures_broken_off",
    "push_failures_not_reading",
];

impl PushError {
    /// Index of its counter.
    pub(super) const fn counter_index(&self) -> usize {
        match self {
            Self::Name(_) => 0,
            Self::Connect(_) => 1,
            Self::TimedOut => 2,
            Self::Tls(_) => 3,
            Self::WrongPassword | Self::NoPassword => 4,
            Self::MountInUse => 5,
            Self::Refused(..)
            | Self::MethodUnsupported
            | Self::InvalidAnswer
            | Self::Request(_) => 6,
            Self::Io(_) | Self::HungUp | Self::Broken | Self::Busy => 7,
            Self::NotReading => 8,
        }
    }

    /// Whether an early retry is pointless. A mount in use may be ours, from before a network
    /// failure: the server releases it after about ten seconds.
    pub(super) const fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Tls(_)
                | Self::WrongPassword
                | Self::NoPassword
                | Self::Refused(..)
                | Self::MethodUnsupported
                | Self::InvalidAnswer
                | Self::Request(_)
        )
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(host) => write!(f, "the host name {host} has no address"),
            Self::Connect(kind) => kind.fmt(f),
            Self::TimedOut => f.write_str("the server took too long to answer"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Io(kind) => write!(f, "the connection broke before an answer: {kind}"),
            Self::InvalidAnswer | Self::MethodUnsupported => f.write_str(
                "the answer is not that of an Icecast server; check host and port of the push",
            ),
            Self::WrongPassword => f.write_str(
                "wrong user name or password (401); correct `url` or `password` of the push",
            ),
            Self::NoPassword => {
                f.write_str("the server requires a password (401); set `password_file` of the push")
            }
            Self::MountInUse => f.write_str(
                "the mount is in use by another source; stop it, or push to another mount",
            ),
            Self::Refused(404, reason) => {
                write!(
                    f,
                    "the server has no such mount (404, \"{reason}\"); correct `url` of the push"
                )
            }
            Self::Refused(status, reason) => {
                write!(f, "the server refused the stream ({status}, \"{reason}\")")
            }
            Self::HungUp => f.write_str("the server closed the connection"),
            Self::NotReading => f.write_str("the server read no data for 10 s"),
            Self::Broken => f.write_str("the connection broke"),
            Self::Busy => f.write_str("this machine is too busy"),
            Self::Request(why) => {
                write!(f, "the request cannot be sent: {why}; correct `url` of the push")
            }
        }
    }
}

//! Why a stream is not pushed, cut by how long it makes sense to wait, with what helps.

use std::fmt;
use std::io;

use aulos_io::reactor::SessionEndCause;
use aulos_proto::http::HeadError;
use aulos_proto::icecast::IcecastUrl;

use crate::dial::DialError;

/// Why a server does not take a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PushError {
    /// The name is unknown.
    Name(String),
    /// Nobody is there, or he does not want to.
    Connect(io::ErrorKind),
    /// It took too long.
    TimedOut,
    /// TLS, and why.
    Tls(String),
    /// The connection broke before the stream began.
    Io(io::ErrorKind),
    /// The answer is not one of Icecast.
    InvalidAnswer,
    /// The server does not know `PUT`.
    MethodUnsupported,
    /// The name or the password is wrong.
    WrongPassword,
    /// There is no password, and one is wanted.
    NoPassword,
    /// Somebody sends there already.
    MountInUse,
    /// The server says no, and why.
    Refused(u16, String),
    /// It took the stream, and hung up.
    HungUp,
    /// It took the stream, and then nothing more.
    NotReading,
    /// The connection broke in the middle of the stream.
    Broken,
    /// The station has begun anew, or has no time.
    Busy,
    /// The request cannot be written.
    Request(HeadError),
}

/// The names of the counters, in the order of [`Failure::cause`].
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
    pub(super) fn from_dial(error: DialError, target: &IcecastUrl) -> Self {
        match error {
            DialError::Name => Self::Name(target.host.clone()),
            DialError::Busy => Self::Busy,
            DialError::Connect(kind) => Self::Connect(kind),
            DialError::Tls(why) => Self::Tls(why),
        }
    }

    /// Why a stream is over that had begun.
    pub(super) const fn from_end(cause: Option<SessionEndCause>) -> Self {
        match cause {
            Some(SessionEndCause::Closed) => Self::HungUp,
            Some(SessionEndCause::NotReading) => Self::NotReading,
            None | Some(SessionEndCause::Kicked) => Self::Busy,
            Some(_) => Self::Broken,
        }
    }

    /// Which counter it belongs to.
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

    /// Whether asking again soon will hardly help. A mount that is taken may be ours, from before a
    /// cable was pulled: the server gives it free after ten seconds or so.
    pub(super) const fn is_lasting(&self) -> bool {
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
            Self::Name(host) => write!(f, "the name {host} is unknown"),
            Self::Connect(kind) => write!(f, "the server cannot be reached: {kind}"),
            Self::TimedOut => f.write_str("the server took too long to answer"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Io(kind) => write!(f, "the connection broke before an answer: {kind}"),
            Self::InvalidAnswer | Self::MethodUnsupported => {
                f.write_str("the server does not answer as Icecast does: look at host and port")
            }
            Self::WrongPassword => f.write_str(
                "the server does not know this name and password (401): mend `url` or `password` \
                 of the push",
            ),
            Self::NoPassword => {
                f.write_str("the server wants a password (401): give the push a `password_file`")
            }
            Self::MountInUse => f.write_str(
                "somebody else sends to this mount: end that, or push to a mount of its own",
            ),
            Self::Refused(404, said) => {
                write!(f, "the server has no such mount (404, \"{said}\"): mend `url` of the push")
            }
            Self::Refused(status, said) => write!(f, "the server says no ({status}, \"{said}\")"),
            Self::HungUp => f.write_str("the server hung up"),
            Self::NotReading => f.write_str("the server took nothing for 10 s"),
            Self::Broken => f.write_str("the connection broke"),
            Self::Busy => f.write_str("this server is too busy"),
            Self::Request(why) => {
                write!(f, "the request cannot be sent: {why}; correct `url` of the push")
            }
        }
    }
}

//! Errors of web radio, by how long to wait before the next attempt.

use core::fmt;
use core::net::IpAddr;
use std::io;

use aulos_proto::http::{AddressClass, HeadError, PlaylistError, UrlError};

use crate::hls_source::HlsError;

/// Why a stream does not play.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RadioError {
    /// The host name is unknown.
    Name(String),
    /// The server refused the connection or is unreachable.
    Connect(io::ErrorKind),
    /// A stage took too long.
    TimedOut(&'static str),
    /// TLS failed, and why.
    Tls(String),
    /// The connection broke.
    Io(io::ErrorKind),
    /// The answer is not HTTP.
    Head,
    /// The server answered with an error status.
    Status(u16),
    /// Too many redirects in a row.
    TooManyRedirects,
    /// A redirect loop.
    RedirectLoop,
    /// A redirect or playlist entry with an invalid URL.
    InvalidAddress(UrlError),
    /// A public server leads to this host, at an address that is not public.
    NotPublic(String, IpAddr, AddressClass),
    /// This host, at this address, is not on the list of those that a call may name.
    NotAllowed(String, IpAddr, AddressClass),
    /// The request cannot be encoded.
    Request(HeadError),
    /// An unusable playlist.
    Playlist(PlaylistError),
    /// Playlists nested too deeply.
    TooDeep,
    /// An HLS stream that cannot be played, or not any more.
    Hls(HlsError),
    /// The body was empty.
    Empty,
    /// Every entry was tried and none can be played.
    NothingPlayable,
    /// The reactor has not taken the last stream yet.
    Busy,
    /// The server closed the connection in the middle of the body.
    HungUp,
    /// It sent nothing, or next to nothing, in the middle of the body.
    Stalled,
    /// Its chunked encoding is invalid.
    InvalidChunks,
    /// The data cannot be decoded, and why.
    Undecodable(String),
}

/// The names of the counters, in the order of [`RadioError::counter_index`].
pub const RADIO_FAILURE_NAMES: [&str; 10] = [
    "radio_failures_name",
    "radio_failures_connect",
    "radio_failures_timeout",
    "radio_failures_tls",
    "radio_failures_status",
    "radio_failures_redirect",
    "radio_failures_playlist",
    "radio_failures_protocol",
    "radio_failures_broken_off",
    "radio_failures_not_sound",
];

impl RadioError {
    /// Index of its counter.
    #[must_use]
    pub const fn counter_index(&self) -> usize {
        match self {
            Self::Name(_) => 0,
            Self::Connect(_) => 1,
            Self::TimedOut(_) | Self::Stalled => 2,
            Self::Tls(_) => 3,
            Self::Status(_) => 4,
            Self::TooManyRedirects
            | Self::RedirectLoop
            | Self::InvalidAddress(_)
            | Self::NotPublic(..)
            | Self::NotAllowed(..)
            | Self::Request(_) => 5,
            Self::Playlist(_) | Self::TooDeep | Self::Hls(_) => 6,
            Self::Head | Self::Empty | Self::InvalidChunks => 7,
            Self::Io(_) | Self::Busy | Self::HungUp => 8,
            Self::NothingPlayable | Self::Undecodable(_) => 9,
        }
    }

    /// Whether an early retry is pointless.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        match self {
            Self::Status(status) => matches!(*status, 401 | 403 | 404 | 410),
            Self::Hls(why) => why.is_permanent(),
            Self::TooManyRedirects
            | Self::RedirectLoop
            | Self::InvalidAddress(_)
            | Self::NotPublic(..)
            | Self::NotAllowed(..)
            | Self::Request(_)
            | Self::Playlist(_)
            | Self::TooDeep
            | Self::NothingPlayable
            | Self::Tls(_)
            | Self::Undecodable(_) => true,
            _ => false,
        }
    }

    /// Whether the server answers, but does not have the stream: on Icecast a mount does not exist
    /// while its source is away.
    #[must_use]
    pub const fn is_absence(&self) -> bool {
        matches!(self, Self::Status(404))
    }
}

impl fmt::Display for RadioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(host) => write!(f, "the host name {host} has no address"),
            Self::Connect(kind) => kind.fmt(f),
            Self::TimedOut(what) => write!(f, "timeout: {what}"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Io(kind) => write!(f, "the connection broke: {kind}"),
            Self::Head => f.write_str("the answer is not HTTP"),
            Self::Status(401) => f.write_str(
                "the server requires a password (401); use http://USER:PASSWORD@HOST/...",
            ),
            Self::Status(403) => f.write_str("access denied by the server (403)"),
            Self::Status(404) => f.write_str("the stream does not exist on the server (404)"),
            Self::Status(410) => f.write_str("the stream no longer exists on the server (410)"),
            Self::Status(status) => write!(f, "the server answered with status {status}"),
            Self::TooManyRedirects => f.write_str("too many redirects"),
            Self::RedirectLoop => f.write_str("redirect loop"),
            Self::InvalidAddress(why) => {
                write!(f, "the redirect or playlist contains an invalid URL: {why}")
            }
            Self::NotPublic(host, address, class) => write!(
                f,
                "a public server refers to {host}, and {address} is {class}, which only a URL in \
                 the configuration may name"
            ),
            Self::NotAllowed(host, address, class) => {
                write!(f, "{host} may not be contacted: {address} is {class}")
            }
            Self::Request(why) => write!(f, "the request cannot be sent: {why}"),
            Self::Playlist(why) => write!(f, "{why}"),
            Self::Hls(why) => why.fmt(f),
            Self::TooDeep => f.write_str("the playlists are nested too deeply"),
            Self::Empty => f.write_str("the server sent no data"),
            Self::NothingPlayable => f.write_str(
                "no stream of a supported format; MP3, AAC, Ogg, FLAC and WAVE are supported",
            ),
            Self::Busy => f.write_str("this machine is too busy"),
            Self::HungUp => f.write_str("the server closed the connection"),
            Self::Stalled => f.write_str("the server stopped sending"),
            Self::InvalidChunks => f.write_str("the server sent invalid chunked encoding"),
            Self::Undecodable(why) => f.write_str(why),
        }
    }
}

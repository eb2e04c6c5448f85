//! The status of a Snapcast source.

use core::fmt;
use std::io;

use aulos_core::Instant;
use aulos_proto::snap::client::DisconnectReason;

use super::pass::PassObstacle;
use crate::player::{StreamFormat, UnsupportedStream};

/// The status of a Snapcast source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapcastInputStatus {
    /// Whether the other server is connected.
    pub is_connected: bool,
    /// What it sends.
    pub stream: Option<StreamFormat>,
    /// Why the last connection or attempt has failed; none once chunks are played again.
    pub error: Option<SnapcastInputError>,
    /// When the server is contacted again after that.
    pub retry_at: Option<Instant>,
    /// Why its chunks cannot be passed, of a source that is to pass them.
    pub pass_obstacle: Option<PassObstacle>,
    /// Counters over all connections.
    pub counts: SnapcastInputCounts,
}

/// The counters of a Snapcast source, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapcastInputCounts {
    /// Connections that have failed or could not be made.
    pub failures: u64,
    /// Chunks that were played.
    pub played: u64,
    /// Chunks that came too late to be played, also at the beginning of a connection, or were
    /// played already.
    pub late: u64,
    /// Chunks whose time is too far in the future.
    pub early: u64,
    /// Chunks that could not be decoded.
    pub damaged: u64,
    /// Panics of the codec's library. Each time a new decoder went on.
    pub codec_panics: u64,
    /// Chunks dropped because too many were waiting, or because the timeline or the codec of the
    /// stream changed before they were due.
    pub dropped: u64,
    /// Gaps between the timestamps of chunks that were filled with silence.
    pub gaps: u64,
    /// Chunks that were handed to the station to be passed.
    pub passed: u64,
    /// Chunks that the station had no room for, so that it encoded them.
    pub not_passed: u64,
}

/// Why a connection to the other server has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapcastInputError {
    /// The name of the server has no address.
    Name,
    /// The connection failed or could not be made.
    Io(io::ErrorKind),
    /// The server closed the connection.
    Closed,
    /// The TLS handshake failed.
    Tls(String),
    /// The server broke the protocol, or refused this client.
    Protocol(DisconnectReason),
    /// Its stream cannot be decoded.
    Unsupported(UnsupportedStream),
    /// It sends chunks, but for [`MAX_UNUSABLE`](super::MAX_UNUSABLE) none was due at its time.
    Timestamps,
    /// It sends chunks, but for [`MAX_UNUSABLE`](super::MAX_UNUSABLE) none could be decoded.
    Undecodable,
}

impl SnapcastInputError {
    /// Whether a quick retry cannot help.
    pub(super) const fn is_permanent(&self) -> bool {
        match self {
            Self::Name
            | Self::Io(_)
            | Self::Closed
            | Self::Protocol(DisconnectReason::NoAnswer) => false,
            Self::Tls(_)
            | Self::Protocol(_)
            | Self::Unsupported(_)
            | Self::Timestamps
            | Self::Undecodable => true,
        }
    }
}

impl fmt::Display for SnapcastInputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Io(kind) => return kind.fmt(f),
            Self::Tls(why) => return write!(f, "TLS failed: {why}"),
            Self::Unsupported(why) => return why.fmt(f),
            Self::Protocol(DisconnectReason::Refused(code)) => {
                return write!(
                    f,
                    "the server refuses this client (code {code}); give the source the user and \
                     the `password` of an account there"
                );
            }
            Self::Name => "the name of the server has no address",
            Self::Closed => "the server closed the connection",
            Self::Protocol(DisconnectReason::NoAnswer) => "the server does not answer within 2 s",
            Self::Protocol(DisconnectReason::TooLarge) => {
                "the server sent a message that is too large"
            }
            Self::Protocol(DisconnectReason::Malformed) => "the server sent a malformed message",
            Self::Protocol(DisconnectReason::OutOfOrder) => {
                "the server sent audio before its settings or its codec"
            }
            Self::Protocol(_) => "the server on this port is not a Snapcast server",
            Self::Timestamps => "the timestamps of the server's chunks do not agree with its clock",
            Self::Undecodable => "the server's chunks cannot be decoded",
        };
        f.write_str(text)
    }
}

impl core::error::Error for SnapcastInputError {}

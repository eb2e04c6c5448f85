//! The status of a Sendspin source.

use core::fmt;
use std::io;
use std::sync::Arc;

use aulos_core::Instant;
use aulos_proto::sendspin::{
    ClientIdentity, Dialect, Key, SendspinClientError, ServerTrust, SupportedFormat, TrackInfo,
    TransportCommands,
};

use crate::player::StreamFormat;

/// The status of a Sendspin source.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SendspinInputStatus {
    /// Its keys.
    pub identity: Option<Arc<ClientIdentity>>,
    /// Servers that are connected, those that may not play included.
    pub connections: usize,
    /// The server that has the source, while there is one.
    pub server: Option<Arc<SendspinServer>>,
    /// What it sends; `None` while it sends nothing.
    pub stream: Option<StreamFormat>,
    /// Whether its group plays.
    pub is_playing: bool,
    /// What plays now, as far as the server says it.
    pub track: Option<Arc<TrackInfo>>,
    /// The picture that belongs to it: a file of a format that the server chose, at most 1 MiB.
    pub artwork: Option<Arc<[u8]>>,
    /// What the server can be told.
    pub commands: TransportCommands,
    /// Why the last connection or attempt has failed; none once chunks are played again.
    pub error: Option<SendspinInputError>,
    /// When the server is contacted again after that.
    pub retry_at: Option<Instant>,
    /// Counters over all connections.
    pub counts: SendspinInputCounts,
}

/// A server that has a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendspinServer {
    /// Its name for people.
    pub name: String,
    /// Its public key.
    pub id: Key,
    /// How it speaks.
    pub dialect: Dialect,
    /// What it has proved to know.
    pub trust: ServerTrust,
}

/// The counters of a Sendspin source, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendspinInputCounts {
    /// Connections that have failed or could not be made.
    pub failures: u64,
    /// Connections of another server while one was playing.
    pub refused: u64,
    /// Messages that do not decrypt.
    pub forged: u64,
    /// Messages that were passed over because their content makes no sense.
    pub malformed: u64,
    /// Chunks that were played.
    pub played: u64,
    /// Chunks that came too late to be played.
    pub late: u64,
    /// Chunks whose time is too far in the future.
    pub early: u64,
    /// Chunks whose time is not after that of the one before: some servers send what they keep twice.
    pub repeated: u64,
    /// Chunks that could not be decoded.
    pub damaged: u64,
    /// Chunks dropped because too many were waiting, or because their stream ended or was cleared.
    pub dropped: u64,
    /// Gaps between the timestamps of chunks that were filled with silence.
    pub gaps: u64,
}

/// Why a source has no server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendspinInputError {
    /// The name of the server has no address.
    Name,
    /// The connection failed or could not be made, or the port could not be opened.
    Io(io::ErrorKind),
    /// The server closed the connection.
    Closed,
    /// What answers is no WebSocket.
    WebSocket(String),
    /// The server broke the protocol, or may not do what it wants.
    Protocol(SendspinClientError),
    /// Its stream cannot be played.
    Unsupported(SupportedFormat),
    /// It sends chunks, but for [`MAX_UNUSABLE`](super::MAX_UNUSABLE) none was due at its time.
    Timestamps,
    /// It sends chunks, but for [`MAX_UNUSABLE`](super::MAX_UNUSABLE) none could be decoded.
    Undecodable,
}

impl SendspinInputError {
    /// Whether a quick retry cannot help.
    pub(super) const fn is_permanent(&self) -> bool {
        match self {
            Self::Name | Self::Io(_) | Self::Closed => false,
            Self::Protocol(error) => !matches!(error, SendspinClientError::NoAnswer),
            Self::WebSocket(_) | Self::Unsupported(_) | Self::Timestamps | Self::Undecodable => {
                true
            }
        }
    }
}

impl fmt::Display for SendspinInputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("the name of the server has no address"),
            Self::Io(kind) => kind.fmt(f),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::WebSocket(why) => f.write_str(why),
            Self::Protocol(error) => error.fmt(f),
            Self::Unsupported(format) => {
                write!(f, "the server sends {format}, which is not played")
            }
            Self::Timestamps => {
                f.write_str("the timestamps of the server's chunks do not agree with its clock")
            }
            Self::Undecodable => f.write_str("the server's chunks cannot be decoded"),
        }
    }
}

impl core::error::Error for SendspinInputError {}

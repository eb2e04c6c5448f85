//! Streams as a program sees them: their ids, their status and their end.

use super::stats::StreamStats;

/// Identifies a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(super) u64);

/// A stream that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndedStream<M> {
    /// The stream.
    pub id: StreamId,
    /// Its machine.
    pub machine: M,
    /// Its final counters.
    pub stats: StreamStats,
    /// Why it ended.
    pub cause: StreamEndCause,
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEndCause {
    /// Removed by [`UdpContext::remove`](super::UdpContext::remove), or by closing its shared port.
    Removed,
    /// Its machine ended it ([`Outbox::end`](aulos_session::datagram::Outbox::end)).
    Machine,
    /// It was silent for longer than its shared port allows.
    Silent,
    /// The system could not watch its socket.
    WatchFailed,
    /// The context has stopped.
    Stopped,
}

/// The status of a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamReport<R> {
    /// The stream.
    pub id: StreamId,
    /// Its counters.
    pub stats: StreamStats,
    /// The report of its machine.
    pub report: R,
}

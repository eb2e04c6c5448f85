//! Sessions as a program sees them: their ids, their events and their end.

use std::net::SocketAddr;
use std::sync::Arc;

use aulos_core::Span;
use aulos_proto::sendspin::{ArtworkRequest, ControllerCommand, SupportedFormat};
use aulos_proto::snap::session::CloseReason;
use aulos_proto::snap::wire::{ClientInfo, Hello, PlayerReport};

use super::greeting::Greeting;

/// Receives the events of the reactors. Called on a reactor thread: must not block.
pub trait EventSink: Send + Sync {
    /// Takes an event.
    ///
    /// # Errors
    /// Returns the event when there is no room; the reactor tries again a little later.
    #[allow(clippy::result_large_err, reason = "a box would allocate on the reactor's thread")]
    fn push(&self, event: ReactorEvent) -> Result<(), ReactorEvent>;
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReactorEvent {
    /// A client has sent its Hello. Unless it has been answered, it waits for
    /// [`ReactorPool::set_settings`](super::ReactorPool::set_settings) and
    /// [`ReactorPool::set_station`](super::ReactorPool::set_station), in that order, or for
    /// [`ReactorPool::refuse`](super::ReactorPool::refuse), for two seconds at most.
    Hello {
        /// The session.
        session: SessionId,
        /// The content of the Hello.
        hello: Box<Hello>,
        /// The client's address.
        address: SocketAddr,
        /// Whether the client is already authorized, by HTTP or by a valid certificate.
        authorized: bool,
        /// The answer that the reactor has given.
        answered: Option<Greeting>,
        /// The volume and mute that the client has; only Sendspin players say so.
        volume: ClientInfo,
    },
    /// A client has changed its own volume.
    ClientInfo {
        /// The session.
        session: SessionId,
        /// The new volume and mute state.
        info: ClientInfo,
    },
    /// A Sendspin client is there; its [`ReactorEvent::Hello`] follows.
    SendspinClient {
        /// The session.
        session: SessionId,
        /// The formats that it can play.
        formats: Arc<[SupportedFormat]>,
    },
    /// A Sendspin client wants these pictures.
    Artwork {
        /// The session.
        session: SessionId,
        /// What it wants.
        request: ArtworkRequest,
    },
    /// A client has a command for its group.
    Command {
        /// The session.
        session: SessionId,
        /// The command.
        command: ControllerCommand,
    },
    /// The state of a client's connection, every two seconds, or less often with very many clients.
    /// The only event that is not repeated when there was no room for it.
    Health {
        /// The session.
        session: SessionId,
        /// The state of the connection.
        health: ConnectionHealth,
    },
    /// A session that had sent its Hello has ended.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// The cause.
        cause: SessionEndCause,
    },
}

/// The state of a client's connection as seen from the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionHealth {
    /// How long the client can play from what it has been sent; `None` before the first chunk,
    /// negative when it is late.
    pub buffered: Option<Span>,
    /// The smoothed round-trip time as measured by TCP.
    pub round_trip: Span,
    /// The mean deviation of the round-trip time.
    pub jitter: Span,
    /// Bytes that are waiting in this machine.
    pub unsent: u64,
    /// Segments that were retransmitted since the connection began.
    pub retransmitted: u64,
    /// Chunks that were skipped because the client was too slow.
    pub skipped: u64,
    /// Time since the last skipped chunk.
    pub since_skip: Option<Span>,
    /// Time since the client's last Time request.
    pub since_time_request: Option<Span>,
    /// How well the client is in time, if it reports that.
    pub report: Option<PlayerReport>,
}

/// One connection of one client: the reactor, and a number that is never reused in the lifetime of
/// a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    pub(super) const fn new(reactor: usize, token: u64) -> Self {
        Self((reactor as u64) << TOKEN_BITS | token)
    }

    #[allow(clippy::cast_possible_truncation, reason = "eight bits")]
    pub(super) const fn reactor(self) -> usize {
        (self.0 >> TOKEN_BITS) as usize
    }

    pub(super) const fn token(self) -> u64 {
        self.0 & ((1 << TOKEN_BITS) - 1)
    }
}

/// A token has 24 bits of generation and 32 bits of index; the bits above hold the reactor.
const TOKEN_BITS: u32 = 56;

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionEndCause {
    /// The peer closed the connection.
    Closed,
    /// The connection failed: reset, or nothing was acknowledged for ten seconds.
    Network,
    /// The peer read nothing for ten seconds.
    NotReading,
    /// The peer violated the protocol.
    Protocol(CloseReason),
    /// The server ended it on command.
    Kicked,
    /// What the peer sent was invalid TLS.
    TlsFailed,
    /// The peer began a TLS handshake and did not finish it.
    TlsUnfinished,
    /// The peer does not use TLS although it is required.
    PlainRefused,
}

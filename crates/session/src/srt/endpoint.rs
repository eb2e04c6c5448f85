//! The machine: a caller or a listener, and its connection.

use core::net::SocketAddr;

use aulos_core::{Instant, Span};
use aulos_proto::srt::{ControlKind, SrtControl, SrtPacket};

use super::agreement::{Decision, Ends};
use super::caller::Caller;
use super::config::{SrtConfig, SrtListenerConfig};
use super::connection::Connection;
use super::listener::Listener;
use super::output::{Outputs, SrtOutput};
use super::secret::SecretNumbers;

/// One end of a connection.
///
/// # Examples
/// Two ends, and a network that loses nothing:
/// ```
/// use std::collections::VecDeque;
///
/// use aulos_core::{Instant, Span};
/// use aulos_session::srt::{SrtConfig, SrtEndpoint, SrtOutput};
///
/// let addresses = ["192.0.2.1:5000".parse().unwrap(), "192.0.2.2:6000".parse().unwrap()];
/// let mut now = Instant::ZERO + Span::from_secs(1);
/// let config = SrtConfig::default();
/// let mut ends = [
///     SrtEndpoint::caller(config.clone(), addresses[1], [1; 32], now),
///     SrtEndpoint::listener(config, Default::default(), [2; 32], now),
/// ];
/// let mut received = Vec::new();
/// for step in 0..200 {
///     now += Span::from_millis(1);
///     if step == 20 {
///         assert!(ends[0].send(now, b"a piece of a stream"));
///     }
///     for from in [0, 1] {
///         ends[from].handle_timeout(now);
///         while let Some(output) = ends[from].poll_output() {
///             match output {
///                 SrtOutput::Transmit { bytes, .. } => {
///                     ends[1 - from].handle_input(now, addresses[from], &bytes);
///                 }
///                 SrtOutput::Payload(payload) => received.push(payload),
///                 _ => {}
///             }
///         }
///     }
/// }
/// assert_eq!(received, [b"a piece of a stream"]);
/// ```
#[derive(Debug)]
pub struct SrtEndpoint {
    role: Role,
    connection: Option<Connection>,
    secrets: SecretNumbers,
    out: Outputs,
    /// Counters of what belongs to no connection.
    invalid: u64,
    refused: u64,
    /// Sums over the connections that have ended.
    past: SrtStatus,
}

#[derive(Debug)]
enum Role {
    Caller(Box<Caller>),
    Listener(Box<Listener>),
}

/// The state of an endpoint. Counters begin with the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrtStatus {
    /// The other end of the connection.
    pub peer: Option<SocketAddr>,
    /// The round-trip time.
    pub round_trip: Span,
    /// Data packets that have arrived, and bytes of payload in them.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// Packets that were missing when a later one came.
    pub lost: u64,
    /// Packets that had not come when the next one was due.
    pub dropped: u64,
    /// Packets that came because they were sent again.
    pub retransmitted: u64,
    /// Packets that came more than once, or too late.
    pub duplicates: u64,
    /// Packets that could not be decrypted, or are too long.
    pub unreadable: u64,
    /// Data packets that were sent, for the first time and again.
    pub sent: u64,
    /// See `sent`.
    pub resent: u64,
    /// Packets that were not acknowledged before they were too old.
    pub unacknowledged: u64,
    /// Datagrams that are no packets, or belong to no connection.
    pub invalid: u64,
    /// Callers that were refused.
    pub refused: u64,
}

impl SrtEndpoint {
    /// A caller of `peer`. `seed` is from the system's random generator.
    #[must_use]
    pub fn caller(config: SrtConfig, peer: SocketAddr, seed: [u8; 32], now: Instant) -> Self {
        let mut secrets = SecretNumbers::new(&seed);
        let caller = Caller::new(config, peer, &mut secrets, now);
        Self::new(Role::Caller(Box::new(caller)), secrets)
    }

    /// A listener. `seed` as above.
    #[must_use]
    pub fn listener(
        config: SrtConfig,
        listener: SrtListenerConfig,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let role = Role::Listener(Box::new(Listener::new(config, listener, now)));
        Self::new(role, SecretNumbers::new(&seed))
    }

    fn new(role: Role, secrets: SecretNumbers) -> Self {
        let (connection, out, past) = Default::default();
        Self { role, connection, secrets, out, invalid: 0, refused: 0, past }
    }

    /// Handles a datagram.
    pub fn handle_input(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let Some(packet) = SrtPacket::parse(datagram) else {
            self.invalid += 1;
            return;
        };
        if let SrtPacket::Control(control) = &packet
            && matches!(control.kind, ControlKind::Handshake(_))
        {
            self.handle_handshake(now, from, control);
        } else {
            let id = match &packet {
                SrtPacket::Data(data) => data.destination,
                SrtPacket::Control(control) => control.destination,
            };
            let is_of = |ends: Ends| ends.peer == from && ends.local_id == id;
            match &mut self.connection {
                Some(connection) if is_of(connection.ends) => {
                    connection.handle_packet(now, &packet, &mut self.out);
                }
                _ => self.invalid += 1,
            }
        }
        self.take_end();
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now, &mut self.out);
        } else if let Role::Caller(caller) = &mut self.role
            && let Some(reason) = caller.handle_timeout(now, &mut self.out)
        {
            self.out.push(SrtOutput::Closed(reason));
        }
        self.take_end();
    }

    /// When to call [`SrtEndpoint::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (&self.connection, &self.role) {
            (Some(connection), _) => Some(connection.poll_timeout()),
            (None, Role::Caller(caller)) => caller.poll_timeout(),
            (None, Role::Listener(_)) => None,
        }
    }

    /// The next thing to be done.
    pub fn poll_output(&mut self) -> Option<SrtOutput> {
        self.out.0.pop_front()
    }

    /// Sends a payload of at most [`MAX_PAYLOAD`](aulos_proto::srt::MAX_PAYLOAD) bytes; false
    /// without a connection, or if it is longer.
    pub fn send(&mut self, now: Instant, payload: &[u8]) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        connection.send(now, payload, &mut self.secrets, &mut self.out)
    }

    /// Ends the connection; the peer is told.
    pub fn close(&mut self, now: Instant) {
        let Some(mut connection) = self.connection.take() else { return };
        connection.shut_down(now, &mut self.out);
        self.past = self.past.plus(connection.status());
    }

    /// Whether there is a connection.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The state.
    #[must_use]
    pub fn status(&self) -> SrtStatus {
        let present = self.connection.as_ref().map(Connection::status).unwrap_or_default();
        let status = self.past.plus(present);
        SrtStatus { invalid: self.invalid, refused: self.refused, ..status }
    }

    #[cfg(test)]
    pub(super) const fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    fn handle_handshake(&mut self, now: Instant, from: SocketAddr, control: &SrtControl<'_>) {
        let decision = match &mut self.role {
            Role::Caller(_) if self.connection.is_some() => Decision::Ignore,
            Role::Caller(caller) => caller.handle_handshake(now, from, control),
            Role::Listener(listener) => {
                let ends = self.connection.as_ref().map(|connection| connection.ends);
                listener.handle_handshake((now, from), control, ends, &mut self.secrets)
            }
        };
        match decision {
            Decision::Ignore => self.invalid += 1,
            Decision::Answer(handshake) => self.out.transmit(from, &SrtPacket::Control(handshake)),
            Decision::Connect(agreement, answer, stream_id) => {
                self.connection = Some(Connection::new(*agreement, now));
                if let Some(answer) = answer {
                    self.out.transmit(from, &SrtPacket::Control(answer));
                }
                self.out.push(SrtOutput::Connected { peer: from, stream_id });
            }
            Decision::Refuse(code, answer) => {
                self.refused += 1;
                self.out.transmit(from, &SrtPacket::Control(answer));
                self.out.push(SrtOutput::Refused { from, code });
            }
            Decision::Fail(reason) => self.out.push(SrtOutput::Closed(reason)),
        }
    }

    fn take_end(&mut self) {
        let Some(reason) = self.connection.as_ref().and_then(Connection::end) else { return };
        if let Some(connection) = self.connection.take() {
            self.past = self.past.plus(connection.status());
        }
        self.out.push(SrtOutput::Closed(reason));
    }
}

impl Connection {
    fn status(&self) -> SrtStatus {
        let (received, sent) = (self.receiver.counts, self.sender.counts);
        // That of the direction in which data flows.
        let is_receiver = received.packets >= sent.packets;
        let round_trip =
            if is_receiver { &self.receiver.round_trip } else { &self.sender.round_trip };
        SrtStatus {
            peer: Some(self.ends.peer),
            round_trip: round_trip.mean(),
            packets: received.packets,
            bytes: received.bytes,
            lost: received.lost,
            dropped: received.dropped,
            retransmitted: received.retransmitted,
            duplicates: received.duplicates,
            unreadable: self.unreadable,
            sent: sent.packets,
            resent: sent.resent,
            unacknowledged: sent.dropped,
            invalid: 0,
            refused: 0,
        }
    }
}

impl SrtStatus {
    /// The counters of both, with the peer of the later one.
    #[must_use]
    pub fn plus(self, later: Self) -> Self {
        Self {
            peer: later.peer,
            round_trip: later.round_trip,
            packets: self.packets + later.packets,
            bytes: self.bytes + later.bytes,
            lost: self.lost + later.lost,
            dropped: self.dropped + later.dropped,
            retransmitted: self.retransmitted + later.retransmitted,
            duplicates: self.duplicates + later.duplicates,
            unreadable: self.unreadable + later.unreadable,
            sent: self.sent + later.sent,
            resent: self.resent + later.resent,
            unacknowledged: self.unacknowledged + later.unacknowledged,
            invalid: self.invalid + later.invalid,
            refused: self.refused + later.refused,
        }
    }
}

//! The connection of one client: of Snapcast, or of Sendspin.

mod link;
mod sendspin;
mod snapcast;
mod wire;

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_engine::fanout::ChunkCursor;
use aulos_proto::sendspin::{ArtworkUpdate, RoomState, SupportedFormat};
use aulos_proto::snap::session::Refusal;
use aulos_proto::snap::wire::ServerSettings;

use super::connection::{MediaConnection, session_end_cause};
use super::connection_limiter::AddressPermit;
use super::greeting::Greeting;
use super::moves::Continuation;
use super::outbox::{ChunkFraming, Outbox, WriteStatus};
use super::send_wheel::TICK;
use super::stations::{ReactorStation, ZERO_COPY_GRACE};
use super::tls::{ListenPolicy, MediaSocket};
use super::{ConnectionHealth, SessionEndCause};
use crate::{SystemClock, sys};
use link::Link;
use sendspin::SendspinLink;
pub use sendspin::SendspinSocket;
use snapcast::SnapcastLink;
pub(super) use wire::PeerEvent;
use wire::Wire;

/// A socket, its protocol state machine, and its cursor in a station's log.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) connection: MediaConnection,
    pub(super) address: SocketAddr,
    /// It has sent its Hello.
    pub(super) has_said_hello: bool,
    /// Authorized before the connection was handed to the reactor.
    authorized: bool,
    pub(super) station: Option<usize>,
    /// The station on which it continues once that has its next chunk.
    pub(super) continues_on: Option<Continuation>,
    latency: Span,
    link: Link,
    outbox: Outbox,
    cursor: Option<ChunkCursor>,
    /// The codec header that it was sent last.
    codec_header: Option<Arc<[u8]>>,
    /// The history is being sent, in slices.
    pub(super) catching_up: bool,
    /// Chunks have been passed over, because the client was not ready for sound.
    waits_for_client: bool,
    /// The socket is full; the reactor waits until it is writable.
    pub(super) blocked: bool,
    /// It is scheduled on the wheel.
    pub(super) scheduled: bool,
    /// Its tick among those of a wait.
    pub(super) phase: u16,
    /// Epoll watches for the socket to become writable.
    pub(super) watches_out: bool,
    /// It is queued for its next slice.
    pub(super) queued: bool,
    _permit: AddressPermit,
    last_progress: Instant,
    pub(super) chunks: u64,
    pub(super) lagged: u64,
    /// When chunks were last skipped.
    last_skip: Option<Instant>,
    /// The timestamp of the end of the last chunk sent.
    sent_until: Option<Instant>,
}

impl Peer {
    pub(super) fn new(
        socket: TcpStream,
        address: SocketAddr,
        permit: AddressPermit,
        phase: u16,
        now: Instant,
    ) -> Self {
        Self::with_connection(
            connection_constructor(address.ip())(socket),
            address,
            permit,
            phase,
            now,
        )
    }

    fn with_connection(
        connection: MediaConnection,
        address: SocketAddr,
        permit: AddressPermit,
        phase: u16,
        now: Instant,
    ) -> Self {
        Self {
            connection,
            address,
            has_said_hello: false,
            authorized: false,
            station: None,
            continues_on: None,
            latency: Span::ZERO,
            link: Link::Snapcast(SnapcastLink::new(false, now)),
            outbox: Outbox::new(ChunkFraming::Framed),
            cursor: None,
            codec_header: None,
            catching_up: false,
            waits_for_client: false,
            blocked: false,
            scheduled: false,
            phase,
            watches_out: false,
            queued: false,
            _permit: permit,
            last_progress: now,
            chunks: 0,
            lagged: 0,
            last_skip: None,
            sent_until: None,
        }
    }

    /// A client behind a WebSocket, after the handshake.
    pub(super) fn from_websocket(mut socket: MediaSocket, phase: u16, now: Instant) -> Self {
        let (address, authorized) = (socket.address, socket.authorized);
        let permit = core::mem::take(&mut socket.permit);
        let constructor = connection_constructor(socket.peer);
        let connection = MediaConnection::from_media_socket(socket, constructor);
        Self {
            link: Link::Snapcast(SnapcastLink::new(true, now)),
            outbox: Outbox::new(ChunkFraming::WebSocket),
            authorized,
            ..Self::with_connection(connection, address, permit, phase, now)
        }
    }

    /// A Sendspin client that has been let in. Its first event is its Hello, which a player is
    /// ready for once it has sent its state.
    pub(super) fn from_sendspin(socket: SendspinSocket, phase: u16, now: Instant) -> Self {
        let SendspinSocket { mut socket, client, reader, writer, alive, .. } = socket;
        let (address, permit) = (socket.address, core::mem::take(&mut socket.permit));
        let connection = MediaConnection::from_media_socket(socket, MediaConnection::new);
        let link = SendspinLink::new(client, reader, (writer, alive), now);
        Self {
            link: Link::Sendspin(Box::new(link)),
            outbox: Outbox::new(ChunkFraming::Payload),
            authorized: true,
            ..Self::with_connection(connection, address, permit, phase, now)
        }
    }

    /// Whether it is a Sendspin client.
    pub(super) const fn is_sendspin(&self) -> bool {
        matches!(self.link, Link::Sendspin(_))
    }

    /// The formats that a Sendspin client can play.
    pub(super) fn formats(&self) -> Arc<[SupportedFormat]> {
        match &self.link {
            Link::Snapcast(_) => Arc::default(),
            Link::Sendspin(link) => link.formats(),
        }
    }

    /// Whether the client is authorized, by HTTP or by a certificate.
    pub(super) fn is_authorized(&self) -> bool {
        self.authorized || self.connection.has_certificate()
    }

    /// Reads once, answers Time requests, and adds other messages to the events.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        policy: &ListenPolicy,
        events: &mut Vec<PeerEvent>,
    ) -> Result<bool, SessionEndCause> {
        let count = match self.connection.read(scratch) {
            Ok(0) => return Err(SessionEndCause::Closed),
            Ok(count) => count,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(false),
                    io::ErrorKind::Interrupted => Ok(true),
                    _ => Err(session_end_cause(&error)),
                };
            }
        };
        if self.connection.is_protocol_unknown()
            && !self.connection.detect_protocol(&scratch[..count], policy)?
        {
            return Ok(true);
        }
        self.handle_bytes(&scratch[..count], events)?;
        self.flush()?;
        Ok(count == scratch.len())
    }

    /// Handles bytes that have been read.
    pub(super) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        let now = SystemClock::now();
        let was_ready = self.link.is_ready_for_audio();
        let (link, mut wire) = self.split();
        let result = link.handle_bytes(&mut wire, bytes, now, events);
        // What its station has for it is sent at once, and not in its turn.
        let is_ready = self.link.is_ready_for_audio();
        self.catching_up |= self.cursor.is_some() && is_ready && !was_ready;
        result
    }

    /// The link, and what it writes to.
    const fn split(&mut self) -> (&mut Link, Wire<'_>) {
        let wire = Wire {
            connection: &mut self.connection,
            outbox: &mut self.outbox,
            blocked: &mut self.blocked,
        };
        (&mut self.link, wire)
    }

    /// Sends the settings to the client.
    pub(super) fn set_settings(&mut self, settings: ServerSettings) -> Result<(), SessionEndCause> {
        self.apply_settings(settings)?;
        self.flush()
    }

    /// Answers a Hello. The messages go out with the first chunks; the caller pumps.
    pub(super) fn send_greeting(
        &mut self,
        greeting: &Greeting,
        tap: &ReactorStation,
    ) -> Result<(), SessionEndCause> {
        self.apply_settings(greeting.settings)?;
        self.join(greeting.station, tap)
    }

    /// Refuses a client that may not listen, which ends the session.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Result<(), SessionEndCause> {
        let (link, mut wire) = self.split();
        link.refuse(&mut wire, refusal)
    }

    /// Tells a Sendspin client of its group.
    pub(super) fn set_room(&mut self, room: Arc<RoomState>) -> Result<(), SessionEndCause> {
        let (link, mut wire) = self.split();
        link.set_room(&mut wire, room)?;
        self.flush()
    }

    /// Tells a Sendspin client what its channels are to show; the caller pumps.
    pub(super) fn set_artwork(&mut self, update: &ArtworkUpdate) -> Result<(), SessionEndCause> {
        let (link, mut wire) = self.split();
        link.set_artwork(&mut wire, update)
    }

    /// Starts a station: its codec header, then the chunks that can still be played. They go out
    /// together; the caller pumps.
    pub(super) fn join(
        &mut self,
        station: usize,
        tap: &ReactorStation,
    ) -> Result<(), SessionEndCause> {
        let now = SystemClock::now();
        tap.descriptor.demand.renew(now);
        self.station = Some(station);
        self.continues_on = None;
        let cursor = tap.first_playable(now, self.sending_window(tap));
        self.cursor = Some(cursor);
        self.catching_up = true;
        let header = tap.codec_header(cursor);
        self.codec_header = Some(Arc::clone(header));
        let (link, mut wire) = self.split();
        link.begin_stream(&mut wire, header, now)
    }

    /// Sends the codec header of the next chunk if it is another one than before.
    fn update_codec_header(
        &mut self,
        tap: &ReactorStation,
        cursor: ChunkCursor,
        now: Instant,
    ) -> Result<(), SessionEndCause> {
        let header = tap.codec_header(cursor);
        let is_same = |sent: &Arc<[u8]>| Arc::ptr_eq(sent, header) || sent == header;
        if self.codec_header.as_ref().is_some_and(is_same) || !tap.has_chunk(cursor) {
            return Ok(());
        }
        self.codec_header = Some(Arc::clone(header));
        let (link, mut wire) = self.split();
        link.change_stream(&mut wire, header, now)
    }

    /// Continues on `station` with the next chunk, if its log has that one or is about to get it.
    pub(super) fn continue_on(
        &mut self,
        from: &ReactorStation,
        station: usize,
        to: &ReactorStation,
    ) {
        let chunk = from.descriptor.chunk;
        let next = self.cursor.and_then(|cursor| from.log.timestamp_at(cursor, chunk));
        if let Some(cursor) = next.and_then(|next| to.log.cursor_at(next, chunk)) {
            (self.station, self.cursor) = (Some(station), Some(cursor));
            self.continues_on = None;
        }
    }

    /// The station is gone. Chunks of another station must not follow its codec header.
    pub(super) fn leave(&mut self) -> Result<(), SessionEndCause> {
        (self.station, self.continues_on) = (None, None);
        self.sent_until = None;
        (self.cursor, self.codec_header) = (None, None);
        self.catching_up = false;
        let (link, mut wire) = self.split();
        link.end_stream(&mut wire)?;
        self.flush()
    }

    /// Writes what is pending, at most `limit` bytes of chunks, and a part of a picture behind the
    /// last chunk. True when the peer has every chunk there is.
    pub(super) fn pump(
        &mut self,
        tap: Option<&ReactorStation>,
        now: Instant,
        limit: usize,
    ) -> Result<bool, SessionEndCause> {
        let done = self.pump_chunks(tap, now, limit)?;
        if !self.catching_up {
            let (link, mut wire) = self.split();
            link.send_artwork(&mut wire)?;
        }
        Ok(done)
    }

    fn pump_chunks(
        &mut self,
        tap: Option<&ReactorStation>,
        now: Instant,
        limit: usize,
    ) -> Result<bool, SessionEndCause> {
        let (Some(tap), Some(mut cursor)) = (tap, self.cursor) else {
            self.flush()?;
            return Ok(false);
        };
        if !self.link.is_ready_for_audio() {
            self.cursor = Some(tap.first_playable(now, self.sending_window(tap)));
            // It waits for its turn on the wheel; a slice of nothing would follow the other.
            (self.waits_for_client, self.catching_up) = (true, false);
            self.flush()?;
            return Ok(true);
        }
        if core::mem::take(&mut self.waits_for_client) {
            cursor = tap.first_playable(now, self.sending_window(tap));
        }
        // A stream that has begun is late only when its sound is.
        let buffer = self.buffer(tap);
        if tap.is_stale(cursor, now, buffer) {
            let playable = tap.first_playable(now, self.sending_window(tap));
            self.lagged += cursor.distance(playable);
            self.last_skip = Some(now);
            cursor = playable;
        }
        self.update_codec_header(tap, cursor, now)?;
        let (waiting, first) = (self.outbox.queued(), cursor);
        let (link, wire) = self.split();
        let (flow, sent, is_full) = link.send_chunks(wire, tap, &mut cursor, (now, limit))?;
        self.cursor = Some(cursor);
        self.chunks += sent as u64;
        if let Some(last) = sent.checked_sub(1).and_then(|last| tap.log.get(first, last).ok()?) {
            self.sent_until = Some(last.timestamp + tap.descriptor.chunk);
        }
        self.blocked = flow == WriteStatus::Blocked;
        if sent > 0 || !self.blocked || self.outbox.queued() < waiting {
            self.last_progress = now;
        }
        let done = is_full || !self.blocked && cursor == tap.log.cursor_at_end();
        self.catching_up = !done;
        Ok(done)
    }

    /// Checks the timers of the peer, and adds what it has to say to the events.
    pub(super) fn maintain(
        &mut self,
        tap: Option<&ReactorStation>,
        now: Instant,
        events: &mut Vec<PeerEvent>,
    ) -> Result<(), SessionEndCause> {
        // A peer that does not acknowledge chunks long after their playout time keeps buffers that
        // the station needs; only the end of the connection releases them.
        let overdue = |tap: &ReactorStation, oldest| {
            now.since(oldest) > tap.descriptor.history() + ZERO_COPY_GRACE
        };
        if tap.zip(self.connection.oldest_held()).is_some_and(|(tap, oldest)| overdue(tap, oldest))
        {
            return Err(SessionEndCause::NotReading);
        }
        if self.link.poll_timeout().is_some_and(|at| at <= now) {
            if self.connection.is_handshaking() {
                return Err(SessionEndCause::TlsUnfinished);
            }
            let (link, mut wire) = self.split();
            link.handle_timeout(&mut wire, now, events)?;
            self.flush()?;
        }
        if self.blocked && now.since(self.last_progress) > RELEASE_CHUNK_AFTER {
            self.outbox.release_chunk();
        }
        if self.blocked && now.since(self.last_progress) > STALL_TIMEOUT {
            return Err(SessionEndCause::NotReading);
        }
        Ok(())
    }

    /// The state of the connection. Reads the kernel's TCP statistics once.
    pub(super) fn health(&self, tap: Option<&ReactorStation>, now: Instant) -> ConnectionHealth {
        // Unavailable figures are zero.
        let account = sys::tcp_account(self.connection.as_fd()).unwrap_or_default();
        let until = self.sent_until.zip(tap).map(|(until, tap)| until + self.buffer(tap));
        ConnectionHealth {
            buffered: until.map(|until| until - now),
            round_trip: Span::from_micros(account.round_trip_us.into()),
            jitter: Span::from_micros(account.round_trip_variation_us.into()),
            unsent: u64::from(account.unsent_bytes) + self.outbox.queued() as u64,
            retransmitted: account.retransmitted.into(),
            skipped: self.lagged,
            since_skip: self.last_skip.map(|at| now.since(at)),
            since_time_request: self.link.time_requested_at().map(|at| now.since(at)),
            report: self.link.report(),
        }
    }

    /// Ticks between two sends: a tenth of the buffer, at most 100 ms. A client with a short buffer
    /// gets each chunk at once.
    pub(super) fn wait_ticks(&self, tap: Option<&ReactorStation>) -> usize {
        let buffer = tap.map_or(SHORT_BUFFER, |tap| self.buffer(tap));
        if buffer <= SHORT_BUFFER {
            return 1;
        }
        let ticks = buffer.as_nanos() / 10 / TICK.as_nanos();
        usize::try_from(ticks.clamp(1, 20)).unwrap_or(1)
    }

    fn buffer(&self, tap: &ReactorStation) -> Span {
        (tap.descriptor.buffer - self.latency).max(Span::ZERO)
    }

    /// The part of the buffer in which a chunk that is sent still comes in time.
    fn sending_window(&self, tap: &ReactorStation) -> Span {
        let buffer = self.buffer(tap);
        (buffer - self.link.lead()).max(buffer.min(MIN_WINDOW))
    }

    fn apply_settings(&mut self, settings: ServerSettings) -> Result<(), SessionEndCause> {
        self.latency = settings.latency;
        let (link, mut wire) = self.split();
        link.set_settings(&mut wire, settings)
    }

    fn flush(&mut self) -> Result<(), SessionEndCause> {
        self.split().1.flush()
    }
}

/// On loopback the kernel copies in any case.
fn connection_constructor(address: IpAddr) -> fn(TcpStream) -> MediaConnection {
    if address.to_canonical().is_loopback() {
        MediaConnection::new
    } else {
        MediaConnection::with_zero_copy
    }
}

/// A peer that reads nothing for this long is cut.
const STALL_TIMEOUT: Span = Span::from_secs(10);

/// A peer that reads nothing for this long gets the rest of its started chunk copied.
const RELEASE_CHUNK_AFTER: Span = Span::from_millis(250);

/// Clients with a buffer up to this get each chunk on the tick after it was made.
const SHORT_BUFFER: Span = Span::from_millis(200);

/// A client that wants its sound earlier than the station has it gets it as early as possible.
const MIN_WINDOW: Span = Span::from_millis(150);

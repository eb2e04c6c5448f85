//! One Snapcast client's connection.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use aulos_engine::fanout::Cursor;
use aulos_proto::snap::Session;
use aulos_proto::snap::session::{Cause, Event as SnapEvent, Input, Outgoing, Output, Refusal};
use aulos_proto::snap::wire::{ClientInfo, Hello, ServerSettings};
use aulos_proto::ws;

use super::connection_limiter::AddressPermit;
use super::greeting::Greeting;
use super::line::{Line, leave_cause};
use super::outbox::{Flow, Late, Outbox, Part};
use super::stations::{OVERDUE, Tap};
use super::tls::{Door, MediaSocket};
use super::wheel::TICK;
use super::{Health, LeaveCause};
use crate::{SystemClock, sys};

/// A socket, its protocol machine, and its place in a station's log.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) line: Line,
    pub(super) address: SocketAddr,
    /// It has said hello.
    pub(super) named: bool,
    /// Whoever handed it over has made sure that it may listen.
    vouched: bool,
    pub(super) station: Option<usize>,
    latency: Span,
    session: Session,
    /// Takes a WebSocket's frames apart; none on a bare TCP connection.
    frames: Option<Box<ws::Reader>>,
    outbox: Outbox,
    cursor: Option<Cursor>,
    /// It is being brought up to the present, slice by slice.
    pub(super) catching_up: bool,
    /// The kernel takes no more: we wait until it says that it does.
    pub(super) blocked: bool,
    /// It waits for its turn on the wheel.
    pub(super) scheduled: bool,
    /// Its turn's place among others'.
    pub(super) phase: u16,
    /// The kernel has been asked to say when the socket takes more.
    pub(super) watches_out: bool,
    /// It waits for its next slice.
    pub(super) queued: bool,
    _permit: AddressPermit,
    last_progress: Instant,
    pub(super) chunks: u64,
    pub(super) lagged: u64,
    /// When chunks were last left out.
    last_skip: Option<Instant>,
    /// The timestamp at which the last chunk that went out ends.
    sent_until: Option<Instant>,
}

/// What came out of reading a peer.
#[derive(Debug)]
pub(super) enum Said {
    Hello(Box<Hello>),
    ClientInfo(ClientInfo),
}

impl Peer {
    pub(super) fn new(
        socket: TcpStream,
        address: SocketAddr,
        permit: AddressPermit,
        phase: u16,
        now: Instant,
    ) -> Self {
        Self::on(kind_of_line(address.ip())(socket), address, permit, phase, now)
    }

    fn on(
        line: Line,
        address: SocketAddr,
        permit: AddressPermit,
        phase: u16,
        now: Instant,
    ) -> Self {
        Self {
            line,
            address,
            named: false,
            vouched: false,
            station: None,
            latency: Span::ZERO,
            session: Session::new(now),
            frames: None,
            outbox: Outbox::new(Part::Framed),
            cursor: None,
            catching_up: false,
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
    pub(super) fn web(mut socket: MediaSocket, phase: u16, now: Instant) -> Self {
        let (address, vouched) = (socket.address, socket.vouched);
        let permit = core::mem::take(&mut socket.permit);
        let line = Line::of(socket, kind_of_line(address.ip()));
        Self {
            frames: Some(Box::default()),
            outbox: Outbox::new(Part::WebSocket),
            vouched,
            ..Self::on(line, address, permit, phase, now)
        }
    }

    /// Whether somebody else than itself says that it may listen: HTTP, or a certificate.
    pub(super) fn is_vouched(&self) -> bool {
        self.vouched || self.line.has_certificate()
    }

    /// Reads once, answers Time requests, and says what else the peer said.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        door: &Door,
        said: &mut Vec<Said>,
    ) -> Result<bool, LeaveCause> {
        let count = match self.line.read(scratch) {
            Ok(0) => return Err(LeaveCause::Closed),
            Ok(count) => count,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(false),
                    io::ErrorKind::Interrupted => Ok(true),
                    _ => Err(leave_cause(&error)),
                };
            }
        };
        if self.line.is_new() && !self.line.recognise(&scratch[..count], door)? {
            return Ok(true);
        }
        self.take(&scratch[..count], said)?;
        self.flush()?;
        Ok(count == scratch.len())
    }

    /// Takes bytes that have been read.
    pub(super) fn take(&mut self, bytes: &[u8], said: &mut Vec<Said>) -> Result<(), LeaveCause> {
        let now = SystemClock::now();
        let Some(mut frames) = self.frames.take() else {
            self.session.handle_input(now, Input::Received(bytes));
            return self.drain(said);
        };
        let result = self.take_frames(&mut frames, bytes, now, said);
        self.frames = Some(frames);
        result
    }

    fn take_frames(
        &mut self,
        frames: &mut ws::Reader,
        mut bytes: &[u8],
        now: Instant,
        said: &mut Vec<Said>,
    ) -> Result<(), LeaveCause> {
        let broken = |_| LeaveCause::Protocol(Cause::Malformed);
        while let Some(message) = frames.next(&mut bytes).map_err(broken)? {
            match message {
                ws::Message::Binary(message) => {
                    self.session.handle_input(now, Input::Framed(message));
                    // One message's answers go out before the next is read: what waits is bounded
                    // for each of them.
                    self.drain(said)?;
                }
                ws::Message::Ping(payload) => self.answer(ws::Kind::Pong, payload)?,
                ws::Message::Close(payload) => {
                    self.answer(ws::Kind::Close, payload)?;
                    return Err(LeaveCause::Closed);
                }
                // snapserver has no use for text either.
                _ => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, kind: ws::Kind, payload: &[u8]) -> Result<(), LeaveCause> {
        if self.outbox.queued() > MAX_QUEUED {
            return Err(LeaveCause::NotReading);
        }
        self.outbox.queue(ws::Head::new(kind, payload.len()).as_bytes());
        self.outbox.queue(payload);
        self.flush()
    }

    /// Tells the peer its settings.
    pub(super) fn set(&mut self, settings: ServerSettings) -> Result<(), LeaveCause> {
        self.hear_settings(settings)?;
        self.flush()
    }

    /// Answers a Hello. What it says goes out with the first chunks: the caller pumps.
    pub(super) fn welcome(&mut self, greeting: &Greeting, tap: &Tap) -> Result<(), LeaveCause> {
        self.hear_settings(greeting.settings)?;
        self.join(greeting.station, tap)
    }

    /// Answers a Hello of a client that may not listen, which ends the session.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Result<(), LeaveCause> {
        self.session.handle_input(SystemClock::now(), Input::Refuse(refusal));
        self.drain(&mut Vec::new())
    }

    /// Goes over to a station: its codec header, and the chunks that can still be heard. They go
    /// out together: the caller pumps.
    pub(super) fn join(&mut self, station: usize, tap: &Tap) -> Result<(), LeaveCause> {
        let now = SystemClock::now();
        self.station = Some(station);
        let header = Arc::clone(&tap.channel.codec_header);
        self.session.handle_input(now, Input::Stream(header));
        self.cursor = Some(tap.first_playable(now, self.buffer(tap)));
        self.catching_up = true;
        self.drain(&mut Vec::new())
    }

    /// Its station is gone. Chunks of another one must not follow this one's codec header.
    pub(super) fn leave(&mut self) {
        self.station = None;
        self.sent_until = None;
        self.cursor = None;
        self.catching_up = false;
    }

    /// Writes what waits and at most `limit` bytes of chunks. True when the peer has everything
    /// that there is.
    pub(super) fn pump(
        &mut self,
        tap: Option<&Tap>,
        now: Instant,
        limit: usize,
    ) -> Result<bool, LeaveCause> {
        let (Some(tap), Some(cursor)) = (tap, &mut self.cursor) else {
            self.flush()?;
            return Ok(false);
        };
        let buffer = (tap.channel.buffer - self.latency).max(Span::ZERO);
        if tap.is_stale(*cursor, now, buffer) {
            let playable = tap.first_playable(now, buffer);
            self.lagged += cursor.distance(playable);
            self.last_skip = Some(now);
            *cursor = playable;
        }
        let (waiting, first) = (self.outbox.queued(), *cursor);
        let (flow, sent) = self
            .outbox
            .send_chunks(&mut self.line, &tap.log, cursor, limit)
            .map_err(|_| LeaveCause::Network)?;
        self.chunks += sent as u64;
        if let Some(last) = sent.checked_sub(1).and_then(|last| tap.log.get(first, last).ok()?) {
            self.sent_until = Some(last.timestamp + tap.channel.chunk);
        }
        self.blocked = flow == Flow::Blocked;
        if sent > 0 || !self.blocked || self.outbox.queued() < waiting {
            self.last_progress = now;
        }
        let done = !self.blocked && *cursor == tap.log.cursor_at_end();
        self.catching_up = !done;
        Ok(done)
    }

    /// Looks at the peer's timers.
    pub(super) fn maintain(&mut self, tap: Option<&Tap>, now: Instant) -> Result<(), LeaveCause> {
        // Whoever has not acknowledged what it should have played long ago keeps buffers that the
        // station needs, and nothing but the connection's end gives them back.
        let overdue = |tap: &Tap, oldest| now.since(oldest) > tap.channel.history() + OVERDUE;
        if tap.zip(self.line.oldest_held()).is_some_and(|(tap, oldest)| overdue(tap, oldest)) {
            return Err(LeaveCause::NotReading);
        }
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            if self.line.is_handshaking() {
                return Err(LeaveCause::TlsUnfinished);
            }
            self.session.handle_timeout(now);
            self.drain(&mut Vec::new())?;
        }
        if self.blocked && now.since(self.last_progress) > LET_GO {
            self.outbox.let_go();
        }
        if self.blocked && now.since(self.last_progress) > STALL {
            return Err(LeaveCause::NotReading);
        }
        Ok(())
    }

    /// How it does, with one look at the kernel's account of the connection.
    pub(super) fn health(&self, tap: Option<&Tap>, now: Instant) -> Health {
        // What the kernel does not say is zero.
        let account = sys::tcp_account(self.line.as_fd()).unwrap_or_default();
        let until = self.sent_until.zip(tap).map(|(until, tap)| until + self.buffer(tap));
        Health {
            ahead: until.map(|until| until - now),
            round_trip: Span::from_micros(account.round_trip_us.into()),
            jitter: Span::from_micros(account.variation_us.into()),
            unsent: u64::from(account.unsent_bytes) + self.outbox.queued() as u64,
            retransmitted: account.retransmitted.into(),
            skipped: self.lagged,
            since_skip: self.last_skip.map(|at| now.since(at)),
        }
    }

    /// How many ticks lie between two sends: a tenth of the buffer, at most 100 ms; a client with a
    /// short buffer gets its chunks at once.
    pub(super) fn wait_ticks(&self, tap: Option<&Tap>) -> usize {
        let buffer = tap.map_or(SHORT_BUFFER, |tap| self.buffer(tap));
        if buffer <= SHORT_BUFFER {
            return 1;
        }
        let ticks = buffer.as_nanos() / 10 / TICK.as_nanos();
        usize::try_from(ticks.clamp(1, 20)).unwrap_or(1)
    }

    fn buffer(&self, tap: &Tap) -> Span {
        (tap.channel.buffer - self.latency).max(Span::ZERO)
    }

    fn hear_settings(&mut self, settings: ServerSettings) -> Result<(), LeaveCause> {
        self.latency = settings.latency;
        self.session.handle_input(SystemClock::now(), Input::Settings(settings));
        self.drain(&mut Vec::new())
    }

    /// Writes what waits, if nothing is known to be in the way.
    fn flush(&mut self) -> Result<(), LeaveCause> {
        if self.outbox.queued() > 0 {
            let flow = self.outbox.finish(&mut self.line).map_err(|_| LeaveCause::Network)?;
            self.blocked = flow == Flow::Blocked;
        }
        Ok(())
    }

    /// Time replies are written at once; the rest is put in order behind what waits.
    fn drain(&mut self, said: &mut Vec<Said>) -> Result<(), LeaveCause> {
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Send(message) => {
                    if self.outbox.queued() > MAX_QUEUED {
                        return Err(LeaveCause::NotReading);
                    }
                    let at_once = matches!(message, Outgoing::Time { .. });
                    let message = Framed { message, web: self.outbox.is_web() };
                    if at_once {
                        let flow = self
                            .outbox
                            .send_late(&mut self.line, &message, SystemClock::now)
                            .map_err(|_| LeaveCause::Network)?;
                        self.blocked = flow == Flow::Blocked;
                    } else {
                        self.outbox.queue_late(&message, SystemClock::now());
                    }
                }
                Output::Event(SnapEvent::Hello(hello)) => said.push(Said::Hello(hello)),
                Output::Event(SnapEvent::ClientInfo(info)) => said.push(Said::ClientInfo(info)),
                Output::Close(cause) => {
                    // What was said before the end still goes out, as far as the socket takes it.
                    self.flush()?;
                    return Err(LeaveCause::Protocol(cause));
                }
                // The machine may learn to say more; what we do not know we do not do.
                _ => {}
            }
        }
        Ok(())
    }
}

/// The kernel copies what goes to this machine in any case.
fn kind_of_line(address: IpAddr) -> fn(TcpStream) -> Line {
    if address.to_canonical().is_loopback() { Line::new } else { Line::to_remote }
}

/// A message as this client gets it.
struct Framed {
    message: Outgoing,
    web: bool,
}

impl Late for Framed {
    fn write(&self, sent: Instant, out: &mut Vec<u8>) {
        let start = out.len();
        self.message.write(sent, out);
        if self.web {
            let head = ws::Head::new(ws::Kind::Binary, out.len() - start);
            out.extend_from_slice(head.as_bytes());
            out[start..].rotate_right(head.as_bytes().len());
        }
    }
}

/// A peer that takes nothing for this long is cut.
const STALL: Span = Span::from_secs(10);

/// A peer that takes nothing for this long keeps no chunk from its pool.
const LET_GO: Span = Span::from_millis(250);

/// Clients with no more than this get each chunk on the tick after it was made.
const SHORT_BUFFER: Span = Span::from_millis(200);

/// Unwritten answers of a peer that asks and does not read.
const MAX_QUEUED: usize = 65_536;

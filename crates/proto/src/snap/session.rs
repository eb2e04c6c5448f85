//! Server side of a stream connection.
//!
//! The machine parses messages, keeps their order and decides when to disconnect; it does not
//! handle audio. Chunks are the same bytes for every client and are sent directly from the log
//! while [`Session::is_ready_for_audio`] is true. A session has no queue of chunks
//! (`docs/decisions/chunk-log.md`).
//!
//! Messages to send are [`ServerOutgoing`] values, which the driver encodes directly before the
//! write, ahead of any waiting audio. Clients set their clock by the two timestamps in a Time
//! reply, so every microsecond between taking the timestamp and writing would be an error of their
//! clock.
//!
//! After each input, the driver calls [`Session::poll_output`] until it returns `None`; the number
//! of outputs is bounded by [`TIME_BURST`] plus a few.

mod assembly;
mod outgoing;

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Instant, Span, TokenBucket};

pub use assembly::MAX_READ;
use assembly::{AssembledMessage, MessageAssembler};
pub use outgoing::{Refusal, ServerOutgoing};

use super::wire::{
    ClientInfo, ClientMessage, FrameError, Hello, MAX_MESSAGE, MessageFrame, MessageKind,
    PayloadError, PlayerReport, ServerSettings, Transport, parse_framed,
};

/// Time within which a peer must send its Hello.
pub const HELLO_TIMEOUT: Span = Span::from_secs(5);

/// Number of Time requests that are answered at once. Snapclient sends 50 when it connects.
pub const TIME_BURST: u32 = 256;

/// Interval at which one more Time request is answered; snapclient sends one per second.
pub const TIME_INTERVAL: Span = Span::from_millis(10);

/// Number of unanswered Time requests from which the peer is disconnected.
pub const MAX_UNANSWERED: u32 = 10_000;

/// Server side of a stream connection.
#[derive(Debug)]
pub struct Session {
    state: State,
    assembly: MessageAssembler,
    outputs: VecDeque<SessionOutput>,
    time_requests: TokenBucket,
    time_requested_at: Option<Instant>,
    report: Option<PlayerReport>,
    now: Instant,
    stats: SessionStats,
}

/// Input of a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionInput<'a> {
    /// Bytes from TCP, split anywhere. The time of the input is the instant directly after the
    /// read.
    Received(&'a [u8]),
    /// A binary WebSocket message.
    Framed(&'a [u8]),
    /// Settings of this client: the answer to [`SessionEvent::Hello`], and later every change.
    Settings(ServerSettings),
    /// A stream begins, or replaces another one; the payload of
    /// [`codec_header`](super::wire::codec_header).
    Stream(Arc<[u8]>),
    /// The answer to [`SessionEvent::Hello`] when the client is refused.
    Refuse(Refusal),
}

/// Output of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionOutput {
    /// Event for the driver.
    Event(SessionEvent),
    /// Message to send now, ahead of audio.
    Send(ServerOutgoing),
    /// The connection ends after everything sent so far. It is the last output.
    Close(CloseReason),
}

/// Event from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// Hello. To be answered with [`SessionInput::Settings`] (or [`SessionInput::Refuse`]) within 2
    /// s, or snapclient disconnects.
    Hello(Box<Hello>),
    /// The client's own volume or mute has changed. Several changes in one input are merged into
    /// one event.
    ClientInfo(ClientInfo),
}

/// Reason why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// No Hello within [`HELLO_TIMEOUT`].
    NoHello,
    /// Unknown message type: the peer uses another protocol.
    BadType,
    /// Message larger than allowed.
    TooLarge,
    /// Invalid Hello.
    BadHello,
    /// Second Hello.
    SecondHello,
    /// Another invalid message.
    Malformed,
    /// Too many Time requests.
    TimeFlood,
    /// Too many other messages.
    MessageFlood,
    /// Refused by the driver.
    Refused,
    /// The client said goodbye.
    Goodbye,
    /// Nothing came from the client for too long.
    Silent,
}

impl CloseReason {
    /// Name for logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoHello => "no_hello",
            Self::BadType => "bad_type",
            Self::TooLarge => "too_large",
            Self::BadHello => "bad_hello",
            Self::SecondHello => "second_hello",
            Self::Malformed => "malformed",
            Self::TimeFlood => "time_flood",
            Self::MessageFlood => "message_flood",
            Self::Refused => "refused",
            Self::Goodbye => "goodbye",
            Self::Silent => "silent",
        }
    }
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Complete messages from the client.
    pub messages: u64,
    /// Valid messages that were ignored.
    pub ignored: u64,
    /// Time requests beyond the rate limit, not answered.
    pub unanswered: u32,
    /// Inputs with a time before that of an earlier one; they are treated as simultaneous.
    pub backwards: u64,
}

impl Session {
    /// A session with a peer that connected at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            state: State::ExpectHello { deadline: now + HELLO_TIMEOUT },
            assembly: MessageAssembler::default(),
            outputs: VecDeque::new(),
            time_requests: TokenBucket::new(TIME_BURST, TIME_INTERVAL, now),
            time_requested_at: None,
            report: None,
            now,
            stats: SessionStats::default(),
        }
    }

    /// Processes one input; its outputs must be taken afterwards.
    ///
    /// # Real-time
    /// Once greeted, Time requests are answered without allocating.
    pub fn handle_input(&mut self, now: Instant, input: SessionInput<'_>) {
        let now = self.advance(now);
        match input {
            SessionInput::Received(bytes) => self.receive(now, bytes),
            SessionInput::Framed(message) => self.receive_framed(now, message),
            SessionInput::Settings(settings) => self.settings(settings),
            SessionInput::Stream(header) => self.stream(header),
            SessionInput::Refuse(refusal) => self.refuse(refusal),
        }
    }

    /// Disconnects a peer that has not sent its Hello in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The next output; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<SessionOutput> {
        let output = self.outputs.pop_front();
        if output.is_none() && self.outputs.capacity() > IDLE_OUTPUTS {
            self.outputs = VecDeque::new();
        }
        output
    }

    /// Time at which to call [`Session::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::ExpectHello { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Whether chunks may be sent: settings and codec header were output.
    #[must_use]
    pub const fn is_ready_for_audio(&self) -> bool {
        matches!(self.state, State::Streaming { audio: true })
    }

    /// When the last Time request arrived: clients send one every second.
    #[must_use]
    pub const fn time_requested_at(&self) -> Option<Instant> {
        self.time_requested_at
    }

    /// What the client last reported of itself.
    #[must_use]
    pub const fn report(&self) -> Option<PlayerReport> {
        self.report
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> SessionStats {
        self.stats
    }

    /// Time never goes backwards here, and a deadline that has passed is handled before the input.
    fn advance(&mut self, now: Instant) -> Instant {
        if now < self.now {
            self.stats.backwards += 1;
        }
        self.now = self.now.max(now);
        if self.poll_timeout().is_some_and(|deadline| deadline <= self.now) {
            self.close(CloseReason::NoHello);
        }
        self.now
    }

    fn receive(&mut self, now: Instant, mut bytes: &[u8]) {
        let mut assembly = core::mem::take(&mut self.assembly);
        while !self.is_closed() {
            let limit = if self.is_greeted() { MAX_MESSAGE } else { MAX_READ };
            match assembly.next(&mut bytes, limit) {
                Ok(Some(AssembledMessage::Message(frame))) => {
                    self.handle_frame(now, &frame, Transport::Stream);
                }
                Ok(Some(AssembledMessage::Skipped)) => self.count_skipped(),
                Ok(None) => break,
                Err(error) => self.close(frame_close_reason(error)),
            }
        }
        assembly.shrink();
        self.assembly = assembly;
    }

    fn receive_framed(&mut self, now: Instant, message: &[u8]) {
        if self.is_closed() {
            return;
        }
        match parse_framed(message) {
            Ok(frame) if frame.payload.len() <= MAX_READ => {
                self.handle_frame(now, &frame, Transport::WebSocket);
            }
            Ok(_) if self.is_greeted() => self.count_skipped(),
            Ok(_) => self.close(CloseReason::TooLarge),
            Err(error) => self.close(frame_close_reason(error)),
        }
    }

    const fn count_skipped(&mut self) {
        self.stats.messages += 1;
        self.stats.ignored += 1;
    }

    fn handle_frame(&mut self, now: Instant, frame: &MessageFrame<'_>, framing: Transport) {
        self.stats.messages += 1;
        match ClientMessage::parse(frame, framing) {
            Ok(ClientMessage::Hello(hello)) => self.hello(frame, hello),
            Ok(ClientMessage::Time) => self.time(now, frame),
            Ok(ClientMessage::ClientInfo(info)) if self.is_greeted() => self.client_info(info),
            Ok(_) => self.stats.ignored += 1,
            Err(error) => self.close(payload_close_reason(frame.header.kind, error)),
        }
    }

    fn hello(&mut self, frame: &MessageFrame<'_>, hello: Box<Hello>) {
        if self.is_greeted() {
            return self.close(CloseReason::SecondHello);
        }
        let hello_id = frame.header.stamp.id;
        self.state = State::ExpectAnswer { hello_id, stream: None, held: Vec::new() };
        self.outputs.push_back(SessionOutput::Event(SessionEvent::Hello(hello)));
    }

    /// Snapweb sends a Time request directly after its Hello. The reply waits for the settings, so
    /// that they are the first message to the client.
    fn time(&mut self, now: Instant, frame: &MessageFrame<'_>) {
        self.time_requested_at = Some(now);
        if !self.time_requests.try_take(now) {
            self.stats.unanswered += 1;
            self.stats.ignored += 1;
            if self.stats.unanswered > MAX_UNANSWERED {
                self.close(CloseReason::TimeFlood);
            }
            return;
        }
        let stamp = frame.header.stamp;
        let reply = ServerOutgoing::Time { id: stamp.id, requested: stamp.sent, received: now };
        match &mut self.state {
            State::ExpectAnswer { held, .. } => held.push(reply),
            _ => self.outputs.push_back(SessionOutput::Send(reply)),
        }
    }

    /// Reports are kept for whenever the driver looks at them; they are no event.
    fn client_info(&mut self, mut info: ClientInfo) {
        self.report = info.report.take().or(self.report);
        if info == ClientInfo::default() {
            return;
        }
        for output in &mut self.outputs {
            if let SessionOutput::Event(SessionEvent::ClientInfo(earlier)) = output {
                earlier.volume = info.volume.or(earlier.volume);
                earlier.muted = info.muted.or(earlier.muted);
                return;
            }
        }
        self.outputs.push_back(SessionOutput::Event(SessionEvent::ClientInfo(info)));
    }

    fn settings(&mut self, settings: ServerSettings) {
        match core::mem::replace(&mut self.state, State::Closed) {
            State::ExpectAnswer { hello_id, stream, held } => {
                self.send(ServerOutgoing::Settings { refers_to: hello_id, settings });
                self.outputs.extend(held.into_iter().map(SessionOutput::Send));
                self.state = State::Streaming { audio: false };
                if let Some(header) = stream {
                    self.stream(header);
                }
            }
            streaming @ State::Streaming { .. } => {
                self.send(ServerOutgoing::Settings { refers_to: 0, settings });
                self.state = streaming;
            }
            other => self.state = other,
        }
    }

    fn stream(&mut self, header: Arc<[u8]>) {
        match &mut self.state {
            State::ExpectAnswer { stream, .. } => *stream = Some(header),
            State::Streaming { audio } => {
                *audio = true;
                self.send(ServerOutgoing::CodecHeader(header));
            }
            State::ExpectHello { .. } | State::Closed => {}
        }
    }

    /// Sent only in answer to a Hello, because older clients do not know the message.
    fn refuse(&mut self, refusal: Refusal) {
        if let State::ExpectAnswer { hello_id, .. } = self.state {
            self.send(ServerOutgoing::Error { refers_to: hello_id, refusal });
        }
        self.close(CloseReason::Refused);
    }

    fn send(&mut self, outgoing: ServerOutgoing) {
        self.outputs.push_back(SessionOutput::Send(outgoing));
    }

    fn close(&mut self, cause: CloseReason) {
        if !self.is_closed() {
            self.state = State::Closed;
            self.assembly = MessageAssembler::default();
            self.outputs.push_back(SessionOutput::Close(cause));
        }
    }

    const fn is_greeted(&self) -> bool {
        matches!(self.state, State::ExpectAnswer { .. } | State::Streaming { .. })
    }

    const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }
}

#[derive(Debug)]
enum State {
    /// Connected. After the deadline, the peer is disconnected.
    ExpectHello { deadline: Instant },
    /// The Hello was reported to the driver, which has not answered yet.
    ExpectAnswer { hello_id: u16, stream: Option<Arc<[u8]>>, held: Vec<ServerOutgoing> },
    /// The settings were sent; `audio` after the codec header.
    Streaming { audio: bool },
    /// Nothing is received or sent any more.
    Closed,
}

/// Capacity of the output queue that an idle session keeps.
const IDLE_OUTPUTS: usize = 4;

const fn frame_close_reason(error: FrameError) -> CloseReason {
    match error {
        FrameError::BadType(_) => CloseReason::BadType,
        FrameError::TooLarge(_) => CloseReason::TooLarge,
        FrameError::Truncated => CloseReason::Malformed,
    }
}

const fn payload_close_reason(kind: MessageKind, _: PayloadError) -> CloseReason {
    match kind {
        MessageKind::Hello => CloseReason::BadHello,
        _ => CloseReason::Malformed,
    }
}

#[cfg(test)]
mod tests;

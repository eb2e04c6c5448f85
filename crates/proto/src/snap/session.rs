//! The server's side of one stream connection.
//!
//! The machine reads messages, keeps their order right and decides when to hang up; it never sees
//! sound. Chunks are the same bytes for every client and go from the log straight to the socket
//! whenever [`Session::wants_audio`] says so; a session that copied them into its own queue was
//! rejected, because its memory would grow with the slowest client.
//!
//! What it has to say is an [`Outgoing`]: a few numbers that the driver turns into bytes at the very
//! last moment, ahead of any audio that waits. Clients set their clock by the two stamps in a Time
//! reply, and every microsecond between stamping and writing would be an error of their clock.
//!
//! After each input the driver drains [`Session::poll_output`] until it is empty; what can wait in
//! between is bounded by [`TIME_BURST`] and a handful.

mod assembly;
mod outgoing;

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Instant, Span, TokenBucket};

use assembly::{AssembledMessage, MessageAssembler};
pub use outgoing::{Refusal, ServerOutgoing};

use super::wire::{
    ClientInfo, ClientMessage, FrameError, Hello, MAX_MESSAGE, MessageFrame, MessageKind,
    PayloadError, ServerSettings, Transport, parse_framed,
};

/// How long a peer may be connected without having said who it is.
pub const HELLO_TIMEOUT: Span = Span::from_secs(5);

/// The largest message that is read, in bytes of payload. A greeting has some 300. After the
/// greeting, what is larger but legal ([`MAX_MESSAGE`]) is passed over without being kept.
pub const MAX_READ: usize = 64 * 1024;

/// How many Time requests are answered at once. Snapclient sends 50 when it connects.
pub const TIME_BURST: u32 = 256;

/// One more Time request is answered every this long; snapclient asks once a second.
pub const TIME_INTERVAL: Span = Span::from_millis(10);

/// So many unanswered Time requests are no mistake any more.
pub const MAX_UNANSWERED: u32 = 10_000;

/// The server's side of one stream connection.
#[derive(Debug)]
pub struct Session {
    state: State,
    assembly: MessageAssembler,
    outputs: VecDeque<SessionOutput>,
    budget: TokenBucket,
    now: Instant,
    counts: SessionStats,
}

/// What a session is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionInput<'a> {
    /// Bytes from TCP, cut anywhere. The time of the input is the moment right after the read.
    Received(&'a [u8]),
    /// One binary WebSocket message.
    Framed(&'a [u8]),
    /// How this client is to play: the answer to [`Event::Hello`], and later every change.
    Settings(ServerSettings),
    /// A stream begins, or another one in its place; the payload of
    /// [`codec_header`](super::wire::codec_header).
    Stream(Arc<[u8]>),
    /// The answer to [`Event::Hello`] when this client is not welcome.
    Refuse(Refusal),
}

/// What a session wants.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionOutput {
    /// The client has said something that matters elsewhere.
    Event(SessionEvent),
    /// To be written now, ahead of audio.
    Send(ServerOutgoing),
    /// What was sent so far still goes out, then the connection ends. Nothing comes after it.
    Close(CloseReason),
}

/// What a client has said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// Who it is. To be answered with [`Input::Settings`] (or [`Input::Refuse`]) within 2 s, or
    /// snapclient goes away.
    Hello(Box<Hello>),
    /// Its own volume or mute has changed. Several in one input are one event, the last.
    ClientInfo(ClientInfo),
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// It did not say who it is within [`HELLO_TIMEOUT`].
    NoHello,
    /// It sent a message type that does not exist: it speaks something else.
    BadType,
    /// It announced more bytes than it may.
    TooLarge,
    /// Its greeting cannot be read.
    BadHello,
    /// It greeted twice.
    SecondHello,
    /// Another of its messages cannot be read.
    Malformed,
    /// It asks for the time and does not stop.
    TimeFlood,
    /// It was refused.
    Refused,
}

impl CloseReason {
    /// A word for logs and metrics.
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
            Self::Refused => "refused",
        }
    }
}

/// What has happened in a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Whole messages from the client.
    pub messages: u64,
    /// Messages that were legal and passed over.
    pub ignored: u64,
    /// Time requests beyond the budget, left unanswered.
    pub unanswered: u32,
    /// Inputs whose time lay before that of an earlier one; they were taken as simultaneous.
    pub backwards: u64,
}

impl Session {
    /// A session for a peer that connected at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            state: State::ExpectHello { deadline: now + HELLO_TIMEOUT },
            assembly: MessageAssembler::default(),
            outputs: VecDeque::new(),
            budget: TokenBucket::new(TIME_BURST, TIME_INTERVAL, now),
            now,
            counts: SessionStats::default(),
        }
    }

    /// Takes one input; the outputs are to be drained after it.
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

    /// Hangs up on a peer that has not greeted in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The next thing that the session wants, or none until the next input.
    pub fn poll_output(&mut self) -> Option<SessionOutput> {
        let output = self.outputs.pop_front();
        if output.is_none() && self.outputs.capacity() > IDLE_OUTPUTS {
            self.outputs = VecDeque::new();
        }
        output
    }

    /// When [`Session::handle_timeout`] is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::ExpectHello { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Whether chunks may follow what has been sent so far: settings and codec header are out.
    #[must_use]
    pub const fn is_ready_for_audio(&self) -> bool {
        matches!(self.state, State::Streaming { audio: true })
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> SessionStats {
        self.counts
    }

    /// Time never runs backwards in here, and a deadline that has passed is seen before anything
    /// that came after it.
    fn advance(&mut self, now: Instant) -> Instant {
        if now < self.now {
            self.counts.backwards += 1;
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
        self.counts.messages += 1;
        self.counts.ignored += 1;
    }

    fn handle_frame(&mut self, now: Instant, frame: &MessageFrame<'_>, framing: Transport) {
        self.counts.messages += 1;
        match ClientMessage::parse(frame, framing) {
            Ok(ClientMessage::Hello(hello)) => self.hello(frame, hello),
            Ok(ClientMessage::Time) => self.time(now, frame),
            Ok(ClientMessage::ClientInfo(info)) if self.is_greeted() => self.client_info(info),
            Ok(_) => self.counts.ignored += 1,
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

    /// Snapweb asks for the time right behind its greeting; the answer waits for the settings, so
    /// that the first thing that a client hears is how to play.
    fn time(&mut self, now: Instant, frame: &MessageFrame<'_>) {
        if !self.budget.try_take(now) {
            self.counts.unanswered += 1;
            self.counts.ignored += 1;
            if self.counts.unanswered > MAX_UNANSWERED {
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

    fn client_info(&mut self, info: ClientInfo) {
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

    /// Only ever in answer to a greeting: older clients do not know the message.
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
    /// Connected. When the deadline passes, the peer is cut.
    ExpectHello { deadline: Instant },
    /// The driver has been told who it is and has not answered yet.
    ExpectAnswer { hello_id: u16, stream: Option<Arc<[u8]>>, held: Vec<ServerOutgoing> },
    /// The client knows how to play; `audio` once it also knows what.
    Streaming { audio: bool },
    /// Nothing is read and nothing is said any more.
    Closed,
}

/// Room for outputs that an idle session keeps; a burst's is given back.
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

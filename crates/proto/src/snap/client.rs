//! Client side of a stream connection, for the player, the load generator and the tests.
//!
//! It sends the Hello, estimates the server's clock, and returns chunks as views of its own buffer.
//! It is as strict as Snapcast's clients: whatever makes them disconnect makes this one disconnect,
//! so a server that this client accepts is accepted by all.

mod output;

use std::collections::VecDeque;

use aulos_core::{Instant, Span};

pub use output::{ClientOutgoing, ClientOutput, DisconnectReason};

use super::sync::{OffsetFilter, SyncAction, TimeSync};
use super::wire::{
    ClientInfo, FrameError, HEADER_LEN, Hello, MAX_MESSAGE, ParsedMessage, ServerMessage,
    ServerSettings, parse_framed, parse_message, write_message,
};

/// Time within which the server must answer the Hello.
pub const RESPONSE_TIMEOUT: Span = Span::from_secs(2);

/// Configuration of a [`SnapcastClient`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The Hello message to send.
    pub hello: Hello,
    /// How the server's clock is estimated.
    pub filter: OffsetFilter,
}

/// Input of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ClientInput<'a> {
    /// Bytes from TCP, split anywhere. The time of the input is the instant directly after the
    /// read.
    Received(&'a [u8]),
    /// A binary WebSocket message.
    Framed(&'a [u8]),
    /// The client's own volume or mute has changed.
    MixerChanged(ClientInfo),
}

/// Client side of a stream connection.
///
/// After each input and timeout, call [`SnapcastClient::poll_output`] until it returns `None`.
#[derive(Debug)]
pub struct SnapcastClient {
    state: State,
    buffer: Vec<u8>,
    /// How much of `buffer` has been parsed.
    read: usize,
    outgoing: VecDeque<ClientOutgoing>,
    closing: Option<DisconnectReason>,
    sync: TimeSync,
    settings: ServerSettings,
    now: Instant,
}

impl SnapcastClient {
    /// A client that is connected at `now`; its Hello is the first output.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        Self {
            state: State::ExpectSettings { deadline: now + RESPONSE_TIMEOUT },
            buffer: Vec::new(),
            read: 0,
            outgoing: VecDeque::from([ClientOutgoing::Hello {
                id: HELLO_ID,
                hello: Box::new(config.hello),
            }]),
            closing: None,
            sync: TimeSync::new(config.filter, now),
            settings: ServerSettings::default(),
            now,
        }
    }

    /// Messages may be lost, other than on TCP: an unanswered request for the time is repeated
    /// ([`TimeSync::lossy`]).
    #[must_use]
    pub fn lossy(self) -> Self {
        Self { sync: self.sync.lossy(), ..self }
    }

    /// Continues the estimate of an earlier connection to the same server.
    #[must_use]
    pub fn with_sync(mut self, sync: TimeSync, now: Instant) -> Self {
        self.sync = sync;
        self.sync.begin_connection(now);
        self
    }

    /// Ends the client and returns its estimate of the server's clock.
    #[must_use]
    pub fn into_sync(self) -> TimeSync {
        self.sync
    }

    /// Processes one input. Buffers at most one message and the input.
    pub fn handle_input(&mut self, now: Instant, input: ClientInput<'_>) {
        self.now = self.now.max(now);
        if matches!(self.state, State::Closed) {
            return;
        }
        match input {
            ClientInput::Received(bytes) => {
                self.discard_consumed();
                self.buffer.extend_from_slice(bytes);
            }
            ClientInput::Framed(message) => self.receive_framed(message),
            ClientInput::MixerChanged(info) => {
                self.outgoing.push_back(ClientOutgoing::ClientInfo(info));
            }
        }
    }

    /// Sends what is due; closes the connection when the server does not answer.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        match self.state {
            State::ExpectSettings { deadline } if deadline <= self.now => {
                self.close(DisconnectReason::NoAnswer);
            }
            State::ExpectCodec | State::Playing => {
                self.sync.handle_timeout(self.now);
                match self.sync.poll_output() {
                    Some(SyncAction::Request(id)) => {
                        self.outgoing.push_back(ClientOutgoing::Time { id });
                    }
                    Some(SyncAction::ServerTimedOut) => self.close(DisconnectReason::NoAnswer),
                    None => {}
                }
            }
            State::ExpectSettings { .. } | State::Closed => {}
        }
    }

    /// The next output; the payload of a chunk is a view that is valid until the next call.
    pub fn poll_output(&mut self) -> Option<ClientOutput<'_>> {
        loop {
            if let Some(outgoing) = self.outgoing.pop_front() {
                return Some(ClientOutput::Send(outgoing));
            }
            if let Some(cause) = self.closing.take() {
                return Some(ClientOutput::Close(cause));
            }
            match self.parse_next()? {
                ParseStep::Nothing => {}
                ParseStep::Settings => return Some(ClientOutput::Settings(self.settings)),
                ParseStep::View { from } => return self.view(from),
            }
        }
    }

    /// Time at which to call [`SnapcastClient::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::ExpectSettings { deadline } => Some(deadline),
            State::ExpectCodec | State::Playing => Some(self.sync.poll_timeout()),
            State::Closed => None,
        }
    }

    /// The estimate of the server's clock.
    #[must_use]
    pub const fn sync(&self) -> &TimeSync {
        &self.sync
    }

    /// Playout time of `timestamp` on the local clock; `None` before the first clock comparison.
    /// The client's own latency is not included.
    #[must_use]
    pub fn playout(&self, timestamp: Instant) -> Option<Instant> {
        let delay = (self.settings.buffer - self.settings.latency).max(Span::ZERO);
        self.sync.local_time(timestamp + delay)
    }

    /// Parses one message; `None` when the buffer holds no complete one.
    fn parse_next(&mut self) -> Option<ParseStep> {
        if matches!(self.state, State::Closed) {
            return None;
        }
        let from = self.read;
        let bytes = self.buffer.get(from..).unwrap_or_default();
        let frame = match parse_message(bytes, MAX_MESSAGE) {
            Ok(ParsedMessage::Message(frame)) => frame,
            Ok(ParsedMessage::Incomplete { .. }) => return None,
            Err(error) => return Some(self.fail(disconnect_reason(error))),
        };
        let stamp = frame.header.stamp;
        let message = ServerMessage::parse(&frame);
        self.read += HEADER_LEN + frame.payload.len();
        let Ok(message) = message else { return Some(self.fail(DisconnectReason::Malformed)) };
        let answers_hello = stamp.refers_to == HELLO_ID;
        match (message, &self.state) {
            (ServerMessage::Error { code, .. }, _) => {
                Some(self.fail(DisconnectReason::Refused(code)))
            }
            (ServerMessage::Settings(settings), state) => {
                if matches!(state, State::ExpectSettings { .. }) && answers_hello {
                    self.state = State::ExpectCodec;
                    self.sync.begin(self.now);
                }
                self.settings = settings;
                Some(ParseStep::Settings)
            }
            (_, State::ExpectSettings { .. }) if answers_hello => {
                Some(self.fail(DisconnectReason::OutOfOrder))
            }
            (ServerMessage::Time { latency }, _) => {
                self.sync.handle_reply(self.now, stamp, latency);
                Some(ParseStep::Nothing)
            }
            (ServerMessage::CodecHeader { .. }, State::ExpectCodec | State::Playing) => {
                self.state = State::Playing;
                Some(ParseStep::View { from })
            }
            (ServerMessage::WireChunk { .. }, State::Playing) => Some(ParseStep::View { from }),
            (ServerMessage::CodecHeader { .. } | ServerMessage::WireChunk { .. }, _) => {
                Some(self.fail(DisconnectReason::OutOfOrder))
            }
            (ServerMessage::Ignored(_), _) => Some(ParseStep::Nothing),
        }
    }

    /// The codec header or chunk at `from`, which [`SnapcastClient::parse_next`] has already
    /// validated.
    fn view(&self, from: usize) -> Option<ClientOutput<'_>> {
        let Ok(ParsedMessage::Message(frame)) =
            parse_message(self.buffer.get(from..)?, MAX_MESSAGE)
        else {
            return None;
        };
        match ServerMessage::parse(&frame).ok()? {
            ServerMessage::CodecHeader { codec, header } => {
                Some(ClientOutput::Codec { codec, header })
            }
            ServerMessage::WireChunk { timestamp, payload } => {
                Some(ClientOutput::Chunk { timestamp: timestamp.to_instant(), payload })
            }
            _ => None,
        }
    }

    fn receive_framed(&mut self, message: &[u8]) {
        self.discard_consumed();
        match parse_framed(message) {
            Ok(frame) => {
                write_message(frame.header.kind, frame.header.stamp, &mut self.buffer, |out| {
                    out.extend_from_slice(frame.payload);
                });
            }
            Err(error) => self.close(disconnect_reason(error)),
        }
    }

    fn discard_consumed(&mut self) {
        self.buffer.drain(..self.read.min(self.buffer.len()));
        self.read = 0;
    }

    fn fail(&mut self, cause: DisconnectReason) -> ParseStep {
        self.close(cause);
        ParseStep::Nothing
    }

    fn close(&mut self, cause: DisconnectReason) {
        if !matches!(self.state, State::Closed) {
            self.state = State::Closed;
            self.closing = Some(cause);
        }
    }
}

#[derive(Debug)]
enum State {
    /// The Hello was sent. After the deadline, the server counts as dead.
    ExpectSettings { deadline: Instant },
    /// The settings were received, but no codec.
    ExpectCodec,
    /// Chunks may be received.
    Playing,
    /// Nothing is received or sent any more.
    Closed,
}

enum ParseStep {
    Nothing,
    Settings,
    View { from: usize },
}

const HELLO_ID: u16 = 1;

const fn disconnect_reason(error: FrameError) -> DisconnectReason {
    match error {
        FrameError::BadType(_) => DisconnectReason::BadType,
        FrameError::TooLarge(_) => DisconnectReason::TooLarge,
        FrameError::Truncated => DisconnectReason::Malformed,
    }
}

#[cfg(test)]
mod tests;

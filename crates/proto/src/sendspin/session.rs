//! The session of a client that has been let in: its clock, its state, and its sound.
//!
//! The driver passes what it receives, and calls [`ClientSession::poll_output`] until there is
//! nothing. Messages to send are encoded by [`ClientSession::write`] directly before the write, for
//! the clock's sake; chunks by [`ClientSession::write_chunk`], one after another. They are encrypted in
//! the order in which they are written, so nothing may be left out or moved afterwards.

mod artwork;
mod output;
#[cfg(test)]
mod tests;
mod volume;

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Instant, Span, TokenBucket};
use serde_json::{Value, json};

use super::artwork::ArtworkUpdate;
use super::dialect::DialectInfo;
use super::format::{AudioFormat, SupportedFormat};
use super::frame::{self, AUDIO_HEADER_LEN, Reassembly, micros};
use super::hello::{ARTWORK, CONTROLLER, ClientHello, METADATA, PLAYER};
use super::message::{ClientMessage, ClientState, Commands, PlayerState};
use super::pacing::{BufferAccount, Lead};
use super::room::RoomState;
use crate::snap::session::{CloseReason, MAX_UNANSWERED, TIME_BURST, TIME_INTERVAL};
use crate::snap::wire::{ClientInfo, ServerSettings};
use crate::ws::{FrameKind, WsWriter};
use artwork::ArtworkSender;
pub use output::{ClientSessionEvent, ClientSessionOutput, SessionMessage};
use volume::WantedVolume;

/// Encrypts and decrypts the messages of one connection, in their order.
pub trait MessageCipher: Send + fmt::Debug {
    /// Appends the message for `plaintext`, of at most [`MAX_PLAINTEXT`](super::MAX_PLAINTEXT)
    /// bytes: [`CIPHER_OVERHEAD`] more.
    ///
    /// # Errors
    /// [`CipherError`]; the connection cannot be used any further.
    fn encrypt(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError>;

    /// Replaces `out` by the plaintext of `message`.
    ///
    /// # Errors
    /// [`CipherError`]; the connection cannot be used any further.
    fn decrypt(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError>;
}

/// A message that was forged, repeated or lost, or one too many for the cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing to say")]
pub struct CipherError;

impl fmt::Display for CipherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message does not decrypt: it was forged, repeated or lost")
    }
}

impl core::error::Error for CipherError {}

/// Bytes by which a cipher makes a message longer.
pub const CIPHER_OVERHEAD: usize = 16;

/// A client has to send its first state within this time.
pub const STATE_TIMEOUT: Span = Span::from_secs(5);

/// A client that has been silent for so long is asked whether it is there,
const PING_AFTER: Span = Span::from_secs(30);
/// and one that has been for so long is not.
const SILENT_TIMEOUT: Span = Span::from_secs(75);

/// The memory of a message that is kept for the next one.
const MAX_KEPT: usize = 64 * 1_024;

/// Messages that a client may send at once, besides requests for the time, and the interval at which
/// it may send one more: a hand on a volume knob sends dozens in a second.
const MESSAGE_BURST: u32 = 256;
const MESSAGE_INTERVAL: Span = Span::from_millis(20);

/// How often a client may become available again, likewise: each time it is sent all that its
/// station has buffered.
const RETURN_BURST: u32 = 16;
const RETURN_INTERVAL: Span = Span::from_secs(1);

/// The session of one client.
#[derive(Debug)]
pub struct ClientSession {
    hello: ClientHello,
    dialect: DialectInfo,
    cipher: Option<Box<dyn MessageCipher>>,
    reassembly: Reassembly,
    /// The plaintext that is being read or written.
    plaintext: Vec<u8>,
    scratch: Vec<u8>,
    outputs: VecDeque<ClientSessionOutput>,
    /// What the client said of itself; `None` before the first time.
    player: Option<PlayerState>,
    is_available: bool,
    /// It has left its group until it is assigned a stream again.
    has_left: bool,
    room: Option<Arc<RoomState>>,
    settings: ServerSettings,
    volume: WantedVolume,
    /// What its station sends.
    format: Option<AudioFormat>,
    /// Whether the client has been told that a stream has begun.
    is_streaming: bool,
    account: BufferAccount,
    artwork: ArtworkSender,
    time_requests: TokenBucket,
    unanswered: u32,
    /// Its other messages.
    messages: TokenBucket,
    /// How often it becomes available.
    returns: TokenBucket,
    time_requested_at: Option<Instant>,
    begun: Instant,
    heard_at: Instant,
    pinged_at: Instant,
    is_closed: bool,
}

/// A chunk of a station.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the log has")]
pub struct AudioChunk<'a> {
    /// When its first frame was recorded.
    pub timestamp: Instant,
    /// Its length.
    pub duration: Span,
    /// The encoded sound, as Snapcast clients get it.
    pub payload: &'a [u8],
}

impl ClientSession {
    /// The session of a client that has said `hello`; `cipher` is `None` for a dialect without.
    #[must_use]
    pub fn new(hello: ClientHello, cipher: Option<Box<dyn MessageCipher>>, now: Instant) -> Self {
        let capacity = hello.player.as_ref().map_or(0, |player| player.buffer_capacity);
        let dialect = hello.dialect.info();
        let mut session = Self {
            dialect,
            artwork: ArtworkSender::new(dialect, hello.artwork, now),
            hello,
            cipher,
            reassembly: Reassembly::default(),
            plaintext: Vec::new(),
            scratch: Vec::new(),
            outputs: VecDeque::new(),
            player: None,
            is_available: false,
            has_left: false,
            room: None,
            settings: ServerSettings::default(),
            volume: WantedVolume::default(),
            format: None,
            is_streaming: false,
            account: BufferAccount::new(capacity),
            time_requests: TokenBucket::new(TIME_BURST, TIME_INTERVAL, now),
            unanswered: 0,
            messages: TokenBucket::new(MESSAGE_BURST, MESSAGE_INTERVAL, now),
            returns: TokenBucket::new(RETURN_BURST, RETURN_INTERVAL, now),
            time_requested_at: None,
            begun: now,
            heard_at: now,
            pinged_at: now,
            is_closed: false,
        };
        // A player introduces itself by its first state.
        if session.hello.player.is_none() {
            session.event(ClientSessionEvent::Introduced(ClientInfo::default()));
        }
        session
    }

    /// Who the client is.
    #[must_use]
    pub const fn hello(&self) -> &ClientHello {
        &self.hello
    }

    /// A message of the client, from a binary message of the WebSocket or, where `is_text`, from a
    /// text. `now` is the time directly after the read.
    pub fn receive(&mut self, now: Instant, is_text: bool, message: &[u8]) {
        self.heard_at = now;
        if self.is_closed {
            return;
        }
        let Some(cipher) = &mut self.cipher else {
            if is_text {
                self.handle_text(now, message);
            }
            return;
        };
        let mut plaintext = core::mem::take(&mut self.plaintext);
        if is_text || cipher.decrypt(message, &mut plaintext).is_err() {
            return self.close(CloseReason::Malformed);
        }
        let mut reassembly = core::mem::take(&mut self.reassembly);
        match reassembly.push(self.dialect, &plaintext) {
            Ok(None) => {}
            Ok(Some([frame::JSON, text @ ..])) => {
                self.handle_text(now, text);
                reassembly.clear();
            }
            // Roles that we do not have.
            Ok(Some(_)) => reassembly.clear(),
            Err(_) => self.close(CloseReason::Malformed),
        }
        (self.reassembly, self.plaintext) = (reassembly, plaintext);
    }

    /// A ping or pong of the WebSocket has come.
    pub fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Volume, mute, buffer and latency.
    pub fn set_settings(&mut self, now: Instant, settings: ServerSettings) {
        self.settings = settings;
        self.volume.want(settings.volume, settings.muted);
        self.send_volume(now);
    }

    /// A stream begins, or replaces another one; the payload of its Snapcast codec header. What the
    /// client has buffered is dropped.
    pub fn set_stream(&mut self, codec_header: &[u8]) {
        self.has_left = false;
        self.account.clear();
        let format = AudioFormat::from_codec_header(codec_header);
        let is_same = format == self.format;
        if self.is_streaming {
            self.send(SessionMessage::StreamClear);
        }
        if !is_same {
            self.format = format;
            if self.is_streaming && self.plays() {
                return self.send_stream_start();
            }
        }
        self.update_stream();
    }

    /// The chunks that follow have another codec header; the time line goes on.
    pub fn change_stream(&mut self, codec_header: &[u8]) {
        let format = AudioFormat::from_codec_header(codec_header);
        if format != self.format {
            self.format = format;
            if self.is_streaming && self.plays() {
                return self.send_stream_start();
            }
            self.update_stream();
        }
    }

    /// There is no stream any more.
    pub fn end_stream(&mut self) {
        self.format = None;
        self.update_stream();
    }

    /// What the client is told of its group.
    pub fn set_room(&mut self, room: Arc<RoomState>) {
        let earlier = self.room.take();
        let earlier = earlier.as_deref();
        if earlier.map(RoomState::group_update) != Some(room.group_update()) {
            self.send_text("group/update", room.group_update());
        }
        let track = earlier.map(|room| &room.track) != Some(&room.track);
        let controller = earlier.map(|room| &room.controller) != Some(&room.controller);
        if track && self.hello.has(METADATA) {
            self.send(SessionMessage::Track(room.track.clone()));
        }
        if controller && self.hello.has(CONTROLLER) {
            self.send_text("server/state", json!({ "controller": room.controller.to_json() }));
        }
        self.room = Some(room);
        self.update_stream();
    }

    /// Closes a session without a state or a sign of life, and asks for one.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.update_artwork(now);
        let has_no_state = self.hello.player.is_some() && self.player.is_none();
        if has_no_state && now.since(self.begun) >= STATE_TIMEOUT {
            self.close(CloseReason::NoHello);
        } else if now.since(self.heard_at) >= SILENT_TIMEOUT {
            self.close(CloseReason::Silent);
        } else if now.since(self.heard_at.max(self.pinged_at)) >= PING_AFTER {
            self.pinged_at = now;
            self.send(SessionMessage::Ping);
        }
    }

    /// Time at which to call [`ClientSession::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = self.begun + STATE_TIMEOUT;
        let has_no_state = self.hello.player.is_some() && self.player.is_none();
        let ping = self.heard_at.max(self.pinged_at) + PING_AFTER;
        let next = ping.min(self.heard_at + SILENT_TIMEOUT);
        let next = self.artwork_timeout().map_or(next, |artwork| next.min(artwork));
        (!self.is_closed).then(|| if has_no_state { next.min(state) } else { next })
    }

    /// The next output; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<ClientSessionOutput> {
        self.outputs.pop_front()
    }

    /// Whether chunks may be sent.
    #[must_use]
    pub const fn is_ready_for_audio(&self) -> bool {
        self.is_streaming
    }

    /// How long before its time sound has to be at the client.
    #[must_use]
    pub fn lead(&self) -> Lead {
        let player = self.player.unwrap_or_default();
        let millis = |ms: Option<u32>| Span::from_millis(ms.unwrap_or(0).into());
        Lead {
            min_buffer: millis(player.min_buffer_ms),
            output_delay: millis(player.output_delay_ms),
        }
    }

    /// When the last request for the time came.
    #[must_use]
    pub const fn time_requested_at(&self) -> Option<Instant> {
        self.time_requested_at
    }

    /// Appends a message as the frames of the WebSocket that is sent at `now`.
    pub fn write(
        &mut self,
        message: &SessionMessage,
        now: Instant,
        writer: &mut WsWriter,
        out: &mut Vec<u8>,
    ) {
        match message {
            SessionMessage::Ping => return writer.write(FrameKind::Ping, b"", out),
            SessionMessage::Binary(plaintext) => return self.write_binary(plaintext, writer, out),
            _ => {}
        }
        let text = message.to_json(self.hello.dialect, now).to_string();
        if self.cipher.is_none() {
            return writer.write(FrameKind::Text, text.as_bytes(), out);
        }
        let mut plaintext = core::mem::take(&mut self.plaintext);
        plaintext.clear();
        plaintext.push(frame::JSON);
        plaintext.extend_from_slice(text.as_bytes());
        self.write_binary(&plaintext, writer, out);
        self.plaintext = plaintext;
    }

    /// Appends a chunk that is sent at `now`; false if the client has no room for it yet.
    pub fn write_chunk(
        &mut self,
        chunk: AudioChunk<'_>,
        now: Instant,
        writer: &mut WsWriter,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(format) = self.format.take() else { return false };
        let bytes = AUDIO_HEADER_LEN + format.payload_len(chunk.payload.len());
        let plays_at = chunk.timestamp + self.settings.buffer - self.settings.latency;
        let has_room = self.account.has_room(now, bytes);
        if has_room {
            let end = plays_at + chunk.duration - self.lead().output_delay;
            self.account.add(end, bytes);
            let mut plaintext = core::mem::take(&mut self.plaintext);
            plaintext.clear();
            let (at, now) = (micros(plays_at), micros(now));
            frame::write_audio_header(self.dialect, at, now, &mut plaintext);
            format.write_payload(chunk.payload, &mut plaintext);
            self.write_binary(&plaintext, writer, out);
            self.plaintext = plaintext;
        }
        self.format = Some(format);
        has_room
    }

    /// What the channels of the client are to show.
    pub fn set_artwork(&mut self, update: &ArtworkUpdate) {
        self.artwork.show(update, &mut self.outputs);
    }

    /// Whether [`ClientSession::write_artwork`] has something to write.
    #[must_use]
    pub fn has_artwork(&self) -> bool {
        !self.is_closed && self.artwork.has_message()
    }

    /// Appends the next message about pictures that is sent at `now`; false if there is none. It
    /// may be left unsent as long as there is sound to send.
    pub fn write_artwork(
        &mut self,
        now: Instant,
        writer: &mut WsWriter,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut plaintext = core::mem::take(&mut self.plaintext);
        plaintext.clear();
        let has_message = self.artwork.write(now, &mut plaintext);
        if has_message {
            self.write_binary(&plaintext, writer, out);
        }
        // A session does not keep the memory of a picture.
        if plaintext.capacity() <= MAX_KEPT {
            self.plaintext = plaintext;
        }
        has_message
    }

    fn write_binary(&mut self, plaintext: &[u8], writer: &mut WsWriter, out: &mut Vec<u8>) {
        let Some(cipher) = &mut self.cipher else {
            return writer.write(FrameKind::Binary, plaintext, out);
        };
        let mut is_broken = false;
        frame::fragments(self.dialect, plaintext, &mut self.scratch, |piece| {
            let length = piece.len() + CIPHER_OVERHEAD;
            writer.write_with(FrameKind::Binary, length, out, |out| {
                is_broken |= cipher.encrypt(piece, out).is_err();
            });
        });
        if is_broken {
            self.close(CloseReason::Malformed);
        }
    }

    fn handle_text(&mut self, now: Instant, text: &[u8]) {
        let message = ClientMessage::parse(self.dialect, text);
        let is_question = matches!(message, Ok(ClientMessage::Time { .. }));
        if !is_question && !self.messages.try_take(now) {
            return self.close(CloseReason::MessageFlood);
        }
        match message {
            Err(_) => self.close(CloseReason::Malformed),
            Ok(ClientMessage::Time { transmitted }) => self.time(now, transmitted),
            Ok(ClientMessage::State(state)) => self.handle_state(now, state),
            Ok(ClientMessage::Artwork(channel, change)) => {
                self.artwork.ask_for(now, channel, change);
                self.update_artwork(now);
            }
            Ok(ClientMessage::Command(command)) if self.hello.has(CONTROLLER) => {
                self.event(ClientSessionEvent::Command(command));
            }
            Ok(ClientMessage::Leave) => {
                self.has_left = true;
                self.update_stream();
                self.update_artwork(now);
            }
            Ok(ClientMessage::Goodbye(reason)) => {
                self.event(ClientSessionEvent::Goodbye(reason));
                self.close(CloseReason::Goodbye);
            }
            Ok(ClientMessage::Command(_) | ClientMessage::Other) => {}
        }
    }

    fn time(&mut self, now: Instant, transmitted: i64) {
        self.time_requested_at = Some(now);
        if self.time_requests.try_take(now) {
            self.send(SessionMessage::Time { transmitted, received: now });
            return;
        }
        self.unanswered += 1;
        if self.unanswered > MAX_UNANSWERED {
            self.close(CloseReason::TimeFlood);
        }
    }

    fn handle_state(&mut self, now: Instant, state: ClientState) {
        let is_first = self.player.is_none();
        let earlier = self.player.filter(|_| !self.dialect.has_whole_states).unwrap_or_default();
        let player = state.player.unwrap_or_default().after(earlier);
        self.player = Some(player);
        let was_available = self.is_available;
        self.is_available = state.available.unwrap_or(is_first || self.is_available);
        if self.is_available && !was_available && !self.returns.try_take(now) {
            return self.close(CloseReason::MessageFlood);
        }
        if is_first && self.hello.player.is_some() {
            let PlayerState { volume, muted, .. } = player;
            let info = ClientInfo { volume, muted, report: None };
            self.event(ClientSessionEvent::Introduced(info));
        }
        if let Some((volume, muted)) = self.volume.reported(now, player, self.commands()) {
            let info = ClientInfo { volume: Some(volume), muted: Some(muted), report: None };
            self.event(ClientSessionEvent::Volume(info));
        }
        if is_first {
            self.send_volume(now);
        }
        self.update_stream();
        if let Some(channels) = state.artwork {
            self.artwork.ask(now, channels);
        }
        self.update_artwork(now);
    }

    /// The commands that the player takes.
    fn commands(&self) -> Commands {
        let hello = self.hello.player.as_ref().and_then(|player| player.commands);
        let state = self.player.and_then(|player| player.commands);
        let commands = if self.dialect.has_commands_in_state { state } else { hello.or(state) };
        commands.unwrap_or_default()
    }

    fn send_volume(&mut self, now: Instant) {
        let Some(player) = self.player else { return };
        for payload in self.volume.commands(now, player, self.commands()) {
            self.send_text("server/command", json!({ "player": payload }));
        }
    }

    /// Whether the client plays what its station sends.
    fn plays(&self) -> bool {
        let format = self.format.as_ref().map(|format| format.format);
        let can_play = format.is_some_and(|format| self.can_play(&format));
        can_play && self.is_available && !self.has_left && self.room.is_some()
    }

    fn can_play(&self, format: &SupportedFormat) -> bool {
        self.hello.has(PLAYER)
            && self.hello.player.as_ref().is_some_and(|player| player.can_play(format))
    }

    /// Begins or ends the stream, if it has to be.
    fn update_stream(&mut self) {
        let plays = self.plays();
        if plays && !self.is_streaming {
            self.account.clear();
            self.send_stream_start();
        } else if !plays && self.is_streaming {
            self.is_streaming = false;
            self.account.clear();
            self.send_text("stream/end", json!({ "roles": ["player"] }));
        }
        self.is_streaming = plays;
    }

    /// Begins, changes or ends the stream of pictures, if it has to be.
    pub(super) fn update_artwork(&mut self, now: Instant) {
        let may_stream = self.may_stream_artwork();
        if let Some(request) = self.artwork.update(now, may_stream, &mut self.outputs) {
            self.event(ClientSessionEvent::Artwork(request));
        }
    }

    /// When the stream of pictures has to begin or to change.
    pub(super) fn artwork_timeout(&self) -> Option<Instant> {
        self.artwork.poll_timeout(self.may_stream_artwork())
    }

    fn may_stream_artwork(&self) -> bool {
        let has_said = self.hello.has(ARTWORK) && self.player.is_some();
        has_said && self.is_available && !self.has_left && self.room.is_some()
    }

    fn send_stream_start(&mut self) {
        if let Some(format) = &self.format {
            let player = format.to_json();
            self.is_streaming = true;
            self.send(SessionMessage::StreamStart("player", player));
        }
    }

    fn send_text(&mut self, kind: &'static str, payload: Value) {
        self.send(SessionMessage::Text(kind, payload));
    }

    fn send(&mut self, message: SessionMessage) {
        self.outputs.push_back(ClientSessionOutput::Send(message));
    }

    /// Of the events of a kind only the last one matters, however many a client sends at once.
    fn event(&mut self, event: ClientSessionEvent) {
        let kind = core::mem::discriminant(&event);
        let is_same = |output: &ClientSessionOutput| {
            matches!(output, ClientSessionOutput::Event(other)
                if core::mem::discriminant(other) == kind
                    && !matches!(event, ClientSessionEvent::Command(_)))
        };
        self.outputs.retain(|output| !is_same(output));
        self.outputs.push_back(ClientSessionOutput::Event(event));
    }

    fn close(&mut self, reason: CloseReason) {
        if !self.is_closed {
            self.is_closed = true;
            self.is_streaming = false;
            self.outputs.push_back(ClientSessionOutput::Close(reason));
        }
    }
}

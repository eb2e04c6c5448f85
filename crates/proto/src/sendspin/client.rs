//! The client's side: a player of another server, from its first message to its sound.
//!
//! ```text
//!  client/init -> server/init -> Noise -> hellos -> server/activate -+-> streams, titles, commands
//!                                  ^                                 '-> pairing -- another Noise
//! ```
//!
//! The server is always the initiator of the handshake, whoever has connected. It names a key by its
//! id; what it may do follows from which key that is ([`ServerTrust`]).
//!
//! The driver passes what it receives, and calls [`SendspinClient::poll_output`] until there is
//! nothing. What is to be sent is encoded by [`SendspinClient::write`] directly before the write, for
//! the clock's sake, in the order of the outputs: that is also the order of the encryption.

mod artwork;
mod clock;
mod error;
mod identity;
mod message;
mod output;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{ClockLine, Instant, Span};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::artwork::is_artwork;
use super::dialect::Dialect;
use super::frame::{self, Reassembly};
use super::key::{KEY_LEN, Key};
use super::message::split;
use super::noise::{
    MAX_HANDSHAKE, NoiseCipher, Parties, Responder, SENTINEL_PSK, Suite, next_seed,
};
use super::room::TrackInfo;
use super::session::MessageCipher as _;
use super::{CIPHER_OVERHEAD, STEP_TIMEOUT};
use crate::ws::{FrameKind, WsWriter};
use artwork::{ArtworkReceiver, MAX_MESSAGE};
use clock::{ClockAction, ServerClock};
pub use error::SendspinClientError;
pub use identity::{ClientIdentity, PlayerDelays, PlayerHello, ServerTrust};
use message::{Activate, Roles};
pub use message::{ServerActivity, TransportCommand, TransportCommands};
pub use output::{SendspinClientEvent, SendspinClientOutput, SendspinOutgoing};

/// The client's side of a connection.
pub struct SendspinClient {
    identity: Arc<ClientIdentity>,
    hello: Arc<PlayerHello>,
    delays: PlayerDelays,
    /// Random bytes that are not used up.
    seed: [u8; KEY_LEN],
    state: State,
    dialect: Dialect,
    trust: ServerTrust,
    activity: ServerActivity,
    roles: Roles,
    reassembly: Reassembly,
    /// The plaintext that is being read or written.
    plaintext: Vec<u8>,
    /// The chunk in the last message, which the next input forgets.
    chunk: Option<Instant>,
    track: TrackInfo,
    artwork: ArtworkReceiver,
    has_stream: bool,
    outputs: VecDeque<Queued>,
    clock: ServerClock,
    /// What the server has been told of our state.
    told: Option<bool>,
    state_due: Option<Instant>,
    deadline: Option<Instant>,
    malformed: u64,
    is_closed: bool,
}

/// An output that is no view.
#[derive(Debug)]
enum Queued {
    Send(SendspinOutgoing),
    Event(SendspinClientEvent),
}

enum State {
    ExpectInit {
        prologue: Vec<u8>,
    },
    ExpectHandshake {
        server: Key,
        prologue: Vec<u8>,
    },
    Encrypted {
        server: Key,
        hash: Vec<u8>,
        cipher: Box<NoiseCipher>,
        is_active: bool,
    },
    /// Nothing is sent any more.
    Failed,
}

impl SendspinClient {
    /// The client of a connection that was opened at `now`; its first message is an output. `seed` are
    /// random bytes for its keys, never used before.
    #[must_use]
    pub fn new(
        identity: Arc<ClientIdentity>,
        hello: Arc<PlayerHello>,
        delays: PlayerDelays,
        (seed, now): ([u8; KEY_LEN], Instant),
    ) -> Self {
        let id = identity.id().to_string();
        let init = json!({ "client_id": id, "version": 1, "suite": SUITE_NAME });
        let init = text("client/init", &init);
        Self {
            identity,
            hello,
            delays,
            seed,
            state: State::ExpectInit { prologue: init.clone().into_bytes() },
            dialect: Dialect::Current,
            trust: ServerTrust::Unpaired,
            activity: ServerActivity::None,
            roles: Roles::default(),
            reassembly: Reassembly::with_limit(MAX_MESSAGE),
            plaintext: Vec::new(),
            chunk: None,
            track: TrackInfo::default(),
            artwork: ArtworkReceiver::default(),
            has_stream: false,
            outputs: VecDeque::from([Queued::Send(SendspinOutgoing::text(init))]),
            clock: ServerClock::new(now),
            told: None,
            state_due: None,
            deadline: Some(now + STEP_TIMEOUT),
            malformed: 0,
            is_closed: false,
        }
    }

    /// Processes a message of the WebSocket that arrived at `now`; its outputs must be taken before
    /// the next one.
    pub fn handle_message(&mut self, now: Instant, is_text: bool, message: &[u8]) {
        self.chunk = None;
        if self.is_closed {
            return;
        }
        let handled = match core::mem::replace(&mut self.state, State::Failed) {
            State::ExpectInit { prologue } if is_text => self.init(prologue, message),
            State::ExpectHandshake { server, prologue } if is_text => {
                self.handshake(server, &prologue, message)
            }
            State::Encrypted { server, hash, mut cipher, is_active } if !is_text => {
                let mut plaintext = core::mem::take(&mut self.plaintext);
                let is_valid = cipher.decrypt(message, &mut plaintext).is_ok();
                self.plaintext = plaintext;
                self.state = State::Encrypted { server, hash, cipher, is_active };
                if is_valid { self.plaintext(now) } else { Err(SendspinClientError::Forged) }
            }
            _ => Err(SendspinClientError::OutOfOrder),
        };
        if let Err(error) = handled {
            self.close(error);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_closed {
            return;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return self.close(SendspinClientError::TimedOut);
        }
        // Without the role no clock is needed, and a server of the first dialect that pairs takes a
        // question for a message of the handshake.
        if self.deadline.is_some() || !self.roles.player {
            return;
        }
        match self.clock.handle_timeout(now) {
            Some(ClockAction::Ask) => self.send(SendspinOutgoing::time()),
            Some(ClockAction::ServerTimedOut) => return self.close(SendspinClientError::NoAnswer),
            None => {}
        }
        self.tell_state(now);
    }

    /// Time at which to call [`SendspinClient::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closed {
            return None;
        }
        let clock = self.clock.poll_timeout();
        let state = self.state_due.filter(|_| self.told.is_none());
        let due = self.roles.player.then(|| state.map_or(clock, |state| clock.min(state)));
        self.deadline.or(due)
    }

    /// The next output; `None` until the next input. A chunk is a view that is valid until then.
    pub fn poll_output(&mut self) -> Option<SendspinClientOutput<'_>> {
        match self.outputs.pop_front() {
            Some(Queued::Send(message)) => return Some(SendspinClientOutput::Send(message)),
            Some(Queued::Event(event)) => return Some(SendspinClientOutput::Event(event)),
            None => {}
        }
        let timestamp = self.chunk.take()?;
        let (_, payload) = frame::read_audio_header(self.dialect.info(), &self.plaintext)?;
        Some(SendspinClientOutput::Chunk { timestamp, payload })
    }

    /// Appends a message as a frame of the WebSocket that is sent at `now`.
    pub fn write(
        &mut self,
        message: SendspinOutgoing,
        now: Instant,
        writer: &mut WsWriter,
        out: &mut Vec<u8>,
    ) {
        let (json, next) = match message {
            SendspinOutgoing(output::Outgoing::Text(text)) => {
                return writer.write(FrameKind::Text, text.as_bytes(), out);
            }
            SendspinOutgoing(output::Outgoing::Json(json)) => (json, None),
            SendspinOutgoing(output::Outgoing::Rekey(json, cipher)) => (json, Some(cipher)),
            SendspinOutgoing(output::Outgoing::Time) => {
                let stamp = self.clock.ask(now);
                (text("client/time", &json!({ "client_transmitted": stamp })), None)
            }
        };
        let State::Encrypted { cipher, .. } = &mut self.state else { return };
        let plaintext = [&[frame::JSON], json.as_bytes()].concat();
        let mut is_broken = false;
        writer.write_with(FrameKind::Binary, plaintext.len() + CIPHER_OVERHEAD, out, |out| {
            is_broken = cipher.encrypt(&plaintext, out).is_err();
        });
        if let Some(next) = next {
            *cipher = next;
        }
        if is_broken {
            self.close(SendspinClientError::Forged);
        }
    }

    /// Sets when sound is needed, and says it.
    pub fn set_delays(&mut self, now: Instant, delays: PlayerDelays) {
        if delays != self.delays {
            self.delays = delays;
            self.told = None;
            self.tell_state(now);
        }
    }

    /// Sends a command for the server's programme.
    pub fn control(&mut self, command: TransportCommand) {
        if self.roles.controller {
            self.send_json("client/command", &json!({ "controller": command.to_json() }));
        }
    }

    /// Ends the connection, with a goodbye where the reason has one.
    pub fn close(&mut self, error: SendspinClientError) {
        if core::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let is_open = matches!(self.state, State::Encrypted { .. });
        if let Some(reason) = error.goodbye().filter(|_| is_open) {
            self.send_json("client/goodbye", &json!({ "reason": reason }));
        }
        self.outputs.push_back(Queued::Event(SendspinClientEvent::Closed(error)));
        self.chunk = None;
    }

    /// The server's clock; `None` before it is known well enough.
    #[must_use]
    pub fn clock(&self, now: Instant) -> Option<ClockLine> {
        self.clock.line_at(now)
    }

    /// What the server wants.
    #[must_use]
    pub const fn activity(&self) -> ServerActivity {
        self.activity
    }

    /// The server's key, once it is proved.
    #[must_use]
    pub const fn server(&self) -> Option<Key> {
        match &self.state {
            State::Encrypted { server, .. } => Some(*server),
            _ => None,
        }
    }

    /// How the server speaks, and what it has proved to know.
    #[must_use]
    pub const fn peer(&self) -> (Dialect, ServerTrust) {
        (self.dialect, self.trust)
    }

    /// Messages that were passed over because their content makes no sense.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    fn init(&mut self, mut prologue: Vec<u8>, message: &[u8]) -> Result<(), SendspinClientError> {
        let (kind, payload) = split(message).map_err(|_| SendspinClientError::Malformed)?;
        if kind == "server/error" {
            return Err(SendspinClientError::Refused);
        }
        let server = payload.get("server_id").and_then(Value::as_str).and_then(Key::parse);
        let is_init = kind == "server/init" && message.len() <= MAX_HANDSHAKE;
        let is_first_version = payload.get("version").and_then(Value::as_u64) == Some(1);
        let server = server.filter(|_| is_init && is_first_version);
        let server = server.ok_or(SendspinClientError::Malformed)?;
        prologue.extend_from_slice(message);
        self.state = State::ExpectHandshake { server, prologue };
        Ok(())
    }

    fn handshake(
        &mut self,
        server: Key,
        prologue: &[u8],
        message: &[u8],
    ) -> Result<(), SendspinClientError> {
        let (kind, payload) = split(message).map_err(|_| SendspinClientError::Malformed)?;
        if kind != "noise/handshake" {
            return Err(SendspinClientError::OutOfOrder);
        }
        let (reply, cipher, hash) = self.answer(server, prologue, &payload)?;
        self.send(SendspinOutgoing::text(reply));
        self.state = State::Encrypted { server, hash, cipher: Box::new(cipher), is_active: false };
        Ok(())
    }

    /// Answers the first message of a handshake: the second one, the cipher and the hash.
    fn answer(
        &mut self,
        server: Key,
        prologue: &[u8],
        payload: &Value,
    ) -> Result<(String, NoiseCipher, Vec<u8>), SendspinClientError> {
        let data = payload.get("data").and_then(Value::as_str);
        let data = data.and_then(|data| URL_SAFE_NO_PAD.decode(data).ok());
        let data = data.filter(|data| data.len() <= MAX_HANDSHAKE);
        let data = data.ok_or(SendspinClientError::Malformed)?;
        let ephemeral = self.seed;
        self.seed = next_seed(&ephemeral);
        let (suite, private) = (Suite::ChaChaPoly, self.identity.private());
        let parties = Parties { suite, private, peer: &server, psk: &SENTINEL_PSK, ephemeral };
        let begun = Responder::begin(&parties, prologue, &data);
        let (responder, named) = begun.ok_or(SendspinClientError::Forged)?;
        let named: Value =
            crate::json::parse(&named).map_err(|_| SendspinClientError::Malformed)?;
        let text_of = |key| named.get(key).and_then(Value::as_str);
        self.dialect = match text_of("psk_category") {
            Some("lt" | "pr" | "sn") => Dialect::Current,
            None if named.get("psk_category").is_none() => Dialect::FirstNoise,
            _ => return Err(SendspinClientError::Malformed),
        };
        let id = text_of("psk_id").ok_or(SendspinClientError::Malformed)?;
        let (trust, psk) = match (self.identity.find(&server, id), self.dialect) {
            (Some(found), _) => found,
            // "This client forgot me", which the first dialect cannot be told.
            (None, Dialect::Current) => (ServerTrust::Unpaired, SENTINEL_PSK),
            (None, _) => return Err(SendspinClientError::UnknownKey),
        };
        let finished = responder.finish(&psk);
        let (second, cipher, hash) = finished.ok_or(SendspinClientError::Forged)?;
        self.trust = trust;
        let data = json!({ "data": URL_SAFE_NO_PAD.encode(second) });
        Ok((text("noise/handshake", &data), cipher, hash))
    }

    /// Handles the decrypted message. A chunk stays where it is until it is taken.
    fn plaintext(&mut self, now: Instant) -> Result<(), SendspinClientError> {
        let dialect = self.dialect.info();
        let whole = self.reassembly.push(dialect, &self.plaintext);
        if whole.map_err(|_| SendspinClientError::Malformed)?.is_none() {
            return Ok(());
        }
        if let Some(whole) = self.reassembly.take() {
            self.plaintext = whole;
        }
        match self.plaintext.first() {
            None => Err(SendspinClientError::Malformed),
            Some(&frame::JSON) => {
                let plaintext = core::mem::take(&mut self.plaintext);
                let handled = self.text(now, plaintext.get(1..).unwrap_or_default());
                self.plaintext = plaintext;
                handled
            }
            Some(&frame::PLAYER_AUDIO) => {
                let header = frame::read_audio_header(dialect, &self.plaintext);
                let timestamp = header.and_then(|(timestamp, _)| frame::instant(timestamp));
                self.malformed += u64::from(timestamp.is_none());
                self.chunk = timestamp.filter(|_| self.has_stream);
                Ok(())
            }
            Some(&kind) if is_artwork(kind) && self.roles.artwork => {
                match self.artwork.push(self.dialect, &self.plaintext) {
                    Ok(event) => event.into_iter().for_each(|event| self.event(event)),
                    Err(_) => self.malformed += 1,
                }
                Ok(())
            }
            // Roles that we do not have.
            Some(_) => Ok(()),
        }
    }

    fn text(&mut self, now: Instant, bytes: &[u8]) -> Result<(), SendspinClientError> {
        let Ok((kind, payload)) = split(bytes) else { return Err(SendspinClientError::Malformed) };
        let is_active = matches!(self.state, State::Encrypted { is_active: true, .. });
        match kind.as_str() {
            "server/hello" => self.server_hello(now, &payload),
            "server/activate" => return self.activate(now, &payload),
            "noise/handshake" => return self.rekey(now, &payload),
            "server/time" => {
                let answered = message::time(&payload);
                let is_valid = answered.is_some_and(|stamps| self.clock.answer(now, stamps));
                self.malformed += u64::from(!is_valid);
                self.tell_state(now);
            }
            "stream/start" if is_active => self.stream_start(&payload),
            "stream/clear" if self.has_stream && message::is_for("player", &payload) => {
                self.event(SendspinClientEvent::StreamCleared);
            }
            "stream/end" => {
                if message::is_for("player", &payload) {
                    self.end_stream();
                }
                if message::is_for("artwork", &payload) {
                    self.end_artwork();
                }
            }
            "server/state" if is_active => self.server_state(&payload),
            "group/update" => {
                if let Some(playback) = message::playback(&payload) {
                    self.event(SendspinClientEvent::Playback(playback));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn server_hello(&mut self, now: Instant, payload: &Value) {
        let name = payload.get("name").and_then(Value::as_str).unwrap_or_default();
        self.event(SendspinClientEvent::Server(message::clip(name)));
        let hello = self.hello.to_json(self.dialect, self.trust);
        self.send_json("client/hello", &hello);
        if self.deadline.is_some() {
            self.deadline = Some(now + STEP_TIMEOUT);
        }
    }

    fn stream_start(&mut self, payload: &Value) {
        if self.roles.artwork && payload.get("artwork").is_some_and(Value::is_object) {
            self.artwork.begin();
        }
        if !self.roles.player {
            return;
        }
        match message::stream(payload) {
            Some(format) => {
                self.has_stream = true;
                self.event(SendspinClientEvent::Stream(format));
            }
            None => self.malformed += u64::from(payload.get("player").is_some()),
        }
    }

    fn server_state(&mut self, payload: &Value) {
        if self.roles.metadata
            && let Some((at, track)) = message::track(self.dialect.info(), payload, &self.track)
        {
            self.track = track.clone();
            self.event(SendspinClientEvent::Track(at, track));
        }
        if self.roles.controller
            && let Some(commands) = message::transport(payload)
        {
            self.event(SendspinClientEvent::Commands(commands));
        }
    }

    /// What the server wants, if its key lets it.
    fn activate(&mut self, now: Instant, payload: &Value) -> Result<(), SendspinClientError> {
        let activate = Activate::parse(payload).ok_or(SendspinClientError::Malformed)?;
        let activity = activate.activity.ok_or(SendspinClientError::UnknownActivity)?;
        let roles = activate.roles.unwrap_or(self.roles);
        let plays = !roles.is_empty() || activity == ServerActivity::Playback;
        match self.trust {
            ServerTrust::Unpaired if plays && !self.hello.unpaired_access => {
                return Err(SendspinClientError::PairingRequired);
            }
            ServerTrust::Pairing if plays => {
                return Err(SendspinClientError::Unauthorized(self.trust));
            }
            ServerTrust::Paired if activity == ServerActivity::Pairing => {
                return Err(SendspinClientError::Unauthorized(self.trust));
            }
            _ => {}
        }
        if let State::Encrypted { is_active, .. } = &mut self.state {
            *is_active = true;
        }
        self.deadline = None;
        if activity == ServerActivity::Pairing {
            self.pair(activate.by_token);
        }
        if self.has_stream && !roles.player {
            self.end_stream();
        }
        if !roles.artwork {
            self.end_artwork();
        }
        let before = core::mem::replace(&mut self.roles, roles);
        if roles.artwork && !before.artwork {
            // The state names the channels of pictures.
            self.told = None;
        }
        self.activity = activity;
        if roles.player {
            if !before.player {
                self.clock.resume(now);
            }
            self.state_due.get_or_insert(now + CLOCK_PATIENCE);
        }
        self.event(SendspinClientEvent::Active { activity, has_roles: !roles.is_empty() });
        self.tell_state(now);
        Ok(())
    }

    /// Gives the server the key of its pairing; another handshake follows.
    fn pair(&mut self, by_token: bool) {
        let State::Encrypted { server, .. } = &self.state else { return };
        if self.trust != ServerTrust::Pairing || !by_token {
            return self.send_json("pair/abort", &json!({ "reason": "method_not_supported" }));
        }
        let key = Key(self.identity.long_term_psk(server).0).to_string();
        if self.dialect == Dialect::Current {
            self.send_json("client/pair-init", &json!({ "pairing_index": 1 }));
        }
        self.send_json("client/pair-finalize", &json!({ "long_term_psk": key }));
    }

    /// Another handshake on the encrypted connection; the answer goes out with the old keys.
    fn rekey(&mut self, now: Instant, payload: &Value) -> Result<(), SendspinClientError> {
        let State::Encrypted { server, hash, .. } = &self.state else { return Ok(()) };
        let (server, prologue) = (*server, hash.clone());
        let (reply, cipher, next_hash) = self.answer(server, &prologue, payload)?;
        if let State::Encrypted { hash, is_active, .. } = &mut self.state {
            (*hash, *is_active) = (next_hash, false);
        }
        self.roles = Roles::default();
        self.end_stream();
        self.end_artwork();
        (self.told, self.state_due, self.deadline) = (None, None, Some(now + STEP_TIMEOUT));
        self.send(SendspinOutgoing::rekey(reply, cipher));
        Ok(())
    }

    /// Says whether we can play: when the clock is known, or has not been for a while.
    fn tell_state(&mut self, now: Instant) {
        let is_known = self.clock.line_at(now).is_some();
        let is_due = is_known || self.state_due.is_some_and(|due| due <= now);
        if self.roles.player && self.told != Some(is_known) && is_due {
            self.told = Some(is_known);
            let state = self.delays.state(self.dialect, is_known, self.roles.artwork);
            self.send_json("client/state", &state);
        }
    }

    fn end_stream(&mut self) {
        if core::mem::take(&mut self.has_stream) {
            self.event(SendspinClientEvent::StreamEnded);
        }
    }

    fn end_artwork(&mut self) {
        if self.artwork.end() {
            self.event(SendspinClientEvent::ArtworkEnded);
        }
    }

    fn event(&mut self, event: SendspinClientEvent) {
        self.outputs.push_back(Queued::Event(event));
    }

    fn send(&mut self, message: SendspinOutgoing) {
        self.outputs.push_back(Queued::Send(message));
    }

    fn send_json(&mut self, kind: &str, payload: &Value) {
        self.send(SendspinOutgoing::json(text(kind, payload)));
    }
}

impl fmt::Debug for SendspinClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendspinClient").field("trust", &self.trust).finish_non_exhaustive()
    }
}

fn text(kind: &str, payload: &Value) -> String {
    json!({ "type": kind, "payload": payload }).to_string()
}

/// The cipher suite that the client chooses; a server must have it.
const SUITE_NAME: &str = "25519_ChaChaPoly_SHA256";

/// A server waits 5 s for the first state; so long the clock may take before that.
const CLOCK_PATIENCE: Span = Span::from_secs(3);

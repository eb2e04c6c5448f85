//! How a connection begins: which dialect, who it is, with which key, and what it may do.
//!
//! ```text
//!  client/hello ------------------------------------> (who may speak without encryption?) --+
//!  client/init -> (which key?) -> Noise -> hellos --> (known, approved, or to be paired?) --+-> client
//! ```
//!
//! Nothing that a client says before its key is proved is believed. A client that is not approved
//! yet is kept, so that it plays as soon as it is; one whose token was entered is paired, which
//! changes the keys of the connection.

mod error;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_core::{Instant, Span};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::frame::{self, Reassembly};
use super::hello::{ClientHello, PLAYER};
use super::key::{KEY_LEN, Key};
use super::message::{Goodbye, split};
use super::noise::{
    Initiator, MAX_HANDSHAKE, Parties, Psk, SENTINEL_PSK, Suite, next_seed, psk_id, public_key,
};
use super::session::MessageCipher;
pub use error::AdmissionError;

/// Time for each step of a admission.
pub const STEP_TIMEOUT: Span = Span::from_secs(30);

/// Who the server is.
#[derive(Clone)]
pub struct ServerInfo {
    name: String,
    private: [u8; KEY_LEN],
    public: Key,
}

impl ServerInfo {
    /// The server with this name and private key.
    #[must_use]
    pub fn new(name: String, private: [u8; KEY_LEN]) -> Self {
        Self { name, public: public_key(&private), private }
    }

    /// The public key, which is the server's id.
    #[must_use]
    pub const fn id(&self) -> Key {
        self.public
    }
}

impl core::fmt::Debug for ServerInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServerInfo").field("id", &self.public).finish_non_exhaustive()
    }
}

/// Which client the driver has to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientQuestion {
    /// What the client says its id is. It is proved later, or never.
    pub client_id: String,
    /// It speaks without encryption.
    pub is_legacy: bool,
}

/// What the driver knows of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the driver knows")]
pub struct Trust {
    /// The key of its pairing.
    pub paired: Option<Psk>,
    /// The key of a token that an operator has entered.
    pub pairing: Option<Psk>,
    /// An operator lets it in without pairing.
    pub is_approved: bool,
    /// It may speak without encryption.
    pub allows_legacy: bool,
}

/// Input of a admission.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AdmissionInput<'a> {
    /// A text message of the WebSocket.
    Text(&'a [u8]),
    /// A binary message of the WebSocket.
    Binary(&'a [u8]),
    /// The answer to [`AdmissionOutput::Ask`], and every change of it.
    Trust(Trust),
}

/// Output of a admission.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdmissionOutput {
    /// A text message of the WebSocket.
    SendText(String),
    /// A binary message of the WebSocket.
    SendBinary(Vec<u8>),
    /// Look up this client and answer with [`AdmissionInput::Trust`].
    Ask(ClientQuestion),
    /// The client waits for an operator to approve or to pair it.
    Waits(ClientHello),
    /// The client has been paired with this key, which is to be kept before the next call.
    Paired {
        /// The client.
        client: Key,
        /// Its key from now on.
        psk: Psk,
    },
    /// The client has been let in. It is the last output.
    Done(ActivatedClient),
    /// The connection ends after everything sent so far. It is the last output.
    Fail(AdmissionError),
}

/// A client that has been let in.
#[derive(Debug)]
#[non_exhaustive]
pub struct ActivatedClient {
    /// What it says of itself; the id is proved unless it speaks without encryption.
    pub hello: ClientHello,
    /// The cipher of its connection.
    pub cipher: Option<Box<dyn MessageCipher>>,
    /// Whether it is paired; otherwise it is approved, or a legacy client.
    pub is_paired: bool,
}

/// The beginning of one connection.
#[derive(Debug)]
pub struct Admission {
    server: Arc<ServerInfo>,
    /// Random bytes that are not used up.
    seed: [u8; KEY_LEN],
    state: State,
    deadline: Option<Instant>,
    outputs: VecDeque<AdmissionOutput>,
}

#[derive(Debug)]
enum State {
    ExpectFirst,
    AskedLegacy(ClientHello),
    Asked(Peer),
    ExpectAnswer { peer: Peer, offer: Offer, initiator: Box<Initiator> },
    Encrypted { peer: Peer, channel: Channel, step: Step },
    Ended,
}

/// A client with the suite that it has chosen, and the prologue of the next handshake.
#[derive(Debug)]
struct Peer {
    key: Key,
    suite: Suite,
    prologue: Vec<u8>,
    trust: Trust,
    hello: Option<ClientHello>,
}

/// The key of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Paired,
    Pairing,
    Sentinel,
}

#[derive(Debug)]
enum Step {
    ExpectHello {
        offer: Offer,
    },
    /// An operator has to decide.
    Waiting,
    ExpectPairing,
    /// The answer to a handshake on the encrypted connection.
    ExpectAnswer {
        offer: Offer,
        initiator: Box<Initiator>,
    },
}

/// The encrypted connection.
#[derive(Debug)]
struct Channel {
    cipher: Box<dyn MessageCipher>,
    reassembly: Reassembly,
}

impl Admission {
    /// A connection that began at `now`. `seed` are random bytes for its keys.
    #[must_use]
    pub fn new(server: Arc<ServerInfo>, seed: [u8; KEY_LEN], now: Instant) -> Self {
        Self {
            server,
            seed,
            state: State::ExpectFirst,
            deadline: Some(now + STEP_TIMEOUT),
            outputs: VecDeque::new(),
        }
    }

    /// Processes one input; its outputs must be taken afterwards.
    pub fn handle_input(&mut self, now: Instant, input: AdmissionInput<'_>) {
        let state = core::mem::replace(&mut self.state, State::Ended);
        let next = match (state, input) {
            (State::Ended, _) => return,
            (State::ExpectFirst, AdmissionInput::Text(text)) => self.first(text),
            (State::AskedLegacy(hello), AdmissionInput::Trust(trust)) => self.legacy(hello, trust),
            (State::Asked(peer), AdmissionInput::Trust(trust)) => {
                self.begin_noise(Peer { trust, ..peer })
            }
            (State::ExpectAnswer { peer, offer, initiator }, AdmissionInput::Text(text)) => {
                self.answer(peer, offer, initiator, text)
            }
            (State::Encrypted { peer, channel, step }, AdmissionInput::Binary(message)) => {
                self.encrypted(peer, channel, step, message)
            }
            (State::Encrypted { peer, channel, step }, AdmissionInput::Trust(trust)) => {
                self.trust_changed(Peer { trust, ..peer }, channel, step)
            }
            // What is known of a client has changed in the middle of its handshake: it counts the
            // next time.
            (state, AdmissionInput::Trust(_)) => Ok(state),
            (_, _) => Err(AdmissionError::OutOfOrder),
        };
        match next {
            Ok(state) => self.state = state,
            Err(error) => self.outputs.push_back(AdmissionOutput::Fail(error)),
        }
        let waits = matches!(self.state, State::Encrypted { step: Step::Waiting, .. });
        self.deadline =
            (!waits && !matches!(self.state, State::Ended)).then_some(now + STEP_TIMEOUT);
    }

    /// Ends a admission whose next step has not come in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.state = State::Ended;
            self.outputs.push_back(AdmissionOutput::Fail(AdmissionError::TimedOut));
        }
    }

    /// Time at which to call [`Admission::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// The next output; `None` until the next input.
    pub fn poll_output(&mut self) -> Option<AdmissionOutput> {
        self.outputs.pop_front()
    }

    fn first(&mut self, text: &[u8]) -> Result<State, AdmissionError> {
        let (kind, payload) = split(text).map_err(|_| AdmissionError::Malformed)?;
        match kind.as_str() {
            "client/hello" => {
                let hello = ClientHello::parse(&payload, None).map_err(AdmissionError::Hello)?;
                self.ask(&hello.client_id, true);
                Ok(State::AskedLegacy(hello))
            }
            "client/init" => self.init(text, &payload),
            _ => Err(AdmissionError::Malformed),
        }
    }

    fn init(&mut self, text: &[u8], payload: &Value) -> Result<State, AdmissionError> {
        let field = |key| payload.get(key).and_then(Value::as_str);
        let key = field("client_id").and_then(Key::parse);
        let Some(key) = key.filter(|_| text.len() <= MAX_HANDSHAKE) else {
            return Err(self.refuse("malformed", AdmissionError::Malformed));
        };
        if payload.get("version").and_then(Value::as_u64) != Some(1) {
            return Err(self.refuse("unsupported_version", AdmissionError::Version));
        }
        let Some(suite) = field("suite").and_then(Suite::parse) else {
            return Err(self.refuse("unsupported_suite", AdmissionError::Suite));
        };
        self.ask(&key.to_string(), false);
        let (prologue, trust) = (text.to_vec(), Trust::default());
        Ok(State::Asked(Peer { key, suite, prologue, trust, hello: None }))
    }

    /// A client that speaks without encryption proves nothing, so it must not have the id of one that
    /// does.
    fn legacy(&mut self, hello: ClientHello, trust: Trust) -> Result<State, AdmissionError> {
        if trust.paired.is_some() || trust.is_approved {
            return Err(AdmissionError::Downgrade);
        }
        if !trust.allows_legacy {
            return Err(AdmissionError::LegacyOff(hello.client_id));
        }
        self.send_text(
            "server/hello",
            &json!({
                "server_id": self.server.public.to_string(),
                "name": self.server.name,
                "version": 1,
                "active_roles": hello.roles,
                "connection_reason": "playback",
            }),
        );
        let client = ActivatedClient { hello, cipher: None, is_paired: false };
        self.outputs.push_back(AdmissionOutput::Done(client));
        Ok(State::Ended)
    }

    fn begin_noise(&mut self, mut peer: Peer) -> Result<State, AdmissionError> {
        let id = self.server.public.to_string();
        let init = message("server/init", &json!({ "server_id": id, "version": 1 }));
        peer.prologue.extend_from_slice(init.as_bytes());
        self.outputs.push_back(AdmissionOutput::SendText(init));
        let offer = peer.trust.offer();
        let (initiator, text) = self.handshake(&peer, offer)?;
        self.outputs.push_back(AdmissionOutput::SendText(text));
        Ok(State::ExpectAnswer { peer, offer, initiator })
    }

    /// The first message of a handshake with the key of this kind.
    fn handshake(
        &mut self,
        peer: &Peer,
        offer: Offer,
    ) -> Result<(Box<Initiator>, String), AdmissionError> {
        let psk = peer.trust.psk(offer);
        let payload = json!({ "psk_id": psk_id(&psk), "psk_category": offer.category() });
        let ephemeral = self.seed;
        self.seed = next_seed(&ephemeral);
        let parties = Parties {
            suite: peer.suite,
            private: &self.server.private,
            peer: &peer.key,
            psk: &psk,
            ephemeral,
        };
        let begun = Initiator::begin(&parties, &peer.prologue, payload.to_string().as_bytes());
        let (initiator, first) = begun.ok_or(AdmissionError::Handshake)?;
        let data = URL_SAFE_NO_PAD.encode(first);
        Ok((Box::new(initiator), message("noise/handshake", &json!({ "data": data }))))
    }

    fn answer(
        &mut self,
        mut peer: Peer,
        offer: Offer,
        initiator: Box<Initiator>,
        text: &[u8],
    ) -> Result<State, AdmissionError> {
        let (cipher, offer) = finish(&mut peer, offer, initiator, text)?;
        let mut channel = Channel { cipher, reassembly: Reassembly::default() };
        self.send(&mut channel, "server/hello", &json!({ "name": self.server.name }))?;
        Ok(State::Encrypted { peer, channel, step: Step::ExpectHello { offer } })
    }

    fn encrypted(
        &mut self,
        mut peer: Peer,
        mut channel: Channel,
        step: Step,
        message: &[u8],
    ) -> Result<State, AdmissionError> {
        let dialect = peer.hello.as_ref().map_or(Dialect::Current, |hello| hello.dialect);
        let Some(text) = channel.receive(dialect, message)? else {
            return Ok(State::Encrypted { peer, channel, step });
        };
        let (kind, payload) = split(&text).map_err(|_| AdmissionError::Malformed)?;
        if kind == "client/goodbye" {
            let reason = payload.get("reason").and_then(Value::as_str);
            let reason = reason.map_or(Goodbye::Restart, Goodbye::parse);
            return Err(AdmissionError::Goodbye(reason));
        }
        match (step, kind.as_str()) {
            (Step::ExpectHello { offer }, "client/hello") => {
                let id = Some(peer.key.to_string());
                let hello = ClientHello::parse(&payload, id).map_err(AdmissionError::Hello)?;
                peer.hello = Some(hello);
                self.decide(peer, channel, offer)
            }
            (Step::ExpectPairing, "client/pair-finalize") => {
                let psk = payload.get("long_term_psk").and_then(Value::as_str);
                let key = psk.and_then(Key::parse).ok_or(AdmissionError::Malformed)?;
                let psk = Psk(key.0);
                if psk == SENTINEL_PSK || Some(psk) == peer.trust.pairing {
                    return Err(AdmissionError::Malformed);
                }
                let client = peer.key;
                self.outputs.push_back(AdmissionOutput::Paired { client, psk });
                self.send(&mut channel, "server/pair-finalize", &json!({}))?;
                (peer.trust.paired, peer.trust.pairing) = (Some(psk), None);
                self.handshake_again(peer, channel)
            }
            (Step::ExpectPairing, "pair/abort") => Err(AdmissionError::PairingAborted),
            (Step::ExpectAnswer { offer, initiator }, "noise/handshake") => {
                let (cipher, offer) = finish(&mut peer, offer, initiator, &text)?;
                channel.cipher = cipher;
                if dialect == Dialect::FirstNoise {
                    let hello = json!({ "name": self.server.name });
                    self.send(&mut channel, "server/hello", &hello)?;
                    return Ok(State::Encrypted {
                        peer,
                        channel,
                        step: Step::ExpectHello { offer },
                    });
                }
                self.decide(peer, channel, offer)
            }
            // The clock and the state of a client may come before it is let in.
            (step, _) => Ok(State::Encrypted { peer, channel, step }),
        }
    }

    /// What an operator decided while a client was waiting.
    fn trust_changed(
        &mut self,
        peer: Peer,
        channel: Channel,
        step: Step,
    ) -> Result<State, AdmissionError> {
        if !matches!(step, Step::Waiting) {
            return Ok(State::Encrypted { peer, channel, step });
        }
        if peer.trust.pairing.is_some() {
            return self.handshake_again(peer, channel);
        }
        self.decide(peer, channel, Offer::Sentinel)
    }

    /// Another handshake on the encrypted connection, with the key that is the best now.
    fn handshake_again(
        &mut self,
        peer: Peer,
        mut channel: Channel,
    ) -> Result<State, AdmissionError> {
        let offer = peer.trust.offer();
        let (initiator, text) = self.handshake(&peer, offer)?;
        self.send_plain(&mut channel, text.as_bytes())?;
        Ok(State::Encrypted { peer, channel, step: Step::ExpectAnswer { offer, initiator } })
    }

    /// Lets the client in, pairs it, or lets it wait.
    fn decide(
        &mut self,
        mut peer: Peer,
        mut channel: Channel,
        offer: Offer,
    ) -> Result<State, AdmissionError> {
        let Some(hello) = peer.hello.take() else { return Err(AdmissionError::OutOfOrder) };
        let is_approved = peer.trust.is_approved && hello.unpaired_access;
        match offer {
            Offer::Pairing => {
                let pairing = json!({
                    "activities": ["pairing"],
                    "active_roles": [],
                    "pairing": { "method": "pairing_psk" },
                });
                self.send(&mut channel, "server/activate", &pairing)?;
                peer.hello = Some(hello);
                Ok(State::Encrypted { peer, channel, step: Step::ExpectPairing })
            }
            Offer::Sentinel if !is_approved => {
                let nothing = json!({ "activities": [], "active_roles": [] });
                self.send(&mut channel, "server/activate", &nothing)?;
                self.outputs.push_back(AdmissionOutput::Waits(hello.clone()));
                peer.hello = Some(hello);
                Ok(State::Encrypted { peer, channel, step: Step::Waiting })
            }
            Offer::Paired | Offer::Sentinel => {
                let activities: &[&str] = if hello.has(PLAYER) { &["playback"] } else { &[] };
                let all = json!({ "activities": activities, "active_roles": hello.roles });
                self.send(&mut channel, "server/activate", &all)?;
                let (cipher, is_paired) = (Some(channel.cipher), offer == Offer::Paired);
                let client = ActivatedClient { hello, cipher, is_paired };
                self.outputs.push_back(AdmissionOutput::Done(client));
                Ok(State::Ended)
            }
        }
    }

    fn ask(&mut self, client_id: &str, is_legacy: bool) {
        let client_id = client_id.to_owned();
        self.outputs.push_back(AdmissionOutput::Ask(ClientQuestion { client_id, is_legacy }));
    }

    /// Tells a client why it is refused; only possible before the keys are known.
    fn refuse(&mut self, reason: &str, error: AdmissionError) -> AdmissionError {
        self.send_text("server/error", &json!({ "reason": reason }));
        error
    }

    fn send_text(&mut self, kind: &str, payload: &Value) {
        self.outputs.push_back(AdmissionOutput::SendText(message(kind, payload)));
    }

    fn send(
        &mut self,
        channel: &mut Channel,
        kind: &str,
        payload: &Value,
    ) -> Result<(), AdmissionError> {
        self.send_plain(channel, message(kind, payload).as_bytes())
    }

    fn send_plain(&mut self, channel: &mut Channel, text: &[u8]) -> Result<(), AdmissionError> {
        let plaintext = [&[frame::JSON], text].concat();
        let mut sealed = Vec::new();
        channel.cipher.encrypt(&plaintext, &mut sealed).map_err(|_| AdmissionError::Handshake)?;
        self.outputs.push_back(AdmissionOutput::SendBinary(sealed));
        Ok(())
    }
}

impl Trust {
    /// The best key that there is.
    const fn offer(&self) -> Offer {
        match (self.pairing, self.paired) {
            (Some(_), _) => Offer::Pairing,
            (None, Some(_)) => Offer::Paired,
            (None, None) => Offer::Sentinel,
        }
    }

    fn psk(&self, offer: Offer) -> Psk {
        let psk = match offer {
            Offer::Paired => self.paired,
            Offer::Pairing => self.pairing,
            Offer::Sentinel => None,
        };
        psk.unwrap_or(SENTINEL_PSK)
    }
}

impl Offer {
    /// The name of the category.
    const fn category(self) -> &'static str {
        match self {
            Self::Paired => "lt",
            Self::Pairing => "pr",
            Self::Sentinel => "sn",
        }
    }
}

impl Channel {
    /// The text in a message; `None` for another kind of message, or a part of one.
    fn receive(
        &mut self,
        dialect: Dialect,
        message: &[u8],
    ) -> Result<Option<Vec<u8>>, AdmissionError> {
        let mut plaintext = Vec::new();
        self.cipher.decrypt(message, &mut plaintext).map_err(|_| AdmissionError::Forged)?;
        let whole = self.reassembly.push(dialect.info(), &plaintext);
        let text = match whole.map_err(|_| AdmissionError::Malformed)? {
            None => return Ok(None),
            Some([frame::JSON, text @ ..]) => Some(text.to_vec()),
            Some(_) => None,
        };
        self.reassembly.clear();
        Ok(text)
    }
}

/// Ends a handshake. A client that has forgotten its key is as one that was never paired.
fn finish(
    peer: &mut Peer,
    offer: Offer,
    initiator: Box<Initiator>,
    text: &[u8],
) -> Result<(Box<dyn MessageCipher>, Offer), AdmissionError> {
    let (kind, payload) = split(text).map_err(|_| AdmissionError::Malformed)?;
    let data = payload.get("data").and_then(Value::as_str).filter(|_| kind == "noise/handshake");
    let data = data.and_then(|data| URL_SAFE_NO_PAD.decode(data).ok());
    let data = data.filter(|data| data.len() <= MAX_HANDSHAKE).ok_or(AdmissionError::Malformed)?;
    let finished = initiator.finish(&data).ok_or(AdmissionError::Forged)?;
    let (cipher, hash, is_forgotten) = finished;
    peer.prologue = hash;
    Ok((Box::new(cipher), if is_forgotten { Offer::Sentinel } else { offer }))
}

fn message(kind: &str, payload: &Value) -> String {
    json!({ "type": kind, "payload": payload }).to_string()
}

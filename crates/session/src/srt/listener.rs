//! The handshake of a listener, which keeps nothing of a caller before it has echoed a cookie.

use core::net::SocketAddr;

use aulos_core::{Instant, Span, TokenBucket};
use aulos_proto::srt::{
    ControlKind, Extensions, Handshake, HandshakeKind, HandshakeTime, INDUCTION_MAGIC, KeyMaterial,
    RejectCode, SrtControl, SrtFlags,
};

use super::agreement::{Agreement, Decision, Ends, SRT_VERSION, wire_time};
use super::config::{SrtConfig, SrtListenerConfig};
use super::encryption::Encryption;
use super::keys::Keys;
use super::receiver::WINDOW_PACKETS;
use super::secret::SecretNumbers;

/// Answers handshakes.
#[derive(Debug)]
pub(super) struct Listener {
    config: SrtConfig,
    listener: SrtListenerConfig,
    /// The zero of the clock, which begins anew with each connection.
    started: Instant,
    derivations: TokenBucket,
    /// The answer to the caller that is connected, which may ask again.
    last_answer: Option<Handshake>,
}

impl Listener {
    pub(super) fn new(config: SrtConfig, listener: SrtListenerConfig, now: Instant) -> Self {
        let derivations = TokenBucket::new(DERIVATION_BURST, DERIVATION_INTERVAL, now);
        Self { config, listener, started: now, derivations, last_answer: None }
    }

    /// `taken` is the connection that exists.
    pub(super) fn handle_handshake(
        &mut self,
        (now, from): (Instant, SocketAddr),
        control: &SrtControl<'_>,
        taken: Option<Ends>,
        secrets: &mut SecretNumbers,
    ) -> Decision {
        let ControlKind::Handshake(request) = &control.kind else { return Decision::Ignore };
        if control.destination != 0 {
            return Decision::Ignore;
        }
        match request.kind {
            HandshakeKind::Induction => {
                let answer = Handshake {
                    version: 5,
                    encryption: 0,
                    extension: INDUCTION_MAGIC,
                    cookie: secrets.cookie(from, minute(now)),
                    peer: Handshake::peer_field(from.ip()),
                    ..Handshake::clone(request)
                };
                Decision::Answer(self.control(now, request.socket, answer))
            }
            HandshakeKind::Conclusion if is_fresh(request.cookie, from, now, secrets) => {
                if let Some(taken) = taken
                    && (taken.peer, taken.remote_id) == (from, request.socket)
                {
                    return self.last_answer.clone().map_or(Decision::Ignore, |answer| {
                        Decision::Answer(self.control(now, request.socket, answer))
                    });
                }
                match self.admit((now, from), control.timestamp, request, taken, secrets) {
                    Ok(decision) => decision,
                    Err(Some(code)) => {
                        let kind = HandshakeKind::Rejection(code);
                        let extensions = Extensions::default();
                        let answer = Handshake { kind, extensions, ..Handshake::clone(request) };
                        Decision::Refuse(code, self.control(now, request.socket, answer))
                    }
                    Err(None) => Decision::Ignore,
                }
            }
            _ => Decision::Ignore,
        }
    }

    /// Accepts a caller, refuses it with a reason, or leaves it without an answer for now.
    fn admit(
        &mut self,
        (now, from): (Instant, SocketAddr),
        timestamp: u32,
        request: &Handshake,
        taken: Option<Ends>,
        secrets: &mut SecretNumbers,
    ) -> Result<Decision, Option<RejectCode>> {
        let extensions = &request.extensions;
        let time = extensions.time.filter(|_| request.version >= 5 && !extensions.is_response);
        let time = time.ok_or(Some(RejectCode::VERSION))?;
        let senders = &self.listener.senders;
        let wanted = self.config.stream_id.as_deref();
        let refusal = if !senders.is_empty() && !senders.contains(&from.ip().to_canonical()) {
            RejectCode::FORBIDDEN
        } else if wanted.is_some() && wanted != extensions.stream_id.as_deref() {
            RejectCode::NOT_FOUND
        } else if time.flags.is_file_mode() {
            RejectCode::MESSAGE_API
        } else if extensions.has_filter {
            RejectCode::FILTER
        } else if extensions.has_group {
            RejectCode::GROUP
        } else if taken.is_some() {
            RejectCode::CONFLICT
        } else {
            return self.connect((now, from), (timestamp, time), request, secrets);
        };
        Err(Some(refusal))
    }

    fn connect(
        &mut self,
        (now, from): (Instant, SocketAddr),
        (timestamp, time): (u32, HandshakeTime),
        request: &Handshake,
        secrets: &mut SecretNumbers,
    ) -> Result<Decision, Option<RejectCode>> {
        let encryption = self.open_keys(now, request)?;
        let larger = |other: u16| self.config.latency_ms().max(other);
        let (receive_delay, send_delay) = (larger(time.send_delay), larger(time.receive_delay));
        let span = |delay: u16| Span::from_millis(i64::from(delay));
        let ends = Ends { peer: from, local_id: secrets.number(), remote_id: request.socket };
        let agreement = Agreement {
            ends,
            initial: (request.initial, request.initial),
            clocks: (now, timestamp),
            latencies: (span(receive_delay), span(send_delay)),
            encryption,
        };
        let times = HandshakeTime {
            version: SRT_VERSION,
            flags: SrtFlags::LIVE,
            receive_delay,
            send_delay,
        };
        let answer = Handshake {
            version: 5,
            window: u32::try_from(WINDOW_PACKETS).unwrap_or(u32::MAX),
            kind: HandshakeKind::Conclusion,
            socket: ends.local_id,
            peer: Handshake::peer_field(from.ip()),
            extensions: Extensions {
                time: Some(times),
                key: request.extensions.key.clone(),
                is_response: true,
                ..Extensions::default()
            },
            ..Handshake::clone(request)
        };
        (self.last_answer, self.started) = (Some(answer.clone()), now);
        let answer = self.control(now, request.socket, answer);
        let stream_id = request.extensions.stream_id.clone();
        Ok(Decision::Connect(Box::new(agreement), Some(answer), stream_id))
    }

    fn open_keys(
        &mut self,
        now: Instant,
        request: &Handshake,
    ) -> Result<Option<Encryption>, Option<RejectCode>> {
        let (passphrase, message) = match (&self.config.passphrase, &request.extensions.key) {
            (None, None) => return Ok(None),
            (Some(passphrase), Some(message)) => (passphrase, message),
            _ => return Err(Some(RejectCode::UNPROTECTED)),
        };
        let message = KeyMaterial::parse(message).ok_or(Some(RejectCode::ROGUE))?;
        if !self.derivations.try_take(now) {
            // The caller repeats its request.
            return Err(None);
        }
        let keys = Keys::open(&message, passphrase).ok_or(Some(RejectCode::BAD_SECRET))?;
        Ok(Some(Encryption::new(passphrase.clone(), keys, now)))
    }

    fn control(&self, now: Instant, destination: u32, handshake: Handshake) -> SrtControl<'static> {
        let kind = ControlKind::Handshake(Box::new(handshake));
        SrtControl { timestamp: wire_time(now, self.started), destination, kind }
    }
}

/// Whether this listener has made the cookie in this minute or the one before.
fn is_fresh(cookie: u32, from: SocketAddr, now: Instant, secrets: &SecretNumbers) -> bool {
    let minute = minute(now);
    [minute, minute.saturating_sub(1)].iter().any(|at| secrets.cookie(from, *at) == cookie)
}

const fn minute(now: Instant) -> u64 {
    now.as_nanos() / 60_000_000_000
}

/// Keys are derived for so many callers at once, and then for one at a time: 1 % of a processor.
const DERIVATION_BURST: u32 = 10;
const DERIVATION_INTERVAL: Span = Span::from_millis(100);

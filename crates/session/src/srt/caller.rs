//! The handshake of a caller.

use core::net::SocketAddr;

use aulos_core::{Instant, Span};
use aulos_proto::srt::{
    ControlKind, Extensions, Handshake, HandshakeKind, HandshakeTime, INDUCTION_MAGIC, KeyParity,
    RejectCode, Sequence, SrtControl, SrtFlags, SrtPacket,
};

use super::agreement::{Agreement, Decision, Ends, SRT_VERSION, wire_time};
use super::config::SrtConfig;
use super::encryption::{Encryption, REFUSED_KEY};
use super::keys::Keys;
use super::output::{Outputs, SrtCloseReason};
use super::receiver::WINDOW_PACKETS;
use super::secret::SecretNumbers;

/// A caller that is not connected yet.
#[derive(Debug)]
pub(super) struct Caller {
    config: SrtConfig,
    peer: SocketAddr,
    socket: u32,
    initial: Sequence,
    started: Instant,
    step: Step,
    retry_at: Instant,
    keys: Option<Keys>,
    /// The message with the first key.
    key_message: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waits for a cookie.
    Induction,
    /// Waits for the answer to the request with this cookie.
    Conclusion(u32),
    /// Nothing is waited for.
    Done,
}

impl Caller {
    pub(super) fn new(
        config: SrtConfig,
        peer: SocketAddr,
        secrets: &mut SecretNumbers,
        now: Instant,
    ) -> Self {
        let (socket, initial) = (secrets.number(), Sequence::new(secrets.number()));
        let keys = config
            .passphrase
            .as_ref()
            .and_then(|passphrase| Keys::generate(passphrase, config.key_bytes, secrets));
        let key_message = keys.as_ref().and_then(|keys| keys.message(KeyParity::Even));
        let step = Step::Induction;
        let (started, retry_at) = (now, now);
        Self { config, peer, socket, initial, started, step, retry_at, keys, key_message }
    }

    /// Repeats what was not answered; the reason when it gives up.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        out: &mut Outputs,
    ) -> Option<SrtCloseReason> {
        if self.step == Step::Done || now < self.retry_at {
            return None;
        }
        if now.since(self.started) >= PATIENCE {
            self.step = Step::Done;
            return Some(SrtCloseReason::NoAnswer);
        }
        self.retry_at = now + RETRY_INTERVAL;
        out.transmit(self.peer, &SrtPacket::Control(self.request_packet(now)));
        None
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.step != Step::Done).then_some(self.retry_at)
    }

    pub(super) fn handle_handshake(
        &mut self,
        now: Instant,
        from: SocketAddr,
        control: &SrtControl<'_>,
    ) -> Decision {
        let ControlKind::Handshake(handshake) = &control.kind else { return Decision::Ignore };
        if from != self.peer || control.destination != self.socket {
            return Decision::Ignore;
        }
        match (self.step, handshake.kind) {
            (Step::Induction, HandshakeKind::Induction) => {
                if handshake.version < 5 || handshake.extension != INDUCTION_MAGIC {
                    return self.fail(SrtCloseReason::Refused(RejectCode::VERSION));
                }
                let cookie = handshake.cookie;
                (self.step, self.retry_at) = (Step::Conclusion(cookie), now + RETRY_INTERVAL);
                Decision::Answer(self.request_packet(now))
            }
            (Step::Conclusion(_), HandshakeKind::Conclusion) => {
                self.conclude(now, control.timestamp, handshake)
            }
            (Step::Induction | Step::Conclusion(_), HandshakeKind::Rejection(code)) => {
                self.fail(SrtCloseReason::Refused(code))
            }
            _ => Decision::Ignore,
        }
    }

    fn conclude(&mut self, now: Instant, timestamp: u32, answer: &Handshake) -> Decision {
        let Some(time) = answer.extensions.time.filter(|_| answer.extensions.is_response) else {
            return self.fail(SrtCloseReason::InvalidHandshake);
        };
        let encryption = match (self.config.passphrase.clone(), self.keys.take()) {
            (Some(passphrase), Some(keys)) => {
                if answer.extensions.key != self.key_message {
                    let is_refused = answer.extensions.key.as_deref() == Some(&REFUSED_KEY);
                    let code =
                        if is_refused { RejectCode::BAD_SECRET } else { RejectCode::UNPROTECTED };
                    return self.fail(SrtCloseReason::Refused(code));
                }
                Some(Encryption::new(passphrase, keys, now))
            }
            _ => None,
        };
        self.step = Step::Done;
        let latency =
            |other: u16| Span::from_millis(i64::from(self.config.latency_ms().max(other)));
        let ends = Ends { peer: self.peer, local_id: self.socket, remote_id: answer.socket };
        let agreement = Agreement {
            ends,
            initial: (self.initial, answer.initial),
            clocks: (self.started, timestamp),
            latencies: (latency(time.send_delay), latency(time.receive_delay)),
            encryption,
        };
        Decision::Connect(Box::new(agreement), None, self.config.stream_id.clone())
    }

    fn fail(&mut self, reason: SrtCloseReason) -> Decision {
        self.step = Step::Done;
        Decision::Fail(reason)
    }

    fn request_packet(&self, now: Instant) -> SrtControl<'static> {
        let kind = ControlKind::Handshake(Box::new(self.request()));
        SrtControl { timestamp: wire_time(now, self.started), destination: 0, kind }
    }

    fn request(&self) -> Handshake {
        let induction = Handshake {
            version: 4,
            encryption: 0,
            extension: DATAGRAM_SOCKET,
            initial: self.initial,
            window: u32::try_from(WINDOW_PACKETS).unwrap_or(u32::MAX),
            kind: HandshakeKind::Induction,
            socket: self.socket,
            cookie: 0,
            peer: Handshake::peer_field(self.peer.ip()),
            extensions: Extensions::default(),
        };
        let Step::Conclusion(cookie) = self.step else { return induction };
        let delay = self.config.latency_ms();
        let extensions = Extensions {
            time: Some(HandshakeTime {
                version: SRT_VERSION,
                flags: SrtFlags::LIVE,
                receive_delay: delay,
                send_delay: delay,
            }),
            key: self.key_message.clone(),
            stream_id: self.config.stream_id.clone(),
            ..Extensions::default()
        };
        let encryption = self.key_message.as_ref().map_or(0, |_| self.config.key_bytes / 8);
        Handshake {
            version: 5,
            encryption: u16::try_from(encryption).unwrap_or(0),
            kind: HandshakeKind::Conclusion,
            cookie,
            extensions,
            ..induction
        }
    }
}

/// The type of a socket in UDT, which the field of the extensions was made for.
const DATAGRAM_SOCKET: u16 = 2;

const RETRY_INTERVAL: Span = Span::from_millis(250);
const PATIENCE: Span = Span::from_secs(3);

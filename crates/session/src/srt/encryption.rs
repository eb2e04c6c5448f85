//! The keys of a connection, which either side may renew.

use aulos_core::{Instant, Span};
use aulos_proto::srt::{KeyMaterial, KeyParity, Sequence};

use super::keys::{Keys, SendKeys};
use super::secret::{SecretNumbers, SrtPassphrase};

/// The keys of both directions.
#[derive(Debug)]
pub(super) struct Encryption {
    passphrase: SrtPassphrase,
    receive: Keys,
    send: SendKeys,
    /// When the next key was announced last.
    announced_at: Option<Instant>,
    /// When a key was derived from the passphrase last.
    derived_at: Instant,
}

impl Encryption {
    pub(super) fn new(passphrase: SrtPassphrase, receive: Keys, now: Instant) -> Self {
        let send = receive.to_send();
        Self { passphrase, receive, send, announced_at: None, derived_at: now }
    }

    /// Takes a new key of the peer, and returns the answer.
    pub(super) fn renew(&mut self, now: Instant, message: &[u8]) -> Vec<u8> {
        let Some(material) = KeyMaterial::parse(message) else { return REFUSED_KEY.to_vec() };
        if self.receive.take(&material) {
            return message.to_vec();
        }
        // Another salt; the peer repeats a request that is not answered.
        if now.since(self.derived_at) < DERIVE_INTERVAL {
            return Vec::new();
        }
        self.derived_at = now;
        match Keys::open(&material, &self.passphrase) {
            Some(keys) => {
                self.receive = keys;
                message.to_vec()
            }
            None => REFUSED_KEY.to_vec(),
        }
    }

    /// Decrypts a payload in place; false without its key.
    pub(super) fn decrypt(&self, key: KeyParity, number: Sequence, payload: &mut [u8]) -> bool {
        self.receive.apply(key, number, payload)
    }

    /// Encrypts a payload in place, and returns the field that names the key.
    pub(super) fn encrypt(
        &mut self,
        number: Sequence,
        payload: &mut [u8],
        secrets: &mut SecretNumbers,
    ) -> u8 {
        self.send.encrypt(number, payload, secrets)
    }

    /// The peer's answer to a new key; false if it refuses that.
    pub(super) fn confirm(&mut self, answer: &[u8]) -> bool {
        self.send.confirm(answer)
    }

    /// The message with the next key, which is repeated after a `pause` until it is confirmed.
    pub(super) fn poll_announcement(&mut self, now: Instant, pause: Span) -> Option<Vec<u8>> {
        let Some(message) = self.send.announced() else {
            self.announced_at = None;
            return None;
        };
        if self.announced_at.is_some_and(|at| now.since(at) < pause) {
            return None;
        }
        self.announced_at = Some(now);
        Some(message.to_vec())
    }

    #[cfg(test)]
    pub(super) const fn age(&mut self, packets: u32) {
        self.send.age(packets);
    }
}

/// Keys with a new salt are derived at most so often.
const DERIVE_INTERVAL: Span = Span::from_secs(1);

/// Statuses instead of a key: no passphrase here, and another one.
pub(super) const NO_KEY: [u8; 4] = [0, 0, 0, 3];
pub(super) const REFUSED_KEY: [u8; 4] = [0, 0, 0, 4];

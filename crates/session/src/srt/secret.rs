//! Secrets: the passphrase, and numbers that nobody can guess.

use core::fmt;
use core::net::SocketAddr;

use ring::hmac;

/// A passphrase of 10 to 79 bytes. Its `Debug` text does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SrtPassphrase(String);

/// A passphrase is too short or too long; holds its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is one fault")]
pub struct PassphraseError(pub usize);

impl SrtPassphrase {
    /// The passphrase `text`.
    ///
    /// # Errors
    /// If it has fewer than 10 or more than 79 bytes.
    pub fn new(text: String) -> Result<Self, PassphraseError> {
        match text.len() {
            10..=79 => Ok(Self(text)),
            length => Err(PassphraseError(length)),
        }
    }

    pub(super) const fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for SrtPassphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SrtPassphrase(..)")
    }
}

impl fmt::Display for PassphraseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a passphrase has 10 to 79 bytes, and this one has {}", self.0)
    }
}

impl core::error::Error for PassphraseError {}

/// Numbers that nobody can guess, made of 32 random bytes.
pub(super) struct SecretNumbers {
    key: hmac::Key,
    made: u64,
}

impl SecretNumbers {
    pub(super) fn new(seed: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, seed), made: 0 }
    }

    /// The next 32 bytes.
    pub(super) fn bytes(&mut self) -> [u8; 32] {
        self.made += 1;
        self.tag(&[b"number".as_slice(), &self.made.to_be_bytes()].concat())
    }

    /// The next 31-bit number that is not zero.
    pub(super) fn number(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.bytes();
        (u32::from_be_bytes([a, b, c, d]) >> 1).max(1)
    }

    /// A number that belongs to an address and a minute.
    pub(super) fn cookie(&self, address: SocketAddr, minute: u64) -> u32 {
        let text = format!("cookie {address} {minute}");
        let [a, b, c, d, ..] = self.tag(text.as_bytes());
        u32::from_be_bytes([a, b, c, d])
    }

    fn tag(&self, data: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.key, data);
        tag.as_ref().first_chunk().copied().unwrap_or([0; 32])
    }
}

impl fmt::Debug for SecretNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretNumbers(..)")
    }
}

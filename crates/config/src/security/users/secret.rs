//! A secret, kept as its digest only.

use std::fmt;

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

/// The digest of a password or a token (SHA-256, FIPS 180-4).
///
/// It is never written to a disk, so it need not be slow: it allows secrets of different lengths to
/// be compared in the same time, and keeps them out of memory and logs.
#[derive(Clone)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// The digest of this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Whether both are of the same text, in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl Eq for SecretDigest {}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest([redacted])")
    }
}

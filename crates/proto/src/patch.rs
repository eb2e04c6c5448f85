//! What is written over in a file that grows.

use core::fmt;

/// Bytes that take the place of others near the front of a file: sizes that were not known before.
///
/// It owns them without allocating. Those that the writers of this crate give out lie within one
/// sector of 512 bytes each, so that a disk that loses power has the old ones or the new ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    at: u64,
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Patch {
    /// `bytes`, of which there are at most 48, for the place `at` bytes from the front.
    pub(crate) fn new(at: u64, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= MAX_BYTES, "{} bytes", bytes.len());
        let mut own = [0; MAX_BYTES];
        for (to, from) in own.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self { at, bytes: own, length: bytes.len().min(MAX_BYTES) }
    }

    /// Where the first of them goes, in bytes from the front of the file.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Whether a file that begins with `front` says the same already.
    #[must_use]
    pub fn is_applied_to(&self, front: &[u8]) -> bool {
        let at = usize::try_from(self.at).unwrap_or(usize::MAX);
        front.get(at..).is_some_and(|rest| rest.starts_with(self.bytes()))
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <- {:02x?}", self.at, self.bytes())
    }
}

/// The front of a WAVE file up to the end of its long sizes.
const MAX_BYTES: usize = 48;

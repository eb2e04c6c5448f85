//! A change of bytes in a file that is still being written.

use core::fmt;

/// Bytes that overwrite others near the front of a file, for example sizes that were not known when
/// the header was written.
///
/// The bytes are stored inline, without an allocation. Every patch from the writers of this crate
/// lies within one sector of 512 bytes, so after a power failure the disk holds either the old
/// bytes or the new ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    at: u64,
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Patch {
    /// Creates a patch of at most 48 `bytes` at offset `at` from the front of the file.
    #[must_use]
    pub fn new(at: u64, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= MAX_BYTES, "{} bytes", bytes.len());
        let mut own = [0; MAX_BYTES];
        for (to, from) in own.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self { at, bytes: own, length: bytes.len().min(MAX_BYTES) }
    }

    /// Offset of the first byte from the front of the file.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Whether a file that begins with `front` already contains these bytes.
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

/// Length of a WAVE header up to the end of its 64-bit sizes.
const MAX_BYTES: usize = 48;

//! The bytes that have come and are not used yet.

use super::MAX_BUFFER;

/// A bounded queue of bytes that can be looked at in one piece.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes to throw away as they come.
    skip: u64,
    ended: bool,
}

impl InputBuffer {
    /// Takes as many bytes as there is room for.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        let rest = bytes.get(skipped..).unwrap_or_default();
        // Moved rarely: each byte once or twice, however small the pieces are.
        if self.start > self.bytes.len() / 2 || self.bytes.len() + rest.len() > MAX_BUFFER {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let taken = rest.len().min(MAX_BUFFER.saturating_sub(self.bytes.len()));
        self.bytes.extend(rest.iter().take(taken));
        skipped + taken
    }

    pub(crate) const fn end(&mut self) {
        self.ended = true;
    }

    /// Throws `count` bytes away, those that have not come yet too.
    pub(crate) fn skip(&mut self, count: u64) {
        let here = usize::try_from(count).unwrap_or(usize::MAX).min(self.bytes().len());
        self.start += here;
        self.skip += count - here as u64;
    }

    /// All that is there.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// No byte has room any more.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes.len() - self.start >= MAX_BUFFER
    }

    /// No more will come.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }
}

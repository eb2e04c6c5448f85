//! Buffer of bytes that were received but not consumed.

use super::MAX_BUFFER;

/// Bounded queue of bytes, readable as one slice.
#[derive(Debug, Default)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
    /// Number of future bytes to discard.
    skip: u64,
    /// Bytes that were pushed in all, and those of them that were to be skipped.
    pushed: u64,
    ended: bool,
}

impl InputBuffer {
    /// Appends bytes as far as there is room; returns their number.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        let rest = bytes.get(skipped..).unwrap_or_default();
        // Moves the bytes rarely: each of them once or twice, however small the pieces are.
        if self.start > self.bytes.len() / 2 || self.bytes.len() + rest.len() > MAX_BUFFER {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let taken = rest.len().min(MAX_BUFFER.saturating_sub(self.bytes.len()));
        self.bytes.extend(rest.iter().take(taken));
        self.pushed += (skipped + taken) as u64;
        skipped + taken
    }

    pub(crate) const fn end(&mut self) {
        self.ended = true;
    }

    /// Discards `count` bytes, including those that were not received yet.
    pub(crate) fn skip(&mut self, count: u64) {
        let here = usize::try_from(count).unwrap_or(usize::MAX).min(self.bytes().len());
        self.start += here;
        self.skip = self.skip.saturating_add(count - here as u64);
    }

    /// Discards what is buffered.
    pub(crate) fn clear(&mut self) {
        self.skip(self.bytes().len() as u64);
    }

    /// Bytes before the next one that is read, since the beginning.
    pub(crate) fn position(&self) -> u64 {
        (self.pushed - self.bytes().len() as u64).saturating_add(self.skip)
    }

    /// The buffered bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Whether the buffer is full.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes.len() - self.start >= MAX_BUFFER
    }

    /// Whether the input has ended.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }
}

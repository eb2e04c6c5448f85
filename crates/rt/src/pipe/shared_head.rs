//! The read position of pipes that drop the oldest frames, which reader and writer both move.
//!
//! In a plain ring only the reader moves it. To make space by dropping the oldest data the writer
//! must move it too, but never while the reader accesses those bytes. Position and a busy mark
//! therefore share one word: the reader sets the mark before its access and clears it together with
//! its new position; the writer moves the position only without the mark. Neither waits: a writer
//! that finds the mark drops the newest frames instead. A sequence lock would read bytes that are
//! being written (`docs/decisions/pipe.md`).

use crate::spsc::CachePadded;
use crate::sync::{AtomicUsize, Ordering};

/// The read position, doubled, with the busy mark in the lowest bit.
#[derive(Debug)]
pub(crate) struct SharedHead {
    word: CachePadded<AtomicUsize>,
}

impl SharedHead {
    pub(crate) fn new(start: usize) -> Self {
        Self { word: CachePadded(AtomicUsize::new(start << 1)) }
    }

    /// Begins the reader's access and returns the number of bytes that were dropped since its own
    /// position `head`.
    pub(crate) fn begin_read(&self, head: usize) -> usize {
        // Acquire: the writer's position is visible at least as far as it has moved this one.
        let word = self.word.0.fetch_or(BUSY, Ordering::AcqRel);
        distance(head, word >> 1)
    }

    /// Ends the reader's access: it has finished with everything below `head`.
    pub(crate) fn end_read(&self, head: usize) {
        // No swap needed: with the mark set no other thread writes here.
        self.word.0.store(head << 1, Ordering::Release);
    }

    /// The read position, for the writer at `tail` or a thread that has just loaded `tail`.
    pub(crate) fn head(&self, tail: usize) -> usize {
        tail.wrapping_sub(distance(self.word.0.load(Ordering::Acquire) >> 1, tail))
    }

    /// The writer at `tail` drops the oldest bytes until at most `keep` are left. Returns the new
    /// read position and the number of bytes dropped, or `None` while the reader is accessing the
    /// bytes.
    pub(crate) fn drop_oldest(&self, tail: usize, keep: usize) -> Option<(usize, usize)> {
        let mut word = self.word.0.load(Ordering::Acquire);
        for _ in 0..MAX_TRIES {
            if word & BUSY != 0 {
                return None;
            }
            let len = distance(word >> 1, tail);
            let kept = len.min(keep);
            let head = tail.wrapping_sub(kept);
            let new = head << 1;
            match self.word.0.compare_exchange(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((head, len - kept)),
                Err(now) => word = now,
            }
        }
        None
    }
}

const BUSY: usize = 1;

/// The reader can come between a load and a swap; if that happens twice in one call, the reader is
/// active enough to free space itself.
const MAX_TRIES: usize = 2;

/// How far `to` is ahead of `from`, where one of them has lost its highest bit.
fn distance(from: usize, to: usize) -> usize {
    to.wrapping_sub(from) & (usize::MAX >> 1)
}

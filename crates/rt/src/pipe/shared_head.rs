//! Whose turn it is to move the reading position, for pipes that drop the oldest frames.
//!
//! In a plain ring only the reader moves it. To make room by dropping what is oldest the writer
//! must move it too, and never while the reader looks at those bytes. So position and a busy mark
//! share one word: the reader sets the mark before it looks and takes it away with its new
//! position; the writer moves the position only where there is no mark. Neither waits: a writer
//! that meets the mark drops the newest frames instead. (A sequence lock, whose reader looks first
//! and asks afterwards, was rejected: reading bytes that are being written is undefined here.)

use crate::spsc::CachePadded;
use crate::sync::{AtomicUsize, Ordering};

/// The reading position, doubled, and the busy mark in the lowest bit.
#[derive(Debug)]
pub(crate) struct SharedHead {
    word: CachePadded<AtomicUsize>,
}

impl SharedHead {
    pub(crate) fn new(start: usize) -> Self {
        Self { word: CachePadded(AtomicUsize::new(start << 1)) }
    }

    /// The reader begins to look and learns how many bytes were dropped in front of it since its
    /// own position `head`.
    pub(crate) fn begin_read(&self, head: usize) -> usize {
        // Acquire: the writer's position is visible at least as far as it has moved this one.
        let word = self.word.0.fetch_or(BUSY, Ordering::AcqRel);
        distance(head, word >> 1)
    }

    /// The reader has done with everything below `head`.
    pub(crate) fn end_read(&self, head: usize) {
        // No swap needed: with the mark set nobody else writes here.
        self.word.0.store(head << 1, Ordering::Release);
    }

    /// The reading position as the writer at `tail`, or anybody who has just loaded it, sees it.
    pub(crate) fn head(&self, tail: usize) -> usize {
        tail.wrapping_sub(distance(self.word.0.load(Ordering::Acquire) >> 1, tail))
    }

    /// The writer at `tail` drops as many of the oldest bytes as it takes until at most `keep` are
    /// left. Gives the new reading position, or nothing when the reader is looking.
    pub(crate) fn drop_oldest(&self, tail: usize, keep: usize) -> Option<usize> {
        let mut word = self.word.0.load(Ordering::Acquire);
        for _ in 0..MAX_TRIES {
            if word & BUSY != 0 {
                return None;
            }
            let len = distance(word >> 1, tail);
            let head = tail.wrapping_sub(len.min(keep));
            let new = head << 1;
            match self.word.0.compare_exchange(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(head),
                Err(now) => word = now,
            }
        }
        None
    }
}

const BUSY: usize = 1;

/// The reader can come between a look and a swap; a second such meeting within one call means that
/// it is busy enough to make room itself.
const MAX_TRIES: usize = 2;

/// How far `to` is ahead of `from`, where one of them has lost its highest bit.
fn distance(from: usize, to: usize) -> usize {
    to.wrapping_sub(from) & (usize::MAX >> 1)
}

//! The data of one turn: a part of each ring, and the shared buffer.

use std::io::IoSlice;

use aulos_rt::writer_ring::RecordConsumer;

use super::swap::SwapBuffer;

#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    rings: Vec<BatchRing>,
    /// The buffer taken from the shared producers, and how much of it is written.
    shared_bytes: Vec<u8>,
    shared_written: usize,
}

/// One ring.
#[derive(Debug)]
struct BatchRing {
    number: u64,
    ring: RecordConsumer,
    is_realtime: bool,
    /// Bytes of it that this turn has yet to write.
    left: usize,
    /// The ring has ended: nothing follows the data of this turn.
    ends: bool,
}

impl WriteBatch {
    pub(super) fn attach(&mut self, number: u64, ring: RecordConsumer, is_realtime: bool) {
        self.rings.push(BatchRing { number, ring, is_realtime, left: 0, ends: false });
    }

    /// Begins a turn with the data that is present now.
    pub(super) fn snapshot(&mut self, swap: &SwapBuffer) {
        for source in &mut self.rings {
            // In this order, so that everything a producer added before its end is found.
            source.ends = source.ring.is_abandoned();
            source.left = source.ring.available();
        }
        self.shared_bytes.clear();
        self.shared_written = 0;
        swap.take(&mut self.shared_bytes);
    }

    /// Collects the remaining data of the turn, or the beginning of it, in file order; returns the
    /// number of parts and bytes.
    pub(super) fn gather<'a>(&'a self, parts: &mut [IoSlice<'a>; MAX_PARTS]) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0);
        let slices = self.rings.iter().map(|source| source.ring.slices(source.left));
        for (one, two) in
            std::iter::once((&self.shared_bytes[self.shared_written..], &[][..])).chain(slices)
        {
            for slice in [one, two] {
                if !slice.is_empty() {
                    parts[count] = IoSlice::new(slice);
                    (count, bytes) = (count + 1, bytes + slice.len());
                }
            }
            // The next ring may need two.
            if count + 2 > MAX_PARTS || bytes >= MAX_BYTES {
                break;
            }
        }
        (count, bytes)
    }

    /// Marks the first `n` collected bytes as written.
    pub(super) fn mark_written(&mut self, mut n: usize) {
        let swapped = n.min(self.shared_bytes.len() - self.shared_written);
        self.shared_written += swapped;
        n -= swapped;
        for source in self.rings.iter_mut().filter(|source| source.left > 0) {
            let here = n.min(source.left);
            if here == 0 {
                break;
            }
            source.ring.release(here);
            source.left -= here;
            n -= here;
        }
    }

    /// Ends the turn: detaches the rings that have ended, and reports their numbers.
    pub(super) fn detach_ended(&mut self, mut gone: impl FnMut(u64)) {
        self.rings.retain(|source| {
            if source.ends {
                gone(source.number);
            }
            !source.ends
        });
    }

    /// Whether a ring has enough data for a write, a producer waits for room, or a ring has ended.
    pub(super) fn needs_write(&self, wake_at: usize) -> bool {
        self.rings
            .iter()
            .any(|source| source.ring.is_wake_due(wake_at) || source.ring.is_abandoned())
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.rings.iter().any(|source| source.ring.is_wake_due(1))
    }

    pub(super) fn has_realtime(&self) -> bool {
        self.rings.iter().any(|source| source.is_realtime)
    }
}

/// The limit of Linux (`UIO_MAXIOV`).
pub(super) const MAX_PARTS: usize = 1024;

/// Beyond this size a call is so long that another one adds no cost, and producers get their room
/// back sooner.
const MAX_BYTES: usize = 256 * 1024;

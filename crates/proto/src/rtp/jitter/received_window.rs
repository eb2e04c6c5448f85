//! Record of received sequence numbers, which detects duplicates long after the first copy came
//! out.

/// Size of the window in packets: twice the slots of the deepest usual buffer. A packet older than
/// that is a stray one.
pub(super) const WINDOW_PACKETS: u64 = 512;

/// One bit for each of the last [`WINDOW_PACKETS`] sequence numbers.
#[derive(Debug)]
pub(super) struct ReceivedWindow {
    words: [u64; WORDS],
    /// One more than the highest received number.
    top: u64,
}

/// Status of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceStatus {
    New,
    Duplicate,
    TooOld,
}

impl ReceivedWindow {
    pub(super) const fn new(top: u64) -> Self {
        Self { words: [0; WORDS], top }
    }

    pub(super) const fn top(&self) -> u64 {
        self.top
    }

    pub(super) fn status(&self, seq: u64) -> SequenceStatus {
        if seq >= self.top {
            SequenceStatus::New
        } else if self.top - seq > WINDOW_PACKETS {
            SequenceStatus::TooOld
        } else if self.is_received(seq) {
            SequenceStatus::Duplicate
        } else {
            SequenceStatus::New
        }
    }

    pub(super) fn mark_received(&mut self, seq: u64) {
        if seq >= self.top {
            if seq - self.top >= WINDOW_PACKETS {
                self.words = [0; WORDS];
            } else {
                (self.top..seq).for_each(|passed| self.set(passed, false));
            }
            self.top = seq + 1;
        }
        self.set(seq, true);
    }

    /// Number of missing packets in `from..to`, as far as it is known.
    pub(super) fn count_missing(&self, from: u64, to: u64) -> u64 {
        let known = from.max(self.top.saturating_sub(WINDOW_PACKETS));
        let seen = (known..to.min(self.top)).filter(|&seq| self.is_received(seq)).count() as u64;
        to.saturating_sub(from).saturating_sub(seen)
    }

    fn is_received(&self, seq: u64) -> bool {
        let (word, bit) = place(seq);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, seq: u64, value: bool) {
        let (word, bit) = place(seq);
        if let Some(word) = self.words.get_mut(word) {
            if value {
                *word |= bit;
            } else {
                *word &= !bit;
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "below the number of words")]
const fn place(seq: u64) -> (usize, u64) {
    let index = seq % WINDOW_PACKETS;
    ((index / 64) as usize, 1 << (index % 64))
}

#[allow(clippy::cast_possible_truncation, reason = "eight")]
const WORDS: usize = (WINDOW_PACKETS / 64) as usize;

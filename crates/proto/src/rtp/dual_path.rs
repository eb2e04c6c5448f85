//! Merges a stream that is sent over two redundant paths (SMPTE ST 2022-7, RFC 7198): the first
//! copy of each packet is used.
//!
//! The merger precedes the receiver, which then sees one stream without duplicates. A window of
//! sequence numbers records what was received; packets outside it are passed on for the receiver to
//! classify. The paths may have two source addresses; a source table must see a single one.

use aulos_core::Instant;

use super::receiver::{ReceiveOutcome, ReceiverStats, RtpReceiver};
use super::sequence::{FIRST_SEQUENCE, extend_sequence};

/// Number of packets that one path may be behind the other: more than 450 ms, the maximum of ST
/// 2022-7, at 8,000 packets per second.
pub const WINDOW: u64 = 4_096;

/// One of the two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there are two ways")]
pub enum RedundantPath {
    /// The first configured path.
    A,
    /// The second configured path.
    B,
}

/// Result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "who receives packets has to know every case")]
pub enum MergeOutcome {
    /// First copy: use the packet.
    First,
    /// Second copy: drop the packet.
    Duplicate,
    /// Outside the window, too late or too far ahead: the receiver classifies it.
    OutsideWindow,
}

/// Merger of the two paths of one SSRC; less than 1 kB.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::dual_path::{DualPathMerger, MergeOutcome, RedundantPath};
///
/// let mut merger = DualPathMerger::new();
/// let mut receive = |leg, sequence| merger.receive(Instant::ZERO, leg, sequence, 0, 48_000);
/// assert_eq!(receive(RedundantPath::A, 1), MergeOutcome::First);
/// assert_eq!(receive(RedundantPath::B, 1), MergeOutcome::Duplicate);
/// assert_eq!(receive(RedundantPath::B, 2), MergeOutcome::First, "A has lost it, or is slower");
/// ```
#[derive(Clone, Debug)]
pub struct DualPathMerger {
    receivers: [RtpReceiver; 2],
    /// Highest sequence number so far; `None` before the first packet.
    highest: Option<u64>,
    received: [u64; WORDS],
    stats: DualPathStats,
}

/// Counters of a merger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DualPathStats {
    /// Packets used from path A and from path B.
    pub accepted: [u64; 2],
    /// Duplicates.
    pub duplicates: u64,
    /// Packets outside the window.
    pub outside: u64,
    /// Restarts of the sender.
    pub restarts: u64,
}

impl Default for DualPathMerger {
    fn default() -> Self {
        Self {
            receivers: [RtpReceiver::new(), RtpReceiver::new()],
            highest: None,
            received: [0; WORDS],
            stats: DualPathStats::default(),
        }
    }
}

impl DualPathMerger {
    /// A merger that has received nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Classifies a packet that arrived on `path`; the other parameters are those of
    /// [`RtpReceiver::receive`].
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn receive(
        &mut self,
        now: Instant,
        path: RedundantPath,
        sequence: u16,
        timestamp: u32,
        clock_rate: u32,
    ) -> MergeOutcome {
        let [a, b] = &mut self.receivers;
        let receiver = if path == RedundantPath::A { a } else { b };
        let accepted = receiver.receive(now, sequence, timestamp, clock_rate);
        let highest = self.highest.unwrap_or_else(|| FIRST_SEQUENCE + u64::from(sequence));
        let number = extend_sequence(highest, sequence);
        if self.highest.is_none() {
            self.record_new(number);
        } else if number.abs_diff(highest) >= WINDOW {
            if !matches!(accepted, ReceiveOutcome::Restarted(_)) {
                self.stats.outside += 1;
                return MergeOutcome::OutsideWindow;
            }
            // The other path will follow to the new sequence numbers.
            self.stats.restarts += 1;
            self.received = [0; WORDS];
            self.record_new(number);
        } else if self.has(number) && number <= highest {
            self.stats.duplicates += 1;
            return MergeOutcome::Duplicate;
        } else {
            (highest + 1..=number).for_each(|passed| self.set(passed, false));
            self.record_new(number);
        }
        let [a, b] = &mut self.stats.accepted;
        *(if path == RedundantPath::A { a } else { b }) += 1;
        MergeOutcome::First
    }

    /// Counters of one path by itself; the other path may have covered its losses.
    #[must_use]
    pub fn path_stats(&self, path: RedundantPath) -> ReceiverStats {
        let [a, b] = &self.receivers;
        if path == RedundantPath::A { a.stats() } else { b.stats() }
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> DualPathStats {
        self.stats
    }

    fn record_new(&mut self, number: u64) {
        self.set(number, true);
        self.highest = Some(self.highest.map_or(number, |highest| {
            if number.abs_diff(highest) < WINDOW { number.max(highest) } else { number }
        }));
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.received.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, number: u64, received: bool) {
        let (word, bit) = place(number);
        if let Some(word) = self.received.get_mut(word) {
            *word = if received { *word | bit } else { *word & !bit };
        }
    }
}

const WORDS: usize = 64;

#[allow(clippy::cast_possible_truncation, reason = "below 64")]
const fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::sequence::low_16;
    use super::*;

    fn receive(merger: &mut DualPathMerger, path: RedundantPath, sequence: u64) -> MergeOutcome {
        merger.receive(Instant::ZERO, path, low_16(sequence), 0, 0)
    }

    #[test]
    fn its_size_is_as_documented() {
        assert!(size_of::<DualPathMerger>() < 1_000);
    }

    #[test]
    fn a_failed_path_is_ignored() {
        let mut merger = DualPathMerger::new();
        for sequence in 65_000..67_000_u64 {
            if !(65_500..66_500).contains(&sequence) {
                assert_eq!(receive(&mut merger, RedundantPath::A, sequence), MergeOutcome::First);
            }
            let second = if (65_500..66_500).contains(&sequence) {
                MergeOutcome::First
            } else {
                MergeOutcome::Duplicate
            };
            assert_eq!(receive(&mut merger, RedundantPath::B, sequence), second);
        }
        assert_eq!(
            (merger.path_stats(RedundantPath::A).lost, merger.path_stats(RedundantPath::B).lost),
            (1_000, 0)
        );
        assert_eq!((merger.stats().accepted, merger.stats().duplicates), ([1_000, 1_000], 1_000));
    }

    #[test]
    fn a_sender_that_starts_again_on_both() {
        let mut merger = DualPathMerger::new();
        for sequence in 0..10 {
            receive(&mut merger, RedundantPath::A, sequence);
            receive(&mut merger, RedundantPath::B, sequence);
        }
        let again = |merger: &mut DualPathMerger, path| {
            [30_000, 30_001, 30_002].map(|at| receive(merger, path, at))
        };
        assert_eq!(
            again(&mut merger, RedundantPath::A),
            [MergeOutcome::OutsideWindow, MergeOutcome::First, MergeOutcome::First]
        );
        // The first packet of the other path is passed on again as a stray; by then the receiver
        // recognizes it.
        assert_eq!(
            again(&mut merger, RedundantPath::B),
            [MergeOutcome::First, MergeOutcome::Duplicate, MergeOutcome::Duplicate]
        );
        assert_eq!((merger.stats().restarts, merger.stats().outside), (1, 1));
    }

    proptest! {
        /// Each packet that arrives on any path comes out exactly once, whatever the delay between
        /// the paths.
        #[test]
        fn once_each(
            start: u16,
            apart in 0_u64..90,
            lost in proptest::collection::vec((0_u8..4, 0_u8..4), 100..600),
        ) {
            let mut merger = DualPathMerger::new();
            let (mut order, mut sent) = (Vec::new(), BTreeSet::new());
            for (index, (a, b)) in lost.iter().enumerate() {
                let number = FIRST_SEQUENCE + u64::from(start) + index as u64;
                for (gone, path, time) in [(*a, RedundantPath::A, number), (*b, RedundantPath::B, number + apart)] {
                    if gone > 0 {
                        order.push((time, path == RedundantPath::B, number));
                        sent.insert(number);
                    }
                }
            }
            order.sort_unstable();
            let mut given = BTreeSet::new();
            for (_, b, number) in order {
                let path = if b { RedundantPath::B } else { RedundantPath::A };
                match receive(&mut merger, path, number) {
                    MergeOutcome::First => prop_assert!(given.insert(number)),
                    MergeOutcome::Duplicate => prop_assert!(given.contains(&number)),
                    MergeOutcome::OutsideWindow => prop_assert!(false),
                }
            }
            prop_assert_eq!(given, sent);
        }

        #[test]
        fn nonsense_is_survived(packets in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..300)) {
            let mut merger = DualPathMerger::new();
            for (path, sequence) in &packets {
                receive(&mut merger, if *path { RedundantPath::A } else { RedundantPath::B }, u64::from(*sequence));
            }
            let stats = merger.stats();
            let all = stats.accepted[0] + stats.accepted[1] + stats.duplicates + stats.outside;
            prop_assert_eq!(all, packets.len() as u64);
        }
    }
}

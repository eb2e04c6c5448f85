//! One stream over two ways (SMPTE ST 2022-7, RFC 7198): the same packets are sent twice, and the first
//! of each two is taken.
//!
//! It stands in front of the receiver, which then sees one stream without the copies. A window of
//! sequence numbers says what has been there; what lies outside of it is let through, for the receiver
//! to judge. The ways may come from two addresses; to a table of sources they have to be one.

use aulos_core::Instant;

use super::receiver::{Accepted, Receiver, Tally};
use super::sequence::{FIRST_SEQUENCE, extend};

/// Packets that one way may be behind the other: more than 450 ms, the most that ST 2022-7 asks for,
/// with 8,000 packets a second.
pub const WINDOW: u64 = 4_096;

/// One of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there are two ways")]
pub enum Leg {
    /// The first that was named.
    A,
    /// The other.
    B,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "who receives packets has to know every case")]
pub enum Picked {
    /// Nobody had it: take it.
    First,
    /// It came before: drop it.
    Copy,
    /// It lies outside the window, too late or far ahead: the receiver behind will judge.
    Outside,
}

/// Two ways of one SSRC; less than 1 kB.
///
/// # Examples
/// ```
/// use aulos_core::Instant;
/// use aulos_proto::rtp::legs::{Leg, Legs, Picked};
///
/// let mut legs = Legs::new();
/// let mut come = |leg, sequence| legs.receive(Instant::ZERO, leg, sequence, 0, 48_000);
/// assert_eq!(come(Leg::A, 1), Picked::First);
/// assert_eq!(come(Leg::B, 1), Picked::Copy);
/// assert_eq!(come(Leg::B, 2), Picked::First, "A has lost it, or is slower");
/// ```
#[derive(Clone, Debug)]
pub struct Legs {
    legs: [Receiver; 2],
    /// The highest number so far, none before the first packet.
    highest: Option<u64>,
    seen: [u64; WORDS],
    tally: LegsTally,
}

/// What both ways came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LegsTally {
    /// Packets that were taken from A, and from B.
    pub taken: [u64; 2],
    /// Packets that had come before.
    pub copies: u64,
    /// Packets outside the window.
    pub outside: u64,
    /// New starts of the sender.
    pub restarts: u64,
}

impl Default for Legs {
    fn default() -> Self {
        Self {
            legs: [Receiver::new(), Receiver::new()],
            highest: None,
            seen: [0; WORDS],
            tally: LegsTally::default(),
        }
    }
}

impl Legs {
    /// Two ways on which nothing has come.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Judges a packet that came on `leg`; the rest is as with [`Receiver::receive`].
    ///
    /// # Real-time
    /// Neither allocates nor waits.
    pub fn receive(
        &mut self,
        now: Instant,
        leg: Leg,
        sequence: u16,
        timestamp: u32,
        clock_rate: u32,
    ) -> Picked {
        let [a, b] = &mut self.legs;
        let receiver = if leg == Leg::A { a } else { b };
        let accepted = receiver.receive(now, sequence, timestamp, clock_rate);
        let highest = self.highest.unwrap_or_else(|| FIRST_SEQUENCE + u64::from(sequence));
        let number = extend(highest, sequence);
        if self.highest.is_none() {
            self.enter(number);
        } else if number.abs_diff(highest) >= WINDOW {
            if !matches!(accepted, Accepted::Restarted(_)) {
                self.tally.outside += 1;
                return Picked::Outside;
            }
            // The other way will come to the new numbers, too.
            self.tally.restarts += 1;
            self.seen = [0; WORDS];
            self.enter(number);
        } else if self.has(number) && number <= highest {
            self.tally.copies += 1;
            return Picked::Copy;
        } else {
            (highest + 1..=number).for_each(|passed| self.set(passed, false));
            self.enter(number);
        }
        let [a, b] = &mut self.tally.taken;
        *(if leg == Leg::A { a } else { b }) += 1;
        Picked::First
    }

    /// What one way came to by itself: its losses are those that the other one has covered, or not.
    #[must_use]
    pub fn leg(&self, leg: Leg) -> Tally {
        let [a, b] = &self.legs;
        if leg == Leg::A { a.tally() } else { b.tally() }
    }

    /// What both came to.
    #[must_use]
    pub const fn tally(&self) -> LegsTally {
        self.tally
    }

    fn enter(&mut self, number: u64) {
        self.set(number, true);
        self.highest = Some(self.highest.map_or(number, |highest| {
            if number.abs_diff(highest) < WINDOW { number.max(highest) } else { number }
        }));
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen.get(word).is_some_and(|word| word & bit != 0)
    }

    fn set(&mut self, number: u64, seen: bool) {
        let (word, bit) = place(number);
        if let Some(word) = self.seen.get_mut(word) {
            *word = if seen { *word | bit } else { *word & !bit };
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

    fn come(legs: &mut Legs, leg: Leg, sequence: u64) -> Picked {
        legs.receive(Instant::ZERO, leg, low_16(sequence), 0, 0)
    }

    #[test]
    fn it_is_as_small_as_it_says() {
        assert!(size_of::<Legs>() < 1_000);
    }

    #[test]
    fn a_way_that_dies_is_not_heard() {
        let mut legs = Legs::new();
        for sequence in 65_000..67_000_u64 {
            if !(65_500..66_500).contains(&sequence) {
                assert_eq!(come(&mut legs, Leg::A, sequence), Picked::First);
            }
            let second =
                if (65_500..66_500).contains(&sequence) { Picked::First } else { Picked::Copy };
            assert_eq!(come(&mut legs, Leg::B, sequence), second);
        }
        assert_eq!((legs.leg(Leg::A).lost, legs.leg(Leg::B).lost), (1_000, 0));
        assert_eq!((legs.tally().taken, legs.tally().copies), ([1_000, 1_000], 1_000));
    }

    #[test]
    fn a_sender_that_starts_again_on_both() {
        let mut legs = Legs::new();
        for sequence in 0..10 {
            come(&mut legs, Leg::A, sequence);
            come(&mut legs, Leg::B, sequence);
        }
        let again = |legs: &mut Legs, leg| [30_000, 30_001, 30_002].map(|at| come(legs, leg, at));
        assert_eq!(again(&mut legs, Leg::A), [Picked::Outside, Picked::First, Picked::First]);
        // The stray first one of the other way is given again; the receiver knows it by then.
        assert_eq!(again(&mut legs, Leg::B), [Picked::First, Picked::Copy, Picked::Copy]);
        assert_eq!((legs.tally().restarts, legs.tally().outside), (1, 1));
    }

    proptest! {
        /// Each packet comes out exactly once if it came on any way, however far the ways are apart.
        #[test]
        fn once_each(
            start: u16,
            apart in 0_u64..90,
            lost in proptest::collection::vec((0_u8..4, 0_u8..4), 100..600),
        ) {
            let mut legs = Legs::new();
            let (mut order, mut sent) = (Vec::new(), BTreeSet::new());
            for (index, (a, b)) in lost.iter().enumerate() {
                let number = FIRST_SEQUENCE + u64::from(start) + index as u64;
                for (gone, leg, time) in [(*a, Leg::A, number), (*b, Leg::B, number + apart)] {
                    if gone > 0 {
                        order.push((time, leg == Leg::B, number));
                        sent.insert(number);
                    }
                }
            }
            order.sort_unstable();
            let mut given = BTreeSet::new();
            for (_, b, number) in order {
                let leg = if b { Leg::B } else { Leg::A };
                match come(&mut legs, leg, number) {
                    Picked::First => prop_assert!(given.insert(number)),
                    Picked::Copy => prop_assert!(given.contains(&number)),
                    Picked::Outside => prop_assert!(false),
                }
            }
            prop_assert_eq!(given, sent);
        }

        #[test]
        fn nonsense_is_survived(packets in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..300)) {
            let mut legs = Legs::new();
            for (leg, sequence) in &packets {
                come(&mut legs, if *leg { Leg::A } else { Leg::B }, u64::from(*sequence));
            }
            let tally = legs.tally();
            let all = tally.taken[0] + tally.taken[1] + tally.copies + tally.outside;
            prop_assert_eq!(all, packets.len() as u64);
        }
    }
}

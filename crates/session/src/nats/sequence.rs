//! The numbers of chunks: which one is new.

/// The numbers that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SequenceFilter {
    /// The highest number, and a bit for each of the numbers before it; bit 0 is the highest
    /// itself.
    newest: Option<(u64, u64)>,
}

/// What a number says about its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceVerdict {
    /// It is higher than all before; so many are missing.
    Next { missing: u64 },
    /// It has been seen, or is too old to tell.
    Repeated,
    /// It was not seen, but a higher one was.
    OutOfOrder,
    /// It is so much higher that the origin cannot have sent all chunks between.
    Implausible,
}

impl SequenceFilter {
    /// Judges a number and remembers it. While chunks come (`is_live`), a forged number must not
    /// make all the following ones old; after a pause any number may be the next.
    pub(super) fn insert(&mut self, number: u64, is_live: bool) -> SequenceVerdict {
        let Some((newest, seen)) = self.newest else {
            self.newest = Some((number, 1));
            return SequenceVerdict::Next { missing: 0 };
        };
        if number > newest {
            let ahead = number - newest;
            if ahead > MAX_AHEAD && is_live {
                return SequenceVerdict::Implausible;
            }
            let shifted = u32::try_from(ahead).ok().and_then(|by| seen.checked_shl(by));
            self.newest = Some((number, shifted.unwrap_or(0) | 1));
            return SequenceVerdict::Next { missing: ahead - 1 };
        }
        let bit = u32::try_from(newest - number).ok().and_then(|back| 1_u64.checked_shl(back));
        match bit {
            Some(bit) if seen & bit == 0 => {
                self.newest = Some((newest, seen | bit));
                SequenceVerdict::OutOfOrder
            }
            Some(_) => SequenceVerdict::Repeated,
            None if is_live => SequenceVerdict::Repeated,
            None => {
                self.newest = Some((number, 1));
                SequenceVerdict::Next { missing: 0 }
            }
        }
    }
}

/// The chunks of [`MAX_QUIET`](super::MAX_QUIET) in pieces of 10 ms: more cannot be missing without
/// a pause.
const MAX_AHEAD: u64 = 300;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_order_are_new_and_gaps_are_counted() {
        let mut filter = SequenceFilter::default();
        assert_eq!(filter.insert(u64::MAX - 301, true), SequenceVerdict::Next { missing: 0 });
        assert_eq!(filter.insert(u64::MAX - 300, true), SequenceVerdict::Next { missing: 0 });
        assert_eq!(filter.insert(u64::MAX, true), SequenceVerdict::Next { missing: 299 });
        assert_eq!(filter.insert(u64::MAX, true), SequenceVerdict::Repeated);
    }

    #[test]
    fn what_was_seen_and_what_was_overtaken_are_told_apart() {
        let mut filter = SequenceFilter::default();
        for number in [100, 101, 103] {
            filter.insert(number, true);
        }
        assert_eq!(filter.insert(101, true), SequenceVerdict::Repeated);
        assert_eq!(filter.insert(102, true), SequenceVerdict::OutOfOrder);
        assert_eq!(filter.insert(102, true), SequenceVerdict::Repeated);
        assert_eq!(filter.insert(2, true), SequenceVerdict::Repeated, "too old to tell");
        assert_eq!(filter.insert(104, true), SequenceVerdict::Next { missing: 0 });
    }

    #[test]
    fn a_forged_number_does_not_end_the_stream() {
        let mut filter = SequenceFilter::default();
        filter.insert(7, true);
        assert_eq!(filter.insert(u64::MAX, true), SequenceVerdict::Implausible);
        assert_eq!(filter.insert(8, true), SequenceVerdict::Next { missing: 0 });
        // After a pause the numbers may begin anywhere.
        assert_eq!(filter.insert(9_000, false), SequenceVerdict::Next { missing: 8_991 });
        assert_eq!(filter.insert(3, false), SequenceVerdict::Next { missing: 0 });
        assert_eq!(filter.insert(4, true), SequenceVerdict::Next { missing: 0 });
    }

    proptest! {
        #[test]
        fn no_number_is_new_twice(numbers in proptest::collection::vec(0_u64..400, 1..300)) {
            let mut filter = SequenceFilter::default();
            let mut accepted = Vec::new();
            for number in numbers {
                if let SequenceVerdict::Next { .. } = filter.insert(number, true) {
                    prop_assert!(accepted.iter().all(|before| *before < number));
                    accepted.push(number);
                }
            }
        }
    }
}

//! Arithmetic with wrapping numbers.
//!
//! RTP has 16-bit sequence numbers and 32-bit timestamps. Everything behind the receiver uses
//! 64-bit numbers that never wrap; this module extends the ones to the others. A wrapping number
//! denotes the 64-bit number nearest to a reference; a distance of half a cycle counts as behind.

/// Start of the 64-bit sequence numbers: one cycle, so that packets before the first one have
/// numbers too.
pub const FIRST_SEQUENCE: u64 = 1 << 16;
/// Start of the 64-bit timestamps: one cycle.
pub const FIRST_TIMESTAMP: u64 = 1 << 32;

/// Signed distance from `b` to `a` in sequence numbers; negative when `a` is behind.
#[must_use]
pub const fn sequence_diff(a: u16, b: u16) -> i16 {
    a.wrapping_sub(b).cast_signed()
}

/// Whether sequence number `a` is before `b`.
#[must_use]
pub const fn sequence_before(a: u16, b: u16) -> bool {
    sequence_diff(a, b) < 0
}

/// Signed distance from `b` to `a` in timestamps; negative when `a` is behind.
#[must_use]
pub const fn timestamp_diff(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// Whether timestamp `a` is before `b`.
#[must_use]
pub const fn timestamp_before(a: u32, b: u32) -> bool {
    timestamp_diff(a, b) < 0
}

/// The 64-bit number nearest to `reference` whose lower 16 bits are `sequence`.
#[must_use]
pub fn extend_sequence(reference: u64, sequence: u16) -> u64 {
    let off = i64::from(sequence_diff(sequence, low_16(reference)));
    nearest(reference, off, 1 << 16)
}

/// The 64-bit number nearest to `reference` whose lower 32 bits are `timestamp`.
#[must_use]
pub fn extend_timestamp(reference: u64, timestamp: u32) -> u64 {
    let off = i64::from(timestamp_diff(timestamp, low_32(reference)));
    nearest(reference, off, 1 << 32)
}

/// The 16-bit number on the wire.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the lower bits are what is meant")]
pub const fn low_16(sequence: u64) -> u16 {
    sequence as u16
}

/// The 32-bit number on the wire: a timestamp, or an extended highest sequence number.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "the lower bits are what is meant")]
pub const fn low_32(timestamp: u64) -> u32 {
    timestamp as u32
}

/// `reference` plus `off`; at the ends of the 64-bit range, one cycle (`turn`) further inside.
fn nearest(reference: u64, off: i64, turn: u64) -> u64 {
    let inside = if off < 0 { turn } else { turn.wrapping_neg() };
    reference
        .checked_add_signed(off)
        .unwrap_or_else(|| reference.wrapping_add_signed(off).wrapping_add(inside))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn around_the_wrap() {
        assert_eq!((sequence_diff(2, 65_534), sequence_diff(65_534, 2)), (4, -4));
        assert!(
            sequence_before(65_535, 0) && !sequence_before(0, 65_535) && !sequence_before(7, 7)
        );
        assert_eq!(timestamp_diff(10, u32::MAX - 9), 20);
        assert!(timestamp_before(u32::MAX, 0) && !timestamp_before(0, u32::MAX));
        assert_eq!(extend_sequence(FIRST_SEQUENCE + 65_535, 3), 2 * FIRST_SEQUENCE + 3);
        assert_eq!(extend_sequence(2 * FIRST_SEQUENCE, 65_535), 2 * FIRST_SEQUENCE - 1);
        assert_eq!(extend_timestamp(FIRST_TIMESTAMP, u32::MAX), FIRST_TIMESTAMP - 1);
    }

    #[test]
    fn at_the_ends_of_64_bits() {
        assert_eq!(extend_sequence(0, 65_535), 65_535);
        assert_eq!(extend_sequence(u64::MAX, 0), u64::MAX - 65_535);
        assert_eq!(extend_timestamp(0, u32::MAX), u64::from(u32::MAX));
        assert_eq!(extend_timestamp(u64::MAX, 0), u64::MAX - u64::from(u32::MAX));
    }

    proptest! {
        #[test]
        fn a_wrapped_number_is_extended_to_its_original(
            start in FIRST_TIMESTAMP..u64::MAX / 2,
            steps in proptest::collection::vec(-30_000_i64..30_000, 1..50),
        ) {
            let (mut sequence, mut timestamp, mut truth) = (start, start, start);
            for step in steps {
                truth = truth.wrapping_add_signed(step);
                sequence = extend_sequence(sequence, low_16(truth));
                timestamp = extend_timestamp(timestamp, low_32(truth));
                prop_assert_eq!((sequence, timestamp), (truth, truth));
            }
        }

        #[test]
        fn nearest_and_never_another_number(reference: u64, sequence: u16, timestamp: u32) {
            let (long, time) = (extend_sequence(reference, sequence), extend_timestamp(reference, timestamp));
            prop_assert_eq!((low_16(long), low_32(time)), (sequence, timestamp));
            if (FIRST_TIMESTAMP..u64::MAX - FIRST_TIMESTAMP).contains(&reference) {
                prop_assert!(long.abs_diff(reference) <= 1 << 15);
                prop_assert!(time.abs_diff(reference) <= 1 << 31);
            }
        }

        #[test]
        fn sequence_numbers_are_ordered(a: u16, b: u16, c: u32, d: u32) {
            prop_assert_eq!(b.wrapping_add_signed(sequence_diff(a, b)), a);
            prop_assert_eq!(d.wrapping_add_signed(timestamp_diff(c, d)), c);
            let opposite = a.wrapping_sub(b) == 1 << 15;
            prop_assert_eq!(sequence_before(a, b) != sequence_before(b, a), a != b && !opposite);
        }
    }
}

//! Sequence numbers of 31 bits, which wrap.

/// The number of a data packet.
///
/// # Examples
/// ```
/// use aulos_proto::srt::Sequence;
///
/// let last = Sequence::new(0x7FFF_FFFF);
/// assert_eq!(last.plus(2), Sequence::new(1));
/// assert_eq!(last.plus(2).since(last), 2);
/// assert_eq!(last.since(last.plus(2)), -2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(u32);

impl Sequence {
    /// The number with these lower 31 bits.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number & MASK)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number `count` later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count) & MASK)
    }

    /// Packets from `other` to this one; negative if this one is before it. Half a cycle counts as
    /// before.
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        // The sign bit of the 31-bit difference, moved to that of an i32.
        (self.0.wrapping_sub(other.0) << 1).cast_signed() >> 1
    }
}

const MASK: u32 = 0x7FFF_FFFF;

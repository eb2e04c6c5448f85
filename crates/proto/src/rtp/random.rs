//! Numbers that nobody can foretell who does not know the seed; the seed comes from outside.

/// `SplitMix64` (Steele, Lea, Flood 2014): eight bytes of state, which every session can afford.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 up to 1, which it never is.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Every bit of the result depends on every bit of `value`.
pub(super) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

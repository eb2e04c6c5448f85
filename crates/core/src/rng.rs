//! Chance without a source of its own, so that a machine does the same again from the same seed.

/// Numbers that look random: `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014). Nothing that has to be a secret.
///
/// # Examples
/// ```
/// use aulos_core::Chance;
///
/// let (mut one, mut other) = (Chance::new(7), Chance::new(7));
/// assert_eq!(one.bits(), other.bits());
/// assert_ne!(one.bits(), Chance::new(8).bits());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    ///
    /// # Real-time
    /// A handful of operations.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A number from 0 up to 1, which it never is.
    ///
    /// # Real-time
    /// A handful of operations.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_sequence() {
        // The first outputs of the authors' own program for the seed 0.
        let mut chance = Rng::new(0);
        let first = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(first, [(); 3].map(|()| chance.next_u64()));
    }

    #[test]
    fn the_unit_is_filled_evenly() {
        let mut chance = Rng::new(1);
        let units: Vec<f64> = (0..100_000).map(|_| chance.next_f64()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        for tenth in 1..10 {
            let share = f64::from(tenth) / 10.0;
            let below = units.iter().filter(|unit| **unit < share).count();
            let off = f64::from(u32::try_from(below).unwrap()) / 100_000.0 - share;
            assert!(off.abs() < 0.01, "{off} of {share}");
        }
    }
}

//! A deterministic random number generator: the same seed gives the same sequence.

/// Pseudorandom numbers: `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014). Not for secrets.
///
/// # Examples
/// ```
/// use aulos_core::Rng;
///
/// let (mut one, mut other) = (Rng::new(7), Rng::new(7));
/// assert_eq!(one.next_u64(), other.next_u64());
/// assert_ne!(one.next_u64(), Rng::new(8).next_u64());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    ///
    /// # Real-time
    /// A few operations, no allocation.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A random number in [0, 1).
    ///
    /// # Real-time
    /// A few operations, no allocation.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random number below `bound`; zero if `bound` is zero.
    ///
    /// # Real-time
    /// A few operations, no allocation.
    #[allow(clippy::cast_possible_truncation, reason = "it is below a usize")]
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.next_u64() as u128 * bound as u128) >> 64) as usize
    }

    /// True with this probability.
    pub const fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// Exponentially distributed: mostly small, sometimes many times `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.next_f64()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_sequence() {
        // The first outputs of the authors' reference program for seed 0.
        let mut chance = Rng::new(0);
        let first = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(first, [(); 3].map(|()| chance.next_u64()));
    }

    #[test]
    fn the_distributions_have_the_mean_that_they_say() {
        let mut random = Rng::new(1);
        let mean = |next: &mut dyn FnMut() -> f64| (0..100_000).map(|_| next()).sum::<f64>() / 1e5;
        assert!((mean(&mut || random.next_f64()) - 0.5).abs() < 0.01);
        assert!((mean(&mut || f64::from(u8::from(random.chance(0.2)))) - 0.2).abs() < 0.01);
        let mut random = Rng::new(2);
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.05);
    }

    #[test]
    fn every_number_below_the_bound_is_equally_likely() {
        let mut random = Rng::new(3);
        let mut counts = [0_u32; 7];
        (0..70_000).for_each(|_| counts[random.below(7)] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 400), "{counts:?}");
        assert_eq!((random.below(0), random.below(1)), (0, 0));
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

//! Reproducible random numbers.

use aulos_core::Rng;

/// Pseudorandom numbers with the distributions that the simulation needs.
#[derive(Clone, Debug)]
pub struct SimRng(Rng);

impl SimRng {
    /// A generator with this `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A random number in [0, 1).
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub const fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
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
    fn the_distributions_have_their_stated_mean() {
        let mut random = SimRng::new(1);
        let mean = |next: &mut dyn FnMut() -> f64| (0..100_000).map(|_| next()).sum::<f64>() / 1e5;
        assert!((mean(&mut || random.next_f64()) - 0.5).abs() < 0.01);
        let mut random = SimRng::new(2);
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.05);
    }
}

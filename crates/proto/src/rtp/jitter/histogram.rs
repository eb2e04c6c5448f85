//! Histogram of packet delays with exponential forgetting.
//!
//! Buckets are fine near zero and coarse at large delays, an eighth of an octave each, so a quiet
//! network is resolved to a fraction of a millisecond and a bad one still fits. Instead of
//! decreasing the weights of old packets, the weights of new ones increase: a packet costs one
//! addition, and the histogram is rescaled once in many thousands.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "weights and times that are far from the ends of their types"
)]

#[derive(Debug)]
pub(super) struct DelayHistogram {
    weights: [f32; BUCKETS],
    total: f32,
    /// Weight of the next packet.
    next: f32,
    /// Width of the first buckets, in nanoseconds.
    grain: i64,
}

impl DelayHistogram {
    /// A histogram for delays up to `most` nanoseconds, initialized with `guess`.
    pub(super) fn new(most: i64, guess: i64) -> Self {
        let grain = (most / SPAN).max(1);
        let mut histogram = Self { weights: [0.0; BUCKETS], total: 0.0, next: 1.0, grain };
        histogram.restart(guess);
        histogram
    }

    /// Resets the histogram to `guess`.
    pub(super) fn restart(&mut self, guess: i64) {
        (self.weights, self.total, self.next) = ([0.0; BUCKETS], 0.0, 1.0);
        self.add(guess, GUESS_WEIGHT);
    }

    /// Records a packet `delay` nanoseconds later than the fastest, `elapsed` seconds after the
    /// last one.
    pub(super) fn record(&mut self, delay: i64, elapsed: f32) {
        self.next *= 1.0 + elapsed / MEMORY_S;
        if self.next > RESCALE {
            let scale = 1.0 / self.next;
            self.weights.iter_mut().for_each(|weight| *weight *= scale);
            self.total = self.weights.iter().sum();
            self.next = 1.0;
        }
        self.add(delay, self.next);
    }

    /// Delay in nanoseconds that a share of `quantile` of the packets does not exceed: the upper
    /// edge of its bucket.
    pub(super) fn quantile(&self, quantile: f32) -> i64 {
        let beyond = self.total * (1.0 - quantile);
        let mut sum = 0.0;
        for (bucket, weight) in self.weights.iter().enumerate().rev() {
            sum += weight;
            if sum > beyond {
                return upper_edge(bucket).saturating_mul(self.grain);
            }
        }
        0
    }

    fn add(&mut self, delay: i64, weight: f32) {
        let bucket = bucket(delay.max(0) / self.grain);
        if let Some(there) = self.weights.get_mut(bucket) {
            *there += weight;
            self.total += weight;
        }
    }
}

/// Eight buckets of one grain each, then eight for each octave.
const fn bucket(grains: i64) -> usize {
    if grains < 8 {
        return grains as usize;
    }
    let octave = 63 - grains.leading_zeros() as usize;
    let bucket = 8 + (octave - 3) * 8 + ((grains >> (octave - 3)) as usize & 7);
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

const fn upper_edge(bucket: usize) -> i64 {
    if bucket < 8 {
        return bucket as i64 + 1;
    }
    let octave = (bucket - 8) / 8;
    ((bucket % 8) as i64 + 9) << octave
}

const BUCKETS: usize = 64;

/// Range of the buckets in grains: 8 << 7, the end of seven octaves above the first eight.
const SPAN: i64 = 1_024;

/// Time constant of forgetting, in seconds: a hundredth of the packets of 20 ms are then five.
const MEMORY_S: f32 = 10.0;

/// Weight of the initial guess in packets; it is forgotten within seconds.
const GUESS_WEIGHT: f32 = 10.0;

/// Larger ratios of weights exceed the precision of an f32.
const RESCALE: f32 = 65_536.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for grains in 0..SPAN {
            let bucket = bucket(grains);
            assert!(grains < upper_edge(bucket), "{grains}");
            assert!(bucket == 0 || grains >= upper_edge(bucket - 1), "{grains}");
        }
        assert_eq!(bucket(i64::MAX), BUCKETS - 1);
        assert_eq!(upper_edge(BUCKETS - 1), SPAN);
    }

    #[test]
    fn the_quantile_follows_recent_packets() {
        let mut histogram = DelayHistogram::new(200_000_000, 0);
        for packet in 0..10_000_i64 {
            histogram.record(packet % 100 * 1_000_000, 0.02);
        }
        let found = |histogram: &DelayHistogram, quantile| histogram.quantile(quantile) / 1_000_000;
        assert!((50..=58).contains(&found(&histogram, 0.5)), "{}", found(&histogram, 0.5));
        assert!((98..=110).contains(&found(&histogram, 0.99)));
        for _ in 0..5_000 {
            histogram.record(1_000_000, 0.02);
        }
        assert_eq!(found(&histogram, 0.99), 1);
    }

    #[test]
    fn a_day_does_not_overflow() {
        let mut histogram = DelayHistogram::new(200_000_000, 60_000_000);
        (0..4_320_000).for_each(|_| histogram.record(5_000_000, 0.02));
        assert_eq!(histogram.quantile(0.999) / 1_000_000, 5);
    }
}

//! The limiter's gain, computed from the gain that each frame requires.
//!
//! ```text
//!  required gain -> minimum of the last `hold` frames -> release -> three moving averages
//! ```
//!
//! Each step only lowers or averages its input, and `hold` is longer than the averages: at the
//! frame that required a gain, and at its neighbours within the interpolator's reach, the result is
//! at most the required gain, whatever happens around it. There is no state machine. The averages
//! are sums of integers, which neither drift nor round upwards.

use aulos_core::{SampleRate, Span};

/// Smoothed gains from required gains, `delay` frames later.
#[derive(Clone, Debug)]
pub(super) struct GainEnvelope {
    minimum: SlidingMinimum,
    release: GainRelease,
    means: [MovingSum; 3],
    /// Converts the last sum to a gain.
    scale: f64,
    /// Number of frames for which the returned gain has been one.
    whole: usize,
    /// Length of all averages together.
    length: usize,
}

impl GainEnvelope {
    /// An envelope whose gain reaches a frame's required gain within `attack` frames and holds it
    /// for `reach` frames before and after.
    pub(super) fn new(rate: SampleRate, attack: usize, reach: usize) -> Self {
        let widths = [2, 3, 4].map(|more| ((attack + more) / 3).max(1));
        let length = widths.iter().sum::<usize>() - 2;
        debug_assert_eq!(length, attack);
        let mut value = UNITY;
        let means = widths.map(|width| {
            let sum = MovingSum::new(width, value);
            value = sum.sum;
            sum
        });
        #[allow(clippy::cast_precision_loss, reason = "a scale")]
        let scale = 1.0 / value as f64;
        Self {
            minimum: SlidingMinimum::new(length + 2 * reach, longest_hold(rate)),
            release: GainRelease::new(rate),
            means,
            scale,
            whole: length,
            length,
        }
    }

    /// Frames from one that requires a gain to the one for which [`GainEnvelope::next`] returns it,
    /// including the `reach` frames in between.
    #[cfg(test)]
    pub(super) const fn attack(&self) -> usize {
        self.length
    }

    /// Whether there is no reduction, and none until a frame requires it.
    pub(super) const fn is_idle(&self) -> bool {
        self.whole >= self.length
    }

    /// Skips `frames` frames that require no reduction, while idle.
    pub(super) fn skip(&mut self, frames: usize) {
        self.release.advance_idle(frames);
    }

    /// The next gain; `required` is at most one.
    pub(super) fn next(&mut self, required: f32) -> f32 {
        let least = self.minimum.next(required, self.release.hold());
        let returned = self.release.next(f64::from(least));
        self.whole = if returned >= 1.0 { self.whole.saturating_add(1) } else { 0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounds down")]
        let mut value = (returned * UNITY as f64) as u64;
        for mean in &mut self.means {
            value = mean.next(value);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a gain")]
        let gain = (value as f64 * self.scale) as f32;
        gain
    }

    /// Back to the initial state.
    pub(super) fn reset(&mut self) {
        self.minimum.clear();
        self.release.reset();
        let mut value = UNITY;
        for mean in &mut self.means {
            mean.fill(value);
            value = mean.sum;
        }
        self.whole = self.length;
    }
}

/// The minimum of a sliding window: the values that can still become it, in order (the ascending
/// minima of D. Lemire, "Streaming maximum-minimum filter", 2006). A value of one is never stored:
/// it is the result for an empty window.
///
/// Each value comes with the number of frames for which it is held beyond the window. The order
/// requires that the frames at which values leave never decrease; a hold that shrinks by less than
/// a frame per frame ensures that.
#[derive(Clone, Debug)]
struct SlidingMinimum {
    /// A value and the frame at which it leaves.
    kept: Box<[(f32, u32)]>,
    first: usize,
    count: usize,
    window: u32,
    now: u32,
}

impl SlidingMinimum {
    /// A window of `window` frames, for holds of at most `longest`.
    fn new(window: usize, longest: usize) -> Self {
        let kept = vec![(1.0, 0); (window + longest).next_power_of_two()].into();
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        Self { kept, first: 0, count: 0, window, now: 0 }
    }

    fn next(&mut self, value: f32, hold: u32) -> f32 {
        let mask = self.kept.len() - 1;
        self.now = self.now.wrapping_add(1);
        // Where a shrinking hold is rounded, two values can leave at the same frame.
        while self.count > 0 && self.kept[self.first].1 == self.now {
            self.first = (self.first + 1) & mask;
            self.count -= 1;
        }
        while self.count > 0 && self.kept[(self.first + self.count - 1) & mask].0 >= value {
            self.count -= 1;
        }
        if value < 1.0 {
            let leaves = self.now.wrapping_add(self.window).wrapping_add(hold);
            self.kept[(self.first + self.count) & mask] = (value, leaves);
            self.count += 1;
        }
        if self.count > 0 { self.kept[self.first].0 } else { 1.0 }
    }

    fn clear(&mut self) {
        self.count = 0;
    }
}

/// Returns to one exponentially, and measures the density of limiting.
#[derive(Clone, Debug)]
struct GainRelease {
    /// In f64, because a step next to one would be lost in f32.
    gain: f64,
    /// The fraction of the recent past that was limited, from 0 to 1.
    density: f64,
    /// Change of the density per frame.
    learning: f64,
    /// The fraction of the remaining distance to one that a frame covers, after a single peak and
    /// in dense limiting.
    steps: [f64; 2],
    /// Frames for which a peak is held in the densest limiting.
    longest_hold: f64,
    /// Maximum increase of the gain per frame.
    steepest: f64,
}

impl GainRelease {
    fn new(rate: SampleRate) -> Self {
        let hz = f64::from(rate.hz());
        let per_frame = |seconds: f64| 1.0 - (-1.0 / (seconds * hz)).exp();
        let steepest = 10f64.powf(STEEPEST_DB_PER_S / 20.0 / hz);
        let steps = [per_frame(SINGLE_S), per_frame(DENSE_S)];
        #[allow(clippy::cast_precision_loss, reason = "some thousands of frames")]
        let longest_hold = longest_hold(rate) as f64;
        let learning = per_frame(DENSITY_S);
        Self { gain: 1.0, density: 0.0, learning, steps, longest_hold, steepest }
    }

    /// Frames for which a peak is held at the present density.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the longest")]
    fn hold(&self) -> u32 {
        (self.longest_hold * (self.density * (1.0 / FULL_HOLD_DENSITY)).min(1.0)) as u32
    }

    fn next(&mut self, bound: f64) -> f64 {
        if self.gain >= 1.0 && bound >= 1.0 {
            self.density -= self.density * self.learning;
            return 1.0;
        }
        self.density += (1.0 - self.density) * self.learning;
        let step = self.steps[0] + (self.steps[1] - self.steps[0]) * self.density;
        let way = self.gain + (1.0 - self.gain) * step;
        let steep = self.gain.max(DEEPEST) * self.steepest;
        self.gain = bound.min(way.min(steep));
        if self.gain > NEARLY_ONE && bound >= 1.0 {
            self.gain = 1.0;
        }
        self.gain
    }

    fn advance_idle(&mut self, frames: usize) {
        let frames = i32::try_from(frames).unwrap_or(i32::MAX);
        self.density *= (1.0 - self.learning).powi(frames);
    }

    fn reset(&mut self) {
        (self.gain, self.density) = (1.0, 0.0);
    }
}

/// Frames for which a peak is held in the densest limiting.
fn longest_hold(rate: SampleRate) -> usize {
    rate.frames(Span::from_millis(LONGEST_HOLD_MS)).as_usize()
}

/// The sum of the last values, as many as there are in the buffer.
#[derive(Clone, Debug)]
struct MovingSum {
    values: Box<[u64]>,
    at: usize,
    sum: u64,
}

impl MovingSum {
    fn new(width: usize, value: u64) -> Self {
        Self { values: vec![value; width].into(), at: 0, sum: value * width as u64 }
    }

    fn next(&mut self, value: u64) -> u64 {
        self.sum += value;
        self.sum -= self.values[self.at];
        self.values[self.at] = value;
        self.at = if self.at + 1 == self.values.len() { 0 } else { self.at + 1 };
        self.sum
    }

    fn fill(&mut self, value: u64) {
        self.values.fill(value);
        self.sum = value * self.values.len() as u64;
    }
}

/// A gain of one in the sums. Three averages over 640 frames (10 ms at 192 kHz) leave 4 bits to
/// spare.
const UNITY: u64 = 1 << 30;
/// Time constants of the release: 12 dB recover to 0.1 dB in 85 to 125 ms, hold included.
const SINGLE_S: f64 = 0.020;
const DENSE_S: f64 = 0.024;
/// Hold time of a peak in dense limiting, in addition to the 5 ms of the window. Together that is
/// half a period of 20 Hz, and a whole one of 40 Hz for waves with a peak on one side only. A
/// longer hold would cost loudness: at 6 dB of limiting, music loses 0.1 LU by it.
const LONGEST_HOLD_MS: i64 = 20;
/// The density at which the hold is fully applied. The first peaks of a dense passage are held for
/// less: after 0.1 s for a quarter of it.
const FULL_HOLD_DENSITY: f64 = 0.8;
/// The time constant of the density.
const DENSITY_S: f64 = 0.4;
/// 0.019 dB a frame at 48 kHz.
const STEEPEST_DB_PER_S: f64 = 900.0;
/// The lowest gain from which the release starts, -60 dB.
const DEEPEST: f64 = 1e-3;
/// 0.0004 dB below one.
const NEARLY_ONE: f64 = 1.0 - 5e-5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_that_of_the_window() {
        let mut least = SlidingMinimum::new(7, 9);
        let mut seed = 3_u32;
        let mut all = Vec::new();
        for n in 0..5_000 {
            // Grows at once and shrinks by a frame in three.
            let hold = 9 - (n % 27) / 3;
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            #[allow(clippy::cast_precision_loss, reason = "noise")]
            let value = if n / 100 % 2 == 0 { 1.0 } else { (seed >> 8) as f32 / 16_777_216.0 };
            all.push((value, n + 7 + hold));
            let plain = all.iter().rev().take(16).filter(|(_, leaves)| *leaves > n);
            let plain = plain.fold(1.0, |least: f32, (value, _)| least.min(*value));
            assert!((least.next(value, hold) - plain).abs() < f32::EPSILON, "{n}");
        }
    }

    #[test]
    fn no_gain_exceeds_what_any_frame_within_reach_requires() {
        let (reach, rate) = (16, SampleRate::HZ_48000);
        let mut seed = 9_u32;
        for attack in [1, 2, 9, 100, 209] {
            let mut envelope = GainEnvelope::new(rate, attack, reach);
            let delay = reach + envelope.attack() - 1;
            let mut required = Vec::new();
            let mut gains = Vec::new();
            for n in 0..40_000 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                #[allow(clippy::cast_precision_loss, reason = "noise")]
                let draw = (seed >> 8) as f32 / 16_777_216.0;
                let peak = if n < 20_000 { 5 } else { 400 };
                let value = if seed.is_multiple_of(peak) { draw } else { 1.0 };
                required.push(value);
                gains.push(envelope.next(value));
            }
            for frame in delay + reach..required.len() - delay - reach {
                let gain = gains[frame + delay];
                let around = &required[frame - reach..=frame + reach];
                let least = around.iter().copied().fold(1.0, f32::min);
                assert!(gain <= least * (1.0 + 1e-6), "{attack} {frame}: {gain} {least}");
            }
        }
    }

    #[test]
    fn after_the_last_peak_the_gain_rises_without_a_pause_and_is_back_in_time() {
        for (rate, depth) in [(48_000, 0.5), (48_000, 0.1), (8_000, 0.25), (192_000, 0.25)] {
            let rate = SampleRate::new(rate).unwrap();
            let attack = rate.hz() as usize / 250;
            for peaks in [1, 4_000] {
                let mut envelope = GainEnvelope::new(rate, attack, 16);
                for _ in 0..peaks {
                    envelope.next(depth);
                    for _ in 0..attack / 4 {
                        envelope.next(1.0);
                    }
                }
                for _ in 0..16 + attack - 1 {
                    envelope.next(1.0);
                }
                let mut last = 0.0;
                for frame in 0..rate.hz() {
                    let gain = envelope.next(1.0);
                    assert!(gain >= last, "{rate:?} {depth} {frame}: {gain} after {last}");
                    let late = f64::from(frame) > 0.2 * f64::from(rate.hz());
                    assert!(!late || gain > 0.9886, "{rate:?} {depth} {peaks} {frame}: {gain}");
                    last = gain;
                }
                assert!(envelope.is_idle());
                assert!((last - 1.0).abs() < f32::EPSILON);
            }
        }
    }
}

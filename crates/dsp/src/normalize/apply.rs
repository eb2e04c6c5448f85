//! What happens to the samples: a delay, and a gain that never steps.

use aulos_core::{Db, Frames};

/// Gives back what it got some frames ago.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    line: Box<[f32]>,
    at: usize,
}

impl Delay {
    pub(super) fn new(frames: usize, channels: usize) -> Self {
        Self { line: vec![0.0; frames * channels].into(), at: 0 }
    }

    /// Takes `samples` in and puts as many older ones in their place.
    pub(super) fn exchange(&mut self, samples: &mut [f32]) {
        let mut rest = samples;
        while !rest.is_empty() && !self.line.is_empty() {
            let count = rest.len().min(self.line.len() - self.at);
            let (part, behind) = rest.split_at_mut(count);
            part.swap_with_slice(&mut self.line[self.at..self.at + count]);
            self.at = (self.at + count) % self.line.len();
            rest = behind;
        }
    }

    pub(super) fn clear(&mut self) {
        self.line.fill(0.0);
    }
}

/// A gain on its way: straight in decibels, so that a second sounds like the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slope {
    amplitude: f64,
    /// What the amplitude is multiplied with after each frame.
    factor: f64,
    to: Db,
}

impl Slope {
    /// A gain that stays.
    pub(super) fn at(gain: Db) -> Self {
        Self { amplitude: gain.amplitude(), factor: 1.0, to: gain }
    }

    /// Goes on to another gain, where it arrives after `way`.
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    pub(super) fn go(&mut self, to: Db, way: Frames) {
        let change = to - self.to;
        // From where it should be by now: what rounding made of the last way is not carried on.
        self.amplitude = self.to.amplitude();
        self.factor = Db::new(change.get() / way.0 as f64).amplitude();
        self.to = to;
    }

    #[allow(clippy::cast_possible_truncation, reason = "gains are applied in f32")]
    pub(super) fn apply(&mut self, samples: &mut [f32], channels: usize) {
        if (self.factor - 1.0).abs() < f64::EPSILON {
            let gain = self.amplitude as f32;
            samples.iter_mut().for_each(|sample| *sample *= gain);
            return;
        }
        for frame in samples.chunks_exact_mut(channels) {
            let gain = self.amplitude as f32;
            frame.iter_mut().for_each(|sample| *sample *= gain);
            self.amplitude *= self.factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_exact_whatever_the_calls() {
        for calls in [1, 3, 7, 100] {
            let mut delay = Delay::new(10, 2);
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let input: Vec<f32> = (1..=100).map(|n| n as f32).collect();
            let mut samples = input.clone();
            samples.chunks_mut(calls).for_each(|part| delay.exchange(part));
            assert_eq!(samples[..20], [0.0; 20]);
            assert_eq!(samples[20..], input[..80]);
        }
    }

    #[test]
    fn a_slope_arrives_and_goes_on_without_a_step() {
        let mut slope = Slope::at(Db::ZERO);
        let mut all = Vec::new();
        for db in [6.0, -20.0, -20.0, 0.0] {
            slope.go(Db::new(db), Frames(1_000));
            let mut samples = [1.0; 2_000];
            samples.chunks_mut(14).for_each(|part| slope.apply(part, 2));
            all.extend_from_slice(&samples);
        }
        for frames in all.chunks(2).collect::<Vec<_>>().windows(2) {
            let step = 20.0 * f64::from(frames[1][0] / frames[0][0]).log10();
            assert!(step.abs() < 0.027, "{step}");
            assert!((frames[0][0] - frames[0][1]).abs() < f32::EPSILON);
        }
        assert!((all[4_000] - 0.1).abs() < 1e-6 && (all[7_999] - 0.9977).abs() < 1e-3);
    }
}

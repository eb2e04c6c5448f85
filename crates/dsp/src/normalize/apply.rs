//! Delay line and gain ramp of the normalizer.

use aulos_core::{Db, Frames};

/// A delay of a fixed number of frames.
#[derive(Clone, Debug)]
pub(super) struct DelayLine {
    buffer: Box<[f32]>,
    position: usize,
}

impl DelayLine {
    pub(super) fn new(frames: usize, channels: usize) -> Self {
        Self { buffer: vec![0.0; frames * channels].into(), position: 0 }
    }

    /// Replaces `samples` by as many samples from the input of `frames` before.
    pub(super) fn process(&mut self, samples: &mut [f32]) {
        let mut rest = samples;
        while !rest.is_empty() && !self.buffer.is_empty() {
            let count = rest.len().min(self.buffer.len() - self.position);
            let (part, after) = rest.split_at_mut(count);
            part.swap_with_slice(&mut self.buffer[self.position..self.position + count]);
            self.position = (self.position + count) % self.buffer.len();
            rest = after;
        }
    }

    pub(super) fn clear(&mut self) {
        self.buffer.fill(0.0);
    }
}

/// A gain that moves linearly in decibels, so that its movement is evenly perceptible.
#[derive(Clone, Copy, Debug)]
pub(super) struct GainRamp {
    amplitude: f64,
    /// Factor by which the amplitude changes with each frame.
    factor: f64,
    target: Db,
}

impl GainRamp {
    /// A constant gain.
    pub(super) fn constant(gain: Db) -> Self {
        Self { amplitude: gain.amplitude(), factor: 1.0, target: gain }
    }

    /// Moves to the gain `to` within `duration`.
    #[allow(clippy::cast_precision_loss, reason = "some thousands")]
    pub(super) fn ramp_to(&mut self, to: Db, duration: Frames) {
        let change = to - self.target;
        // Starts at the exact end of the last ramp: rounding errors do not accumulate.
        self.amplitude = self.target.amplitude();
        self.factor = Db::new(change.get() / duration.0 as f64).amplitude();
        self.target = to;
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
    fn the_delay_is_exact_for_any_size_of_calls() {
        for calls in [1, 3, 7, 100] {
            let mut delay = DelayLine::new(10, 2);
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let input: Vec<f32> = (1..=100).map(|n| n as f32).collect();
            let mut samples = input.clone();
            samples.chunks_mut(calls).for_each(|part| delay.process(part));
            assert_eq!(samples[..20], [0.0; 20]);
            assert_eq!(samples[20..], input[..80]);
        }
    }

    #[test]
    fn a_ramp_reaches_its_gain_and_the_next_continues_without_a_step() {
        let mut ramp = GainRamp::constant(Db::ZERO);
        let mut all = Vec::new();
        for db in [6.0, -20.0, -20.0, 0.0] {
            ramp.ramp_to(Db::new(db), Frames(1_000));
            let mut samples = [1.0; 2_000];
            samples.chunks_mut(14).for_each(|part| ramp.apply(part, 2));
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

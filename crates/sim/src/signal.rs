//! Test signals, one sample at a time, full scale at 1.0.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "signals are made in f64 and handed out in f32"
)]

use core::f64::consts::TAU;

use aulos_core::{Db, Rng, SampleRate, Span};

/// A sine.
#[derive(Clone, Debug)]
pub struct Sine {
    amplitude: f64,
    /// Phase increment per sample, in turns.
    step: f64,
    phase: f64,
    at: u64,
}

impl Sine {
    /// A sine of `hz` whose peak is at `level`.
    #[must_use]
    pub fn new(rate: SampleRate, hz: f64, level: Db) -> Self {
        let step = hz / f64::from(rate.hz());
        Self { amplitude: level.amplitude(), step, phase: 0.0, at: 0 }
    }

    /// The same, starting at a phase of `turns` turns.
    #[must_use]
    pub const fn phase(self, turns: f64) -> Self {
        Self { phase: turns, ..self }
    }
}

impl Iterator for Sine {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        // Computed from the index and not from the last phase, so that no phase error accumulates.
        let turns = (self.at as f64 * self.step + self.phase).fract();
        self.at += 1;
        Some((self.amplitude * (TAU * turns).sin()) as f32)
    }
}

/// An exponential sine sweep, from 20 Hz to just under half the rate.
#[derive(Clone, Debug)]
pub struct Sweep {
    amplitude: f64,
    rate: f64,
    length: f64,
    at: u64,
}

impl Sweep {
    /// A sweep of this `length` whose peak is at `level`.
    #[must_use]
    pub fn new(rate: SampleRate, length: Span, level: Db) -> Self {
        let amplitude = level.amplitude();
        Self { amplitude, rate: f64::from(rate.hz()), length: length.as_secs_f64(), at: 0 }
    }
}

impl Iterator for Sweep {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        let time = self.at as f64 / self.rate;
        if time >= self.length {
            return None;
        }
        self.at += 1;
        let octaves = (0.49 * self.rate / SWEEP_FROM).ln();
        let turns = SWEEP_FROM * self.length / octaves * (octaves * time / self.length).exp_m1();
        Some((self.amplitude * (TAU * turns.fract()).sin()) as f32)
    }
}

const SWEEP_FROM: f64 = 20.0;

/// A sawtooth of all 65,536 values of 16 bits, in sequence: any cut, insertion or rounding is
/// detected, with its position.
#[derive(Clone, Debug, Default)]
pub struct Sawtooth(i16);

impl Iterator for Sawtooth {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        let sample = f32::from(self.0) / 32_768.0;
        self.0 = self.0.wrapping_add(1);
        Some(sample)
    }
}

/// White noise, uniformly distributed.
#[derive(Clone, Debug)]
pub struct Noise {
    amplitude: f64,
    random: Rng,
}

impl Noise {
    /// Noise from `seed` whose peak is at `level`.
    #[must_use]
    pub fn new(seed: u64, level: Db) -> Self {
        Self { amplitude: level.amplitude(), random: Rng::new(seed) }
    }
}

impl Iterator for Noise {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        Some((self.amplitude * (2.0 * self.random.next_f64() - 1.0)) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rms(samples: impl Iterator<Item = f32>) -> f64 {
        let squares: Vec<_> = samples.map(|sample| f64::from(sample).powi(2)).collect();
        Db::from_amplitude((squares.iter().sum::<f64>() / squares.len() as f64).sqrt()).get()
    }

    #[test]
    fn levels_are_those_of_the_textbook() {
        let sine = Sine::new(SampleRate::HZ_48000, 997.0, Db::new(-20.0)).take(48_000);
        assert!((rms(sine) + 23.01).abs() < 0.01);
        assert!((rms(Noise::new(1, Db::ZERO).take(100_000)) + 4.77).abs() < 0.05);
        let sweep = Sweep::new(SampleRate::HZ_48000, Span::from_secs(2), Db::ZERO);
        assert!((rms(sweep) + 3.01).abs() < 0.05);
    }

    #[test]
    fn a_sweep_ends_near_the_top_and_a_ramp_has_every_value() {
        let sweep: Vec<_> =
            Sweep::new(SampleRate::HZ_48000, Span::from_secs(1), Db::ZERO).collect();
        assert_eq!(sweep.len(), 48_000);
        let crossings = |part: &[f32]| part.windows(2).filter(|w| w[0] * w[1] < 0.0).count();
        assert!(crossings(&sweep[..4_800]) < 10);
        assert!((430..=470).contains(&crossings(&sweep[47_520..])));
        let mut ramp: Vec<_> =
            Sawtooth::default().take(65_536).map(|x| (x * 32_768.0) as i32).collect();
        ramp.sort_unstable();
        assert_eq!(ramp, (-32_768..32_768).collect::<Vec<_>>());
    }
}

//! The built-in chime before an announcement: two falling notes, as a doorbell has them.

use core::f64::consts::TAU;

use aulos_core::{Block, ChannelLayout, Frames, Instant, SampleRate, Span};

use crate::source::{Pacing, PullResult, Source};

/// A source of the chime, which ends; mono, at the rate of its station, so that it is not resampled.
///
/// # Real-time
/// Does not allocate: the samples are calculated when they are asked for.
#[derive(Debug)]
pub struct Chime {
    rate: SampleRate,
    next: Frames,
}

impl Chime {
    /// The chime from its beginning.
    #[must_use]
    pub const fn new(rate: SampleRate) -> Self {
        Self { rate, next: Frames::ZERO }
    }

    /// All of it.
    #[must_use]
    pub fn samples(rate: SampleRate) -> Vec<f32> {
        (0..rate.frames(CHIME_LENGTH).0).map(|frame| sample(rate, frame)).collect()
    }
}

impl Source for Chime {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        let left = self.rate.frames(CHIME_LENGTH) - self.next;
        if left == Frames::ZERO {
            return PullResult::Ended;
        }
        let count = left.min(self.rate.frames(STEP));
        into.reset(self.rate, ChannelLayout::MONO);
        into.resize(count);
        for (out, frame) in into.samples_mut().iter_mut().zip(self.next.0..) {
            *out = sample(self.rate, frame);
        }
        self.next += count;
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// One sample: the sum of the notes that have begun, faded out at the end.
fn sample(rate: SampleRate, frame: u64) -> f32 {
    #[allow(clippy::cast_precision_loss, reason = "a chime has few frames")]
    let time = frame as f64 / f64::from(rate.hz());
    let notes = NOTES.iter().map(|(begin, hz)| note(time - begin, *hz));
    let fade = ((CHIME_LENGTH.as_secs_f64() - time) / FADE_S).min(1.0);
    #[allow(clippy::cast_possible_truncation, reason = "a sample needs no more than f32")]
    let sample = (notes.sum::<f64>() * fade * AMPLITUDE) as f32;
    sample
}

/// A struck bar: the note and its octave, which decays sooner.
fn note(time: f64, hz: f64) -> f64 {
    if time < 0.0 {
        return 0.0;
    }
    let attack = (time / ATTACK_S).min(1.0);
    let tone = (TAU * hz * time).sin() * (-time / DECAY_S).exp();
    let octave = (TAU * 2.0 * hz * time).sin() * (-2.0 * time / DECAY_S).exp();
    attack * (tone + 0.25 * octave)
}

/// Length of the chime.
pub const CHIME_LENGTH: Span = Span::from_millis(800);

/// When each note begins, in seconds, and its frequency: e'' and c''.
const NOTES: [(f64, f64); 2] = [(0.0, 659.255), (0.3, 523.251)];

/// The sum of both notes and their octaves stays below 0.6 of full scale.
const AMPLITUDE: f64 = 0.35;

const ATTACK_S: f64 = 0.004;
const DECAY_S: f64 = 0.22;
const FADE_S: f64 = 0.06;

/// What one pull gives.
const STEP: Span = Span::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// The energy of a frequency in a span of seconds, relative to all of it.
    fn share(samples: &[f32], rate: SampleRate, (from, to): (f64, f64), hz: f64) -> f64 {
        let at = |seconds: f64| rate.frames(Span::from_secs_f64(seconds)).as_usize();
        let part = &samples[at(from)..at(to)];
        let angle = |n: usize| TAU * hz * n as f64 / f64::from(rate.hz());
        let sum = |wave: fn(f64) -> f64| -> f64 {
            part.iter().enumerate().map(|(n, s)| f64::from(*s) * wave(angle(n))).sum()
        };
        let power: f64 = part.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        (sum(f64::sin).powi(2) + sum(f64::cos).powi(2)) * 2.0 / part.len() as f64 / power
    }

    #[test]
    fn it_has_two_notes_of_a_length_below_full_scale_at_any_rate() {
        for hz in [8_000, 44_100, 48_000, 192_000] {
            let rate = SampleRate::new(hz).unwrap();
            let samples = Chime::samples(rate);
            assert_eq!(samples.len() as u64 * 10, u64::from(hz) * 8);
            let peak = samples.iter().fold(0.0f32, |peak, sample| peak.max(sample.abs()));
            assert!((0.25..0.6).contains(&peak), "{peak}");
            assert!(samples[0].abs() < 1e-6 && samples[samples.len() - 1].abs() < 1e-3);
            assert!(share(&samples, rate, (0.0, 0.3), 659.255) > 0.8);
            assert!(share(&samples, rate, (0.4, 0.8), 523.251) > 0.6);
            let steps = samples.windows(2).map(|pair| (pair[1] - pair[0]).abs());
            assert!(hz < 44_100 || steps.fold(0.0, f32::max) < 0.1, "a click");
        }
    }

    #[test]
    fn the_source_gives_all_of_it_and_ends() {
        let rate = SampleRate::HZ_48000;
        let mut block = Block::with_capacity(rate, ChannelLayout::MONO, 480);
        let (mut chime, mut samples) = (Chime::new(rate), Vec::new());
        while matches!(chime.pull(Instant::ZERO, &mut block), PullResult::Block) {
            samples.extend_from_slice(block.samples());
        }
        assert_eq!(samples, Chime::samples(rate));
        assert!(matches!(chime.pull(Instant::ZERO, &mut block), PullResult::Ended));
    }
}

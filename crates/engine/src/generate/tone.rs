//! A sine for tests and for identifying loudspeakers.
//!
//! The phase is a fraction of two integers, so it is exact at every frame: accumulating a float
//! would be off by an audible step after some hours, and multiplying the frame number would lose
//! bits.

use core::f64::consts::TAU;

use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, MediaTime, SampleRate};

use crate::source::{Pacing, PullResult, Source};

/// A sine of one frequency and level, the same on every channel. It never ends.
#[derive(Clone, Debug)]
pub struct Tone {
    rate: SampleRate,
    layout: ChannelLayout,
    block: Frames,
    amplitude: f64,
    position: MediaTime,
    /// The phase in steps of a turn divided by [`Tone::turn`].
    phase: u64,
    step: u64,
}

impl Tone {
    /// A sine of `hz` hertz with a peak at `level` relative to full scale, in blocks of `block`
    /// frames (fewer if a block cannot hold them).
    ///
    /// The frequency is rounded to a millionth of a hertz and clamped between zero and half of the
    /// rate; a level above full scale is clamped to full scale.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "held between 0 and 1.4e12 in the line above"
    )]
    pub fn new(hz: f64, level: Db, rate: SampleRate, layout: ChannelLayout, block: Frames) -> Self {
        let steps = f64::from(STEPS_PER_HERTZ) * hz.clamp(0.0, f64::from(rate.hz()) / 2.0);
        Self {
            rate,
            layout,
            block,
            amplitude: level.amplitude().min(1.0),
            position: MediaTime::ZERO,
            phase: 0,
            step: steps.round() as u64,
        }
    }

    fn turn(&self) -> u64 {
        u64::from(self.rate.hz()) * u64::from(STEPS_PER_HERTZ)
    }
}

impl Source for Tone {
    /// Always returns a block.
    ///
    /// # Real-time
    /// Does not allocate, wait or call the system.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the phase has 42 bits at most, and samples are single precision"
    )]
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        into.reset(self.rate, self.layout);
        into.pts = self.position;
        into.received = Instant::ZERO;
        self.position += into.resize(self.block);
        let turn = self.turn();
        let angle = |phase: u64| TAU * (phase as f64 / turn as f64);
        // From frame to frame the sine is turned by one step: within a block that is as exact as
        // the sine of each frame, and takes a fifth of the time.
        let (turn_sin, turn_cos) = angle(self.step).sin_cos();
        let (mut sin, mut cos) = angle(self.phase).sin_cos();
        let frames = into.samples_mut().chunks_exact_mut(self.layout.channels());
        let count = frames.len() as u64;
        for frame in frames {
            frame.fill((self.amplitude * sin) as f32);
            (sin, cos) = (sin * turn_cos + cos * turn_sin, cos * turn_cos - sin * turn_sin);
        }
        self.phase = (self.phase + self.step * count) % turn;
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// A frequency is a whole number of millionths of a hertz; times the highest rate that is 2.8e12,
/// which leaves room in 64 bits.
const STEPS_PER_HERTZ: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::BLOCK_SAMPLES;

    fn block() -> Block {
        Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES)
    }

    fn tone(hz: f64, rate: SampleRate, frames: u64) -> Tone {
        Tone::new(hz, Db::new(-20.0), rate, ChannelLayout::STEREO, Frames(frames))
    }

    #[test]
    fn level_rate_and_layout_are_as_configured() {
        let layout = ChannelLayout::SURROUND_5_1;
        let mut tone = Tone::new(1_000.0, Db::new(-6.0), SampleRate::HZ_44100, layout, Frames(882));
        let mut into = block();
        assert_eq!(tone.pull(Instant::ZERO, &mut into), PullResult::Block);
        assert_eq!(
            (into.rate(), into.layout(), into.frames()),
            (SampleRate::HZ_44100, layout, Frames(882))
        );
        let peak = into.samples().iter().fold(0.0f32, |peak, s| peak.max(s.abs()));
        assert!((Db::from_amplitude(peak.into()).get() + 6.0).abs() < 0.01);
        assert!(
            into.samples()
                .chunks(6)
                .all(|frame| frame.iter().all(|s| s.to_bits() == frame[0].to_bits()))
        );
    }

    #[test]
    fn after_ten_hours_the_phase_is_that_of_the_first_second() {
        // 440.1 Hz repeats after 10 s, so 36,000 s later the sine stands where it began.
        let mut tone = tone(440.1, SampleRate::HZ_44100, 4_096);
        let mut start = block();
        tone.pull(Instant::ZERO, &mut start);
        let mut tone = Tone { phase: 0, position: MediaTime::ZERO, ..tone };
        let turn = tone.turn();
        for _ in 0..36_000u64 * 44_100 / 100 {
            tone.phase = (tone.phase + tone.step * 100) % turn;
        }
        let mut later = block();
        tone.pull(Instant::ZERO, &mut later);
        assert_eq!(start.samples(), later.samples());
    }

    #[test]
    fn every_sample_is_the_sine_of_its_frame_number() {
        let mut tone = tone(997.0, SampleRate::HZ_48000, 960);
        let mut into = block();
        for n in 0..500u64 {
            tone.pull(Instant::ZERO, &mut into);
            assert_eq!(into.pts, MediaTime(n * 960));
            for (i, frame) in into.samples().chunks(2).enumerate() {
                let at = n * 960 + i as u64;
                let turns = (at * 997 % 48_000) as f64 / 48_000.0;
                let wanted = 0.1 * (TAU * turns).sin();
                assert!((f64::from(frame[0]) - wanted).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn invalid_parameters_are_clamped() {
        for hz in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0, 1e300] {
            let mut tone = Tone::new(
                hz,
                Db::new(200.0),
                SampleRate::HZ_48000,
                ChannelLayout::new(64).unwrap(),
                Frames(u64::MAX),
            );
            let mut into = block();
            tone.pull(Instant::ZERO, &mut into);
            assert_eq!(into.frames(), Frames(128));
            assert!(into.samples().iter().all(|s| s.abs() <= 1.0));
        }
    }
}

//! Sines for tests, for identifying loudspeakers, and as the tones of a telephone exchange (ITU-T
//! E.180: two frequencies, on and off).
//!
//! The phase is a fraction of two integers, so it is exact at every frame: accumulating a float
//! would be off by an audible step after some hours, and multiplying the frame number would lose
//! bits.

use core::f64::consts::{PI, TAU};

use aulos_core::{Block, ChannelLayout, Db, Frames, Instant, MediaTime, SampleRate, Span};

use crate::source::{Pacing, PullResult, Source};

/// What a [`Tone`] plays: one sine or the sum of two, steady or in a cadence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToneConfig {
    /// The first sine.
    pub first: Sine,
    /// The second one, which is added.
    pub second: Option<Sine>,
    /// When it sounds; `None`: always.
    pub cadence: Option<Cadence>,
}

/// A frequency and its level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sine {
    /// Frequency in Hz, rounded to a millionth and clamped between zero and half of the rate.
    pub hz: f64,
    /// Peak relative to full scale; above full scale it is clamped to full scale.
    pub level: Db,
}

/// Sound for a time, then silence for a time, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// How long it sounds, the rise and the fall of 5 ms included.
    pub on: Span,
    /// How long it is silent.
    pub off: Span,
}

impl From<Sine> for ToneConfig {
    fn from(first: Sine) -> Self {
        Self { first, second: None, cadence: None }
    }
}

/// One sine or two, the same on every channel. It never ends.
#[derive(Clone, Debug)]
pub struct Tone {
    rate: SampleRate,
    layout: ChannelLayout,
    block: Frames,
    first: Oscillator,
    second: Option<Oscillator>,
    envelope: Option<Envelope>,
    position: MediaTime,
}

impl Tone {
    /// A sine of `hz` hertz with a peak at `level` relative to full scale, in blocks of `block`
    /// frames (fewer if a block cannot hold them). Values out of range are clamped: see [`Sine`].
    #[must_use]
    pub fn new(hz: f64, level: Db, rate: SampleRate, layout: ChannelLayout, block: Frames) -> Self {
        Self::with_config(Sine { hz, level }.into(), rate, layout, block)
    }

    /// The same with two sines or a cadence. A sum above full scale is cut off at full scale.
    #[must_use]
    pub fn with_config(
        config: ToneConfig,
        rate: SampleRate,
        layout: ChannelLayout,
        block: Frames,
    ) -> Self {
        Self {
            rate,
            layout,
            block,
            first: Oscillator::new(config.first, rate),
            second: config.second.map(|sine| Oscillator::new(sine, rate)),
            envelope: config.cadence.map(|cadence| Envelope::new(cadence, rate)),
            position: MediaTime::ZERO,
        }
    }
}

impl Source for Tone {
    /// Always returns a block.
    ///
    /// # Real-time
    /// Does not allocate, wait or call the system.
    #[allow(clippy::cast_possible_truncation, reason = "samples are single precision")]
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        into.reset(self.rate, self.layout);
        into.pts = self.position;
        into.received = Instant::ZERO;
        let start = self.position;
        let count = into.resize(self.block);
        self.position += count;
        let channels = self.layout.channels();
        let mut first = self.first.rotation();
        for frame in into.samples_mut().chunks_exact_mut(channels) {
            frame.fill(first.next() as f32);
        }
        self.first.advance(count.0);
        if let Some(oscillator) = &mut self.second {
            let mut second = oscillator.rotation();
            for frame in into.samples_mut().chunks_exact_mut(channels) {
                let added = second.next() as f32;
                frame.iter_mut().for_each(|sample| *sample = (*sample + added).clamp(-1.0, 1.0));
            }
            oscillator.advance(count.0);
        }
        if let Some(envelope) = self.envelope {
            for (at, frame) in (start.0..).zip(into.samples_mut().chunks_exact_mut(channels)) {
                let gain = envelope.gain_at(at);
                frame.iter_mut().for_each(|sample| *sample *= gain);
            }
        }
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// One sine: its phase and its step in parts of a turn, which has `rate` times
/// [`STEPS_PER_HERTZ`] of them.
#[derive(Clone, Debug)]
pub(super) struct Oscillator {
    amplitude: f64,
    turn: u64,
    phase: u64,
    step: u64,
}

impl Oscillator {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "held between 0 and 1.4e12 in the line above"
    )]
    pub(super) fn new(sine: Sine, rate: SampleRate) -> Self {
        let steps = f64::from(STEPS_PER_HERTZ) * sine.hz.clamp(0.0, f64::from(rate.hz()) / 2.0);
        Self {
            amplitude: sine.level.amplitude().min(1.0),
            turn: u64::from(rate.hz()) * u64::from(STEPS_PER_HERTZ),
            phase: 0,
            step: steps.round() as u64,
        }
    }

    /// The same, begun at this part of a turn, in [0, 1).
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a part of a turn, which has 42 bits at most"
    )]
    pub(super) fn with_phase(mut self, part: f64) -> Self {
        self.phase = (part * self.turn as f64) as u64 % self.turn;
        self
    }

    pub(super) fn rotation(&self) -> Rotation {
        #[allow(clippy::cast_precision_loss, reason = "the phase has 42 bits at most")]
        let angle = |phase: u64| TAU * (phase as f64 / self.turn as f64);
        let step = angle(self.step).sin_cos();
        let (sin, cos) = angle(self.phase).sin_cos();
        Rotation { step, sin: self.amplitude * sin, cos: self.amplitude * cos }
    }

    pub(super) fn advance(&mut self, frames: u64) {
        self.phase = (self.phase + self.step * frames) % self.turn;
    }
}

/// A sine that is turned by one step from frame to frame: within a block that is as exact as the
/// sine of each frame, and takes a fifth of the time.
pub(super) struct Rotation {
    step: (f64, f64),
    sin: f64,
    cos: f64,
}

impl Rotation {
    pub(super) fn next(&mut self) -> f64 {
        let sample = self.sin;
        let (sin, cos) = self.step;
        (self.sin, self.cos) = (self.sin * cos + self.cos * sin, self.cos * cos - self.sin * sin);
        sample
    }
}

/// A cadence in frames.
#[derive(Clone, Copy, Debug)]
struct Envelope {
    on: u64,
    period: u64,
    ramp: u64,
}

impl Envelope {
    fn new(cadence: Cadence, rate: SampleRate) -> Self {
        let frames = |span: Span| rate.frames(span).0;
        let on = frames(cadence.on).max(1);
        Self { on, period: on + frames(cadence.off), ramp: frames(RAMP).min(on / 2) }
    }

    /// The gain of a frame: half a cosine up, 1, half a cosine down, 0.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a ramp has some hundred frames, and gains are single precision"
    )]
    fn gain_at(self, position: u64) -> f32 {
        let at = position % self.period;
        if at >= self.on {
            return 0.0;
        }
        // Frames to the nearer edge.
        let inside = at.min(self.on - 1 - at);
        if inside >= self.ramp {
            return 1.0;
        }
        let part = (inside as f64 + 0.5) / self.ramp as f64;
        (0.5 - 0.5 * (PI * part).cos()) as f32
    }
}

/// Rise and fall of a cadence: short for the ear, long enough not to click.
const RAMP: Span = Span::from_millis(5);

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
        tone.position = MediaTime::ZERO;
        tone.first.phase = 0;
        for _ in 0..36_000u64 * 44_100 / 100 {
            tone.first.advance(100);
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
    fn two_sines_are_added_each_at_its_level() {
        let sine = |hz, dbfs| Sine { hz, level: Db::new(dbfs) };
        let config = ToneConfig { second: Some(sine(440.0, -26.0)), ..sine(350.0, -20.0).into() };
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
        let mut tone = Tone::with_config(config, rate, layout, Frames(960));
        let mut into = block();
        for n in 0..100u64 {
            tone.pull(Instant::ZERO, &mut into);
            for (i, frame) in into.samples().chunks(2).enumerate() {
                let at = n * 960 + i as u64;
                let sine = |hz| (TAU * (at * hz % 48_000) as f64 / 48_000.0).sin();
                let wanted = 0.1 * sine(350) + 10f64.powf(-1.3) * sine(440);
                assert!((f64::from(frame[0]) - wanted).abs() < 1e-7);
                assert_eq!(frame[0].to_bits(), frame[1].to_bits());
            }
        }
    }

    #[test]
    fn a_cadence_is_silent_between_tones_and_does_not_click() {
        let on = Span::from_millis(500);
        let cadence = Some(Cadence { on, off: Span::from_millis(250) });
        let config = ToneConfig { cadence, ..Sine { hz: 480.0, level: Db::new(-6.0) }.into() };
        // Blocks that divide neither time.
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
        let mut tone = Tone::with_config(config, rate, layout, Frames(1_000));
        let mut heard = Vec::new();
        while heard.len() < 4 * 36_000 {
            let mut into = block();
            tone.pull(Instant::ZERO, &mut into);
            heard.extend_from_slice(into.samples());
        }
        for period in heard[..4 * 36_000].chunks(36_000) {
            assert!(period[24_000..].iter().all(|&sample| sample == 0.0));
            let peak = period[1_000..23_000].iter().fold(0f32, |peak, s| peak.max(s.abs()));
            assert!((Db::from_amplitude(peak.into()).get() + 6.0).abs() < 0.01);
        }
        // A sine of this level changes by 0.0315 from frame to frame at most.
        let step = heard.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0f32, f32::max);
        assert!(step < 0.033, "{step}");
    }

    #[test]
    fn a_cadence_of_no_time_and_one_of_ages_are_played() {
        for (on, off) in [(0, 0), (0, i64::MAX), (i64::MAX, i64::MAX), (-5, -5)] {
            let (on, off) = (Span::from_nanos(on), Span::from_nanos(off));
            let cadence = Some(Cadence { on, off });
            let config = ToneConfig { cadence, ..Sine { hz: 480.0, level: Db::new(-6.0) }.into() };
            let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
            let mut tone = Tone::with_config(config, rate, layout, Frames(960));
            assert_eq!(tone.pull(Instant::ZERO, &mut block()), PullResult::Block);
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

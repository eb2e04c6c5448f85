//! Signals for loudspeakers that are set up: which one is it, is it as loud as the others, does it
//! sound at the same time, how does the room answer.
//!
//! Each is a function of the frame number, as are the other generators, and ends after its length.
//! The noise is a sum of sines with equal levels at equal steps of pitch, which is pink, has sharp
//! edges and an exact level; filtered noise has neither.

use core::f64::consts::{PI, TAU};

use aulos_core::{Block, Db, Frames, Instant, MediaTime, Rng, SampleSpec, Span};

use super::tone::{Oscillator, Sine};
use crate::source::{Pacing, PullResult, Source};

/// A kind of test tone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TestTone {
    /// 1 ms of 1 kHz under a Hann window, each second: for comparing times by ear.
    Click,
    /// Pink noise from 500 Hz to 2 kHz, -20 dBFS RMS: for matching levels.
    Noise,
    /// 1 kHz with its peak at -18 dBFS, the alignment tone of EBU R 68.
    Sine,
    /// 20 Hz to 20 kHz, exponentially, in 5 s, with its peak at -18 dBFS and ramps of 50 ms; then 1 s
    /// of silence: for measuring a room, or its delay.
    Sweep,
    /// A note on the first channel and then a higher one on the second: which loudspeaker is which.
    Identify,
}

impl TestTone {
    /// All kinds, in the order of [`NAMES`](Self::NAMES).
    pub const ALL: [Self; 5] = [Self::Click, Self::Noise, Self::Sine, Self::Sweep, Self::Identify];

    /// Their names.
    pub const NAMES: [&'static str; 5] = ["click", "noise", "sine", "sweep", "identify"];

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied()
    }
}

/// A source that plays a test tone once.
#[derive(Debug)]
pub struct TestToneSource {
    spec: SampleSpec,
    block: Frames,
    position: MediaTime,
    length: Frames,
    shape: Shape,
}

/// What is computed from the frame number.
#[derive(Debug)]
enum Shape {
    Click,
    Noise(Vec<Oscillator>),
    Sine(Oscillator),
    Sweep(Sweep),
    Identify,
}

impl TestToneSource {
    /// A tone of this length, in blocks of `block` frames (fewer if a block cannot hold them).
    #[must_use]
    pub fn new(kind: TestTone, length: Span, spec: SampleSpec, block: Frames) -> Self {
        let sine = |hz, level| Oscillator::new(Sine { hz, level }, spec.rate);
        let shape = match kind {
            TestTone::Click => Shape::Click,
            TestTone::Noise => Shape::Noise(noise(sine)),
            TestTone::Sine => Shape::Sine(sine(1_000.0, ALIGNMENT_LEVEL)),
            TestTone::Sweep => Shape::Sweep(Sweep::new(spec.rate.hz())),
            TestTone::Identify => Shape::Identify,
        };
        let length = spec.rate.frames(length);
        Self { spec, block, position: MediaTime::ZERO, length, shape }
    }

    /// Writes the tone to `samples`, whose first frame has this number.
    #[allow(clippy::cast_possible_truncation, reason = "samples are single precision")]
    fn render(&mut self, first: u64, samples: &mut [f32]) {
        let channels = self.spec.layout.channels();
        let rate = u64::from(self.spec.rate.hz());
        let frames = || first..;
        match &mut self.shape {
            Shape::Click => {
                for (at, frame) in frames().zip(samples.chunks_exact_mut(channels)) {
                    frame.fill(click(at % rate, rate) as f32);
                }
            }
            Shape::Noise(sines) => {
                samples.fill(0.0);
                let count = (samples.len() / channels) as u64;
                for sine in sines {
                    let mut rotation = sine.rotation();
                    for frame in samples.chunks_exact_mut(channels) {
                        let added = rotation.next() as f32;
                        frame.iter_mut().for_each(|sample| *sample += added);
                    }
                    sine.advance(count);
                }
            }
            Shape::Sine(sine) => {
                let mut rotation = sine.rotation();
                for frame in samples.chunks_exact_mut(channels) {
                    frame.fill(rotation.next() as f32);
                }
                sine.advance((samples.len() / channels) as u64);
            }
            Shape::Sweep(sweep) => {
                for (at, frame) in frames().zip(samples.chunks_exact_mut(channels)) {
                    frame.fill(sweep.sample(at % (6 * rate)) as f32);
                }
            }
            Shape::Identify => {
                for (at, frame) in frames().zip(samples.chunks_exact_mut(channels)) {
                    let [left, right] = identify(at % (2 * rate), rate);
                    frame.fill(0.0);
                    match frame {
                        [one] => *one = (left + right) as f32,
                        [one, other, ..] => (*one, *other) = (left as f32, right as f32),
                        [] => {}
                    }
                }
            }
        }
    }
}

impl Source for TestToneSource {
    /// Returns a block until the tone has ended.
    ///
    /// # Real-time
    /// Does not allocate, wait or call the system.
    #[allow(clippy::cast_possible_truncation, reason = "samples are single precision")]
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        let first = self.position.0;
        let rest = Frames(self.length.0.saturating_sub(first));
        if rest == Frames::ZERO {
            return PullResult::Ended;
        }
        into.reset(self.spec.rate, self.spec.layout);
        into.pts = self.position;
        into.received = Instant::ZERO;
        let count = into.resize(self.block.min(rest));
        self.position += count;
        self.render(first, into.samples_mut());
        let ramp = self.spec.rate.frames(RAMP).0;
        let channels = self.spec.layout.channels();
        for (at, frame) in (first..).zip(into.samples_mut().chunks_exact_mut(channels)) {
            let inside = at.min(self.length.0 - 1 - at);
            if inside < ramp {
                let gain = rise(inside, ramp) as f32;
                frame.iter_mut().for_each(|sample| *sample *= gain);
            }
        }
        PullResult::Block
    }

    fn pacing(&self) -> Pacing {
        Pacing::OnDemand
    }
}

/// The sines of the noise.
fn noise(sine: impl Fn(f64, Db) -> Oscillator) -> Vec<Oscillator> {
    // The mean square of a sine is half of the square of its peak.
    let level = Db::new(-20.0 + 10.0 * (2.0 / f64::from(SINES)).log10());
    let mut rng = Rng::new(0x7e57_70e5);
    let step = |number: u32| (f64::from(number) + 0.5) / f64::from(SINES);
    (0..SINES)
        .map(|number| {
            // Two octaves; moved within its step, so that the noise has no period.
            let within = (rng.next_f64() - 0.5) / f64::from(SINES);
            let hz = 500.0 * 4.0_f64.powf(step(number) + within);
            sine(hz, level).with_phase(rng.next_f64())
        })
        .collect()
}

/// A frame of a second with a click at its beginning. The first one comes after the ramp.
fn click(at: u64, rate: u64) -> f64 {
    let at = at.wrapping_sub(rate / 10);
    let length = rate / 1_000;
    if at >= length {
        return 0.0;
    }
    let part = fraction(at, length);
    CLICK_LEVEL.amplitude() * (0.5 - 0.5 * (TAU * part).cos()) * (TAU * part).sin()
}

/// A frame of two seconds, left and right: half a second each, and silence.
fn identify(at: u64, rate: u64) -> [f64; 2] {
    let half = rate / 2;
    let note = |at: u64, hz: u64| {
        let ramp = half.min(at).min(half - at);
        let gain = if ramp < rate / 50 { rise(ramp, rate / 50) } else { 1.0 };
        gain * ALIGNMENT_LEVEL.amplitude() * (TAU * fraction(at * hz % rate, rate)).sin()
    };
    match at / half {
        0 => [note(at, 660), 0.0],
        1 => [0.0, note(at - half, 880)],
        _ => [0.0; 2],
    }
}

/// A sine whose frequency rises exponentially.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    rate: f64,
    /// The highest frequency.
    top_hz: f64,
}

impl Sweep {
    fn new(rate: u32) -> Self {
        let rate = f64::from(rate);
        Self { rate, top_hz: (0.45 * rate).min(20_000.0) }
    }

    /// The frame with this number since the beginning of the sweep; silence behind its end.
    #[allow(clippy::cast_precision_loss, reason = "seconds of frames")]
    fn sample(self, at: u64) -> f64 {
        let seconds = at as f64 / self.rate;
        if seconds >= SWEEP_S {
            return 0.0;
        }
        // The phase is the integral of the frequency 20 * e^(t / stretch).
        let stretch = SWEEP_S / (self.top_hz / SWEEP_FROM_HZ).ln();
        let phase = TAU * SWEEP_FROM_HZ * stretch * ((seconds / stretch).exp() - 1.0);
        let edge = seconds.min(SWEEP_S - seconds) / SWEEP_RAMP_S;
        let gain = if edge < 1.0 { 0.5 - 0.5 * (PI * edge).cos() } else { 1.0 };
        gain * ALIGNMENT_LEVEL.amplitude() * phase.sin()
    }
}

/// Half a cosine from 0 to 1.
fn rise(at: u64, length: u64) -> f64 {
    0.5 - 0.5 * (PI * fraction(at, length)).cos()
}

#[allow(clippy::cast_precision_loss, reason = "at most some seconds of frames")]
fn fraction(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Enough for a level that is as steady as that of noise, at 8 % of a core for each million frames.
const SINES: u32 = 96;

const ALIGNMENT_LEVEL: Db = Db::new(-18.0);
const CLICK_LEVEL: Db = Db::new(-6.0);

const SWEEP_S: f64 = 5.0;
const SWEEP_FROM_HZ: f64 = 20.0;
const SWEEP_RAMP_S: f64 = 0.05;

/// Rise and fall of the whole, so that neither a start nor an end clicks.
const RAMP: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use aulos_core::ChannelLayout;

    use super::*;
    use crate::source::BLOCK_SAMPLES;

    const RATE: usize = 48_000;

    fn spec(layout: ChannelLayout) -> SampleSpec {
        SampleSpec { layout, ..SampleSpec::DEFAULT }
    }

    /// The whole tone, interleaved, in blocks that divide nothing.
    fn render(kind: TestTone, millis: i64, layout: ChannelLayout) -> Vec<f32> {
        let spec = spec(layout);
        let mut source = TestToneSource::new(kind, Span::from_millis(millis), spec, Frames(997));
        let mut block = Block::with_capacity(spec.rate, layout, BLOCK_SAMPLES);
        let mut heard = Vec::new();
        while source.pull(Instant::ZERO, &mut block) == PullResult::Block {
            assert_eq!(block.pts.0, (heard.len() / layout.channels()) as u64);
            heard.extend_from_slice(block.samples());
        }
        assert_eq!(source.pull(Instant::ZERO, &mut block), PullResult::Ended);
        heard
    }

    fn rms_db(samples: &[f32]) -> f64 {
        let sum: f64 = samples.iter().map(|one| f64::from(*one).powi(2)).sum();
        10.0 * (sum / samples.len() as f64).log10()
    }

    fn peak_db(samples: &[f32]) -> f64 {
        let peak = samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        20.0 * f64::from(peak).log10()
    }

    /// The level of one frequency, by correlation.
    fn level_at(samples: &[f32], hz: f64) -> f64 {
        let sum = samples.iter().enumerate().fold((0.0, 0.0), |(re, im), (at, sample)| {
            let (sin, cos) = (TAU * hz * at as f64 / RATE as f64).sin_cos();
            (re + f64::from(*sample) * cos, im + f64::from(*sample) * sin)
        });
        let amplitude = 2.0 * f64::hypot(sum.0, sum.1) / samples.len() as f64;
        20.0 * amplitude.max(1e-9).log10()
    }

    #[test]
    fn every_kind_has_its_length_and_neither_clicks_at_its_ends_nor_clips() {
        for (kind, name) in TestTone::ALL.into_iter().zip(TestTone::NAMES) {
            assert_eq!(TestTone::named(name), Some(kind));
            let heard = render(kind, 2_345, ChannelLayout::STEREO);
            assert_eq!(heard.len(), 2 * 2_345 * RATE / 1_000, "{name}");
            assert!(peak_db(&heard) < -5.0, "{name}: {}", peak_db(&heard));
            for ends in [&heard[..4], &heard[heard.len() - 4..]] {
                assert!(ends.iter().all(|sample| sample.abs() < 1e-3), "{name}: {ends:?}");
            }
        }
        assert_eq!(TestTone::named("loud"), None);
    }

    #[test]
    fn the_noise_is_pink_between_its_edges_at_its_level() {
        let heard = render(TestTone::Noise, 20_000, ChannelLayout::MONO);
        let steady = &heard[RATE..19 * RATE];
        assert!((rms_db(steady) + 20.0).abs() < 0.1, "{}", rms_db(steady));
        // Power in thirds of an octave, by frequencies 2 Hz apart: equal within, nothing outside.
        let third = |from: f64| -> f64 {
            let all = (0..).map(|step| from + 2.0 * f64::from(step));
            let power = all
                .take_while(|hz| *hz < 1.26 * from)
                .map(|hz| 10.0_f64.powf(level_at(&steady[..RATE], hz) / 10.0));
            10.0 * power.sum::<f64>().log10()
        };
        let [low, middle, high] = [550.0, 900.0, 1_500.0].map(third);
        assert!((low - middle).abs() < 1.5 && (high - middle).abs() < 1.5, "{low} {middle} {high}");
        for outside in [200.0, 350.0, 2_200.0, 4_000.0] {
            assert!(third(outside) < middle - 30.0, "{outside}");
        }
    }

    #[test]
    fn the_sine_is_the_alignment_tone() {
        let heard = render(TestTone::Sine, 2_000, ChannelLayout::MONO);
        let steady = &heard[RATE / 2..RATE * 3 / 2];
        assert!((peak_db(steady) + 18.0).abs() < 0.01 && (rms_db(steady) + 21.01).abs() < 0.01);
        assert!((level_at(steady, 1_000.0) + 18.0).abs() < 0.01);
    }

    #[test]
    fn a_click_a_second_lasts_a_millisecond() {
        let heard = render(TestTone::Click, 3_000, ChannelLayout::MONO);
        let loud: Vec<usize> = (0..heard.len()).filter(|at| heard[*at] != 0.0).collect();
        assert_eq!(loud.len(), 3 * (RATE / 1_000 - 1), "the first frame is that of silence");
        for (second, click) in loud.chunks(RATE / 1_000 - 1).enumerate() {
            let begin = second * RATE + RATE / 10;
            assert_eq!((click[0], *click.last().unwrap()), (begin + 1, begin + RATE / 1_000 - 1));
        }
    }

    #[test]
    fn a_sweep_passes_every_frequency_at_its_time() {
        let heard = render(TestTone::Sweep, 12_000, ChannelLayout::MONO);
        // 20 * 1000^(t / 5) Hz; two periods are so short that the frequency stays.
        for (tenths, period) in [(10, 603), (25, 76), (40, 10)] {
            let middle = tenths * RATE / 10;
            let part = &heard[middle - period..middle + period];
            assert!((peak_db(part) + 18.0).abs() < 0.3, "{tenths}: {}", peak_db(part));
            let crossings = part.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
            assert_eq!(crossings, 2, "{tenths}");
        }
        assert!(heard[5 * RATE..6 * RATE].iter().all(|sample| *sample == 0.0));
        assert!(peak_db(&heard[8 * RATE..9 * RATE]) > -18.5);
    }

    #[test]
    fn the_left_loudspeaker_is_heard_before_the_right_one() {
        let heard = render(TestTone::Identify, 2_000, ChannelLayout::STEREO);
        let side = |channel: usize, from: usize, to: usize| -> Vec<f32> {
            heard[2 * from..2 * to].iter().skip(channel).step_by(2).copied().collect()
        };
        let half = RATE / 2;
        assert!((level_at(&side(0, 2_400, half - 2_400), 660.0) + 18.0).abs() < 0.1);
        assert!((level_at(&side(1, half + 2_400, RATE - 2_400), 880.0) + 18.0).abs() < 0.1);
        for silent in [side(1, 0, half), side(0, half, RATE), side(0, RATE, 2 * RATE)] {
            assert!(silent.iter().all(|sample| *sample == 0.0));
        }
        let mono = render(TestTone::Identify, 1_000, ChannelLayout::MONO);
        assert!(rms_db(&mono) > -22.0);
        assert_eq!(render(TestTone::Identify, 1_000, ChannelLayout::SURROUND_5_1).len(), 6 * RATE);
    }
}

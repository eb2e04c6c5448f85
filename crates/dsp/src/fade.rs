//! Fades and crossfades without clicks.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "gains are computed in f64 and applied in f32"
)]

use core::f64::consts::{FRAC_PI_2, PI};

use aulos_core::Frames;

/// A crossfade from an outgoing to an incoming signal that continues over blocks of any size.
///
/// It is a position on a curve and holds no audio, at most the correlation of the two signals: they
/// are mixed into the incoming block. Silence is a signal like any other: frames missing at the end
/// of the outgoing slice count as silence, so `mix(&[], ...)` fades in.
///
/// # Examples
/// ```
/// use aulos_core::Frames;
/// let mut fade = aulos_dsp::Crossfade::linear(Frames(4));
/// let mut block = [1.0; 6];
/// fade.mix(&[], &mut block, 1);
/// assert_eq!(block, [0.125, 0.375, 0.625, 0.875, 1.0, 1.0]);
/// assert_eq!(fade.remaining(), Frames::ZERO);
/// ```
#[derive(Clone, Debug)]
pub struct Crossfade {
    shape: FadeCurve,
    length: u64,
    position: u64,
}

#[derive(Clone, Copy, Debug)]
enum FadeCurve {
    EqualPower,
    Linear,
    ConstantPower(Correlation),
}

impl Crossfade {
    /// A fade over `length` with gains whose squares add up to one: two different programmes keep
    /// their loudness throughout. Identical signals would be 3 dB louder in the middle; see
    /// [`Crossfade::constant_power`].
    #[must_use]
    pub const fn equal_power(length: Frames) -> Self {
        Self { shape: FadeCurve::EqualPower, length: length.0, position: 0 }
    }

    /// A fade over `length` with gains that add up to one: for two versions of the same signal.
    #[must_use]
    pub const fn linear(length: Frames) -> Self {
        Self { shape: FadeCurve::Linear, length: length.0, position: 0 }
    }

    /// A fade over `length` whose gains a and b follow the correlation r of the two signals, so
    /// that a² + b² + 2abr stays one: different programmes fade as with [`Crossfade::equal_power`],
    /// the same programme from two sources keeps its loudness throughout. The gains are never above
    /// one: signals of opposite phase fade like different ones.
    ///
    /// The correlation is that of the last 60 ms or so, measured during the fade; it and the gains
    /// change continuously.
    #[must_use]
    pub const fn constant_power(length: Frames) -> Self {
        let shape = FadeCurve::ConstantPower(Correlation::UNKNOWN);
        Self { shape, length: length.0, position: 0 }
    }

    /// Mixes `outgoing` into `block`, which holds the incoming signal; both interleaved, with the
    /// same first frame. Frames after the end of the fade stay as they are.
    ///
    /// # Real-time
    /// Does not allocate; a sine and a cosine per frame of the fade.
    ///
    /// # Panics
    /// If `channels` is 0, which no [`aulos_core::ChannelLayout`] is.
    pub fn mix(&mut self, outgoing: &[f32], block: &mut [f32], channels: usize) {
        let fading = self.remaining().as_usize().min(block.len() / channels);
        let step = self.update_correlation(outgoing, &block[..fading * channels], fading);
        let mut old = outgoing.chunks_exact(channels);
        for incoming in block.chunks_exact_mut(channels).take(fading) {
            if let FadeCurve::ConstantPower(correlation) = &mut self.shape {
                correlation.value += step;
            }
            let (going, coming) = self.gains();
            if let Some(outgoing) = old.next() {
                for (new, old) in incoming.iter_mut().zip(outgoing) {
                    *new = *new * coming + old * going;
                }
            } else {
                incoming.iter_mut().for_each(|new| *new *= coming);
            }
            self.position += 1;
        }
    }

    /// Frames until the end of the fade.
    #[must_use]
    pub const fn remaining(&self) -> Frames {
        Frames(self.length - self.position)
    }

    /// The same fade, starting where the incoming signal has this gain.
    #[must_use]
    #[allow(clippy::cast_sign_loss, reason = "a way lies between 0 and 1")]
    pub fn from_gain(mut self, coming: f32) -> Self {
        let coming = f64::from(coming.clamp(0.0, 1.0));
        let way = match self.shape {
            // Before the first measurement, the signals count as uncorrelated.
            FadeCurve::EqualPower | FadeCurve::ConstantPower(_) => coming.asin() / FRAC_PI_2,
            FadeCurve::Linear => coming,
        };
        self.position = ((way * self.length as f64).round() as u64).min(self.length);
        self
    }

    /// The same fade from its present position, but over after `remaining`: the gains do not jump,
    /// but change faster.
    #[must_use]
    pub fn shortened(&self, remaining: Frames) -> Self {
        let left = self.remaining();
        if remaining >= left {
            return self.clone();
        }
        // `left` is not zero here. The fraction of the fade that is over stays the same.
        let scale = |frames: u64| {
            (u128::from(frames) * u128::from(remaining.0) / u128::from(left.0)) as u64
        };
        let position = scale(self.position);
        Self { shape: self.shape, length: position + remaining.0, position }
    }

    /// Fades all of `samples` in from silence, with a raised cosine: no corner at either end.
    ///
    /// # Real-time
    /// Does not allocate; a cosine per frame.
    ///
    /// # Panics
    /// When `channels` is 0.
    pub fn fade_in(samples: &mut [f32], channels: usize) {
        let frames = samples.len() / channels;
        for (index, frame) in samples.chunks_exact_mut(channels).enumerate() {
            let gain = raised_cosine(index as u64, frames as u64);
            frame.iter_mut().for_each(|sample| *sample *= gain);
        }
    }

    /// Fades all of `samples` out to silence, with a raised cosine.
    ///
    /// # Real-time
    /// Does not allocate; a cosine per frame.
    ///
    /// # Panics
    /// When `channels` is 0.
    pub fn fade_out(samples: &mut [f32], channels: usize) {
        let frames = samples.len() / channels;
        for (index, frame) in samples.chunks_exact_mut(channels).enumerate() {
            let gain = raised_cosine((frames - 1 - index) as u64, frames as u64);
            frame.iter_mut().for_each(|sample| *sample *= gain);
        }
    }

    /// The gains of the outgoing and the incoming signal, in the middle of the present frame; 0 and
    /// 1 once the fade is over.
    #[must_use]
    pub fn current_gains(&self) -> (f32, f32) {
        if self.remaining() == Frames::ZERO { (0.0, 1.0) } else { self.gains() }
    }

    /// The gains of the outgoing and the incoming signal, in the middle of the present frame.
    fn gains(&self) -> (f32, f32) {
        let way = (self.position as f64 + 0.5) / self.length as f64;
        match self.shape {
            FadeCurve::EqualPower => {
                let (sin, cos) = (way * FRAC_PI_2).sin_cos();
                (cos as f32, sin as f32)
            }
            FadeCurve::Linear => ((1.0 - way) as f32, way as f32),
            FadeCurve::ConstantPower(correlation) => {
                let (sin, cos) = (way * FRAC_PI_2).sin_cos();
                let scale = 1.0 / (1.0 + 2.0 * sin * cos * correlation.value).sqrt();
                ((cos * scale) as f32, (sin * scale) as f32)
            }
        }
    }

    /// Measures both signals over the frames of this block that are part of the fade; returns the
    /// change of the correlation per frame.
    fn update_correlation(&mut self, outgoing: &[f32], incoming: &[f32], frames: usize) -> f64 {
        let FadeCurve::ConstantPower(correlation) = &mut self.shape else { return 0.0 };
        let keep = (-(frames as f64) / MEMORY).exp();
        let value = correlation.measure(outgoing, incoming, keep);
        if self.position == 0 {
            // One gain is 1 and the other 0, whatever the correlation is.
            correlation.value = value;
        }
        (value - correlation.value) / frames.max(1) as f64
    }
}

/// The correlation of two signals: 0 for uncorrelated ones, 1 for signals that differ in level
/// only.
#[derive(Clone, Copy, Debug)]
struct Correlation {
    /// The value for the present frame.
    value: f64,
    /// Sums of products, with less weight for older blocks: of both signals, and of each with
    /// itself.
    both: f64,
    outgoing: f64,
    incoming: f64,
}

impl Correlation {
    const UNKNOWN: Self = Self { value: 0.0, both: 0.0, outgoing: 0.0, incoming: 0.0 };

    /// The correlation up to the end of these samples; 0 if it is negative.
    fn measure(&mut self, outgoing: &[f32], incoming: &[f32], keep: f64) -> f64 {
        let product = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let outgoing = &outgoing[..outgoing.len().min(incoming.len())];
        self.both = self.both * keep + product(outgoing, incoming);
        self.outgoing = self.outgoing * keep + product(outgoing, outgoing);
        self.incoming = self.incoming * keep + product(incoming, incoming);
        let value = self.both / (self.outgoing * self.incoming).sqrt();
        // 0 for silence, and for values too large to be multiplied.
        if value > 0.0 { value.min(1.0) } else { 0.0 }
    }
}

/// Frames after which the weight of a block is a third: 60 ms at 48 kHz, a period of the lowest
/// tones and short compared with an audible fade.
const MEMORY: f64 = 2_880.0;

/// The gain of frame `index` of a fade-in over `frames`.
pub(crate) fn raised_cosine(index: u64, frames: u64) -> f32 {
    let way = (index as f64 + 0.5) / frames as f64;
    (0.5 - 0.5 * (PI * way).cos()) as f32
}

/// Multiplies every sample by `factor`; a factor of 1 leaves every bit as it is.
///
/// # Real-time
/// Does not allocate.
pub fn apply_gain(samples: &mut [f32], factor: f32) {
    for sample in samples {
        *sample *= factor;
    }
}

/// Adds `voice`, multiplied by `factor`, to `samples`, up to the shorter length.
///
/// # Real-time
/// Does not allocate.
pub fn mix_in(voice: &[f32], factor: f32, samples: &mut [f32]) {
    for (sample, voice) in samples.iter_mut().zip(voice) {
        *sample += *voice * factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_programmes_stay_equally_loud() {
        let (mut from, mut to) = ([1.0; 960], [0.0; 960]);
        Crossfade::equal_power(Frames(960)).mix(&from.clone(), &mut to, 1);
        Crossfade::equal_power(Frames(960)).mix(&[], &mut from, 1);
        for (going, coming) in to.iter().zip(&from) {
            assert!((going * going + coming * coming - 1.0).abs() < 1e-6);
        }
        assert!(to[0] > 0.999_99 && to[959] < 0.001 && from[0] < 0.001 && from[959] > 0.999_99);
    }

    /// Fades one signal into another in blocks of 20 ms; returns the output and the gains of each.
    fn faded(length: u64, from: &[f32], to: &[f32]) -> (Vec<f32>, Vec<(f32, f32)>) {
        let mut fade = Crossfade::constant_power(Frames(length));
        let (mut heard, mut gains) = (Vec::new(), Vec::new());
        for (from, to) in from.chunks(960).zip(to.chunks(960)) {
            // Two more channels, too quiet to matter, carry the gains.
            const QUIET: f32 = 1e-6;
            let outgoing: Vec<f32> = from.iter().flat_map(|x| [*x, QUIET, 0.0]).collect();
            let mut block: Vec<f32> = to.iter().flat_map(|x| [*x, 0.0, QUIET]).collect();
            fade.mix(&outgoing, &mut block, 3);
            heard.extend(block.chunks(3).map(|frame| frame[0]));
            gains.extend(block.chunks(3).map(|frame| (frame[1] / QUIET, frame[2] / QUIET)));
        }
        (heard, gains)
    }

    fn level_db(sound: &[f32]) -> f64 {
        let power: f64 = sound.iter().map(|x| f64::from(*x).powi(2)).sum();
        10.0 * (power / sound.len() as f64).log10()
    }

    fn sine(hz: f64) -> Vec<f32> {
        (0..96_000)
            .map(|n| (0.5 * (hz / 48_000.0 * 2.0 * PI * f64::from(n)).sin()) as f32)
            .collect()
    }

    fn noise(seed: u64) -> Vec<f32> {
        let mut chance = aulos_core::Rng::new(seed);
        (0..96_000).map(|_| (chance.next_f64() - 0.5) as f32).collect()
    }

    #[test]
    fn the_same_programme_is_as_loud_in_the_middle_as_before() {
        for length in [960, 9_600, 72_000] {
            for sound in [sine(1_000.0), noise(1)] {
                // A slightly quieter version counts as the same signal.
                for gain in [1.0, 0.8] {
                    let other: Vec<f32> = sound.iter().map(|x| x * gain).collect();
                    let (heard, gains) = faded(length, &sound, &other);
                    for (heard, sound) in heard.chunks(240).zip(sound.chunks(240)) {
                        let change = level_db(heard) - level_db(sound);
                        let between = level_db(&[gain]) - 0.1..0.1;
                        assert!(between.contains(&change), "{length} {gain}: {change} dB");
                    }
                    assert!(gains.iter().all(|(going, coming)| *going <= 1.0 && *coming <= 1.0));
                }
            }
        }
    }

    #[test]
    fn different_programmes_stay_as_loud_as_with_equal_power() {
        for length in [9_600, 72_000] {
            let (heard, _) = faded(length, &noise(1), &noise(2));
            let middle = length as usize / 2;
            let level = level_db(&heard[middle - 4_000..middle + 4_000]) - level_db(&noise(1));
            assert!(level.abs() < 0.5, "{length}: {level} dB");
            let (heard, _) = faded(length, &sine(440.0), &sine(3_000.0));
            let level = level_db(&heard[middle - 4_000..middle + 4_000]) - level_db(&sine(440.0));
            assert!(level.abs() < 0.5, "{length}: {level} dB");
        }
    }

    #[test]
    fn opposite_phase_is_not_compensated() {
        let sound = sine(1_000.0);
        let inverse: Vec<f32> = sound.iter().map(|x| -x).collect();
        let (heard, gains) = faded(9_600, &sound, &inverse);
        assert!(heard.iter().all(|x| x.abs() <= 0.5001));
        for (going, coming) in &gains[..9_600] {
            assert!((going * going + coming * coming - 1.0).abs() < 1e-3, "{going} {coming}");
        }
        for sound in [vec![f32::MAX; 96_000], vec![f32::NAN; 96_000], vec![0.0; 96_000]] {
            let (_, gains) = faded(9_600, &sound, &noise(1));
            assert!(gains[..9_600].iter().all(|(going, _)| (0.0..=1.0).contains(going)));
        }
    }

    #[test]
    fn gains_move_smoothly_when_programmes_part_in_the_middle_of_a_fade() {
        let sound = noise(1);
        let mut other = sound.clone();
        other[24_000..].copy_from_slice(&noise(2)[24_000..]);
        let (_, gains) = faded(48_000, &sound, &other);
        for pair in gains.windows(2) {
            let ((a, b), (c, d)) = (pair[0], pair[1]);
            assert!((c - a).abs() < 5e-4 && (d - b).abs() < 5e-4, "{pair:?}");
        }
        assert!((gains[23_000].0 + gains[23_000].1 - 1.0).abs() < 0.01, "{:?}", gains[23_000]);
        let (going, coming) = gains[40_000];
        assert!((going * going + coming * coming - 1.0).abs() < 0.05, "{going} {coming}");
    }

    #[test]
    fn a_fade_entered_midway_starts_with_its_given_gain() {
        for gain in [0.2_f32, 0.5, 0.8] {
            let mut fade = Crossfade::constant_power(Frames(48_000)).from_gain(gain);
            assert!((fade.current_gains().1 - gain).abs() < 1e-4);
            let sound = &sine(1_000.0)[..960];
            fade.mix(sound, &mut sound.to_vec(), 1);
            // A quantum later the gains are as near to the right ones as they can be without a
            // step.
            let (going, coming) = fade.current_gains();
            assert!((going + coming - 1.0).abs() < 0.01, "{going} {coming}");
            let before = fade.current_gains();
            let hurried = fade.shortened(Frames(960)).current_gains();
            assert!((hurried.0 - before.0).abs() < 2e-3 && (hurried.1 - before.1).abs() < 2e-3);
        }
    }

    #[test]
    fn the_same_sound_passes_a_linear_fade_unchanged() {
        let sound: Vec<f32> = (0..2_000u16).map(|n| (f32::from(n) * 0.1).sin()).collect();
        let mut block = sound.clone();
        Crossfade::linear(Frames(700)).mix(&sound, &mut block, 2);
        assert!(sound.iter().zip(&block).all(|(a, b)| (a - b).abs() < 1e-6));
    }

    #[test]
    fn an_outgoing_sound_that_ends_early_is_silence_from_there() {
        let mut block = [0.0; 8];
        Crossfade::linear(Frames(8)).mix(&[1.0; 4], &mut block, 1);
        assert!(block[3] > 0.5 && block[4..].iter().all(|sample| sample.abs() < 1e-9));
    }

    #[test]
    fn fades_begin_and_end_in_silence() {
        let mut sound = [1.0; 2 * 480];
        Crossfade::fade_out(&mut sound, 2);
        assert!(sound[0] > 0.999 && sound[959] < 1e-4);
        assert!(sound.windows(3).all(|w| w[2] <= w[0]), "monotonic");
        let mut sound = [1.0; 2 * 480];
        Crossfade::fade_in(&mut sound, 2);
        assert!(sound[0] < 1e-4 && sound[959] > 0.999);
        Crossfade::fade_out(&mut [], 2);
    }

    #[test]
    fn a_fade_of_no_frames_is_a_cut() {
        let mut block = [0.5; 4];
        let mut fade = Crossfade::equal_power(Frames::ZERO);
        fade.mix(&[1.0; 4], &mut block, 2);
        assert!(block.iter().all(|sample| (sample - 0.5).abs() < 1e-9));
    }

    #[test]
    fn a_shortened_fade_continues_from_its_current_gain() {
        let mut fade = Crossfade::equal_power(Frames(480_000));
        fade.mix(&[], &mut vec![1.0; 96_000], 1);
        let (before, mut fast) = (fade.current_gains(), fade.shortened(Frames(960)));
        assert_eq!(fast.remaining(), Frames(960));
        assert!(
            (fast.current_gains().1 - before.1).abs() < 2e-3,
            "{before:?} {:?}",
            fast.current_gains()
        );
        fast.mix(&[], &mut [1.0; 960], 1);
        assert_eq!(fast.current_gains(), (0.0, 1.0));
        assert_eq!(fade.shortened(Frames(1 << 40)).remaining(), fade.remaining());
        assert_eq!(fade.shortened(Frames::ZERO).remaining(), Frames::ZERO);
        for gain in [0.0, 0.3, 0.8, 1.0] {
            let (_, coming) =
                Crossfade::equal_power(Frames(48_000)).from_gain(gain).current_gains();
            assert!((coming - gain).abs() < 1e-4, "{gain}: {coming}");
        }
    }

    proptest! {
        #[test]
        fn block_sizes_do_not_matter(sizes in prop::collection::vec(0usize..200, 1..20)) {
            let old: Vec<f32> = (0..1_000u16).map(|n| f32::from(n).sin()).collect();
            let new: Vec<f32> = (0..1_000u16).map(|n| f32::from(n).cos()).collect();
            let mut whole = new.clone();
            Crossfade::equal_power(Frames(300)).mix(&old, &mut whole, 2);
            let mut cut = new;
            let mut fade = Crossfade::equal_power(Frames(300));
            let mut at = 0;
            for size in sizes.into_iter().map(|size| 2 * size).chain([1_000]) {
                let end = (at + size).min(1_000);
                fade.mix(&old[at..end], &mut cut[at..end], 2);
                at = end;
            }
            prop_assert_eq!(cut, whole);
        }
    }
}

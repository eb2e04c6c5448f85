//! Generated speech and music, the same in each run: a voice with syllables, words and pauses, and
//! chords of a plucked and a sustained instrument over a drum.

use std::f64::consts::TAU;
use std::sync::OnceLock;

use aulos_core::Rng;

use super::reference::integrated;
use super::sound::Sound;

const HZ: f64 = 48_000.0;

/// A voice that speaks, at -23 LUFS: each syllable is a vowel with a level of its own; words end
/// with a gap, and sentences with a pause.
pub(crate) fn speech(seconds: f64) -> Sound {
    static LONGEST: OnceLock<Vec<f32>> = OnceLock::new();
    let samples = LONGEST.get_or_init(|| spoken(120.0));
    let samples = &samples[..(seconds * HZ) as usize];
    at(&Sound::new(48_000, 2, samples.iter().flat_map(|x| [*x, *x]).collect()), -23.0)
}

fn spoken(seconds: f64) -> Vec<f32> {
    let mut random = Rng::new(11);
    let (mut samples, mut phase) = (Vec::new(), 0.0_f64);
    let end = (seconds * HZ) as usize;
    let mut syllable = 0;
    while samples.len() < end {
        let frames = (HZ * (0.11 + 0.14 * random.next_f64())) as usize;
        let level = 10f64.powf(-6.0 * random.next_f64() / 20.0);
        let pitch = 105.0 + 40.0 * random.next_f64();
        let formants = [350.0 + 450.0 * random.next_f64(), 1_100.0 + 1_200.0 * random.next_f64()];
        let weights: Vec<f64> = (1..=24)
            .map(|harmonic| {
                let hz = f64::from(harmonic) * pitch;
                let resonance = |formant: f64| 1.0 / (1.0 + ((hz - formant) / 120.0).powi(2));
                0.05 / f64::from(harmonic) + resonance(formants[0]) + 0.5 * resonance(formants[1])
            })
            .collect();
        for frame in 0..frames {
            phase = (phase + pitch / HZ).fract();
            let envelope = (TAU / 2.0 * frame as f64 / frames as f64).sin().sqrt();
            samples.push((level * envelope * harmonics(phase, &weights)) as f32);
        }
        syllable += 1;
        let gap = match syllable % 14 {
            0 => 0.45,
            part if part % 3 == 0 => 0.07,
            _ => 0.01,
        };
        samples.extend(std::iter::repeat_n(0.0, (gap * HZ) as usize));
    }
    samples.truncate(end);
    samples
}

/// The sum of the harmonics of a tone, by the recurrence of the sine of multiples of an angle.
fn harmonics(phase: f64, weights: &[f64]) -> f64 {
    let (sine, cosine) = (TAU * phase).sin_cos();
    let (mut before, mut now, mut sum) = (0.0, sine, 0.0);
    for weight in weights {
        sum += weight * now;
        (before, now) = (now, 2.0 * cosine * now - before);
    }
    sum
}

/// Music at -23 LUFS: four chords of four beats, 120 beats a minute. `level` is the level of each
/// bar of 2 s in dB, before that.
pub(crate) fn music(seconds: f64, level: impl Fn(usize) -> f64) -> Sound {
    static LONGEST: OnceLock<Vec<f32>> = OnceLock::new();
    let even = LONGEST.get_or_init(|| played(180.0));
    let even = &even[..(seconds * HZ) as usize];
    let mut samples = Vec::with_capacity(2 * even.len());
    for (index, bar) in even.chunks((2.0 * HZ) as usize).enumerate() {
        let gain = 10f64.powf(level(index) / 20.0) as f32;
        samples.extend(bar.iter().flat_map(|x| [gain * x; 2]));
    }
    at(&Sound::new(48_000, 2, samples), -23.0)
}

/// Music whose bars have one level.
fn played(seconds: f64) -> Vec<f32> {
    const CHORDS: [[f64; 4]; 4] = [
        [110.0, 220.0, 261.6, 329.6],
        [87.3, 174.6, 220.0, 261.6],
        [130.8, 196.0, 261.6, 329.6],
        [98.0, 196.0, 246.9, 293.7],
    ];
    let mut random = Rng::new(3);
    let mut samples = Vec::new();
    for frame in 0..(seconds * HZ) as usize {
        let time = frame as f64 / HZ;
        let bar = (time / 2.0) as usize;
        let beat = (2.0 * time).fract();
        let pluck = (-4.0 * beat).exp() * (beat * 200.0).min(1.0);
        let drum = 0.08 * (-30.0 * beat).exp() * (2.0 * random.next_f64() - 1.0);
        let tones: f64 = CHORDS[bar % 4]
            .iter()
            .map(|hz| {
                let (sine, cosine) = (TAU * hz * time).sin_cos();
                sine * (0.5 + pluck) + sine * cosine * pluck
            })
            .sum();
        samples.push((0.1 * tones + drum) as f32);
    }
    samples
}

/// The sound at this integrated loudness.
pub(crate) fn at(sound: &Sound, lufs: f64) -> Sound {
    let change = lufs - integrated(sound);
    sound.clone().gain(change)
}

/// The sum of two sounds; the second one is as long or longer.
pub(crate) fn mixed(one: &Sound, other: &Sound) -> Sound {
    let samples = one.samples.iter().zip(&other.samples).map(|(a, b)| a + b).collect();
    Sound { samples, ..*one }
}

/// The sound times a gain in dB that is a function of time in seconds.
pub(crate) fn shaped(sound: &Sound, db: impl Fn(f64) -> f64) -> Sound {
    let mut out = sound.clone();
    for (index, frame) in out.samples.chunks_mut(sound.channels).enumerate() {
        let gain = 10f64.powf(db(index as f64 / f64::from(sound.hz)) / 20.0) as f32;
        frame.iter_mut().for_each(|x| *x *= gain);
    }
    out
}

//! True peaks of the output, at the rate and in the format of the output.

use aulos_core::{Db, Lufs};
use aulos_dsp::normalize::{LookAhead, Settings};
use aulos_sim::Programme;

use super::reference::{ebur128_peak, filtered, measure_with_peak};
use super::sound::Sound;

fn hot(ceiling: f64) -> Settings {
    let max_gain = Db::new(40.0);
    Settings { target: Lufs::new(-6.0), ceiling: Db::new(ceiling), max_gain, ..Settings::default() }
}

fn hot_material() -> Vec<(&'static str, Sound)> {
    vec![
        ("music", Sound::music("frozen-mainzik-1p").part(0.0, 30.0)),
        ("speech", Sound::speech().part(0.0, 30.0)),
        ("clicks", Sound::programme(Programme::Clicks).part(0.0, 30.0)),
        ("between the samples", Sound::programme(Programme::InterSample).part(0.0, 20.0)),
        ("noise", Sound::noise(48_000, 2, 20.0, |_| -10.0)),
        ("noise at 44.1 kHz", Sound::noise(44_100, 2, 20.0, |_| -10.0)),
        ("noise at 96 kHz", Sound::noise(96_000, 2, 20.0, |_| -10.0)),
        ("noise at 8 kHz", Sound::noise(8_000, 1, 20.0, |_| -10.0)),
        ("one of six channels", one_of_six()),
    ]
}

fn one_of_six() -> Sound {
    let mut sound = Sound::noise(48_000, 6, 20.0, |_| -12.0);
    for frame in sound.samples.chunks_mut(6) {
        (frame[0], frame[1], frame[2], frame[4], frame[5]) = (0.0, 0.0, 0.0, 0.0, frame[5]);
    }
    sound
}

#[test]
fn no_peak_exceeds_the_ceiling_and_nothing_is_clamped() {
    for (name, sound) in hot_material() {
        for (mode, ceiling) in [(LookAhead::Full, -1.0), (LookAhead::Low, -2.0)] {
            let (out, statistics) = sound.normalized(mode, &hot(ceiling));
            let peak = measure_with_peak(&out).peak;
            println!("{name}, {mode:?}: {peak:.3} and {:.3} dBTP", ebur128_peak(&out));
            assert!(peak <= ceiling + 0.05, "{name}, {mode:?}: {peak} dBTP");
            // With 12 taps, the crate reads images as peaks where noise reaches up to half the
            // rate.
            let second = ebur128_peak(&out);
            assert!(second <= ceiling + 0.5, "{name}, {mode:?}: {second} dBTP");
            assert_eq!(statistics.clamped, 0, "{name}");
            // The allowed range is used.
            let limited = name != "between the samples";
            assert!(!limited || peak > ceiling - 1.0, "{name}, {mode:?}: {peak} dBTP");
        }
    }
}

#[test]
fn peaks_stay_below_the_ceiling_in_16_bits_and_at_four_times_the_rate() {
    for (name, sound) in hot_material().into_iter().filter(|(_, sound)| sound.hz == 48_000) {
        let (mut out, _) = sound.normalized(LookAhead::Full, &hot(-1.0));
        let rate = ["-f", "f32le", "-ar", "192000", "-"];
        let peak = peak_of(&filtered(&out, &rate));
        assert!(peak <= -1.0 + 0.2, "{name} at 192 kHz: {peak} dBFS");
        out.samples.iter_mut().for_each(|x| *x = (*x * 32_768.0).round() / 32_768.0);
        let peak = measure_with_peak(&out).peak;
        assert!(peak <= -1.0 + 0.1, "{name} in 16 bits: {peak} dBTP");
    }
}

#[test]
fn music_and_speech_stay_below_the_ceiling_after_resampling() {
    for (name, sound) in hot_material().into_iter().take(2) {
        let (out, _) = sound.normalized(LookAhead::Full, &hot(-1.0));
        let bytes = filtered(&out, &["-f", "f32le", "-ar", "44100", "-"]);
        let samples = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let peak = measure_with_peak(&Sound::new(44_100, 2, samples)).peak;
        assert!(peak <= -1.0 + 0.1, "{name} at 44.1 kHz: {peak} dBTP");
    }
}

#[test]
fn invalid_samples_become_silence_and_do_not_affect_the_rest() {
    let clean = Sound::noise(48_000, 2, 30.0, |_| -25.0);
    let mut dirty = clean.clone();
    let wrong = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e4, -1e30];
    for (index, value) in wrong.into_iter().enumerate() {
        dirty.samples[1_000_001 + 10 * index] = value;
    }
    for mode in [LookAhead::Full, LookAhead::Mid, LookAhead::Low, LookAhead::GainOnly] {
        let (good, _) = clean.normalized(mode, &Settings::default());
        let (out, statistics) = dirty.normalized(mode, &Settings::default());
        assert_eq!(statistics.rejected, wrong.len() as u64);
        assert_eq!(statistics.clamped, 0);
        assert!(out.samples.iter().all(|x| x.is_finite() && x.abs() <= 0.9));
        // A second later only a trace of it remains, in the loudness.
        for (a, b) in out.samples.iter().zip(&good.samples).skip(1_000_000 + 96_000) {
            assert!((a - b).abs() <= 1e-3 * b.abs() + 1e-9, "{mode:?}");
        }
    }
}

fn peak_of(bytes: &[u8]) -> f64 {
    let samples = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x).abs());
    20.0 * f64::from(samples.fold(0.0, f32::max)).log10()
}

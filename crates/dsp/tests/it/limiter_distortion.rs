//! Harmonic distortion of steady tones by the limiter: its gain must not follow the cycles of a
//! wave.
//!
//! Measured by a discrete Fourier transform at the tone and its harmonics over whole periods, which
//! shares no code with the limiter.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "test signals and helpers of tests"
)]

use std::f64::consts::TAU;

use aulos_core::{ChannelLayout, Db, SampleRate};
use aulos_dsp::Limiter;

const CEILING_DB: f64 = -6.0;

/// A sine of whole hertz whose peak is `over` dB above the ceiling.
fn sine(hz: usize, tone_hz: usize, over_db: f64, seconds: usize) -> Vec<f32> {
    let height = 10f64.powf((CEILING_DB + over_db) / 20.0);
    let step = TAU * tone_hz as f64 / hz as f64;
    (0..seconds * hz).map(|n| (height * (step * (n % hz) as f64).sin()) as f32).collect()
}

/// The amplitude of `samples`, which are a whole second, at `tone_hz`.
fn amplitude(samples: &[f32], tone_hz: usize) -> f64 {
    let rate = samples.len();
    let (mut sine, mut cosine) = (0.0, 0.0);
    for (n, x) in samples.iter().enumerate() {
        let angle = TAU * (n * tone_hz % rate) as f64 / rate as f64;
        sine += f64::from(*x) * angle.sin();
        cosine += f64::from(*x) * angle.cos();
    }
    sine.hypot(cosine) * 2.0 / rate as f64
}

fn db(ratio: f64) -> f64 {
    20.0 * ratio.log10()
}

/// Total harmonic distortion of one second, with harmonics up to the thirtieth.
fn distortion_db(second: &[f32], tone_hz: usize) -> f64 {
    let most = (second.len() / 2 / tone_hz - 1).min(30);
    let power: f64 = (2..=most).map(|n| amplitude(second, n * tone_hz).powi(2)).sum();
    db(power.sqrt() / amplitude(second, tone_hz))
}

fn limited(hz: usize, mut samples: Vec<f32>) -> Vec<f32> {
    let rate = SampleRate::new(hz as u32).unwrap();
    let mut limiter = Limiter::new(rate, ChannelLayout::MONO, Db::new(CEILING_DB));
    limiter.process(&mut samples);
    assert_eq!(limiter.clamped(), 0);
    samples
}

#[test]
fn a_limited_bass_tone_gains_no_harmonics() {
    for (hz, tone_hz, over_db) in [
        (48_000, 20, 6.0),
        (48_000, 30, 6.0),
        (48_000, 41, 6.0),
        (48_000, 50, 6.0),
        (48_000, 50, 1.0),
        (48_000, 50, 12.0),
        (48_000, 100, 6.0),
        (48_000, 440, 6.0),
        (44_100, 50, 6.0),
        (96_000, 30, 6.0),
        (8_000, 50, 6.0),
    ] {
        let samples = limited(hz, sine(hz, tone_hz, over_db, 3));
        let second = &samples[2 * hz..];
        let thd = distortion_db(second, tone_hz);
        let level = db(amplitude(second, tone_hz)) - CEILING_DB;
        println!("{hz} Hz, tone {tone_hz} Hz, {over_db} dB: THD {thd:.1} dB, level {level:.2} dB");
        assert!(thd <= -60.0, "{hz} {tone_hz} Hz, {over_db} dB over: THD {thd:.1} dB");
        assert!((-0.4..0.0).contains(&level), "{hz} {tone_hz} Hz: {level:.2} dB of the ceiling");
    }
}

/// A second channel carries a constant, whose value after the limiter is the gain of each frame.
fn gains(loud: &[f32]) -> Vec<f64> {
    let mut samples: Vec<f32> = loud.iter().flat_map(|x| [*x, 0.25]).collect();
    let mut limiter =
        Limiter::new(SampleRate::HZ_48000, ChannelLayout::STEREO, Db::new(CEILING_DB));
    limiter.process(&mut samples);
    samples.chunks(2).skip(240).map(|frame| db(f64::from(frame[1]) / 0.25)).collect()
}

#[test]
fn a_burst_is_not_held_and_a_long_tone_only_as_long_as_promised() {
    // The tones end at 0.5 s or 2.5 s; 6 dB of limiting must then be over within the time.
    for (begin_s, end_s, within_ms, held_ms) in [(0.498, 0.5, 90, 6), (0.5, 2.5, 150, 25)] {
        let tone = sine(48_000, 50, 0.0, 3);
        let loud: Vec<f32> = (0..3 * 48_000)
            .map(|n| {
                let time = n as f64 / 48_000.0;
                let within = (begin_s..end_s).contains(&time);
                // A burst has its peak in the middle, a tone ends with a whole period.
                let burst = (TAU / 2.0 * (time - begin_s) / (end_s - begin_s)).sin() as f32;
                let wave = if end_s - begin_s < 0.1 { 0.5 * burst } else { tone[n] };
                if within { 2.0 * wave } else { 0.0 }
            })
            .collect();
        let gains = gains(&loud);
        let end = (end_s * 48_000.0) as usize;
        let after = |ms: usize| gains[end + 48 * ms];
        assert!(after(0) < -4.0, "limited until the end: {} dB", after(0));
        assert!(after(within_ms) > -0.1, "{} dB after {within_ms} ms", after(within_ms));
        assert!(after(held_ms + 10) > after(0) + 1.0, "held for too long");
        for pair in gains[end..].windows(2) {
            assert!(pair[1] >= pair[0] && pair[1] <= pair[0] + 0.02, "{pair:?}");
        }
    }
}

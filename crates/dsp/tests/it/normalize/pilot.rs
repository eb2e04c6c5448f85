//! The limiter's gain, measured from outside: the input is a quiet tone of 19 kHz with bursts that
//! must be limited; the amplitude of the tone in the output is the gain.

use std::f64::consts::TAU;

use aulos_core::{ChannelLayout, Db, SampleRate};
use aulos_dsp::Limiter;

const HZ: usize = 48_000;
const PILOT_HZ: f64 = 19_000.0;
const PILOT: f64 = 0.01;
const CEILING_DB: f64 = -6.0;

/// Bursts of 2 ms, one per second, each `over` dB above the ceiling, plus the pilot tone.
fn signal(seconds: usize, over: f64) -> Vec<f32> {
    let height = 10f64.powf((CEILING_DB + over) / 20.0);
    (0..seconds * HZ)
        .map(|n| {
            let time = n as f64 / HZ as f64;
            let within = (time.fract() - 0.5) / 0.002;
            let envelope =
                if (0.0..1.0).contains(&within) { (within * TAU / 2.0).sin() } else { 0.0 };
            let burst = height * envelope.powi(2) * (TAU * 1_000.0 * time).cos();
            (burst + PILOT * (TAU * PILOT_HZ * time).sin()) as f32
        })
        .collect()
}

/// The amplitude of the pilot relative to the input: demodulated and averaged over 2 ms with a Hann
/// window.
fn demodulated(samples: &[f32]) -> Vec<f64> {
    const WIDTH: usize = HZ / 500;
    let window: Vec<f64> =
        (0..WIDTH).map(|n| (TAU / 2.0 * (n as f64 + 0.5) / WIDTH as f64).sin().powi(2)).collect();
    let shifted: Vec<(f64, f64)> = samples
        .iter()
        .enumerate()
        .map(|(n, x)| {
            let angle = TAU * PILOT_HZ * n as f64 / HZ as f64;
            (f64::from(*x) * angle.sin(), f64::from(*x) * angle.cos())
        })
        .collect();
    shifted
        .windows(WIDTH)
        .map(|part| {
            let sum = |pick: fn(&(f64, f64)) -> f64| -> f64 {
                part.iter().zip(&window).map(|(x, w)| pick(x) * w).sum()
            };
            let scale = 2.0 / (PILOT * window.iter().sum::<f64>());
            sum(|x| x.0).hypot(sum(|x| x.1)) * scale
        })
        .collect()
}

fn db(gain: f64) -> f64 {
    20.0 * gain.log10()
}

#[test]
fn a_burst_causes_one_dip_of_the_gain_that_ends_in_time() {
    for over in [3.0, 6.0, 12.0] {
        let mut samples = signal(4, over);
        let rate = SampleRate::HZ_48000;
        let mut limiter = Limiter::new(rate, ChannelLayout::MONO, Db::new(CEILING_DB));
        limiter.process(&mut samples);
        let gains = demodulated(&samples);
        for second in 1..3 {
            let gain = |ms: f64| gains[second * HZ + (ms * 48.0) as usize];
            // Centred in the window, delayed by the limiter's look-ahead: the burst is at 505 ms.
            let deepest = (500..520).map(|ms| db(gain(f64::from(ms)))).fold(0.0, f64::min);
            assert!((deepest + over).abs() < 1.0, "{over} dB over: {deepest} dB");
            assert!(db(gain(495.0)).abs() < 0.05, "{over}: early");
            // From 510 ms on the gain rises, never falls, and is at 0 dB 200 ms after the burst.
            let mut last = db(gain(512.0));
            for tenth in 5_120..9_900 {
                let now = db(gain(f64::from(tenth) / 10.0));
                assert!(now >= last - 0.01, "{over}: falls at {} ms", f64::from(tenth) / 10.0);
                assert!(now - last < 0.1, "{over}: jumps at {} ms", f64::from(tenth) / 10.0);
                last = now;
            }
            assert!(db(gain(705.0)) > -0.1, "{over}: {} dB after 200 ms", db(gain(705.0)));
        }
    }
}

#[test]
fn no_window_has_half_the_gain_of_both_its_neighbours() {
    let mut samples = signal(6, 6.0);
    Limiter::new(SampleRate::HZ_48000, ChannelLayout::MONO, Db::new(CEILING_DB))
        .process(&mut samples);
    let gains = demodulated(&samples);
    let windows: Vec<f64> =
        gains.chunks(HZ / 100).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
    let steady = 1.0;
    for (index, part) in windows[2..].windows(3).enumerate() {
        assert!(part[1] > 0.45 * steady, "{index}: {part:?}");
        assert!(part[1] > 0.5 * part[0].min(part[2]), "{index}: {part:?}");
    }
}

/// A second channel that carries a constant shows the gain of every frame.
#[test]
fn outside_the_attack_the_gain_changes_by_at_most_a_fiftieth_of_a_decibel_per_frame() {
    for over in [1.0, 6.0, 12.0] {
        let rate = SampleRate::HZ_48000;
        let mut samples: Vec<f32> = signal(3, over).iter().flat_map(|x| [*x, 0.25]).collect();
        let mut limiter = Limiter::new(rate, ChannelLayout::STEREO, Db::new(CEILING_DB));
        limiter.process(&mut samples);
        let gains: Vec<f64> =
            samples.chunks(2).skip(240).map(|frame| db(f64::from(frame[1]) / 0.25)).collect();
        for (index, pair) in gains.windows(2).enumerate() {
            let step = pair[1] - pair[0];
            assert!(step <= 0.02, "{over} dB over: rises by {step} dB at frame {index}");
            let attack = (495.0..503.0).contains(&((index % HZ) as f64 / 48.0));
            assert!(attack || step >= -0.0001, "{over} dB over: falls by {step} at {index}");
        }
    }
}

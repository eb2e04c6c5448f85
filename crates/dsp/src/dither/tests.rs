#![allow(clippy::float_cmp, reason = "exact is what is promised")]

use core::f64::consts::TAU;

use super::*;

const STEP: f64 = 1.0 / 32_768.0;

/// Samples rounded to 16 bits, in steps.
fn rounded(dither: &mut Dither, samples: &[f32]) -> Vec<f64> {
    let mut integers = vec![0; samples.len()];
    assert_eq!(dither.to_integers(16, samples, &mut integers), 0);
    integers.into_iter().map(f64::from).collect()
}

/// The amplitude of the tone with `periods` periods in all of `samples`.
fn amplitude(samples: &[f64], periods: usize) -> f64 {
    let (mut sine, mut cosine) = (0.0, 0.0);
    for (n, x) in samples.iter().enumerate() {
        let angle = TAU * (n * periods % samples.len()) as f64 / samples.len() as f64;
        sine += x * angle.sin();
        cosine += x * angle.cos();
    }
    sine.hypot(cosine) * 2.0 / samples.len() as f64
}

fn tone(periods: usize, steps: f64) -> Vec<f32> {
    let angle = |n: usize| TAU * (n * periods % 48_000) as f64 / 48_000.0;
    (0..48_000).map(|n| (steps * STEP * angle(n).sin()) as f32).collect()
}

fn db(ratio: f64) -> f64 {
    20.0 * ratio.log10()
}

#[test]
fn integers_stay_as_they_are_and_so_does_silence() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let (mut samples, mut back) = (vec![0.0; 65_536], vec![1; all.len()]);
    convert::decode(SampleFormat::S16Le, &all, &mut samples);
    assert_eq!(Dither::default().encode(SampleFormat::S16Le, &samples, &mut back), 0);
    assert!(back == all);
    Dither::default().encode_l16(&samples, &mut back);
    assert!(
        back.as_chunks::<2>().0.iter().zip(all.as_chunks().0).all(|(a, [b, c])| *a == [*c, *b])
    );

    let all: Vec<u8> =
        (0..1_u32 << 24).step_by(97).flat_map(|x| x.to_le_bytes()[..3].to_vec()).collect();
    let (mut samples, mut back) = (vec![0.0; all.len() / 3], vec![1; all.len()]);
    convert::decode(SampleFormat::S24Le, &all, &mut samples);
    assert_eq!(Dither::default().encode(SampleFormat::S24Le, &samples, &mut back), 0);
    assert!(back == all);
    assert_eq!(Dither::default().encode_l24(&samples, &mut back), 0);
    assert!(
        back.as_chunks::<3>()
            .0
            .iter()
            .zip(all.as_chunks().0)
            .all(|(a, [b, c, d])| *a == [*d, *c, *b])
    );

    let mut silence = [7; 2_000];
    Dither::default().encode(SampleFormat::S16Le, &[0.0; 1_000], &mut silence);
    assert_eq!(silence, [0; 2_000]);
}

#[test]
fn one_sample_between_two_integers_enables_dither_for_all() {
    for place in [0, 1, 300, 999] {
        let mut samples = [0.0; 1_000];
        samples[place] = 0.3 * STEP as f32;
        let integers = rounded(&mut Dither::default(), &samples);
        assert!(integers.iter().filter(|x| **x != 0.0).count() > 100, "{place}");
        let quiet = integers.iter().all(|x| x.abs() <= 1.0);
        assert!(quiet, "two steps wide");
    }
}

#[test]
fn floats_and_32_bits_get_no_noise() {
    for format in [SampleFormat::F32, SampleFormat::S32Le] {
        let samples = tone(1_000, 0.7);
        let (mut plain, mut bytes) = (vec![0; 4 * samples.len()], vec![0; 4 * samples.len()]);
        convert::encode(format, &samples, &mut plain);
        Dither::default().encode(format, &samples, &mut bytes);
        assert!(bytes == plain, "{format}");
    }
}

/// Measured by a Fourier transform. A tone of -84 dBFS has an amplitude of two steps.
#[test]
fn a_tone_of_two_steps_has_no_harmonics() {
    let samples = tone(997, 10f64.powf(-84.0 / 20.0) / STEP);
    let mut plain = vec![0; samples.len()];
    convert::to_integers(16, &samples, &mut plain);
    let plain: Vec<f64> = plain.into_iter().map(f64::from).collect();
    let seventh = db(amplitude(&plain, 7 * 997) / amplitude(&plain, 997));
    assert!(seventh > -25.0, "rounded without dither: {seventh:.1} dB");

    let integers = rounded(&mut Dither::default(), &samples);
    let fundamental = amplitude(&integers, 997);
    assert!((db(fundamental * STEP) + 84.0).abs() < 0.1, "{} dBFS", db(fundamental * STEP));
    // Noise of a quarter of a squared step is 0.0046 steps in each of 24,000 bins.
    for harmonic in 2..=24 {
        let level = amplitude(&integers, harmonic * 997);
        assert!(level < 4.0 * 0.0046, "harmonic {harmonic}: {:.1} dB", db(level / fundamental));
    }
}

/// The purpose of the triangular distribution: mean and power of the error are the same wherever a
/// sample lies between two integers.
#[test]
fn the_error_is_the_same_at_every_level() {
    for steps in [0.1, 0.25, 0.5, 0.75, 0.9, 1_000.5, -20_000.25] {
        let samples = vec![(steps * STEP) as f32; 200_000];
        let errors = rounded(&mut Dither::default(), &samples);
        let errors = errors.iter().map(|x| x - steps);
        let mean = errors.clone().sum::<f64>() / 200_000.0;
        let power = errors.map(|x| x * x).sum::<f64>() / 200_000.0;
        assert!(mean.abs() < 0.005, "{steps}: {mean}");
        assert!((power - 0.25).abs() < 0.005, "{steps}: {power}");
    }
}

#[test]
fn noise_is_independent_between_channels_and_samples() {
    let integers = rounded(&mut Dither::default(), &vec![0.5 * STEP as f32; 200_000]);
    let noise: Vec<f64> = integers.iter().map(|x| x - 0.5).collect();
    for lag in 1..=64 {
        let sum: f64 = noise.iter().zip(&noise[lag..]).map(|(a, b)| a * b).sum();
        let correlation = sum / 0.25 / 200_000.0;
        assert!(correlation.abs() < 0.015, "{lag} samples apart: {correlation}");
    }
}

#[test]
fn a_dithered_fade_continues_below_the_last_quantization_step() {
    // A tone that fades from two steps to nothing in ten seconds, and a second of silence.
    let samples: Vec<f32> = (0..11)
        .flat_map(|second| {
            tone(1_000, 2.0).into_iter().enumerate().map(move |(n, x)| {
                let way = (second as f64 + n as f64 / 48_000.0) / 10.0;
                (f64::from(x) * (1.0 - way).max(0.0)) as f32
            })
        })
        .collect();
    let mut dither = Dither::default();
    let seconds: Vec<Vec<f64>> = samples
        .chunks(48_000)
        .map(|second| second.chunks(960).flat_map(|block| rounded(&mut dither, block)).collect())
        .collect();
    // From 9 to 10 s the mean amplitude of the tone is 0.1 steps, which plain rounding turns into
    // silence.
    let last = amplitude(&seconds[9], 1_000);
    assert!((0.08..0.12).contains(&last), "{last} steps");
    assert!(seconds[10].iter().all(|x| *x == 0.0));
}

#[test]
fn noise_never_clips_and_samples_above_full_scale_are_counted_once() {
    let top = 32_767.0 * STEP as f32;
    let mut samples = vec![top; 1_000];
    samples[0] = 0.3 * STEP as f32;
    (samples[1], samples[2], samples[3]) = (1.5, -1.5, f32::NAN);
    samples[500..].fill(-1.0);
    let mut integers = vec![0; 1_000];
    assert_eq!(Dither::default().to_integers(16, &samples, &mut integers), 3);
    assert_eq!(integers[1..4], [32_767, -32_768, 0]);
    assert!(integers[4..500].iter().all(|x| (32_766..=32_767).contains(x)));
    assert!(integers[500..].iter().all(|x| (-32_768..=-32_767).contains(x)));
}

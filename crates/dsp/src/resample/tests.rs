//! The reference is analytical: the input is a sum of sines, so the expected output is known
//! exactly at every output time, in f64, without another resampler.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "test signals, and exact copies"
)]

use core::f64::consts::TAU;

use proptest::prelude::*;

use super::*;

fn rate(hz: u32) -> SampleRate {
    SampleRate::new(hz).unwrap()
}

fn sine(hz: f64, rate: u32, frames: usize) -> Vec<f32> {
    (0..frames).map(|n| (0.5 * (TAU * hz * n as f64 / f64::from(rate)).sin()) as f32).collect()
}

/// Resamples all of `input` (mono) in blocks.
fn run(resampler: &mut Resampler, input: &[f32]) -> Vec<f32> {
    let mut output = Vec::new();
    let mut block = [0.0; 480];
    let mut rest = input;
    loop {
        let progress = resampler.process(rest, &mut block);
        rest = &rest[progress.consumed.as_usize()..];
        output.extend_from_slice(&block[..progress.produced.as_usize()]);
        if progress == ResampleProgress::default() {
            return output;
        }
    }
}

/// Amplitude of the deviation of `output` from the expected sine, relative to that sine, in dB;
/// phase, delay and gain count. `step` is input frames per output frame.
fn error_db(output: &[f32], hz: f64, from: u32, step: f64, latency: Frames) -> f64 {
    let delay = latency.0 as f64;
    let (mut error, mut power) = (0.0, 0.0);
    // The beginning is excluded: there the sine starts abruptly.
    for (k, &sample) in output.iter().enumerate().skip(2_000) {
        let time = (k as f64 * step - delay) / f64::from(from);
        let ideal = 0.5 * (TAU * hz * time).sin();
        error += (f64::from(sample) - ideal).powi(2);
        power += ideal * ideal;
    }
    10.0 * (error / power).log10()
}

fn snr(from: u32, to: u32, hz: f64) -> f64 {
    let mut resampler = Resampler::new(1, rate(from), rate(to));
    let output = run(&mut resampler, &sine(hz, from, from as usize));
    let step = f64::from(from) / f64::from(to);
    -error_db(&output, hz, from, step, resampler.latency())
}

fn rms_db(samples: &[f32]) -> f64 {
    let power: f64 = samples.iter().map(|&s| f64::from(s).powi(2)).sum();
    10.0 * (power / samples.len() as f64).log10()
}

#[test]
fn sines_are_preserved() {
    for (from, to) in [(44_100, 48_000), (48_000, 44_100), (48_000, 96_000), (96_000, 44_100)] {
        for hz in [20.0, 997.0, 15_000.0, 19_900.0] {
            let snr = snr(from, to, hz);
            println!("{from} -> {to}, {hz} Hz: SNR {snr:.1} dB");
            assert!(snr >= 110.0, "{from} -> {to}, {hz} Hz: {snr} dB");
        }
    }
}

#[test]
fn odd_ratios_are_as_good() {
    for (from, to) in [(44_101, 48_000), (8_000, 48_000), (192_000, 48_000), (22_050, 48_000)] {
        let hz = 0.3 * f64::from(from.min(to));
        let snr = snr(from, to, hz);
        println!("{from} -> {to}, {hz} Hz: SNR {snr:.1} dB");
        assert!(snr >= 110.0, "{from} -> {to}: {snr} dB");
    }
}

#[test]
fn the_passband_is_flat_to_20_khz() {
    for (from, to) in [(44_100, 48_000), (48_000, 44_100)] {
        for hz in (500..=20_000).step_by(1_500) {
            let mut resampler = Resampler::new(1, rate(from), rate(to));
            let output = run(&mut resampler, &sine(f64::from(hz), from, from as usize));
            let gain = rms_db(&output[2_000..]) - 20.0 * (0.5 * 0.5f64.sqrt()).log10();
            assert!(gain.abs() < 0.02, "{from} -> {to}, {hz} Hz: {gain} dB");
        }
    }
}

#[test]
fn nothing_folds_back() {
    // From half of the output's rate on, nothing may be left of a tone.
    for (from, to, tones) in [
        (48_000, 44_100, [22_060.0, 22_500.0, 23_900.0]),
        (96_000, 48_000, [24_010.0, 30_000.0, 47_000.0]),
        (192_000, 8_000, [4_010.0, 9_000.0, 90_000.0]),
    ] {
        for hz in tones {
            let mut resampler = Resampler::new(1, rate(from), rate(to));
            let output = run(&mut resampler, &sine(hz, from, from as usize));
            let left = rms_db(&output[2_000..]) - 20.0 * (0.5 * 0.5f64.sqrt()).log10();
            println!("{from} -> {to}, {hz} Hz: {left:.1} dB");
            assert!(left < -105.0, "{from} -> {to}, {hz} Hz: {left} dB");
        }
    }
}

#[test]
fn without_drift_equal_rates_are_a_bit_exact_copy() {
    for channels in [1, 2, 3, 6] {
        let mut resampler = Resampler::new(channels, rate(48_000), rate(48_000));
        let input: Vec<f32> =
            (0..5_000 * channels).map(|n| ((n * 7_919) as f32 * 1.3e-3).sin()).collect();
        let mut output = vec![0.0; input.len()];
        let progress = resampler.process(&input, &mut output);
        assert_eq!(progress, ResampleProgress { consumed: Frames(5_000), produced: Frames(5_000) });
        let delay = resampler.latency().as_usize() * channels;
        assert!(output[..delay].iter().all(|&sample| sample == 0.0));
        assert!(output[delay..] == input[..input.len() - delay]);
    }
}

#[test]
fn the_filter_begins_where_the_copy_ends() {
    // A later drift starts without a click because the filter of a whole frame is a delta.
    let mut resampler = Resampler::new(2, rate(48_000), rate(48_000));
    let input: Vec<f32> = (0..4_000).map(|n| (n as f32 * 0.7).sin()).collect();
    resampler.process(&input[..1_000], &mut [0.0; 1_000]);
    let mut copied = [0.0; 2];
    resampler.clone().process(&input[1_000..], &mut copied);
    resampler.set_drift(Ppm::from_ppm(500));
    assert!(!resampler.is_copy());
    let mut filtered = [0.0; 2];
    resampler.process(&input[1_000..], &mut filtered);
    assert_eq!(copied, filtered);
}

#[test]
fn when_the_drift_is_over_it_copies_again() {
    for ppm in [-400, -1, 7, 400, 2_000] {
        let mut resampler = Resampler::new(1, rate(48_000), rate(48_000));
        let input = sine(79.3, 48_000, 400_000);
        let mut output = vec![0.0; 200_000];
        let mut rest = &input[..];
        for (n, block) in output.chunks_mut(960).enumerate() {
            resampler.set_drift(Ppm::from_ppm(if (10..71).contains(&n) { ppm } else { 0 }));
            rest = &rest[resampler.process(rest, block).consumed.as_usize()..];
        }
        assert!(resampler.is_copy(), "{ppm} ppm");
        // A second later every output frame is an input frame, and its neighbour the next one.
        let copied = &output[120_000..];
        let start = input.windows(copied.len()).position(|frames| frames == copied);
        assert!(start.is_some(), "{ppm} ppm");
        let bend = output[1_000..].windows(3).map(|w| (w[0] - 2.0 * w[1] + w[2]).abs());
        let highest = 0.5 * (TAU * 79.3 / 48_000.0).powi(2) as f32;
        let bend = bend.fold(0.0, f32::max);
        assert!(bend < 1.02 * highest, "{ppm} ppm: a click of {bend}");
    }
}

#[test]
fn drift_consumes_more_of_a_fast_source() {
    for ppm in [-500, -37, 100, 500, 50_000] {
        let mut resampler = Resampler::new(1, rate(48_000), rate(48_000));
        resampler.set_drift(Ppm::from_ppm(ppm));
        let input = vec![0.0; 4_800_000];
        let mut output = vec![0.0; 4_000_000];
        resampler.process(&input[..200_000], &mut output[..100_000]);
        let progress = resampler.process(&input, &mut output);
        let expected = 4_000_000.0 * (1.0 + f64::from(ppm) * 1e-6);
        assert_eq!(progress.produced, Frames(4_000_000));
        assert!((progress.consumed.0 as f64 - expected).abs() < 2.0, "{ppm}: {progress:?}");
    }
}

#[test]
fn drift_is_as_clean_as_no_drift() {
    for (from, to) in [(48_000, 48_000), (44_100, 48_000)] {
        for (hz, ppm) in [(997.0, 100), (15_000.0, -300), (15_000.0, 1)] {
            let mut resampler = Resampler::new(1, rate(from), rate(to));
            resampler.set_drift(Ppm::from_ppm(ppm));
            // After the glide the position is not a round number any more: the phase of the sine is
            // fitted, and everything else is an error.
            let output = run(&mut resampler, &sine(hz, from, 3 * from as usize));
            let settled = &output[60_000..];
            let step = f64::from(from) / f64::from(to) * (1.0 + f64::from(ppm) * 1e-6);
            let error = fitted_error_db(settled, TAU * hz * step / f64::from(from));
            println!("{from} -> {to}, {hz} Hz, {ppm} ppm: SNR {:.1} dB", -error);
            assert!(error < -110.0, "{from} -> {to}, {hz} Hz, {ppm} ppm: {error} dB");
        }
    }
}

/// Full scale, as THD+N: everything but the tone itself.
#[test]
fn the_short_filter_is_clean_to_16_bits() {
    for (hz, ppm, limit) in [
        (1_000.0, 500, -110.0),
        (15_000.0, 500, -110.0),
        (15_000.0, -50, -110.0),
        (18_000.0, 500, -110.0),
    ] {
        let mut resampler = Resampler::for_drift(1);
        resampler.set_drift(Ppm::from_ppm(ppm));
        let tone: Vec<f32> = sine(hz, 48_000, 144_000).iter().map(|sample| 2.0 * sample).collect();
        let output = run(&mut resampler, &tone);
        let step = 1.0 + f64::from(ppm) * 1e-6;
        let error = fitted_error_db(&output[60_000..], TAU * hz * step / 48_000.0);
        println!("{hz} Hz, {ppm} ppm: THD+N {error:.1} dB");
        assert!(error < limit, "{hz} Hz, {ppm} ppm: {error} dB");
        // At full level up to there.
        let gain = rms_db(&output[60_000..]) - rms_db(&tone);
        assert!(gain.abs() < 0.02, "{hz} Hz: {gain} dB");
    }
}

#[test]
fn engaging_and_changing_drift_does_not_click() {
    let mut resampler = Resampler::new(1, rate(48_000), rate(48_000));
    let input = sine(997.0, 48_000, 200_000);
    let mut output = vec![0.0; 100_000];
    let mut rest = &input[..];
    for (n, block) in output.chunks_mut(960).enumerate() {
        let drift = [0, 0, 500, -500, 0, 100_000, -100_000, 3][n / 10 % 8];
        resampler.set_drift(Ppm::from_ppm(drift));
        rest = &rest[resampler.process(rest, block).consumed.as_usize()..];
    }
    // A sine's second difference is bounded by its frequency; that of a click is not.
    let bend = output[1_000..]
        .windows(3)
        .map(|w| (f64::from(w[0]) - 2.0 * f64::from(w[1]) + f64::from(w[2])).abs())
        .fold(0.0, f64::max);
    let highest = TAU * 997.0 * 1.1 / 48_000.0;
    assert!(bend < 0.5 * highest * highest * 1.001, "{bend}");
}

#[test]
fn the_position_stays_exact() {
    // Tests the position only: 44.1 to 48 kHz, an hour, to the last of its 2^48 parts.
    let mut resampler = Resampler::new(1, rate(44_100), rate(48_000));
    let frames = 3_600 * 48_000u64;
    for _ in 0..frames {
        resampler.advance();
    }
    assert_eq!(resampler.start as u64, frames / 160 * 147);
    assert_eq!(resampler.fraction, 0);
}

#[test]
fn the_latency_equals_the_position_of_an_impulse() {
    for (from, to) in [(48_000, 48_000), (44_100, 48_000), (48_000, 44_100), (8_000, 48_000)] {
        let mut resampler = Resampler::new(1, rate(from), rate(to));
        let mut input = vec![0.0; 4_000];
        // At an input frame that coincides with an output frame.
        let at = from as usize / 100;
        input[at] = 1.0;
        let output = run(&mut resampler, &input);
        let peak = (0..output.len()).max_by(|&a, &b| output[a].total_cmp(&output[b])).unwrap();
        let seen = peak as f64 * f64::from(from) / f64::from(to);
        let expected = at as f64 + resampler.latency().0 as f64;
        assert!((seen - expected).abs() <= 0.5 * f64::from(from) / f64::from(to), "{seen}");
    }
}

#[test]
fn reset_is_new() {
    let input = sine(997.0, 48_000, 5_000);
    let mut resampler = Resampler::new(1, rate(44_100), rate(48_000));
    let expected = run(&mut resampler, &input);
    resampler.set_drift(Ppm::from_ppm(300));
    run(&mut resampler, &input);
    resampler.reset();
    assert!(run(&mut resampler, &input) == expected);
}

#[test]
fn the_worst_rates_are_bounded() {
    let (min, max) = (SampleRate::MIN, SampleRate::MAX);
    for (from, to) in [(min, max), (max, min), (max, max - 1), (2_822_399, 44_099)] {
        let mut resampler = Resampler::new(2, rate(from), rate(to));
        resampler.set_drift(Ppm::from_ppm(100_000));
        let input = vec![0.1; 20_000];
        let mut output = vec![0.0; 1_000];
        let progress = resampler.process(&input, &mut output);
        assert!(progress.consumed > Frames::ZERO || progress.produced > Frames::ZERO);
        assert!(resampler.table.memory() <= 3 << 19);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The result does not depend on the sizes of calls.
    #[test]
    fn block_sizes_do_not_matter(
        sizes in prop::collection::vec((0usize..700, 0usize..700), 1..40),
        rates in prop::sample::select(vec![(48_000, 48_000), (44_100, 48_000), (96_000, 32_000)]),
        ppm in prop::sample::select(vec![0, 250]),
    ) {
        let input: Vec<f32> = (0..30_000).map(|n| (n as f32 * 0.31).sin()).collect();
        let make = || {
            let mut resampler = Resampler::new(2, rate(rates.0), rate(rates.1));
            resampler.set_drift(Ppm::from_ppm(ppm));
            resampler
        };
        let mut whole = vec![0.0; 60_000];
        make().process(&input, &mut whole);

        let mut cut = make();
        let (mut read, mut output) = (0, Vec::new());
        for (give, room) in sizes {
            let give = (2 * give).min(input.len() - read);
            let mut block = vec![0.0; 2 * room];
            let needed = cut.input_needed(Frames::from(room));
            let progress = cut.process(&input[read..read + give], &mut block);
            prop_assert!(progress.consumed <= needed);
            prop_assert!(progress.produced.as_usize() == room || progress.consumed < needed);
            if give > 0 && room > 0 {
                prop_assert!(progress != ResampleProgress::default());
            }
            read += 2 * progress.consumed.as_usize();
            output.extend_from_slice(&block[..2 * progress.produced.as_usize()]);
        }
        prop_assert_eq!(&output[..], &whole[..output.len()]);
    }
}

/// The residual of `samples` without the best sine of `omega` radians per frame, in dB relative to
/// that sine (least squares).
fn fitted_error_db(samples: &[f32], omega: f64) -> f64 {
    let (mut ss, mut sc, mut cc, mut xs, mut xc) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let wave = |n: usize| (omega * n as f64).sin_cos();
    for (n, &x) in samples.iter().enumerate() {
        let ((s, c), x) = (wave(n), f64::from(x));
        (ss, sc, cc) = (ss + s * s, sc + s * c, cc + c * c);
        (xs, xc) = (xs + x * s, xc + x * c);
    }
    let determinant = ss * cc - sc * sc;
    let (a, b) = ((xs * cc - xc * sc) / determinant, (xc * ss - xs * sc) / determinant);
    let (mut error, mut power) = (0.0, 0.0);
    for (n, &x) in samples.iter().enumerate() {
        let (s, c) = wave(n);
        let ideal = a * s + b * c;
        error += (f64::from(x) - ideal).powi(2);
        power += ideal * ideal;
    }
    10.0 * (error / power).log10()
}

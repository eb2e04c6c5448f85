//! The signals of EBU Tech 3341 and 3342, synthesised from their descriptions, at four rates.
//!
//! Cases 7 and 8 of 3341 and 5 and 6 of 3342 are programmes that only the EBU's files hold.

use core::f64::consts::PI;

use super::super::{Config, Meter, Mode, Position};
use super::meter;

const RATES: [u32; 4] = [44_100, 48_000, 96_000, 192_000];
const SILENCE: f64 = f64::NEG_INFINITY;

/// A stereo tone of 1 kHz whose level changes: (dBFS of the peak, seconds).
fn tone(hz: u32, parts: &[(f64, f64)]) -> Vec<f32> {
    let levels: Vec<_> = parts.iter().map(|&(db, seconds)| ([db; 2], seconds)).collect();
    tones(hz, &levels)
}

fn tones<const N: usize>(hz: u32, parts: &[([f64; N], f64)]) -> Vec<f32> {
    let mut out = Vec::new();
    let mut frame = 0u64;
    for (levels, seconds) in parts {
        let amplitudes = levels.map(|db| 10f64.powf(db / 20.0));
        for _ in 0..(seconds * f64::from(hz)).round() as usize {
            let phase = frame as f64 * 1000.0 / f64::from(hz);
            let value = (2.0 * PI * phase.fract()).sin();
            out.extend(amplitudes.map(|amplitude| (amplitude * value) as f32));
            frame += 1;
        }
    }
    out
}

fn assert_within(case: &str, hz: u32, measured: f64, expected: f64, tolerance: f64) {
    let off = (measured - expected).abs();
    assert!(off <= tolerance, "{case} at {hz}: {measured}, not {expected} +-{tolerance}");
}

#[test]
fn tech_3341_cases_1_to_6_integrated_within_a_tenth() {
    for hz in RATES {
        let cases: [(&str, f64, Vec<f32>); 5] = [
            ("1", -23.0, tone(hz, &[(-23.0, 20.0)])),
            ("2", -33.0, tone(hz, &[(-33.0, 20.0)])),
            ("3", -23.0, tone(hz, &[(-36.0, 10.0), (-23.0, 60.0), (-36.0, 10.0)])),
            (
                "4",
                -23.0,
                tone(
                    hz,
                    &[(-72.0, 10.0), (-36.0, 10.0), (-23.0, 60.0), (-36.0, 10.0), (-72.0, 10.0)],
                ),
            ),
            ("5", -23.0, tone(hz, &[(-26.0, 20.0), (-20.0, 20.1), (-26.0, 20.0)])),
        ];
        for (case, expected, signal) in cases {
            let mut meter = meter(hz, 2, Mode::SHORT_TERM | Mode::INTEGRATED);
            meter.add(&signal);
            assert_within(case, hz, meter.integrated().unwrap().get(), expected, 0.1);
            if case < "3" {
                assert_within(case, hz, meter.momentary().unwrap().get(), expected, 0.1);
                assert_within(case, hz, meter.short_term().unwrap().get(), expected, 0.1);
            }
        }
        let surround = [([-28.0, -28.0, -24.0, -30.0, -30.0], 20.0)];
        let mut five = meter(hz, 5, Mode::INTEGRATED);
        five.add(&tones(hz, &surround));
        assert_within("6, 5.0", hz, five.integrated().unwrap().get(), -23.0, 0.1);
        let surround = [([-28.0, -28.0, -24.0, SILENCE, -30.0, -30.0], 20.0)];
        let mut six = meter(hz, 6, Mode::INTEGRATED);
        six.add(&tones(hz, &surround));
        assert_within("6, 5.1", hz, six.integrated().unwrap().get(), -23.0, 0.1);
    }
}

#[test]
fn tech_3341_cases_9_and_12_are_steady() {
    for hz in RATES {
        let signal = tone(hz, &[(-20.0, 1.34), (-30.0, 1.66)].repeat(5));
        let mut s = meter(hz, 2, Mode::SHORT_TERM);
        for (index, call) in signal.chunks(2 * hz as usize / 100).enumerate() {
            s.add(call);
            if index >= 300 {
                assert_within("9", hz, s.short_term().unwrap().get(), -23.0, 0.1);
            }
        }
        let signal = tone(hz, &[(-20.0, 0.18), (-30.0, 0.22)].repeat(25));
        let mut m = meter(hz, 2, Mode::MOMENTARY);
        for (index, call) in signal.chunks(2 * hz as usize / 100).enumerate() {
            m.add(call);
            if index >= 100 {
                assert_within("12", hz, m.momentary().unwrap().get(), -23.0, 0.1);
            }
        }
    }
}

#[test]
fn tech_3341_cases_10_11_13_14_maxima_whatever_the_calls() {
    let mode = Mode::MAXIMA | Mode::SHORT_TERM;
    for hz in RATES {
        for i in 0..20 {
            let early = f64::from(i);
            let file = tone(hz, &[(SILENCE, early * 0.15), (-23.0, 3.0), (SILENCE, 1.0)]);
            let mut whole = meter(hz, 2, mode);
            whole.add(&file);
            assert_within("10", hz, whole.max_short_term().unwrap().get(), -23.0, 0.1);
            let file = tone(hz, &[(SILENCE, early * 0.02), (-23.0, 0.4), (SILENCE, 1.0)]);
            let mut whole = meter(hz, 2, mode);
            whole.add(&file);
            assert_within("13", hz, whole.max_momentary().unwrap().get(), -23.0, 0.1);
        }
        let mut live = meter(hz, 2, mode);
        for i in 0..20 {
            let (early, level) = (f64::from(i) * 0.15, -38.0 + f64::from(i));
            live.add(&tone(hz, &[(SILENCE, early), (level, 3.0), (SILENCE, 3.0 - early)]));
            assert_within("11", hz, live.max_short_term().unwrap().get(), level, 0.1);
        }
        let mut live = meter(hz, 2, mode);
        for i in 0..20 {
            let (early, level) = (f64::from(i) * 0.02, -38.0 + f64::from(i));
            live.add(&tone(hz, &[(SILENCE, early), (level, 0.4), (SILENCE, 0.4 - early)]));
            assert_within("14", hz, live.max_momentary().unwrap().get(), level, 0.1);
        }
    }
}

/// A stereo tone of a fraction of the rate, one second with fades of 10 ms.
fn peak_tone(hz: u32, divisor: f64, amplitude: f64, degrees: f64) -> Vec<f32> {
    let frames = hz as usize;
    let fade = f64::from(hz) / 100.0;
    let value = |frame: usize| {
        let edge = frame.min(frames - 1 - frame) as f64;
        let phase = 2.0 * PI * frame as f64 / divisor + degrees.to_radians();
        (amplitude * (edge / fade).min(1.0) * phase.sin()) as f32
    };
    (0..frames).flat_map(|frame| [value(frame); 2]).collect()
}

/// Oversampling is 4, 2 and 1 times (BS.1770-4 annex 2 leaves it to the rate), so that the tones of
/// the document, fractions of 48 kHz, can be read at any rate; the same fractions of a higher rate
/// would be above all hearing and can not.
fn tone_scale(hz: u32) -> u32 {
    (hz / 48_000).max(1)
}

fn assert_true_peak(case: &str, hz: u32, signal: &[f32], expected: f64) {
    let mut meter = meter(hz, 2, Mode::TRUE_PEAK);
    meter.add(signal);
    let measured = 20.0 * meter.true_peak(1).unwrap().log10();
    let fine = (expected - 0.4..=expected + 0.2).contains(&measured);
    assert!(fine, "{case} at {hz}: {measured}, not {expected} +0.2 -0.4");
}

#[test]
fn tech_3341_cases_15_to_19_true_peak_of_tones() {
    for hz in RATES {
        let scale = f64::from(tone_scale(hz));
        for (case, divisor, amplitude, degrees, expected) in [
            ("15", 4.0, 0.50, 0.0, -6.0),
            ("16", 4.0, 0.50, 45.0, -6.0),
            ("17", 6.0, 0.50, 60.0, -6.0),
            ("18", 8.0, 0.50, 67.5, -6.0),
            ("19", 4.0, 1.41, 45.0, 3.0),
        ] {
            let signal = peak_tone(hz, scale * divisor, amplitude, degrees);
            assert_true_peak(case, hz, &signal, expected);
        }
    }
}

#[test]
fn tech_3341_cases_20_to_23_true_peak_of_one_period() {
    for hz in RATES {
        let fine = 4;
        let scale = tone_scale(hz) as usize;
        // At four times the rate: fs/6 at 0.5, one period of fs/4 at 1.0 in the middle.
        let mut phase = 0.0f64;
        let length = hz as usize / 4 * fine;
        let long = 6 * fine * scale;
        let short = 4 * fine * scale;
        let start = length / 2 / long * long;
        let dense: Vec<f64> = (0..length)
            .map(|n| {
                let inside = (start..start + short).contains(&n);
                let (period, amplitude) = if inside { (short, 1.0) } else { (long, 0.5) };
                let value = amplitude * phase.sin();
                phase += 2.0 * PI / period as f64;
                value
            })
            .collect();
        let filtered = low_pass(&dense, fine);
        for offset in 0..fine {
            let signal: Vec<f32> = filtered
                .iter()
                .skip(offset)
                .step_by(fine)
                .flat_map(|&value| [value as f32; 2])
                .collect();
            assert_true_peak(["20", "21", "22", "23"][offset], hz, &signal, 0.0);
        }
    }
}

/// A windowed sinc that keeps what is below half of the lower rate.
fn low_pass(dense: &[f64], factor: usize) -> Vec<f64> {
    let half = 64 * factor as i64;
    let cut = 1.0 / factor as f64;
    let kernel: Vec<f64> = (-half..=half)
        .map(|k| {
            let x = PI * k as f64 * cut;
            let sinc = if k == 0 { 1.0 } else { x.sin() / x };
            cut * sinc * (0.5 + 0.5 * (PI * k as f64 / half as f64).cos())
        })
        .collect();
    let margin = half as usize;
    (margin..dense.len() - margin)
        .map(|n| kernel.iter().zip(&dense[n - margin..]).map(|(k, x)| k * x).sum())
        .collect()
}

#[test]
fn tech_3341_calibration_and_dual_mono() {
    for hz in RATES {
        let mut stereo = meter(hz, 2, Mode::MOMENTARY);
        stereo.add(&tone(hz, &[(-18.0, 2.0)]));
        assert_within("2.9", hz, stereo.momentary().unwrap().get(), -18.0, 0.1);
        let mut config: Config = stereo.config().clone();
        config.positions = vec![Position::DualMono];
        let mut mono = Meter::new(config).unwrap();
        mono.add(&tones(hz, &[([-18.0], 2.0)]));
        assert_within("dual mono", hz, mono.momentary().unwrap().get(), -18.0, 0.1);
    }
}

#[test]
fn tech_3342_cases_1_to_4_range_within_one() {
    for hz in RATES {
        for (case, expected, levels) in [
            ("1", 10.0, &[-20.0, -30.0][..]),
            ("2", 5.0, &[-20.0, -15.0]),
            ("3", 20.0, &[-40.0, -20.0]),
            ("4", 15.0, &[-50.0, -35.0, -20.0, -35.0, -50.0]),
        ] {
            let parts: Vec<_> = levels.iter().map(|&level| (level, 20.0)).collect();
            let signal = tone(hz, &parts);
            for range_hop in [super::super::RangeHop::Second, super::super::RangeHop::Tenth] {
                let mut config = super::config(hz, 2, Mode::RANGE);
                config.range_hop = range_hop;
                let mut meter = Meter::new(config).unwrap();
                meter.add(&signal);
                assert_within(case, hz, meter.range().unwrap().get(), expected, 1.0);
            }
        }
    }
}

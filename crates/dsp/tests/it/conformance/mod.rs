//! The signals of EBU Tech 3341 and 3342, synthesized from their descriptions, at four rates, in
//! all sample types, in one call and in ragged ones.
//!
//! Cases 7 and 8 of 3341 and 5 and 6 of 3342, and the files of ITU-R BS.2217, cannot be
//! synthesized. If they are available, `AULOS_EBU_FILES` names their folder; docs/standards/r128.md
//! has the details.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test signals and helpers of tests"
)]

mod programmes;

use core::f64::consts::PI;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::meter::{ChannelPosition, Meter, MeterConfig, MeterMode, MeterSample, RangeHop};

const RATES: [u32; 4] = [44_100, 48_000, 96_000, 192_000];
const SILENCE: f64 = f64::NEG_INFINITY;

fn config(hz: u32, channels: usize, mode: MeterMode) -> MeterConfig {
    let layout = ChannelLayout::new(channels).unwrap();
    MeterConfig::new(SampleRate::new(hz).unwrap(), layout, mode)
}

fn meter(hz: u32, channels: usize, mode: MeterMode) -> Meter {
    Meter::new(config(hz, channels, mode)).unwrap()
}

/// Sample type and call sizes of a signal.
#[derive(Clone, Copy, Debug)]
enum InputForm {
    I16,
    I32,
    F32,
    F64,
    RaggedI16,
    RaggedI32,
    RaggedF32,
    RaggedF64,
}

const FORMS: [InputForm; 8] = [
    InputForm::F32,
    InputForm::RaggedF32,
    InputForm::F64,
    InputForm::RaggedF64,
    InputForm::I16,
    InputForm::RaggedI16,
    InputForm::I32,
    InputForm::RaggedI32,
];

impl InputForm {
    /// Feeds `signal` to the meter; full scale is 1.0.
    fn feed(self, meter: &mut Meter, signal: &[f64]) {
        // Integer types end at full scale: they get half, see `offset`.
        match self {
            Self::I16 | Self::RaggedI16 => self.feed_as(meter, &shorts(signal)),
            Self::I32 | Self::RaggedI32 => self.feed_as(meter, &longs(signal)),
            Self::F32 | Self::RaggedF32 => self.feed_as(meter, &floats(signal)),
            Self::F64 | Self::RaggedF64 => self.feed_as(meter, signal),
        }
    }

    fn feed_as<T: MeterSample>(self, meter: &mut Meter, signal: &[T]) {
        let ragged = !matches!(self, Self::I16 | Self::I32 | Self::F32 | Self::F64);
        let channels = meter.config().positions.len();
        let mut rest = signal;
        let mut call = 1;
        let most = if ragged { 30_011 } else { usize::MAX / channels };
        while !rest.is_empty() {
            // One frame, a few, many, none.
            call = if ragged { (call * 7 + 3) % most } else { most };
            let (now, behind) = rest.split_at((call * channels).min(rest.len()));
            meter.add(now);
            rest = behind;
        }
    }

    /// The meter's lower reading, because +1.41 does not fit into integers.
    fn offset(self) -> f64 {
        match self {
            Self::I16 | Self::RaggedI16 | Self::I32 | Self::RaggedI32 => 20.0 * 2f64.log10(),
            _ => 0.0,
        }
    }
}

/// Checks a signal in every form, each with a new meter.
fn in_every_form(config: &MeterConfig, signal: &[f64], check: impl Fn(&Meter, f64, InputForm)) {
    both_ways(config, signal, [InputForm::F64, InputForm::RaggedF64], &check);
    both_ways(config, &floats(signal), [InputForm::F32, InputForm::RaggedF32], &check);
    both_ways(config, &shorts(signal), [InputForm::I16, InputForm::RaggedI16], &check);
    both_ways(config, &longs(signal), [InputForm::I32, InputForm::RaggedI32], &check);
}

fn both_ways<T: MeterSample>(
    config: &MeterConfig,
    signal: &[T],
    forms: [InputForm; 2],
    check: impl Fn(&Meter, f64, InputForm),
) {
    for form in forms {
        let mut meter = Meter::new(config.clone()).unwrap();
        form.feed_as(&mut meter, signal);
        check(&meter, form.offset(), form);
    }
}

fn shorts(signal: &[f64]) -> Vec<i16> {
    signal.iter().map(|x| (x * 16_384.0).round_ties_even() as i16).collect()
}

fn longs(signal: &[f64]) -> Vec<i32> {
    signal.iter().map(|x| (x * 1_073_741_824.0).round_ties_even() as i32).collect()
}

fn floats(signal: &[f64]) -> Vec<f32> {
    signal.iter().map(|&x| x as f32).collect()
}

/// A stereo tone of 1 kHz whose level changes: (dBFS of the peak, seconds).
fn tone(hz: u32, parts: &[(f64, f64)]) -> Vec<f64> {
    let levels: Vec<_> = parts.iter().map(|&(db, seconds)| ([db; 2], seconds)).collect();
    tones(hz, &levels)
}

fn tones<const N: usize>(hz: u32, parts: &[([f64; N], f64)]) -> Vec<f64> {
    // Ten periods of 1 kHz are a whole number of frames at every one of the rates.
    let turn = hz as usize / 100;
    let sine = |frame: usize| (2.0 * PI * (frame as f64 * 1000.0 / f64::from(hz)).fract()).sin();
    let period: Vec<f64> = (0..turn).map(sine).collect();
    let mut out = Vec::new();
    let mut frame = 0;
    for (levels, seconds) in parts {
        let amplitudes = levels.map(|db| 10f64.powf(db / 20.0));
        for _ in 0..(seconds * f64::from(hz)).round() as usize {
            out.extend(amplitudes.map(|amplitude| amplitude * period[frame % turn]));
            frame += 1;
        }
    }
    out
}

fn assert_within(
    case: &str,
    hz: u32,
    form: InputForm,
    measured: f64,
    expected: f64,
    tolerance: f64,
) {
    let off = (measured - expected).abs();
    assert!(off <= tolerance, "{case} at {hz}, {form:?}: {measured}, not {expected} +-{tolerance}");
}

#[test]
fn tech_3341_cases_1_to_6_integrated_within_a_tenth() {
    for hz in RATES {
        let middle: [(f64, f64); 3] = [(-36.0, 10.0), (-23.0, 60.0), (-36.0, 10.0)];
        let outer = (-72.0, 10.0);
        let cases: [(_, _, Vec<(f64, f64)>); 5] = [
            ("1", -23.0, vec![(-23.0, 20.0)]),
            ("2", -33.0, vec![(-33.0, 20.0)]),
            ("3", -23.0, middle.to_vec()),
            ("4", -23.0, [&[outer], &middle[..], &[outer]].concat()),
            ("5", -23.0, vec![(-26.0, 20.0), (-20.0, 20.1), (-26.0, 20.0)]),
        ];
        for (case, expected, parts) in cases {
            let config = config(hz, 2, MeterMode::SHORT_TERM | MeterMode::INTEGRATED);
            in_every_form(&config, &tone(hz, &parts), |meter, offset, form| {
                let expected = expected - offset;
                let integrated = meter.integrated().unwrap().get();
                assert_within(case, hz, form, integrated, expected, 0.1);
                if case < "3" {
                    let momentary = meter.momentary().unwrap().get();
                    assert_within(case, hz, form, momentary, expected, 0.1);
                    let short_term = meter.short_term().unwrap().get();
                    assert_within(case, hz, form, short_term, expected, 0.1);
                }
            });
        }
        let five = tones(hz, &[([-28.0, -28.0, -24.0, -30.0, -30.0], 20.0)]);
        let six = tones(hz, &[([-28.0, -28.0, -24.0, SILENCE, -30.0, -30.0], 20.0)]);
        for (case, channels, signal) in [("6, 5.0", 5, five), ("6, 5.1", 6, six)] {
            let config = config(hz, channels, MeterMode::INTEGRATED);
            in_every_form(&config, &signal, |meter, offset, form| {
                let integrated = meter.integrated().unwrap().get();
                assert_within(case, hz, form, integrated, -23.0 - offset, 0.1);
            });
        }
    }
}

#[test]
fn tech_3341_cases_9_and_12_are_steady() {
    for hz in RATES {
        let nine = tone(hz, &[(-20.0, 1.34), (-30.0, 1.66)].repeat(5));
        let twelve = tone(hz, &[(-20.0, 0.18), (-30.0, 0.22)].repeat(25));
        for form in FORMS {
            // Read every 10 ms, whatever the sizes of the calls.
            let (mut s, mut m) =
                (meter(hz, 2, MeterMode::SHORT_TERM), meter(hz, 2, MeterMode::MOMENTARY));
            for (index, call) in nine.chunks(2 * hz as usize / 100).enumerate() {
                form.feed(&mut s, call);
                if index >= 300 {
                    let short_term = s.short_term().unwrap().get();
                    assert_within("9", hz, form, short_term, -23.0 - form.offset(), 0.1);
                }
            }
            for (index, call) in twelve.chunks(2 * hz as usize / 100).enumerate() {
                form.feed(&mut m, call);
                if index >= 100 {
                    let momentary = m.momentary().unwrap().get();
                    assert_within("12", hz, form, momentary, -23.0 - form.offset(), 0.1);
                }
            }
        }
    }
}

/// A level that follows `early` seconds of silence.
type Late = fn(early: f64, level: f64) -> Vec<(f64, f64)>;

#[test]
fn tech_3341_cases_10_11_13_14_maxima_whatever_the_calls() {
    let mode = MeterMode::MAXIMA | MeterMode::SHORT_TERM;
    let short_term: fn(&Meter) -> f64 = |meter| meter.max_short_term().unwrap().get();
    let momentary: fn(&Meter) -> f64 = |meter| meter.max_momentary().unwrap().get();
    let files: [(&str, f64, Late, _); 2] = [
        ("10", 0.15, |t, level| vec![(SILENCE, t), (level, 3.0), (SILENCE, 1.0)], short_term),
        ("13", 0.02, |t, level| vec![(SILENCE, t), (level, 0.4), (SILENCE, 1.0)], momentary),
    ];
    let live: [(&str, f64, Late, _); 2] = [
        ("11", 0.15, |t, level| vec![(SILENCE, t), (level, 3.0), (SILENCE, 3.0 - t)], short_term),
        ("14", 0.02, |t, level| vec![(SILENCE, t), (level, 0.4), (SILENCE, 0.4 - t)], momentary),
    ];
    for hz in RATES {
        let config = config(hz, 2, mode);
        for i in 0..20 {
            for (case, step, parts, read) in files {
                let file = tone(hz, &parts(f64::from(i) * step, -23.0));
                in_every_form(&config, &file, |meter, offset, form| {
                    assert_within(case, hz, form, read(meter), -23.0 - offset, 0.1);
                });
            }
        }
        for (case, step, parts, read) in live {
            let mut meters = FORMS.map(|_| Meter::new(config.clone()).unwrap());
            for i in 0..20 {
                let level = -38.0 + f64::from(i);
                let segment = tone(hz, &parts(f64::from(i) * step, level));
                for (form, meter) in FORMS.into_iter().zip(&mut meters) {
                    form.feed(meter, &segment);
                    assert_within(case, hz, form, read(meter), level - form.offset(), 0.1);
                }
            }
        }
    }
}

/// A stereo tone of a fraction of the rate, one second with fades of 10 ms.
fn peak_tone(hz: u32, divisor: f64, amplitude: f64, degrees: f64) -> Vec<f64> {
    let frames = hz as usize;
    let fade = f64::from(hz) / 100.0;
    let value = |frame: usize| {
        let edge = frame.min(frames - 1 - frame) as f64;
        let phase = 2.0 * PI * frame as f64 / divisor + degrees.to_radians();
        amplitude * (edge / fade).min(1.0) * phase.sin()
    };
    (0..frames).flat_map(|frame| [value(frame); 2]).collect()
}

/// Oversampling is 4, 2 and 1 times (BS.1770-4 annex 2 leaves it to the rate), so that the tones of
/// the document, fractions of 48 kHz, can be read at any rate; the same fractions of a higher rate
/// would be inaudible and cannot.
fn tone_scale(hz: u32) -> u32 {
    (hz / 48_000).max(1)
}

fn assert_true_peak(case: &str, hz: u32, signal: &[f64], expected: f64) {
    in_every_form(&config(hz, 2, MeterMode::TRUE_PEAK), signal, |meter, offset, form| {
        let measured = 20.0 * meter.true_peak(1).unwrap().log10() + offset;
        let fine = (expected - 0.4..=expected + 0.2).contains(&measured);
        assert!(fine, "{case} at {hz}, {form:?}: {measured}, not {expected} +0.2 -0.4");
    });
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
            let every = filtered.iter().skip(offset).step_by(fine);
            let signal: Vec<f64> = every.flat_map(|&value| [value; 2]).collect();
            assert_true_peak(["20", "21", "22", "23"][offset], hz, &signal, 0.0);
        }
    }
}

/// A windowed sinc that passes frequencies below half of the lower rate.
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
        let stereo = config(hz, 2, MeterMode::MOMENTARY);
        let mut mono = config(hz, 1, MeterMode::MOMENTARY);
        mono.positions = vec![ChannelPosition::DualMono];
        for (case, config, signal) in [
            ("2.9", stereo, tone(hz, &[(-18.0, 2.0)])),
            ("dual mono", mono, tones(hz, &[([-18.0], 2.0)])),
        ] {
            in_every_form(&config, &signal, |meter, offset, form| {
                let momentary = meter.momentary().unwrap().get();
                assert_within(case, hz, form, momentary, -18.0 - offset, 0.1);
            });
        }
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
            for range_hop in [RangeHop::Second, RangeHop::Tenth] {
                let mut config = config(hz, 2, MeterMode::RANGE);
                config.range_hop = range_hop;
                in_every_form(&config, &signal, |meter, _, form| {
                    assert_within(case, hz, form, meter.range().unwrap().get(), expected, 1.0);
                });
            }
        }
    }
}

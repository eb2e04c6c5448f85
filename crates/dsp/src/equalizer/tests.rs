//! The response compared with the analogue prototypes of the cookbook, and the artifacts of a
//! change.

use super::*;

const RATES: [u32; 4] = [8_000, 44_100, 48_000, 192_000];

fn band(shape: FilterType, hz: f64, gain: f64, q: f64) -> EqualizerBand {
    EqualizerBand { filter_type: shape, hz, gain: Db::new(gain), q }
}

fn equalizer(hz: u32, bands: &[EqualizerBand]) -> Equalizer {
    let mut new = Equalizer::new(SampleRate::new(hz).unwrap(), ChannelLayout::MONO);
    new.set(bands).unwrap();
    // The fade is over before the measurement.
    new.process(&mut vec![0.0; hz as usize]);
    new
}

/// The gain in dB of a sine of this frequency, in f32, after the transient response.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a test signal")]
fn measured(equalizer: &mut Equalizer, hz: f64) -> f64 {
    let rate = f64::from(equalizer.rate.hz());
    let sine = |frame: usize| (2.0 * PI * hz / rate * frame as f64).sin_cos();
    let frames = 2 * equalizer.rate.hz() as usize;
    let mut sound: Vec<f32> = (0..frames).map(|frame| 0.5 * sine(frame).0 as f32).collect();
    equalizer.reset();
    equalizer.process(&mut sound);
    let (mut re, mut im) = (0.0, 0.0);
    // Whole seconds have whole periods of whole frequencies.
    for (frame, sample) in sound.iter().enumerate().skip(frames / 2) {
        let (sin, cos) = sine(frame);
        re += f64::from(*sample) * sin;
        im += f64::from(*sample) * cos;
    }
    20.0 * (re.hypot(im) / (frames as f64 / 2.0) * 4.0).log10()
}

/// The response of the analogue prototype H(s) at the frequency to which the cookbook's bilinear
/// transform maps `hz`: computed in s and not in z.
fn prototype(band: &EqualizerBand, hz: f64, rate: f64) -> f64 {
    let warp = |hz: f64| (PI * hz / rate).tan();
    let w = warp(hz) / warp(band.hz);
    let (a, q) = (10f64.powf(band.gain.get() / 40.0), band.q);
    // Numerator and denominator as (real, imaginary) parts of polynomials in s = jw.
    let (top, bottom) = match band.filter_type {
        FilterType::LowPass => ((1.0, 0.0), (1.0 - w * w, w / q)),
        FilterType::HighPass => ((-w * w, 0.0), (1.0 - w * w, w / q)),
        FilterType::Notch => ((1.0 - w * w, 0.0), (1.0 - w * w, w / q)),
        FilterType::AllPass => ((1.0 - w * w, -w / q), (1.0 - w * w, w / q)),
        FilterType::Peaking => ((1.0 - w * w, w * a / q), (1.0 - w * w, w / (a * q))),
        FilterType::LowShelf => {
            ((a * (a - w * w), a * a.sqrt() / q * w), (1.0 - a * w * w, a.sqrt() / q * w))
        }
        FilterType::HighShelf => {
            ((a * (1.0 - a * w * w), a * a.sqrt() / q * w), (a - w * w, a.sqrt() / q * w))
        }
    };
    20.0 * (f64::hypot(top.0, top.1) / f64::hypot(bottom.0, bottom.1)).log10()
}

#[test]
fn every_shape_has_the_response_of_the_formula_at_every_rate() {
    for hz in RATES {
        let rate = f64::from(hz);
        for shape in FilterType::ALL {
            for (at, gain, q) in [(20.0, 12.0, 0.71), (1_000.0, -9.5, 2.0), (3_000.0, 24.0, 0.3)] {
                let band = band(shape, at, gain, q);
                let mut equalizer = equalizer(hz, &[band]);
                for probe in [10.0, 20.0, 100.0, 999.0, 1_000.0, 2_500.0, 3_600.0] {
                    let expected = prototype(&band, probe, rate);
                    if expected < -60.0 {
                        continue;
                    }
                    let found = measured(&mut equalizer, probe);
                    assert!(
                        (found - expected).abs() < 0.02,
                        "{band:?} {hz}: {probe} Hz {found}, {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn passes_and_notches_take_away_and_bands_add_up() {
    let mut notch = equalizer(48_000, &[band(FilterType::Notch, 1_000.0, 0.0, 5.0)]);
    assert!(measured(&mut notch, 1_000.0) < -100.0);
    let three = [
        band(FilterType::Peaking, 500.0, 6.0, 1.0),
        band(FilterType::HighShelf, 2_000.0, -4.0, 0.7),
        band(FilterType::HighPass, 100.0, 0.0, 0.71),
    ];
    let mut all = equalizer(44_100, &three);
    for probe in [50.0, 480.0, 5_000.0] {
        let sum: f64 = three.iter().map(|band| prototype(band, probe, 44_100.0)).sum();
        assert!((measured(&mut all, probe) - sum).abs() < 0.02, "{probe}");
    }
}

#[test]
fn a_low_band_at_a_high_rate_adds_no_noise() {
    let mut equalizer = equalizer(192_000, &[band(FilterType::Peaking, 20.0, 12.0, 10.0)]);
    let tone = |frame: u32| 0.1 * f64::sin(2.0 * PI * 1_000.0 / 192_000.0 * f64::from(frame));
    #[allow(clippy::cast_possible_truncation, reason = "a test signal")]
    let mut sound: Vec<f32> = (0..576_000).map(|frame| tone(frame) as f32).collect();
    equalizer.process(&mut sound);
    let found = residual(&sound[384_000..], 1_000.0, 192_000.0);
    assert!(found < -110.0, "{found} dB beside the tone");
}

/// The loudest residual beside this tone, in dBFS: what remains after a fit of its sine and cosine,
/// in pieces of 10 ms so that a changing gain is followed.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test signal"
)]
fn residual(sound: &[f32], hz: f64, rate: f64) -> f64 {
    let basis = |frame: usize| (2.0 * PI * hz / rate * frame as f64).sin_cos();
    let length = (rate / 100.0) as usize;
    let mut worst: f64 = 0.0;
    for (piece, part) in sound.chunks_exact(length).enumerate() {
        let at = piece * length;
        // A row for each sample: four unknowns, by the normal equations of a least squares fit.
        let mut rows = Vec::new();
        for (offset, sample) in part.iter().enumerate() {
            let ((sin, cos), way) = (basis(at + offset), 2.0 * offset as f64 / length as f64 - 1.0);
            rows.push(([sin, cos, sin * way, cos * way], f64::from(*sample)));
        }
        let fit = solve(&rows);
        for (row, sample) in rows {
            let model: f64 = row.iter().zip(fit).map(|(x, k)| x * k).sum();
            worst = worst.max((sample - model).abs());
        }
    }
    20.0 * worst.log10()
}

/// Least squares by Gauss and Jordan.
fn solve(rows: &[([f64; 4], f64)]) -> [f64; 4] {
    let mut m = [[0.0; 5]; 4];
    for (x, y) in rows {
        for i in 0..4 {
            for j in 0..4 {
                m[i][j] += x[i] * x[j];
            }
            m[i][4] += x[i] * y;
        }
    }
    for i in 0..4 {
        let pivot = m[i][i];
        m[i].iter_mut().for_each(|value| *value /= pivot);
        let row = m[i];
        for (_, other) in m.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = other[i];
            other.iter_mut().zip(row).for_each(|(value, of)| *value -= factor * of);
        }
    }
    m.map(|row| row[4])
}

#[test]
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a test signal")]
fn a_change_of_bands_is_no_click() {
    let tone = |frame: usize| (0.25 * (2.0 * PI * 1_000.0 / 48_000.0 * frame as f64).sin()) as f32;
    let mut sound: Vec<f32> = (0..96_000).map(tone).collect();
    let mut equalizer = Equalizer::new(SampleRate::HZ_48000, ChannelLayout::MONO);
    let settings = [
        vec![band(FilterType::Peaking, 1_000.0, -12.0, 1.0)],
        vec![
            band(FilterType::Peaking, 1_000.0, 12.0, 1.0),
            band(FilterType::LowShelf, 200.0, 9.0, 0.7),
        ],
        vec![],
        vec![band(FilterType::HighShelf, 900.0, -10.0, 0.7)],
    ];
    for (step, block) in sound.chunks_mut(960).enumerate() {
        if step % 20 == 10 {
            equalizer.set(&settings[step / 20 % 4]).unwrap();
        }
        equalizer.process(block);
    }
    let found = residual(&sound, 1_000.0, 48_000.0);
    assert!(found < -60.0, "{found} dB beside the tone");
    // The measurement detects a click.
    sound[50_000] += 0.005;
    assert!(residual(&sound, 1_000.0, 48_000.0) > -50.0);
}

#[test]
fn without_bands_sound_passes_bit_by_bit_and_changes_in_a_row_end_in_the_last() {
    let mut equalizer = Equalizer::new(SampleRate::HZ_48000, ChannelLayout::STEREO);
    let mut sound = [0.1, f32::MIN_POSITIVE / 2.0, -0.0];
    let before = sound.map(f32::to_bits);
    equalizer.process(&mut sound);
    assert_eq!(sound.map(f32::to_bits), before);
    for gain in [3.0, -3.0, 6.0] {
        equalizer.set(&[band(FilterType::Peaking, 1_000.0, gain, 1.0)]).unwrap();
        equalizer.process(&mut [0.0; 200]);
    }
    equalizer.set(&[]).unwrap();
    equalizer.process(&mut [0.0; 2 * 9_600]);
    assert!(equalizer.is_idle());
    let mut bad = [f32::NAN, f32::INFINITY, 0.5, 0.5];
    equalizer.set(&[band(FilterType::LowPass, 1_000.0, 0.0, 1.0)]).unwrap();
    equalizer.process(&mut bad);
    assert!(bad.iter().all(|x| x.is_finite()));
}

#[test]
fn silence_becomes_silence_and_no_denormal_number() {
    let mut equalizer = equalizer(8_000, &[band(FilterType::Peaking, 20.0, 24.0, 20.0)]);
    equalizer.process(&mut [1.0; 960]);
    // The filter rings with a time constant of more than a second.
    for _ in 0..120 {
        equalizer.process(&mut [0.0; 8_000]);
    }
    assert!(equalizer.current.state.iter().flatten().all(|value| value.to_bits() << 1 == 0));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut equalizer = Equalizer::new(SampleRate::new(8_000).unwrap(), ChannelLayout::MONO);
    for (wrong, why) in [
        (band(FilterType::Peaking, 3_700.0, 0.0, 1.0), "hz: 3700 Hz is not between 10 and 3600"),
        (band(FilterType::Peaking, 100.0, 25.0, 1.0), "gain_db: 25 dB is not between -24 and 24"),
        (band(FilterType::Notch, 100.0, 0.0, 0.0), "q: 0 is not between 0.1 and 20"),
        (band(FilterType::Notch, f64::NAN, 0.0, 1.0), "hz: NaN Hz is not between 10 and 3600"),
    ] {
        assert_eq!(equalizer.set(&[wrong]).unwrap_err().to_string(), why);
        assert!(equalizer.is_idle());
    }
}

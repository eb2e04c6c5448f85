//! How far a decoded sound is from the original.

use std::f64::consts::{PI, TAU};

/// Signal-to-noise ratio of the waveform in dB.
pub(crate) fn snr(sound: &[f32], heard: &[f32]) -> f64 {
    let (mut signal, mut noise) = (0.0, f64::MIN_POSITIVE);
    for (wanted, heard) in sound.iter().zip(heard) {
        signal += f64::from(*wanted).powi(2);
        noise += f64::from(wanted - heard).powi(2);
    }
    10.0 * (signal / noise).log10()
}

/// Noise-to-mask ratio in dB, averaged over time, bands of half a Bark and channels: how much of
/// the noise the sound covers. After ITU-R BS.1387, without its model of the ear's response in
/// time.
pub(crate) fn nmr(sound: &[f32], heard: &[f32], channels: usize) -> f64 {
    let (mut sum, mut count) = (0.0, 0_u32);
    for channel in 0..channels {
        let pick = |samples: &[f32]| -> Vec<f64> {
            samples.iter().skip(channel).step_by(channels).map(|&sample| sample.into()).collect()
        };
        let (sound, heard) = (pick(sound), pick(heard));
        for (sound, heard) in
            sound.windows(WINDOW).step_by(WINDOW / 2).zip(heard.windows(WINDOW).step_by(WINDOW / 2))
        {
            let error: Vec<f64> = sound.iter().zip(heard).map(|(a, b)| a - b).collect();
            let (signal, noise) = (band_powers(sound), band_powers(&error));
            if signal.iter().sum::<f64>() < SILENCE {
                continue;
            }
            let mask = mask(&signal);
            sum += mask.iter().zip(&noise).map(|(mask, noise)| noise / mask).sum::<f64>();
            count += u32::try_from(mask.len()).unwrap_or(0);
        }
    }
    10.0 * (sum / f64::from(count.max(1))).max(1e-12).log10()
}

/// What the sound covers in each band: its own power spread by 27 dB a Bark downwards and 10 dB
/// upwards, less 3 dB, and more in the treble.
fn mask(signal: &[f64]) -> Vec<f64> {
    (0..signal.len())
        .map(|band| {
            let spread: f64 = signal
                .iter()
                .enumerate()
                .map(|(from, power)| {
                    let barks = (band as f64 - from as f64) / BANDS_PER_BARK;
                    let slope = if barks < 0.0 { 27.0 * barks } else { -10.0 * barks };
                    power * 10_f64.powf(slope / 10.0)
                })
                .sum();
            let bark = band as f64 / BANDS_PER_BARK;
            let offset = if bark <= 12.0 { 3.0 } else { 0.25 * bark };
            spread * 10_f64.powf(-offset / 10.0) + THRESHOLD
        })
        .collect()
}

fn band_powers(samples: &[f64]) -> Vec<f64> {
    let mut re: Vec<f64> = samples
        .iter()
        .enumerate()
        .map(|(at, sample)| sample * (0.5 - 0.5 * (TAU * at as f64 / WINDOW as f64).cos()))
        .collect();
    let mut im = vec![0.0; WINDOW];
    fourier(&mut re, &mut im);
    let mut bands = vec![0.0; (bark(HIGHEST) * BANDS_PER_BARK) as usize];
    for bin in 1..WINDOW / 2 {
        let hz = bin as f64 * 48_000.0 / WINDOW as f64;
        if let Some(band) = bands.get_mut((bark(hz) * BANDS_PER_BARK) as usize) {
            *band += (re[bin].powi(2) + im[bin].powi(2)) / (WINDOW as f64).powi(2);
        }
    }
    bands
}

fn bark(hz: f64) -> f64 {
    7.0 * (hz / 650.0).asinh()
}

/// The discrete Fourier transform, by halves.
fn fourier(re: &mut [f64], im: &mut [f64]) {
    let length = re.len();
    let bits = length.trailing_zeros();
    for at in 0..length {
        let other = at.reverse_bits() >> (usize::BITS - bits);
        if at < other {
            re.swap(at, other);
            im.swap(at, other);
        }
    }
    let mut half = 1;
    while half < length {
        for begin in (0..length).step_by(2 * half) {
            for at in begin..begin + half {
                let angle = -PI * (at - begin) as f64 / half as f64;
                let (sin, cos) = angle.sin_cos();
                let (other_re, other_im) = (re[at + half], im[at + half]);
                let (turned_re, turned_im) =
                    (other_re * cos - other_im * sin, other_re * sin + other_im * cos);
                (re[at + half], im[at + half]) = (re[at] - turned_re, im[at] - turned_im);
                (re[at], im[at]) = (re[at] + turned_re, im[at] + turned_im);
            }
        }
        half *= 2;
    }
}

/// 43 ms.
const WINDOW: usize = 2_048;
const BANDS_PER_BARK: f64 = 2.0;
/// In Hz. Above, nothing is judged.
const HIGHEST: f64 = 15_500.0;
/// Windows below -60 dB are not judged.
const SILENCE: f64 = 1e-6;
/// What is not heard at all.
const THRESHOLD: f64 = 1e-10;

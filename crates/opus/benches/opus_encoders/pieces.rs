//! What is encoded: signals that are hard for a transform codec, music and speech.

use std::f64::consts::TAU;
use std::process::Command;

/// A sound of some seconds, interleaved at 48 kHz, and the bit rates in kbit/s to try.
pub(crate) struct Piece {
    pub(crate) name: &'static str,
    pub(crate) channels: usize,
    pub(crate) kbps: &'static [u32],
    pub(crate) sound: Vec<f32>,
}

/// All pieces; those that need a missing program are left out, with a line.
pub(crate) fn pieces() -> Vec<Piece> {
    let stereo = |name, kbps, sound| Piece { name, channels: 2, kbps, sound };
    let mut pieces = vec![
        stereo("tone 6.5 kHz", &[56], tones(&[6_500.0], 1.0)),
        stereo("tone 8 kHz", &[64], tones(&[8_000.0], 1.0)),
        stereo("tone 9.6 kHz", &[96], tones(&[9_600.0], 1.0)),
        stereo("tone 11.3 kHz", &[48, 64, 72, 96, 128], tones(&[11_300.0], 1.0)),
        stereo("tone 12.5 kHz, 3 dB to the left", &[88, 96], tones(&[12_500.0], 0.7)),
        stereo("tones 2.1, 5.8, 11.3 kHz", &[64, 96], tones(&[2_100.0, 5_800.0, 11_300.0], 1.0)),
        stereo("bells", &[48, 64, 96, 128, 192], bells()),
        stereo("castanets", &[48, 64, 96, 128, 192], castanets()),
        stereo("sweep 50 Hz to 18 kHz", &[48, 64, 96, 128, 192], sweep()),
        stereo("chord", &[32, 48, 64, 96, 128, 192], chord()),
    ];
    let file = "/usr/share/games/frozen-bubble/snd/frozen-mainzik-1p.ogg";
    let music = format!("ffmpeg -nostdin -v error -ss 20 -t 8 -i {file} -ar 48000 -ac 2");
    if let Some(sound) = output(&music) {
        pieces.push(stereo("music", &[32, 48, 64, 96, 128, 192], sound));
    }
    let spoken = |channels: &str| {
        let spoken = "espeak-ng -v en+klatt4 --stdout \"The birch canoe slid on the smooth planks. \
                      Glue the sheet to the dark blue background. Rice is often served in round \
                      bowls.\"";
        output(&format!("{spoken} | ffmpeg -nostdin -v error -i - -ar 48000 -ac {channels}"))
    };
    if let Some(sound) = spoken("1") {
        let kbps = &[12, 16, 24, 32, 48, 64];
        pieces.push(Piece { name: "speech", channels: 1, kbps, sound });
    }
    if let Some(sound) = spoken("2") {
        pieces.push(stereo("speech", &[24, 32, 48, 64, 96], sound));
    }
    pieces
}

/// The samples that a command writes; `None` if it fails.
fn output(command: &str) -> Option<Vec<f32>> {
    let output = Command::new("sh").args(["-c", &format!("{command} -f f32le -")]).output();
    let output = output.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    let Some(output) = output else {
        println!("skipped: no {}", command.split_whitespace().next().unwrap_or_default());
        return None;
    };
    Some(output.stdout.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

fn stereo(seconds: f64, mut at: impl FnMut(f64) -> (f64, f64)) -> Vec<f32> {
    (0..(seconds * 48_000.0) as u32)
        .flat_map(|n| {
            let (left, right) = at(f64::from(n) / 48_000.0);
            [left as f32, right as f32]
        })
        .collect()
}

/// Sines of equal level, -10 dB in all; `right` is the factor of the right channel.
fn tones(hz: &[f64], right: f64) -> Vec<f32> {
    stereo(3.0, |time| {
        let sum: f64 = hz.iter().map(|hz| (TAU * hz * time).sin()).sum();
        let tone = 0.316 * sum / hz.len() as f64;
        (tone, right * tone)
    })
}

/// A bar of metal struck four times a second, at changing pitches and places.
fn bells() -> Vec<f32> {
    stereo(5.0, |time| {
        let number = (time * 4.0).floor();
        let since = time - number / 4.0;
        let pitch = 1_800.0 * (1.0 + 0.19 * (number * 2.4).sin());
        // The modes of a free bar.
        let modes = [(1.0, 1.0), (2.756, 0.6), (5.404, 0.4)];
        let bell: f64 = modes
            .into_iter()
            .map(|(ratio, level)| {
                level * (-since * (2.0 + 3.0 * ratio)).exp() * (TAU * pitch * ratio * since).sin()
            })
            .sum();
        let place = 0.5 + 0.4 * number.sin();
        (0.3 * bell * (1.0 - place), 0.3 * bell * place)
    })
}

/// Clicks of two resonances, in a rhythm of eight a second with gaps.
fn castanets() -> Vec<f32> {
    let mut noise = 1_u32;
    stereo(5.0, move |time| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let hiss = f64::from(noise >> 8) / 8_388_608.0 - 1.0;
        let number = (time * 8.0).floor();
        let since = time - number / 8.0;
        let struck = f64::from(u8::from(number % 5.0 != 2.0));
        let ring = (TAU * 1_400.0 * since).sin() + 0.7 * (TAU * 2_700.0 * since).sin();
        let click =
            struck * (0.4 * ring * (-since * 180.0).exp() + 0.5 * hiss * (-since * 900.0).exp());
        (click, 0.6 * click + 0.0005 * hiss)
    })
}

fn sweep() -> Vec<f32> {
    let ratio = (18_000.0_f64 / 50.0).ln();
    stereo(5.0, |time| {
        let phase = 50.0 * 5.0 / ratio * ((time / 5.0 * ratio).exp() - 1.0);
        let tone = 0.4 * (TAU * phase).sin();
        (tone, 0.8 * tone)
    })
}

/// Struck twice a second, with a little noise.
fn chord() -> Vec<f32> {
    let mut noise = 1_u32;
    stereo(6.0, move |time| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let hiss = f64::from(noise >> 8) / 16_777_216.0 - 0.5;
        let notes = [220.0, 277.2, 329.6, 1_318.5];
        let chord: f64 = notes.iter().map(|hz| (time * hz * TAU).sin()).sum();
        let sound = 0.15 * chord * (-2.0 * (time % 0.5)).exp();
        (sound + 0.002 * hiss, sound - 0.002 * hiss)
    })
}

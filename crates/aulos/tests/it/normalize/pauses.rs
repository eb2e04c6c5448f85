//! A fade-out and room tone in a file, in every live mode. The judge is the gain of each 100 ms:
//! what comes out of `aulos normalize` over what went in, both decoded by ffmpeg.

use std::path::Path;
use std::process::Command;

use super::{decoded, ffmpeg, normalize};
use crate::common::scratch;

/// Frames of 100 ms, and their samples.
const FRAMES: usize = 4_800;
const TENTH: usize = 2 * FRAMES;
/// Below all peaks, so that no limiter is in the gain.
const TARGET: &str = "-30";
/// Tenths of a second: a fade of 40 dB, and room tone of 27 dB less.
const FADE: core::ops::Range<usize> = 300..420;
const TONE: core::ops::Range<usize> = 600..680;
const LENGTH: usize = 800;

/// A file of samples, stereo at 48 kHz.
fn write(path: &Path, samples: &[f32]) {
    let raw = path.with_extension("f32");
    let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(&raw, bytes).unwrap();
    let arguments = "-f f32le -ar 48000 -ac 2 -i FILE -c:a pcm_f32le FILE";
    ffmpeg(&arguments.split(' ').collect::<Vec<_>>(), &[&raw, path]);
}

fn samples(arguments: &str, from: &Path, folder: &Path) -> Vec<f32> {
    let to = folder.join("decoded.wav");
    let words: Vec<_> = arguments.split(' ').collect();
    let all = [&words, &["-ac", "2", "-ar", "48000", "-c:a", "pcm_f32le", "FILE"][..]].concat();
    ffmpeg(&all, &[from, &to]);
    decoded(&to)
}

/// As often as it takes for 80 s, at -26 dBFS.
fn looped(part: &[f32]) -> Vec<f32> {
    let rms = (part.iter().map(|x| x * x).sum::<f32>() / part.len() as f32).sqrt();
    let gain = 10f32.powf(-26.0 / 20.0) / rms;
    let all = part.iter().copied().cycle().take(LENGTH * TENTH);
    all.map(|x| x * gain).collect()
}

fn programmes(folder: &Path) -> Vec<(&'static str, Vec<f32>)> {
    let spoken = folder.join("spoken.wav");
    let text = "The aulos was the double pipe of the Greeks: two reeds, one breath. ".repeat(9);
    let status =
        Command::new("espeak-ng").args(["-s", "150", "-w"]).arg(&spoken).arg(text).status();
    assert!(status.expect("espeak-ng: see scripts/test-setup").success());
    let music = Path::new("/usr/share/games/frozen-bubble/snd/introzik.ogg");
    let noise = folder.join("noise.wav");
    super::generated(&noise, "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=80", "-ac 2");
    vec![
        ("noise", looped(&decoded(&noise))),
        ("speech", looped(&samples("-i FILE", &spoken, folder)[..380 * TENTH])),
        ("music", looped(&samples("-ss 6 -t 20 -i FILE", music, folder))),
    ]
}

/// With the fade and the room tone in it.
fn disturbed(sound: &[f32], noise: &[f32]) -> Vec<f32> {
    let mut out = sound.to_vec();
    let faded = &mut out[FADE.start * TENTH..FADE.end * TENTH];
    for (at, x) in faded.iter_mut().enumerate() {
        let share = at as f32 / (FADE.len() * TENTH) as f32;
        *x *= 10f32.powf(-40.0 / 20.0 * share);
    }
    let tone = TONE.start * TENTH..TONE.end * TENTH;
    let quiet = 10f32.powf(-27.0 / 20.0);
    out[tone.clone()].iter_mut().zip(&noise[tone]).for_each(|(out, x)| *out = quiet * x);
    out
}

/// The gain in dB of each 100 ms.
fn gains(sound: &[f32], mode: &str, folder: &Path) -> Vec<f64> {
    let (from, to) = (folder.join("in.wav"), folder.join("out.wav"));
    write(&from, sound);
    let (code, _, said) =
        normalize(&["--mode", mode, "--lra", "7", "--target", TARGET], &from, &to);
    assert_eq!(code, 0, "{mode}: {said}");
    let power = |part: &[f32]| part.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let out = decoded(&to);
    assert_eq!(out.len(), sound.len(), "{mode}");
    let parts = sound.chunks(TENTH).zip(out.chunks(TENTH));
    parts.map(|(before, after)| 10.0 * (power(after) / power(before)).log10()).collect()
}

fn mean(gains: &[f64]) -> f64 {
    // Between words there is digital silence, which has no gain.
    let finite: Vec<f64> = gains.iter().copied().filter(|gain| gain.is_finite()).collect();
    finite.iter().sum::<f64>() / finite.len() as f64
}

#[test]
fn a_fade_out_and_room_tone_are_not_raised_in_any_live_mode() {
    let folder = scratch();
    let programmes = programmes(&folder);
    let noise = &programmes[0].1;
    for (name, plain) in &programmes {
        let with = disturbed(plain, noise);
        for mode in ["full", "mid", "low"] {
            let (with, without) = (gains(&with, mode, &folder), gains(plain, mode, &folder));
            for (what, range, most) in [("fade", FADE, 5.0), ("room tone", TONE, 2.0)] {
                let before = mean(&with[range.start - 10..range.start]);
                let rise = with[range.clone()]
                    .iter()
                    .copied()
                    .filter(|x| x.is_finite())
                    .fold(f64::MIN, f64::max)
                    - before;
                let after = range.end..range.end + 5;
                let back = mean(&with[after.clone()]) - mean(&without[after]);
                println!("{name}, {mode}, {what}: {rise:+.1} dB, afterwards {back:+.1} dB");
                assert!(
                    (-3.0..=most).contains(&rise),
                    "{name}, {mode}: the {what} rises by {rise} dB"
                );
                assert!(back <= 1.5, "{name}, {mode}: {back:+} dB after the {what}");
            }
        }
    }
}

//! Common parts of the interoperability tests: signals, a minimal Ogg, and ffmpeg as the reference.

pub(crate) mod ogg;

use std::path::PathBuf;
use std::process::Command;

use aulos_core::{Block, Frames, SampleSpec};
use aulos_engine::encode::Encoder;

/// Runs ffmpeg; `{out}` in `arguments` is a file whose contents are returned.
///
/// Panics when ffmpeg is missing or reports an error: without the reference a test proves nothing.
pub(crate) fn ffmpeg(name: &str, input: &[u8], arguments: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (from, to) = (folder.join(format!("{name}.in")), folder.join(format!("{name}.out")));
    std::fs::write(&from, input).expect("a file in the target folder");
    let arguments = arguments
        .split_whitespace()
        .map(|word| match word {
            "{in}" => from.clone().into_os_string(),
            "{out}" => to.clone().into_os_string(),
            _ => word.into(),
        })
        .collect::<Vec<_>>();
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-v", "error", "-y"])
        .args(arguments)
        .output()
        .expect("ffmpeg must be installed: it is the judge of this test");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "ffmpeg: {complaints}");
    let result = std::fs::read(&to).expect("ffmpeg wrote its output");
    for file in [from, to] {
        std::fs::remove_file(file).expect("what was written can be removed");
    }
    result
}

/// The report of opusinfo on a stream; `None`, and a line on standard error, where it is not
/// installed.
pub(crate) fn opusinfo(name: &str, stream: &[u8]) -> Option<String> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.opus"));
    std::fs::write(&path, stream).expect("a file in the target folder");
    let output = Command::new("opusinfo").arg(&path).output();
    std::fs::remove_file(path).expect("what was written can be removed");
    let Ok(output) = output else {
        println!("skipped: no opusinfo");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("WARNING"), "opusinfo: {text}");
    Some(text)
}

/// Encodes all of `samples` (interleaved) in blocks of `frames`; the last one is padded with
/// silence.
pub(crate) fn encode(encoder: &mut dyn Encoder, frames: usize, samples: &[f32]) -> Vec<Vec<u8>> {
    let SampleSpec { rate, layout, .. } = encoder.spec();
    let length = frames * layout.channels();
    let mut block = Block::with_capacity(rate, layout, length);
    samples
        .chunks(length)
        .map(|part| {
            block.reset(rate, layout);
            block.resize(Frames::from(frames));
            block.samples_mut()[..part.len()].copy_from_slice(part);
            let mut out = Vec::new();
            encoder.encode(&block, &mut out).expect("the block has the encoder's shape");
            out
        })
        .collect()
}

/// A music-like signal, stereo at 48 kHz: a chord per beat, each note with its overtones and a
/// decay, a hi-hat, a bass; panned.
pub(crate) fn music(seconds: f64) -> Vec<f32> {
    let frames = (seconds * 48_000.0) as usize;
    let mut noise = Noise(1);
    let chords = [[220.0, 277.2, 329.6], [196.0, 246.9, 293.7], [174.6, 220.0, 261.6]];
    let mut samples = Vec::with_capacity(2 * frames);
    for n in 0..frames {
        let time = n as f64 / 48_000.0;
        let beat = (time * 2.0) as usize;
        let since = time - beat as f64 / 2.0;
        let (mut left, mut right) = (0.0, 0.0);
        for (voice, hz) in chords[beat % 3].into_iter().enumerate() {
            for overtone in 1..8 {
                let number = f64::from(overtone);
                let level = (-since * (2.0 + number)).exp() / (number * number);
                let tone = level * (std::f64::consts::TAU * hz * number * time).sin();
                let pan = 0.3 + 0.2 * voice as f64;
                left += tone * (1.0 - pan);
                right += tone * pan;
            }
        }
        let bass = 0.5 * (std::f64::consts::TAU * 55.0 * time).sin();
        let hiss = 0.01 * (-((time * 4.0) % 1.0) * 20.0).exp() * f64::from(noise.next());
        samples.push((0.3 * (left + bass) + hiss) as f32);
        samples.push((0.3 * (right + bass) + hiss) as f32);
    }
    samples
}

/// A tone with fast vibrato on the left, struck notes on both sides, stereo at 48 kHz: hard for
/// block-based codecs.
pub(crate) fn sweep(seconds: f64) -> Vec<f32> {
    use std::f64::consts::TAU;
    (0..(seconds * 48_000.0) as usize)
        .flat_map(|n| {
            let time = n as f64 / 48_000.0;
            let strike = 0.4 * (-2.0 * (time % 0.5)).exp();
            let bass = 0.3 * (TAU * 55.0 * time).sin();
            let wander = 0.2 * (TAU * (300.0 + 200.0 * (TAU * 3.0 * time).sin()) * time).sin();
            let left = strike * (TAU * 220.0 * time).sin() + bass + wander;
            [left as f32, (strike * (TAU * 277.0 * time).sin() + bass) as f32]
        })
        .collect()
}

/// White noise from -1 to 1, reproducible.
pub(crate) struct Noise(pub(crate) u32);

impl Noise {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / 8_388_608.0 - 1.0
    }
}

/// Signal-to-noise ratio of `output` against `input`, in dB.
pub(crate) fn snr(input: &[f32], output: &[f32]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (&input, &output) in input.iter().zip(output) {
        signal += f64::from(input).powi(2);
        noise += (f64::from(output) - f64::from(input)).powi(2);
    }
    10.0 * (signal / noise).log10()
}

/// f32 little endian.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

//! A test signal, a temporary directory, and ffmpeg.

#![allow(clippy::cast_possible_truncation, reason = "a signal is made of rounded numbers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aulos_blackbox::scratch::ScratchDir;

/// Frames of the signal: two seconds plus a prime remainder, so that no codec's frame size divides
/// it.
pub(super) const FRAMES: usize = 88_661;

/// A temporary directory of one test.
pub(super) struct Folder(ScratchDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(ScratchDir::new("decode").unwrap())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The signal at `rate` with `bits` bits, encoded by ffmpeg with `arguments`.
    pub(super) fn encoded(&self, name: &str, rate: u32, bits: u32, arguments: &str) -> PathBuf {
        let bytes: Vec<u8> = signal(rate, bits).iter().flat_map(|s| s.to_le_bytes()).collect();
        let source = self.write(&format!("{name}.source"), &bytes);
        let path = self.file(name);
        ffmpeg(&["-f", "s32le", "-ar", &rate.to_string(), "-ac", "2"], &source, arguments, &path);
        path
    }
}

fn ffmpeg(input: &[&str], source: &Path, arguments: &str, to: &Path) {
    let status = Command::new("ffmpeg")
        .args(["-nostdin", "-y", "-loglevel", "error", "-bitexact"])
        .args(input)
        .arg("-i")
        .arg(source)
        .args(arguments.split_whitespace())
        .args(["-metadata", "title=Two lines", "-metadata", "artist=Nobody"])
        .arg(to)
        .stdout(Stdio::null())
        .status()
        .expect("these tests need ffmpeg: install it (apt-get install ffmpeg)");
    assert!(status.success(), "ffmpeg {arguments}");
}

/// Stereo, interleaved, 32 bits of which the upper `bits` are used: a sweep against a chord.
pub(super) fn signal(rate: u32, bits: u32) -> Vec<i32> {
    let mut samples = Vec::with_capacity(2 * FRAMES);
    for n in 0..FRAMES {
        let t = n as f64 / f64::from(rate);
        let tone = |hz: f64| (core::f64::consts::TAU * hz * t).sin();
        let left = 0.3 * tone(200.0 + 400.0 * t) + 0.1 * tone(3_000.0);
        let right = 0.2 * tone(330.0) + 0.2 * tone(440.0) + 0.1 * tone(550.0);
        // Loud first and last frames, so that the loss of one is detected.
        let edge = if n == 0 || n == FRAMES - 1 { 0.05 } else { 0.0 };
        for value in [left + edge, right - edge] {
            samples.push(((value * 2_147_483_647.0) as i32) >> (32 - bits) << (32 - bits));
        }
    }
    samples
}

/// The same in the working format.
pub(super) fn signal_f32(rate: u32, bits: u32) -> Vec<f32> {
    signal(rate, bits).into_iter().map(|s| (f64::from(s) / 2_147_483_648.0) as f32).collect()
}

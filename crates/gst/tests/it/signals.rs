//! Test signals, files of them, and other programs as judges.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Speech-like noise in bursts of changing level, interleaved: never silent for long, with a
/// loudness range of some LU.
pub(crate) fn programme(rate: usize, channels: usize, seconds: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut low = vec![0.0f32; channels];
    let mut out = Vec::with_capacity(rate * channels * seconds);
    for frame in 0..rate * seconds {
        let time = frame as f32 / rate as f32;
        let level = 0.05 * (1.0 + 0.9 * (time * 4.0).sin()) * (1.0 + 0.4 * (time * 0.4).sin());
        for low in &mut low {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = (state >> 8) as f32 / 8_388_608.0 - 1.0;
            *low += 0.2 * (noise - *low);
            out.push(level * *low * 2.0);
        }
    }
    out
}

pub(crate) fn bytes(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A float WAVE file.
pub(crate) fn write_wave(path: &Path, rate: u32, channels: u16, samples: &[f32]) {
    let data = bytes(samples);
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend(3u16.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(channels) * 4).to_le_bytes());
    file.extend((channels * 4).to_le_bytes());
    file.extend(32u16.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    std::fs::write(path, file).expect("a file can be written");
}

/// The content of the `data` chunk.
pub(crate) fn wave_data(path: &Path) -> Vec<u8> {
    let file = std::fs::read(path).expect("the file was written");
    let at = file.windows(4).position(|bytes| bytes == b"data").expect("a data chunk");
    let length = u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
    file[at + 8..file.len().min(at + 8 + length)].to_vec()
}

/// A folder of a test's own, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _absent = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder can be made");
    path
}

/// The program `aulos`, from `AULOS_TEST_PROGRAM` or the target folder of the workspace.
pub(crate) fn aulos() -> Option<PathBuf> {
    let given = std::env::var_os("AULOS_TEST_PROGRAM").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../../debug/aulos");
    let path = given.unwrap_or_else(beside);
    let found = path.is_file();
    if !found {
        println!("skipped: no aulos (cargo build --bin aulos)");
    }
    found.then_some(path)
}

/// Integrated loudness in LUFS and true peak in dBTP, as FFmpeg's `ebur128` measures them.
pub(crate) fn ffmpeg_loudness(path: &Path) -> Option<(f64, f64)> {
    let run = Command::new("ffmpeg")
        .args(["-nostdin", "-hide_banner", "-i"])
        .arg(path)
        .args(["-af", "ebur128=peak=true", "-f", "null", "-"])
        .output();
    let Ok(output) = run else {
        println!("skipped: no ffmpeg");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = text.rsplit("Summary:").next().unwrap_or_default().to_owned();
    let number = |label: &str| {
        let line = summary.lines().find(|line| line.trim_start().starts_with(label))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some((number("I:")?, number("Peak:")?))
}

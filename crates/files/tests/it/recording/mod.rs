//! Files of interrupted recordings: ffmpeg plays everything that was flushed, a repair completes
//! them, and the files of a split stream equal the stream when joined.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test, and its signals are numbers"
)]

mod broken_off;
mod cut;
mod made;
mod marked;
mod nonsense;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use aulos_core::{ChannelLayout, Frames, Rng, SampleFormat, SampleRate};
use aulos_files::record::format::{FileFormat, FileMetadata, make_file_encoder};
use aulos_proto::Patch;

/// Varying tones, different in each channel, with some noise.
fn music(hz: u32, channels: usize, frames: usize) -> Vec<f32> {
    let mut random = Rng::new(7);
    let mut samples = Vec::with_capacity(frames * channels);
    for n in 0..frames {
        let time = n as f64 / f64::from(hz);
        for channel in 0..channels {
            let note = 220.0 * (1.0 + channel as f64 / 4.0) * (1.0 + (time * 3.0).floor() % 4.0);
            let tone = 0.4 * (std::f64::consts::TAU * note * time).sin();
            let noise = random.below(2_000) as f64 / 1_000_000.0;
            samples.push((tone + noise) as f32);
        }
    }
    samples
}

/// A quarter past ten in the morning.
fn metadata(hz: u32, channels: usize) -> FileMetadata {
    let begun = UNIX_EPOCH + Duration::from_millis(1_795_342_500_250);
    let rate = SampleRate::new(hz).unwrap();
    FileMetadata::new(rate, ChannelLayout::new(channels).unwrap(), "Hall", begun)
}

/// The sample format that ffmpeg decodes to without loss.
fn decode_format(format: FileFormat) -> SampleFormat {
    match format.to_string().as_str() {
        "wav:16" | "flac:16" => SampleFormat::S16Le,
        "wav:24" | "flac:24" => SampleFormat::S24Le,
        _ => SampleFormat::F32,
    }
}

/// A recorded step of a framer's caller, which can be replayed up to any point.
enum EncoderStep {
    Append(Vec<u8>),
    Patch(Patch),
    /// This many frames are readable from here on.
    Flushed(Frames),
}

/// The steps of a recording: pieces of any length, and a flush after every `flush_every` frames.
fn steps(
    format: FileFormat,
    metadata: &FileMetadata,
    samples: &[f32],
    flush_every: usize,
) -> Vec<EncoderStep> {
    let (mut out, mut patches, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    let mut encoder = make_file_encoder(format, metadata, &mut out).unwrap();
    let channels = metadata.layout.channels();
    let mut random = Rng::new(99);
    let (mut rest, mut since) = (samples, 0);
    while !rest.is_empty() {
        let frames = (1 + random.below(2_000)).min(flush_every - since);
        let (now, later) = rest.split_at((frames * channels).min(rest.len()));
        encoder.write(now, &mut out).unwrap();
        rest = later;
        since += frames;
        if since == flush_every {
            since = 0;
            encoder.flush(&mut out, &mut patches);
            steps.push(EncoderStep::Append(std::mem::take(&mut out)));
            steps.extend(patches.drain(..).map(EncoderStep::Patch));
            steps.push(EncoderStep::Flushed(encoder.readable_frames()));
        } else if random.below(2) == 0 {
            steps.push(EncoderStep::Append(std::mem::take(&mut out)));
        }
    }
    let all = Frames::from(samples.len() / channels);
    assert_eq!(encoder.frames(), all);
    encoder.finish(&mut out, &mut patches).unwrap();
    steps.push(EncoderStep::Append(out));
    steps.extend(patches.into_iter().map(EncoderStep::Patch));
    steps.push(EncoderStep::Flushed(all));
    steps
}

/// The bytes of a file whose writer stopped after `bytes` appended bytes and `patched` of the
/// following patches. A patch is written completely or not at all. Also the frames that are
/// guaranteed to be readable.
fn written(steps: &[EncoderStep], bytes: usize, patched: usize) -> (Vec<u8>, Frames) {
    let (mut file, mut promised, mut late) = (Vec::new(), Frames(0), None);
    for step in steps {
        match step {
            EncoderStep::Append(_) if late.is_some() => break,
            EncoderStep::Append(more) => {
                let room = bytes - file.len();
                file.extend_from_slice(&more[..more.len().min(room)]);
                if more.len() > room {
                    break;
                }
                if file.len() == bytes {
                    late = Some(patched);
                }
            }
            EncoderStep::Patch(_) if late == Some(0) => break,
            EncoderStep::Patch(patch) => {
                let at = patch.at() as usize;
                file[at..at + patch.bytes().len()].copy_from_slice(patch.bytes());
                late = late.map(|late| late - 1);
            }
            EncoderStep::Flushed(frames) => promised = *frames,
        }
    }
    (file, promised)
}

fn whole(steps: &[EncoderStep]) -> Vec<u8> {
    written(steps, usize::MAX, usize::MAX).0
}

/// The complete file.
fn file(format: FileFormat, metadata: &FileMetadata, samples: &[f32]) -> Vec<u8> {
    whole(&steps(format, metadata, samples, metadata.rate.hz() as usize / 5))
}

fn write_file(path: &Path, bytes: &[u8]) -> File {
    fs::write(path, bytes).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

/// The audio that ffmpeg decodes from each of `files`, and its messages.
fn decoded_by_ffmpeg(files: &[PathBuf], format: SampleFormat) -> (Vec<Vec<u8>>, String) {
    let name = match format {
        SampleFormat::S16Le => "s16le",
        SampleFormat::S24Le => "s24le",
        _ => "f32le",
    };
    let (mut all, mut said) = (Vec::new(), String::new());
    // One process for many files, within its limit of descriptors.
    for files in files.chunks(40) {
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-nostdin", "-v", "error", "-y"]);
        for file in files {
            command.arg("-i").arg(file);
        }
        let outs: Vec<_> = files.iter().map(|file| file.with_extension("raw")).collect();
        for (number, out) in outs.iter().enumerate() {
            let map = format!("{number}:a");
            let codec = format!("pcm_{name}");
            command.args(["-map", &map, "-f", name, "-c:a", &codec]).arg(out);
        }
        let output = command.output().expect("ffmpeg must be installed: it is the judge");
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{files:?}: {said}");
        all.extend(outs.iter().map(|out| fs::read(out).unwrap()));
    }
    (all, said)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Signal-to-noise ratio in dB.
fn snr(input: &[f32], output: &[f32]) -> f64 {
    let (mut signal, mut noise) = (0.0, 1e-30);
    for (input, output) in input.iter().zip(output) {
        signal += f64::from(*input).powi(2);
        noise += (f64::from(*output) - f64::from(*input)).powi(2);
    }
    10.0 * (signal / noise).log10()
}

/// Parses a format such as `wav:16`.
fn format(text: &str) -> FileFormat {
    text.parse().unwrap()
}

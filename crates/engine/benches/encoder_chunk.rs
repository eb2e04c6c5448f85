//! Cost and size of one encoded chunk of 20 ms.
//!
//! Stereo at 48 kHz: a decaying chord with a little noise, and ten seconds from the middle of each
//! piece of music in the distribution's package `frozen-bubble-data`, decoded by ffmpeg. The
//! fastest of [`ROUNDS`] runs over the same audio, in processor time of the thread where the kernel
//! provides that, so that a busy machine does not matter. Columns: the codec, microseconds per
//! chunk, share of a core, bytes per chunk, kbit/s. Bad would be more than 1 % of a core at the
//! default settings.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock and starts a decoder")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a test signal")]

use std::f64::consts::TAU;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_core::{Block, Codec, Frames, SampleFormat, SampleSpec};
use aulos_engine::encode::{CodecConfig, FlacConfig, make_encoder};

fn main() {
    let chord = blocks(&chord());
    println!("a chord");
    for codec in [Codec::Pcm, Codec::Flac, Codec::Opus] {
        measure(codec.into(), SampleSpec::DEFAULT, &chord);
    }
    let deep = SampleSpec { format: SampleFormat::S24In32Le, ..SampleSpec::DEFAULT };
    println!("the same, 24 bits");
    measure(Codec::Flac.into(), deep, &chord);

    let mut all = Vec::new();
    for name in ["introzik", "frozen-mainzik-1p", "frozen-mainzik-2p"] {
        let Some(samples) = music(name) else { continue };
        println!("{name}");
        let blocks = blocks(&samples);
        (0..=8)
            .for_each(|level| measure(FlacConfig { level }.into(), SampleSpec::DEFAULT, &blocks));
        all.extend(blocks);
    }
    println!("Opus, all music");
    for text in ["opus", "opus:cbr", "opus:128k", "opus:128k,complexity=5", "opus:64k"] {
        if let Ok(config) = text.parse() {
            measure(config, SampleSpec::DEFAULT, &all);
        }
    }
}

fn measure(config: CodecConfig, spec: SampleSpec, blocks: &[Block]) {
    let Ok(mut encoder) = make_encoder(config, spec, Frames(960)) else {
        return println!("{config}: refused");
    };
    let mut out = Vec::with_capacity(1 << 20);
    let (mut bytes, started) = (0, Instant::now());
    let fastest = (0..ROUNDS)
        .map(|_| {
            bytes = 0;
            let begin = now(started);
            for block in blocks {
                out.clear();
                if encoder.encode(block, &mut out).is_err() {
                    println!("{config}: refused");
                }
                bytes += out.len();
            }
            now(started).saturating_sub(begin)
        })
        .min()
        .unwrap_or_default();
    let count = blocks.len().max(1);
    let micros = fastest.as_secs_f64() * 1e6 / count as f64;
    let each = bytes as f64 / count as f64;
    let name = match config {
        CodecConfig::Flac(FlacConfig { level }) => format!("flac:{level}"),
        other => other.to_string(),
    };
    let (part, kbps) = (micros / 200.0, each * 0.4);
    println!("{name:22} {micros:7.1} us {part:5.2} % {each:8.1} bytes {kbps:7.1} kbit/s");
}

/// Processor time of this thread, or the time since `started`.
fn now(started: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| started.elapsed(), Duration::from_nanos)
}

/// Ten seconds of a piece of music; `None` where it or its decoder is missing.
fn music(name: &str) -> Option<Vec<f32>> {
    let path = format!("/usr/share/games/frozen-bubble/snd/{name}.ogg");
    let decoded = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-ss", "20", "-t", "10", "-i", &path])
        .args(["-ar", "48000", "-ac", "2", "-f", "f32le", "-"])
        .output();
    let Some(decoded) = decoded.ok().filter(|decoded| decoded.status.success()) else {
        println!("skipped: no {path} or no ffmpeg");
        return None;
    };
    Some(decoded.stdout.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

fn blocks(samples: &[f32]) -> Vec<Block> {
    let SampleSpec { rate, layout, .. } = SampleSpec::DEFAULT;
    let blocks = samples.chunks_exact(1_920).map(|samples| {
        let mut block = Block::with_capacity(rate, layout, samples.len());
        block.resize(Frames(960));
        block.samples_mut().copy_from_slice(samples);
        block
    });
    blocks.collect()
}

fn chord() -> Vec<f32> {
    let mut noise = 1u32;
    (0..48_000 * 2)
        .map(|n| {
            let time = f64::from(n / 2) / 48_000.0;
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = f64::from(noise >> 8) / 16_777_216.0 - 0.5;
            let chord: f64 =
                [220.0, 277.2, 329.6, 1_318.5].iter().map(|hz| (time * hz * TAU).sin()).sum();
            (0.15 * chord * (-2.0 * time).exp() + 0.002 * hiss) as f32
        })
        .collect()
}

const ROUNDS: usize = 5;

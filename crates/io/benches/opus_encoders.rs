//! The two Opus encoders, the built-in one and libopus, at the rates of stations and below.
//!
//! Stereo at 48 kHz in packets of 20 ms, variable bit rate: a decaying chord with a little noise,
//! ten seconds of music of the distribution's package `frozen-bubble-data`, and ten seconds of
//! speech by espeak-ng. Columns: the encoder, processor time of the thread per packet (the fastest
//! of [`ROUNDS`] runs), bytes per packet, and the signal-to-noise ratio of the waveform. Bad would be
//! more than 1 % of a core, and a ratio that falls when the bit rate grows. The ratio is no
//! listening test: both encoders distribute bits by perception.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock and starts programs")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "test signals")]

use std::f64::consts::TAU;
use std::process::Command;
use std::time::{Duration, Instant};

use aulos_core::{Block, Frames, SampleRate, SampleSpec};
use aulos_engine::decode::{Decoder as _, OpusPacketDecoder};
use aulos_engine::encode::OpusPacketEncoder;
use aulos_io::encoder::{check_library, make_encoder};

fn main() {
    let music = "ffmpeg -nostdin -v error -ss 20 -t 10 -i \
                 /usr/share/games/frozen-bubble/snd/frozen-mainzik-1p.ogg -ar 48000 -ac 2 -f f32le -";
    let speech = "espeak-ng -v en+klatt4 --stdout \"A server takes live audio in, normalizes its \
                  loudness, and plays it in sync on every loudspeaker of the house.\" | \
                  ffmpeg -nostdin -v error -i - -ar 48000 -ac 2 -f f32le -";
    for (name, sound) in
        [("chord", Some(chord())), ("music", output(music)), ("speech", output(speech))]
    {
        let Some(sound) = sound else { continue };
        for kbps in [32, 48, 64, 96, 128, 192] {
            for library in ["builtin", "libopus"] {
                measure(name, &format!("opus:{kbps}k,{library}"), &sound);
            }
        }
    }
}

fn measure(name: &str, config: &str, sound: &[f32]) {
    let Ok(config) = config.parse() else { return };
    if let Err(missing) = check_library(config) {
        return println!("{missing}");
    }
    let blocks = blocks(sound);
    let started = Instant::now();
    let (mut fastest, mut packets) = (Duration::MAX, Vec::new());
    for _ in 0..ROUNDS {
        let Ok(mut encoder) = make_encoder(config, SampleSpec::DEFAULT, Frames(960)) else {
            return;
        };
        packets = vec![Vec::with_capacity(4_000); blocks.len()];
        let begin = now(started);
        for (block, packet) in blocks.iter().zip(&mut packets) {
            if encoder.encode(block, packet).is_err() {
                println!("{config}: refused");
            }
        }
        fastest = fastest.min(now(started).saturating_sub(begin));
    }
    let count = packets.len().max(1) as f64;
    let micros = fastest.as_secs_f64() * 1e6 / count;
    let bytes = packets.iter().map(Vec::len).sum::<usize>() as f64 / count;
    let (ratio, config) = (ratio(sound, &packets), config.to_string());
    println!("{name:7} {config:20} {micros:7.1} us {bytes:7.1} bytes {ratio:6.1} dB");
}

/// The signal-to-noise ratio of the decoded packets in dB, without the first tenth of a second.
fn ratio(sound: &[f32], packets: &[Vec<u8>]) -> f64 {
    let Some(mut decoder) = OpusPacketDecoder::new(SampleRate::HZ_48000, 2) else { return 0.0 };
    let (mut decoded, mut out) = (Vec::new(), [0.0; 1_920]);
    for packet in packets {
        if decoder.decode(packet, &mut out).is_ok() {
            decoded.extend_from_slice(&out);
        }
    }
    let late = 2 * OpusPacketEncoder::DELAY.as_usize();
    let both = sound.iter().zip(decoded.iter().skip(late)).skip(9_600);
    let (mut signal, mut noise) = (0.0, f64::MIN_POSITIVE);
    for (wanted, heard) in both {
        signal += f64::from(*wanted).powi(2);
        noise += f64::from(wanted - heard).powi(2);
    }
    10.0 * (signal / noise).log10()
}

/// Processor time of this thread, or the time since `started`.
fn now(started: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| started.elapsed(), Duration::from_nanos)
}

/// The samples that a command writes; `None` if it fails.
fn output(command: &str) -> Option<Vec<f32>> {
    let output = Command::new("sh").args(["-c", command]).output();
    let output = output.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    let Some(output) = output else {
        println!("skipped: no {}", command.split_whitespace().next().unwrap_or_default());
        return None;
    };
    Some(output.stdout.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

fn blocks(sound: &[f32]) -> Vec<Block> {
    let SampleSpec { rate, layout, .. } = SampleSpec::DEFAULT;
    let blocks = sound.chunks_exact(1_920).map(|samples| {
        let mut block = Block::with_capacity(rate, layout, samples.len());
        block.resize(Frames(960));
        block.samples_mut().copy_from_slice(samples);
        block
    });
    blocks.collect()
}

/// Ten seconds, struck twice per second.
fn chord() -> Vec<f32> {
    let mut noise = 1u32;
    (0..10 * 48_000 * 2)
        .map(|n| {
            let time = f64::from(n / 2) / 48_000.0;
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hiss = f64::from(noise >> 8) / 16_777_216.0 - 0.5;
            let chord: f64 =
                [220.0, 277.2, 329.6, 1_318.5].iter().map(|hz| (time * hz * TAU).sin()).sum();
            (0.15 * chord * (-2.0 * (time % 0.5)).exp() + 0.002 * hiss) as f32
        })
        .collect()
}

const ROUNDS: usize = 3;

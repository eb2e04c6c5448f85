//! The built-in Opus encoder beside libopus: what they make of hard signals, music and speech.
//!
//! Packets of 20 ms, constrained variable bit rate, complexity 10, both decoded by libopus.
//! Columns: the piece, its channels, the bit rate; then for the built-in encoder and for libopus:
//! bytes per packet, signal-to-noise ratio of the waveform, noise-to-mask ratio (lower is better),
//! and processor time of the thread per packet (the fastest of [`ROUNDS`] runs). Allocations are
//! those that reach the allocator behind the scratch memory. Bad would be a ratio that is more than
//! 1.5 dB worse than libopus', an allocation or a panic, and more than 1 % of a core. Without
//! libopus there is no table.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock and starts programs")]
#![allow(
    clippy::expect_used,
    clippy::float_cmp,
    reason = "a benchmark; whole numbers are compared"
)]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls of one library, one after another")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test signals"
)]

mod judge;
mod libopus;
mod pieces;

use std::time::{Duration, Instant};

use aulos_blackbox::alloc::{CountingAllocator, calls};
use aulos_opus::{Application, EncoderConfig, OpusEncoder};
use aulos_rt::scratch::ScratchAllocator;
use libopus::Libopus;
use pieces::{Piece, pieces};

#[global_allocator]
static ALLOCATOR: ScratchAllocator<CountingAllocator> =
    ScratchAllocator::over(CountingAllocator::new());

fn main() {
    println!(
        "piece | channels | kbit/s | bytes | SNR | NMR | us | libopus: bytes | SNR | NMR | us"
    );
    let mut worst = Worst::default();
    for piece in pieces() {
        for &kbps in piece.kbps {
            if compare(&piece, kbps, &mut worst).is_none() {
                return println!("skipped: no libopus0");
            }
        }
    }
    println!(
        "{} cases; at worst {:.2} dB of SNR and {:.2} dB of NMR behind libopus, {} calls of the \
         allocator, {} panics",
        worst.cases, worst.snr, worst.nmr, worst.allocations, worst.panics
    );
}

#[derive(Default)]
struct Worst {
    cases: u32,
    snr: f64,
    nmr: f64,
    allocations: u64,
    panics: u32,
}

/// What an encoder made of a piece.
struct Outcome {
    packets: Vec<Vec<u8>>,
    micros: f64,
}

fn compare(piece: &Piece, kbps: u32, worst: &mut Worst) -> Option<()> {
    let Piece { name, channels, sound, .. } = piece;
    let config = EncoderConfig {
        bitrate: kbps * 1_000,
        ..EncoderConfig::new(48_000, *channels, Application::Audio)
    };
    let delay = OpusEncoder::new(config)?.delay();
    let ours = std::panic::catch_unwind(|| {
        encode(sound, *channels, || {
            let mut encoder = OpusEncoder::new(config).expect("the settings are in range");
            move |samples, packet| encoder.encode(samples, 960, packet).unwrap_or(0)
        })
    });
    worst.cases += 1;
    let Ok((ours, allocations)) = ours else {
        worst.panics += 1;
        println!("{name} | {channels} | {kbps} | panic");
        return Some(());
    };
    worst.allocations += allocations;
    Libopus::new(*channels, kbps * 1_000)?;
    let (theirs, _) = encode(sound, *channels, || {
        let library = Libopus::new(*channels, kbps * 1_000);
        let mut library = library.expect("it was there before");
        move |samples, packet| library.encode(samples, packet)
    });
    let outcomes = [ours, theirs].map(|outcome| {
        let heard = decode(&outcome.packets, *channels, delay).unwrap_or_default();
        let bytes = outcome.packets.iter().map(Vec::len).sum::<usize>();
        let bytes = bytes as f64 / outcome.packets.len() as f64;
        let ratios = (judge::snr(sound, &heard), judge::nmr(sound, &heard, *channels));
        (bytes, ratios, outcome.micros)
    });
    let [(_, (snr, nmr), _), (_, (their_snr, their_nmr), _)] = outcomes;
    worst.snr = worst.snr.max(their_snr - snr);
    worst.nmr = worst.nmr.max(nmr - their_nmr);
    let cells = outcomes.map(|(bytes, (snr, nmr), micros)| {
        format!("{bytes:.1} | {snr:.1} | {nmr:.1} | {micros:.0}")
    });
    println!("{name} | {channels} | {kbps} | {}", cells.join(" | "));
    Some(())
}

/// Encodes the whole piece some times, and counts the calls of the allocator after the first
/// packet.
fn encode<E: FnMut(&[f32], &mut [u8]) -> usize>(
    sound: &[f32],
    channels: usize,
    make: impl Fn() -> E,
) -> (Outcome, u64) {
    let started = Instant::now();
    let mut outcome = Outcome { packets: Vec::new(), micros: f64::MAX };
    let mut calls_after_the_first = 0;
    for _ in 0..ROUNDS {
        let mut encode = make();
        let mut packets = vec![vec![0; 1_500]; sound.len() / 960 / channels];
        let mut before = None;
        let begin = now(started);
        for (samples, packet) in sound.chunks_exact(960 * channels).zip(&mut packets) {
            let length = encode(samples, packet);
            packet.truncate(length);
            before.get_or_insert_with(calls);
        }
        calls_after_the_first = calls() - before.unwrap_or(0);
        let spent = now(started).saturating_sub(begin);
        let micros = spent.as_secs_f64() * 1e6 / packets.len().max(1) as f64;
        outcome.micros = outcome.micros.min(micros);
        outcome.packets = packets;
    }
    (outcome, calls_after_the_first)
}

/// What libopus hears, in time with the input.
fn decode(packets: &[Vec<u8>], channels: usize, delay: usize) -> Option<Vec<f32>> {
    let mut library = Libopus::new(channels, 64_000)?;
    let mut heard = Vec::new();
    let mut out = vec![0.0; 960 * channels];
    for packet in packets {
        library.decode(packet, &mut out);
        heard.extend_from_slice(&out);
    }
    heard.drain(..delay * channels);
    Some(heard)
}

/// Processor time of this thread, or the time since `started`.
fn now(started: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| started.elapsed(), Duration::from_nanos)
}

const ROUNDS: usize = 3;

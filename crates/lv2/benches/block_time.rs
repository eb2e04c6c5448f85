//! Time of `run` per block, beside the normalizer without a plug-in around it.
//!
//! Scenario: noise at 48 kHz, all controls at their defaults. Columns: us per block, the least of
//! nine runs of two seconds of sound; the last one is what the ports cost. Bad would be a cost that
//! is not small beside the signal processing from 64 frames on.

#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "a host of a C interface"
)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench")]

#[path = "../tests/it/host.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod host;

use std::time::Instant;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::normalize::{LookAhead, Normalizer, Settings};
use host::{Host, linked};

fn main() {
    println!(
        "| plug-in | frames | us per block | without the plug-in | ports |\n|---|---|---|---|---|"
    );
    for uri in ["urn:aulos:normalizer:stereo", "urn:aulos:normalizer:5.1", "urn:aulos:meter:stereo"]
    {
        for frames in [64, 256, 1_024] {
            let mut host = Host::new(linked(), uri);
            let channels = host.plugin.channels;
            let mut input = vec![noise(frames); channels];
            let mut output = input.clone();
            let plugin = least(frames, || host.run(&mut input, &mut output, frames));
            let name = uri.trim_start_matches("urn:aulos:");
            if !uri.contains("normalizer") {
                println!("| {name} | {frames} | {plugin:.2} | | |");
                continue;
            }
            let layout = ChannelLayout::new(channels).unwrap();
            let (rate, settings) = (SampleRate::HZ_48000, Settings::default());
            let mut normalizer = Normalizer::new(LookAhead::Low, settings, rate, layout).unwrap();
            let sound = noise(frames * channels);
            let (mut block, mut dry) = (sound.clone(), sound.clone());
            let alone = least(frames, || {
                block.copy_from_slice(&sound);
                normalizer.process_with_dry(&mut block, &mut dry);
            });
            let ports = plugin - alone;
            println!("| {name} | {frames} | {plugin:.2} | {alone:.2} | {ports:.2} |");
        }
    }
}

/// Microseconds per call.
fn least(frames: usize, mut work: impl FnMut()) -> f64 {
    let calls = 96_000 / frames;
    let mut run = |_| {
        let start = Instant::now();
        (0..calls).for_each(|_| work());
        start.elapsed().as_secs_f64() * 1e6 / calls as f64
    };
    (0..9).map(&mut run).fold(f64::INFINITY, f64::min)
}

fn noise(count: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * 0.3
    };
    std::iter::repeat_with(next).take(count).collect()
}

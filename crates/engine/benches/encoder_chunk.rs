//! What does one chunk of 20 ms cost to encode?
//!
//! Stereo at 48 kHz, a decaying chord with a little noise; the fastest of 20 runs over the same
//! second. Columns: the codec, microseconds per chunk, part of a core, bytes per chunk. Bad would
//! be more than 1 % of a core at the default settings.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a test signal")]

use std::f64::consts::TAU;
use std::time::Instant;

use aulos_core::{Block, Codec, Frames, SampleFormat, SampleSpec};
use aulos_engine::encode::{Encoder, Flac, make};

fn main() {
    let plain = SampleSpec::DEFAULT;
    let deep = SampleSpec { format: SampleFormat::S24In32Le, ..plain };
    for codec in [Codec::Pcm, Codec::Flac, Codec::Opus] {
        if let Ok(mut encoder) = make(codec, plain, Frames(960)) {
            measure(codec.name(), &mut *encoder);
        }
    }
    for (name, spec, level) in
        [("flac 0", plain, 0), ("flac 5", plain, 5), ("flac 8", plain, 8), ("flac 24 bit", deep, 2)]
    {
        if let Ok(mut flac) = Flac::new(spec, Frames(960), level) {
            measure(name, &mut flac);
        }
    }
}

fn measure(name: &str, encoder: &mut dyn Encoder) {
    let blocks = second(encoder.spec());
    let mut out = Vec::with_capacity(1 << 20);
    let fastest = (0..20)
        .map(|_| {
            out.clear();
            let begin = Instant::now();
            for block in &blocks {
                if encoder.encode(block, &mut out).is_err() {
                    println!("{name}: refused");
                }
            }
            begin.elapsed()
        })
        .min()
        .unwrap_or_default();
    let micros = fastest.as_secs_f64() * 1e6 / blocks.len() as f64;
    let bytes = out.len() / blocks.len();
    println!("{name:12} {micros:7.1} us {:5.2} % {bytes:6} bytes", micros / 200.0);
}

fn second(spec: SampleSpec) -> Vec<Block> {
    let mut noise = 1u32;
    (0..50)
        .map(|index| {
            let mut block = Block::with_capacity(spec.rate, spec.layout, 1_920);
            block.resize(Frames(960));
            for (n, sample) in block.samples_mut().iter_mut().enumerate() {
                let time = (index * 960 + n / 2) as f64 / 48_000.0;
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let hiss = f64::from(noise >> 8) / 16_777_216.0 - 0.5;
                let chord: f64 =
                    [220.0, 277.2, 329.6, 1_318.5].iter().map(|hz| (time * hz * TAU).sin()).sum();
                *sample = (0.15 * chord * (-2.0 * time).exp() + 0.002 * hiss) as f32;
            }
            block
        })
        .collect()
}

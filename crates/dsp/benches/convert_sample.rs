//! Cost of sample format conversion.
//!
//! Blocks of 1,920 samples, the fastest of 200 runs. Columns: the format, and nanoseconds per
//! sample from bytes, to bytes, and to bytes with dither. More than a nanosecond is bad, except for
//! packed 24 bit and dither.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use aulos_core::SampleFormat;
use aulos_dsp::{Dither, convert};

fn main() {
    for format in SampleFormat::ALL {
        let mut samples: Vec<f32> = (0..1_920u16).map(|n| (f32::from(n) * 0.1).sin()).collect();
        let mut bytes = vec![0u8; samples.len() * format.bytes()];
        let encode = fastest(|| {
            black_box(convert::encode(format, black_box(&samples), black_box(&mut bytes)));
        });
        let decode = fastest(|| {
            black_box(convert::decode(format, black_box(&bytes), black_box(&mut samples)));
        });
        // Decoded samples are integers of the format, which are not dithered.
        samples.iter_mut().for_each(|sample| *sample *= 0.7);
        let mut dither = Dither::default();
        let dithered = fastest(|| {
            black_box(dither.encode(format, black_box(&samples), black_box(&mut bytes)));
        });
        println!(
            "{format:4}: from bytes {decode:.2} ns, to bytes {encode:.2} ns, dithered {dithered:.2} ns"
        );
    }
}

fn fastest(mut work: impl FnMut()) -> f64 {
    let fastest = (0..200)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..50 {
                work();
            }
            begin.elapsed()
        })
        .min()
        .unwrap_or_default();
    fastest.as_secs_f64() * 1e9 / (50.0 * 1_920.0)
}

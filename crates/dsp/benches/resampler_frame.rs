//! Cost of a resampled frame.
//!
//! Stereo, blocks of 960 frames, the fastest of 20 runs of 2 s of audio. Columns: the conversion,
//! nanoseconds per output frame, load of a core at 48 kHz, and the time to design the filter. More
//! than 0.5 % of a core, or a filter design longer than a quantum, is bad.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use aulos_core::{Ppm, SampleRate};
use aulos_dsp::Resampler;

fn main() {
    let cases = [(48_000, 48_000, 0), (48_000, 48_000, 100), (44_100, 48_000, 0)];
    let more = [(44_100, 48_000, 100), (48_000, 44_100, 0), (192_000, 48_000, 0)];
    for (from, to, ppm) in cases.into_iter().chain(more) {
        measure(from, to, ppm);
    }
}

fn measure(from: u32, to: u32, ppm: i32) {
    let rate = |hz| SampleRate::new(hz).unwrap_or(SampleRate::HZ_48000);
    let begin = Instant::now();
    let mut resampler = Resampler::new(2, rate(from), rate(to));
    let design = begin.elapsed();
    resampler.set_drift(Ppm::from_ppm(ppm));
    let input = vec![0.25f32; 2 * 5_000];
    let mut output = vec![0.0f32; 2 * 960];
    let fastest = (0..20)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..100 {
                black_box(resampler.process(black_box(&input), &mut output));
            }
            begin.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanos = fastest.as_secs_f64() * 1e9 / 96_000.0;
    let core = nanos * 48_000.0 * 1e-7;
    println!("{from} -> {to} {ppm:+} ppm: {nanos:6.1} ns, {core:.2} %, filter {design:.1?}");
}

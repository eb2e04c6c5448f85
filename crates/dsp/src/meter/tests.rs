//! Tests of internals: each kernel compared with the crate `ebur128`, pieces and serialization.
//! `tests/it/judges` has the random cases, `tests/it/conformance` the signals of the EBU.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "test signals, and figures that must be the same"
)]

mod reference;
mod state;

use core::f64::consts::TAU;

use aulos_core::{ChannelLayout, SampleRate};

use super::{Meter, MeterConfig, MeterKernel, MeterMode};

const KERNELS: [MeterKernel; 3] = [MeterKernel::Scalar, MeterKernel::Avx2, MeterKernel::Best];

fn config(hz: u32, channels: usize, mode: MeterMode) -> MeterConfig {
    let layout = ChannelLayout::new(channels).unwrap();
    MeterConfig::new(SampleRate::new(hz).unwrap(), layout, mode)
}

fn meter(hz: u32, channels: usize, mode: MeterMode) -> Meter {
    Meter::new(config(hz, channels, mode)).unwrap()
}

/// Uniform noise in +-1, reproducible by the seed.
fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64) / (1u64 << 52) as f64 - 1.0
    }
}

/// Noise with the envelope of speech, with a tone below: a substitute for a programme.
fn programme(seed: u64, hz: u32, channels: usize, frames: usize) -> Vec<f32> {
    let mut draw = noise(seed);
    let mut level = 0.1;
    let mut held = 0.0;
    let mut out = Vec::with_capacity(frames * channels);
    for frame in 0..frames {
        if frame % (hz as usize / 7) == 0 {
            level = 10f64.powf((draw() - 1.0) * 1.5);
        }
        for channel in 0..channels {
            held = 0.7 * held + 0.3 * draw();
            let tone = (frame as f64 * 220.0 * (1 + channel) as f64 / f64::from(hz) * TAU).sin();
            out.push((level * (0.8 * held + 0.15 * tone)) as f32);
        }
    }
    out
}

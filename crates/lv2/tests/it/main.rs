//! The plug-ins as hosts use them. One program, so that it is linked once; calls of the allocator
//! are counted for each thread.

#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "a host of a C interface"
)]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "helpers of tests")]

mod bad_input;
mod bits;
mod controls;
mod host;
mod judges;
mod real_time;
#[cfg(target_os = "linux")]
mod state;

use aulos_blackbox::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Interleaved noise whose level changes by 20 dB every half second, at 48 kHz.
fn programme(seconds: f32, channels: usize) -> Vec<f32> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds")]
    let frames = (seconds * 48_000.0) as usize;
    let mut state = 1_u32;
    (0..frames * channels)
        .map(|place| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
            if (place / channels / 24_000).is_multiple_of(2) { noise * 0.5 } else { noise * 0.05 }
        })
        .collect()
}

fn bits(samples: &[f32]) -> Vec<u32> {
    samples.iter().map(|sample| sample.to_bits()).collect()
}

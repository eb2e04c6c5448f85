//! The engine beside ffmpeg, and its real-time side beside a counting allocator. One program, so
//! that everything is linked once; for each thread the calls are counted that reach the allocator
//! behind that of the programs.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "tests: ffmpeg is started, signals are numbers, and counts are exact"
)]

mod decoders_allocate_nothing;
mod encoder_allocations;
mod flac_ffmpeg;
mod generate_allocates_nothing;
mod insert_is_real_time;
mod judge;
mod opus_ffmpeg;
mod station_allocates_nothing;

use aulos_blackbox::alloc::CountingAllocator;
use aulos_rt::scratch::ScratchAllocator;

#[global_allocator]
static ALLOCATOR: ScratchAllocator<CountingAllocator> =
    ScratchAllocator::over(CountingAllocator::new());

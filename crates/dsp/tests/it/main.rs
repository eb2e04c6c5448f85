//! Signal processing beside standards, other libraries, ffmpeg, and a counting allocator. One
//! program, so that it is linked once; calls of the allocator are counted for each thread.

mod conformance;
mod fuzz;
mod judges;
mod limiter_distortion;
mod no_alloc;
mod normalize;
mod sound_scipy;
mod telephone_ffmpeg;

/// Shared with the crates that have fuzz targets too.
#[path = "../../../proto/tests/it/mutation.rs"]
mod mutation;

use aulos_blackbox::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

//! Signal processing beside standards, other libraries, ffmpeg, and a counting allocator. One
//! program, so that it is linked once; calls of the allocator are counted for each thread.

mod conformance;
mod judges;
mod limiter_distortion;
mod no_alloc;
mod normalize;
mod telephone_ffmpeg;

use aulos_blackbox::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

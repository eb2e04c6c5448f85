//! Protocols beside recorded messages of real peers, hostile input, and a counting allocator. One
//! program, so that it is linked once; calls of the allocator are counted for each thread.

mod fuzz;
mod mutation;
mod no_alloc;
mod rtp;
mod vectors;

use aulos_blackbox::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

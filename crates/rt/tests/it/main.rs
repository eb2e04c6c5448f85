//! Every path with real threads: beside a counting allocator, a filter of system calls, and a
//! hostile scheduler. One program, so that it is linked once; allocations and system calls are
//! counted for each thread, and priorities are set for each thread.

#[cfg(target_os = "linux")]
mod foreign_loop;
mod no_alloc;
mod no_locks;
#[cfg(target_os = "linux")]
mod no_syscall;
#[cfg(target_os = "linux")]
mod stress;

use aulos_blackbox::alloc::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

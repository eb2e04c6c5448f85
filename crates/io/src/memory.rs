//! What the allocator does with large blocks.

use crate::sys;

/// Lets the system have each large allocation back as soon as it is freed.
///
/// The status of a full house has four megabytes, and an answer to a list of calls twelve. By
/// itself glibc raises the size from which it maps blocks one by one to the largest that was ever
/// freed (up to 32 MiB). After that large texts come and go in the same heap as what stays, and
/// leave holes: with the same live bytes the heap was three times as large.
///
/// Gives whether the allocator is one that can be told so. To be called once, at the start.
pub fn map_large_allocations() -> bool {
    sys::map_allocations_from(LARGE)
}

/// Gives free memory back to the system, from within the heap too. Gives whether there was any.
///
/// Other threads that allocate wait meanwhile, some milliseconds for each hundred megabytes: for
/// the moment after much was freed, and never for a real-time thread.
pub fn release_free_memory() -> bool {
    sys::release_free_memory()
}

/// Bytes of a large allocation. Below it the heap is used again and again by the same sizes; above
/// it a call to the system is small beside what is done with the bytes.
const LARGE: i32 = 256 << 10;

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident() -> u64 {
        aulos_blackbox::process_usage::read(std::process::id()).unwrap().resident
    }

    #[test]
    fn a_large_allocation_is_released_despite_a_small_one_behind_it() {
        assert!(map_large_allocations());
        // Freeing a block is what raises the size by itself.
        drop(std::hint::black_box(vec![1_u8; 31 << 20]));
        let before = resident();
        let mut kept = Vec::new();
        for _ in 0..8 {
            let large = std::hint::black_box(vec![1_u8; 16 << 20]);
            kept.push(vec![1_u8; 1_024]);
            drop(large);
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes stay for {} kB", kept.len());
    }
}

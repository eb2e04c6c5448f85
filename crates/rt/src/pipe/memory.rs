//! The memory of a pipe: mapped twice in a row if the system supports it, otherwise once.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

use crate::sys::MirroredMapping;

/// A power of two of bytes, addressed by wrapping positions. The callers coordinate the access to
/// the bytes.
pub(crate) struct Memory {
    base: NonNull<u8>,
    size: usize,
    /// Owns the mapping; without it the memory comes from the allocator.
    mirror: Option<MirroredMapping>,
}

// SAFETY: plain memory that belongs to the value; access goes through unsafe functions whose
// callers promise that no two threads use one byte at a time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least `at_least` bytes, all zero and backed by pages; mapped twice if `mirrored` and
    /// supported. `None` if there is not enough memory.
    pub(crate) fn new(at_least: usize, mirrored: bool) -> Option<Self> {
        if mirrored && let Some(mirror) = MirroredMapping::new(at_least) {
            return Some(Self { base: mirror.base(), size: mirror.size(), mirror: Some(mirror) });
        }
        let size = at_least.max(ALIGN).checked_next_power_of_two()?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(size)?) })?;
        for offset in (0..size).step_by(TOUCH) {
            let byte = base.as_ptr().wrapping_add(offset);
            // SAFETY: inside the allocation; volatile, so that the page is really touched now.
            unsafe { byte.write_volatile(0) };
        }
        Some(Self { base, size, mirror: None })
    }

    /// Whether every range is one slice.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.mirror.is_some()
    }

    /// How many of the `n` bytes at `position` are contiguous.
    #[inline]
    pub(crate) fn run(&self, position: usize, n: usize) -> usize {
        if self.mirror.is_some() { n } else { n.min(self.size - (position & (self.size - 1))) }
    }

    #[inline]
    fn at(&self, position: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(position & (self.size - 1))
    }

    /// Copies `from` to `position`.
    ///
    /// # Safety
    /// * No other thread uses these bytes during the call, and there are no more than the size.
    #[inline]
    pub(crate) unsafe fn copy_in(&self, position: usize, from: &[u8]) {
        let (one, two) = from.split_at(self.run(position, from.len()));
        // SAFETY: the run is contiguous from here, and a caller's slice cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(one.as_ptr(), self.at(position), one.len()) };
        if !two.is_empty() {
            // SAFETY: what is left starts at the first byte and is shorter than the size.
            unsafe { std::ptr::copy_nonoverlapping(two.as_ptr(), self.at(0), two.len()) };
        }
    }

    /// Copies the bytes at `position` out.
    ///
    /// # Safety
    /// * No other thread writes to these bytes during the call, and there are no more than the
    ///   size.
    #[inline]
    pub(crate) unsafe fn copy_out(&self, position: usize, to: &mut [u8]) {
        let run = self.run(position, to.len());
        let (one, two) = to.split_at_mut(run);
        // SAFETY: the run is contiguous from here, and a caller's slice cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(self.at(position), one.as_mut_ptr(), run) };
        if !two.is_empty() {
            // SAFETY: what is left starts at the first byte and is shorter than the size.
            unsafe { std::ptr::copy_nonoverlapping(self.at(0), two.as_mut_ptr(), two.len()) };
        }
    }

    /// The `n` bytes at `position`.
    ///
    /// # Safety
    /// * `self.run(position, n) == n`, and no thread writes to these bytes while the slice lives.
    #[inline]
    pub(crate) unsafe fn slice(&self, position: usize, n: usize) -> &[u8] {
        // SAFETY: contiguous as the caller has checked, and every byte was set at the start.
        unsafe { std::slice::from_raw_parts(self.at(position), n) }
    }

    /// The `n` bytes at `position`, for writing.
    ///
    /// # Safety
    /// * `self.run(position, n) == n`, and no other code uses these bytes while the slice lives.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "which end owns a byte is known to the caller only")]
    pub(crate) unsafe fn slice_mut(&self, position: usize, n: usize) -> &mut [u8] {
        // SAFETY: contiguous as the caller has checked, and every byte was set at the start.
        unsafe { std::slice::from_raw_parts_mut(self.at(position), n) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mirror.is_none()
            && let Some(layout) = layout(self.size)
        {
            // SAFETY: allocated by `new` with this layout, and no slice of it is left.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mirrored = self.is_mirrored();
        f.debug_struct("Memory").field("size", &self.size).field("mirrored", &mirrored).finish()
    }
}

/// A cache line, which also suffices for any sample.
const ALIGN: usize = 128;

/// The smallest page size of the supported machines.
const TOUCH: usize = 4096;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGN).ok()
}

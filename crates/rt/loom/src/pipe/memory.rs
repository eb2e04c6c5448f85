//! Bytes with a loom cell each, so that a model fails where two threads could access a byte without
//! synchronization. Reads give two slices, as without mirrored memory.

use loom::cell::UnsafeCell;

#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Box<[std::cell::UnsafeCell<u8>]>,
    watch: Box<[UnsafeCell<()>]>,
}

// SAFETY: as for the real memory; loom reports violations.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(at_least: usize, _mirrored: bool) -> Option<Self> {
        let size = at_least.checked_next_power_of_two()?;
        let bytes = (0..size).map(|_| std::cell::UnsafeCell::new(0)).collect();
        Some(Self { bytes, watch: (0..size).map(|_| UnsafeCell::new(())).collect() })
    }

    pub(crate) fn run(&self, position: usize, n: usize) -> usize {
        n.min(self.bytes.len() - self.index(position))
    }

    pub(crate) unsafe fn copy_in(&self, position: usize, from: &[u8]) {
        for (i, byte) in from.iter().enumerate() {
            let index = self.index(position.wrapping_add(i));
            self.watch[index].with_mut(|_| ());
            unsafe { *self.bytes[index].get() = *byte };
        }
    }

    pub(crate) unsafe fn slice(&self, position: usize, n: usize) -> &[u8] {
        for i in 0..n {
            self.watch[self.index(position.wrapping_add(i))].with(|_| ());
        }
        let first = self.bytes[self.index(position)..].as_ptr();
        unsafe { std::slice::from_raw_parts(first.cast(), n) }
    }

    fn index(&self, position: usize) -> usize {
        position & (self.bytes.len() - 1)
    }
}

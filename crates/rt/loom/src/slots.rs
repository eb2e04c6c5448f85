//! The real slots, each with a loom cell that is accessed together with the slot, so that a model
//! fails where two threads could access a slot without synchronization.

use std::mem::MaybeUninit;

use loom::cell::UnsafeCell;

#[path = "../../src/slots.rs"]
mod real;

#[derive(Debug)]
pub(crate) struct Slots<T> {
    real: real::Slots<T>,
    watch: Box<[UnsafeCell<()>]>,
}

// SAFETY: as for the real slots; loom reports violations.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    pub(crate) fn new(at_least: usize) -> Self {
        let real = real::Slots::new(at_least);
        let watch = (0..real.count()).map(|_| UnsafeCell::new(())).collect();
        Self { real, watch }
    }

    pub(crate) fn count(&self) -> usize {
        self.real.count()
    }

    pub(crate) unsafe fn write(&self, position: usize, value: T) {
        self.changes(position, 1);
        unsafe { self.real.write(position, value) }
    }

    pub(crate) unsafe fn read(&self, position: usize) -> T {
        self.changes(position, 1);
        unsafe { self.real.read(position) }
    }

    pub(crate) unsafe fn slices(&self, position: usize, n: usize) -> (&[T], &[T]) {
        for i in 0..n {
            self.watch[self.index(position.wrapping_add(i))].with(|_| ());
        }
        unsafe { self.real.slices(position, n) }
    }

    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slices_mut(
        &self,
        position: usize,
        n: usize,
    ) -> (&mut [MaybeUninit<T>], &mut [MaybeUninit<T>]) {
        self.changes(position, n);
        unsafe { self.real.slices_mut(position, n) }
    }

    fn changes(&self, position: usize, n: usize) {
        for i in 0..n {
            self.watch[self.index(position.wrapping_add(i))].with_mut(|_| ());
        }
    }

    fn index(&self, position: usize) -> usize {
        position & (self.watch.len() - 1)
    }
}

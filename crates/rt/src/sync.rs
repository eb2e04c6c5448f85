//! The only module with atomics, so that a model checker can replace them.
//!
//! The crate `loom/` next to this one compiles the same files with its own `sync` module, in which
//! every name below is loom's. A `cfg(loom)` inside this crate was rejected: it would put the model
//! checker into the lock file of every user of the rings.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence,
};

// Some routers (MIPS, old Arm, PowerPC) have no 64-bit atomics.
pub(crate) use portable_atomic::AtomicU64;

/// A cell with loom's interface: access by closure, so that a model sees when it happens.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

/// The fence between publishing and checking for a sleeping thread, and between announcing sleep
/// and checking the condition. A function, so that a model can remove it and show what is lost
/// then.
#[inline]
pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}

//! The items of `aulos-rt`'s `sync`, from loom.

pub use loom::cell::UnsafeCell;
pub use loom::sync::Arc;
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Removes the fences, to show that they are needed. A plain atomic: it is not part of the model.
pub static WITHOUT_FENCES: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

pub(crate) fn full_fence() {
    if !WITHOUT_FENCES.load(std::sync::atomic::Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

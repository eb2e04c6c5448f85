//! What `aulos-rt`'s `sync` offers, from loom.

pub use loom::cell::UnsafeCell;
pub use loom::sync::Arc;
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Takes the fences out, to show what they are for. A plain atomic: it is no part of the model.
pub static WITHOUT_FENCES: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

pub(crate) fn full_fence() {
    if !WITHOUT_FENCES.load(std::sync::atomic::Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    }
}

//! What `aulos-rt`'s `sync` offers, from loom.

pub use loom::cell::UnsafeCell;
pub use loom::sync::Arc;
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

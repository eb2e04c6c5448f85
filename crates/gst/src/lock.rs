//! Locks of the elements.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another thread: it leaves nothing half done that a caller would mind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

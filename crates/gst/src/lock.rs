//! Locks of the elements.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another thread: the next buffer or property sets the state anew.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Limits that are small enough for a model to reach.

pub(crate) const NOTIFIER_CAPACITY: usize = 2;
pub(crate) const MAX_NOTIFIERS: usize = 2;
pub(crate) const MAX_CALLBACKS: usize = 3;

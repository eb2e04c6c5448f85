//! Sizes that are fixed at compile time. In one place, because the loom models need smaller ones.

/// Notifications per notifier between two polls before they lose their order: 4 KiB of memory.
pub(crate) const NOTIFIER_CAPACITY: usize = 256;

/// Notifiers (real-time threads) per dispatcher. A notification reads one number of each notifier
/// in use.
pub(crate) const MAX_NOTIFIERS: usize = 64;

/// Callbacks per dispatcher; each takes four bytes in every notifier.
pub(crate) const MAX_CALLBACKS: usize = 256;

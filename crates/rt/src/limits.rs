//! Sizes that are fixed at compile time. In one place, because the models need them smaller.

/// Announcements per line between two looks before they lose their order: 4 KiB of memory.
pub(crate) const NOTIFIER_CAPACITY: usize = 256;

/// Real-time threads per dispatcher. Announcing reads one number of each that is in use.
pub(crate) const MAX_NOTIFIERS: usize = 64;

/// Callbacks per dispatcher; each costs four bytes in every line.
pub(crate) const MAX_CALLBACKS: usize = 256;

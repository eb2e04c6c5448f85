//! Sizes that are fixed at compile time. In one place, because the models need them smaller.

/// Announcements per line between two looks before they lose their order: 4 KiB of memory.
pub(crate) const LINE: usize = 256;

/// Real-time threads per dispatcher. Announcing reads one number of each that is in use.
pub(crate) const MOST_LINES: usize = 64;

/// Callbacks per dispatcher; each costs four bytes in every line.
pub(crate) const MOST_TARGETS: usize = 256;

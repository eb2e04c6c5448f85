//! Limits that are small enough for a model to reach.

pub(crate) const LINE: usize = 2;
pub(crate) const MOST_LINES: usize = 2;
pub(crate) const MOST_TARGETS: usize = 3;

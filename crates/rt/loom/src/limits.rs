//! Small enough that a model can fill it.

pub(crate) const LINE: usize = 2;
pub(crate) const MOST_LINES: usize = 2;
pub(crate) const MOST_TARGETS: usize = 3;

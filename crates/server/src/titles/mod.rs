//! The titles of stations: the files in which they are kept.

pub(crate) mod store;

//! The configuration in use, and its replacement by a reload.

pub(crate) mod reload;

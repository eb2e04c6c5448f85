//! What is recorded: the formats of its files.

pub mod format;

//! Every test of the pipe runs twice: with memory that is mapped twice in a row, and without, where
//! a range across the end goes through a scratch buffer.

#[cfg(target_os = "linux")]
mod mirrored;
mod plain;

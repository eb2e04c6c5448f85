//! Every test of the pipe runs twice: over memory that is mapped twice in a row, and over memory
//! that is not, where a range across the end goes through a scratch buffer.

#[cfg(target_os = "linux")]
mod mirrored;
mod plain;

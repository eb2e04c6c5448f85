//! With memory that every system supports.

const MIRRORED: bool = false;

#[allow(clippy::duplicate_mod, reason = "the same tests over other memory")]
#[path = "suite.rs"]
mod suite;

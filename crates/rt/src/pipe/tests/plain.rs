//! What every system has.

const MIRRORED: bool = false;

#[allow(clippy::duplicate_mod, reason = "the same tests over other memory")]
#[path = "suite.rs"]
mod suite;

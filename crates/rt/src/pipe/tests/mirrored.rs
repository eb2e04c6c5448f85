//! With memory that is mapped twice.

const MIRRORED: bool = true;

#[path = "suite.rs"]
mod suite;

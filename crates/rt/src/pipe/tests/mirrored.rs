//! Where the system can map memory twice.

const MIRRORED: bool = true;

#[path = "suite.rs"]
mod suite;

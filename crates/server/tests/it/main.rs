//! The daemon as a library.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod embed;

//! A player before servers that misbehave, on loopback. Those that behave are in the black box.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests; clippy sees only functions that are marked as such"
)]

mod hostile;
mod server;
mod websocket;

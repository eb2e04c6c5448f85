//! Benchmarks of the whole server compared with others: ratios within one run, the servers
//! alternating.
//!
//! A benchmark is not a test: nothing here fails because it is slow.

pub mod fanout;
pub mod mounts;
pub mod row;
pub mod server;
pub mod srt;

/// A number from the environment, for a shorter run.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

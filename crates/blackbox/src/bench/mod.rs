//! The whole server beside its peers: ratios inside one run, contestants taking turns.
//!
//! A benchmark is no test: nothing here fails because something is slow.

pub mod fanout;
pub mod row;
pub mod server;

/// A number from the environment, for a shorter try.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

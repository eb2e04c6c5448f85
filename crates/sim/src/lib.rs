//! The simulation for tests: virtual clocks, networks with faults, drifting sound cards, signals.
//!
//! An hour over a bad wifi is simulated in a second, and the same seed gives the same hour. This
//! crate is a dev-dependency only. Real sockets and sleeps were rejected for scenarios: they would
//! test the machine that runs the test.

#![forbid(unsafe_code)]

mod card;
mod clock;
mod network;
mod programme;
mod signal;
pub mod snap;

pub use card::SoundCard;
pub use clock::LocalClock;
pub use network::{DatagramLink, Link, StreamLink};
pub use programme::Programme;
pub use signal::{Noise, Sawtooth, Sine, Sweep};

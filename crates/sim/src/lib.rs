//! The test world: virtual clock, bad network, drifting card, signals.
//!
//! An hour of a bad evening on wifi runs in a second, and the same seed is the same evening. Nothing
//! in here is ever a normal dependency. Real sockets and sleeps were rejected for scenarios: they
//! test the machine that the test runs on.

#![forbid(unsafe_code)]

mod card;
mod clock;
mod network;
mod programme;
mod random;
mod signal;
pub mod snap;

pub use card::SoundCard;
pub use clock::LocalClock;
pub use network::{DatagramLink, Link, StreamLink};
pub use programme::Programme;
pub use random::SimRng;
pub use signal::{Noise, Sawtooth, Sine, Sweep};

//! The test world: virtual clock, bad network, drifting card, signals.

#![forbid(unsafe_code)]

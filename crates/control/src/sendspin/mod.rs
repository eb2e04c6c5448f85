//! Sendspin clients: who is let in, and what each is told of its group.
//!
//! A Sendspin client is one more client of the registry; here is only what Snapcast has no
//! words for.

mod artwork;
pub(crate) mod calls;
mod rooms;
mod trust;

pub use artwork::{ArtworkJob, ArtworkRenditions};

pub(crate) use rooms::{Rooms, command};
pub use trust::{ClientRecord, SendspinTrust, WaitingClient};

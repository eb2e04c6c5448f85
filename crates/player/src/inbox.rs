//! What other threads send to the player's.

use std::io;
use std::net::SocketAddr;

use crate::discovery::FoundServer;

/// What reaches the player's thread.
#[derive(Debug)]
pub(crate) enum PlayerCommand {
    Stop,
    /// Where the server is.
    Resolved(io::Result<Resolution>),
}

/// The result of a look-up or search.
#[derive(Debug)]
pub(crate) enum Resolution {
    /// The addresses of the server's name.
    Addresses(Vec<SocketAddr>),
    /// A server has answered the search.
    Found(FoundServer),
    /// None has, or none of the wanted name; the names of those that have.
    NotFound(Vec<String>),
}

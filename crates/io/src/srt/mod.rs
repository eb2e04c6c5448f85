//! SRT on a UDP socket: the link that sources and pushes share, and the feeder of a source.
//!
//! Everything about the protocol is in [`aulos_session::srt`]; here are the socket, the lookup of
//! names and the pauses between calls.

mod feeder;
mod link;

pub use feeder::{SrtFeeder, SrtFeederState};
pub use link::{SrtLink, SrtLinkConfig, SrtLinkEvent, SrtLinkStatus, SrtProblem, SrtRole};

//! Sans-IO peers and wire formats: bytes to meaning and back.
//!
//! Nothing in here reads a clock, opens a socket or owns a thread; `now` is always an argument and
//! bytes come and go as slices. Protocols are written from their tables, not with a parser
//! framework: every layout here fits on a page, and a framework would hide the one thing that a
//! reader looks for, which length is checked where.
//!
//! Whatever a peer sends, nothing in this crate panics, hangs or grows without bound; each limit is
//! a named constant. The property tests and [`fuzz`] hold that promise.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod bytes;
pub mod flac;
#[doc(hidden)]
pub mod fuzz;
pub mod http;
pub mod icecast;
mod json;
mod marker;
pub mod ogg;
pub mod packets;
mod patch;
pub mod rtp;
pub mod sap;
pub mod sdp;
pub mod snap;
pub mod titles;
pub mod uri;
pub mod wav;
pub mod ws;

pub use marker::Marker;
pub use patch::Patch;

//! Sans-IO protocol machines and wire formats: parsing and encoding.
//!
//! Nothing in this crate reads a clock, opens a socket or owns a thread: `now` is always an
//! argument, and bytes are passed as slices. The parsers are written by hand from the tables of the
//! standards, without a parser framework: every layout fits on a page, and every length check stays
//! visible.
//!
//! No input from a peer makes this crate panic, hang or grow without bound; each limit is a named
//! constant. The property tests and the fuzz targets check this.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod bytes;
mod crc;
pub mod flac;
#[cfg(feature = "hls")]
pub mod hls;
pub mod http;
pub mod icecast;
mod id3;
mod json;
pub mod m3u8;
mod marker;
pub mod mdns;
pub mod mp3;
pub mod mpegts;
pub mod nats;
pub mod ogg;
pub mod packets;
mod patch;
pub mod rtp;
pub mod sap;
pub mod sdp;
pub mod sendspin;
pub mod snap;
pub mod srt;
pub mod titles;
pub mod uri;
pub mod wav;
pub mod ws;

pub use marker::FileMarker;
pub use patch::Patch;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

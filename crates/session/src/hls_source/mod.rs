//! HTTP Live Streaming as a source (RFC 8216), without its connections.
//!
//! ```text
//!  playlists --> HlsClient --> segments, whole and decrypted --> SegmentPacer --> decoder
//!                  ^   |                                           ^
//!       answers ---'   '--> what to fetch next           clock of the stream
//! ```
//!
//! [`HlsClient`] chooses a variant, follows its playlist, and names one resource after the other to
//! fetch. Segments arrive in bursts of 4 to 10 s; [`SegmentPacer`] releases them in real time, at
//! the rate at which the sender makes them, so that what is behind it sees a live source.

mod client;
mod decrypt;
mod error;
mod media_state;
mod pacer;
#[cfg(test)]
mod tests;
mod variant;

pub use client::{
    HeldMedia, HlsAddress, HlsClient, HlsInput, HlsOutput, HlsRequest, HlsSegment, HlsSourceStatus,
};
pub use error::HlsError;
pub use pacer::SegmentPacer;
pub use variant::{InvalidVariantChoice, VariantChoice};

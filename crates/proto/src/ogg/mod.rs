//! Ogg pages, and Opus in Ogg: as an endless HTTP stream that listeners join in the middle, and as
//! a file with an exact length that can be read while it grows.
//!
//! Every listener gets individual pages, because sequence numbers, positions and checksums count
//! from the join; only the Opus packets are shared. Sending the same pages to all listeners was
//! rejected, because browsers then wait for the missed hours or try to seek to them.
//!
//! Sources: RFC 3533 (Ogg), RFC 7845 (Ogg Opus).

mod headers;
mod opus;
mod page;
mod scan;

pub use headers::header_packets;
pub(crate) use opus::head_of as opus_head_of;
pub use opus::{OpusFile, OpusStream, PRE_SKIP, UnsupportedOpusLayout, head as opus_head};
pub use page::{
    Page, PageBuilder, PageError, PageWriter, ParsedPage, StreamBoundary, mark_last_page,
    parse_page,
};
pub use scan::{LastPage, OggScanReport, OggScanner};

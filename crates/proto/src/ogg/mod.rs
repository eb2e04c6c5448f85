//! Ogg pages, and Opus in them: for an endless HTTP stream that somebody joins in the middle, and for
//! a file whose length is exact, and that can be read while it grows.
//!
//! Every listener gets pages of its own, because sequence numbers, positions and checksums count
//! from where he joined; only the Opus packets inside are shared. Sending everybody the same pages
//! was rejected: browsers then wait for, or seek to, the hours that they have missed.
//!
//! Sources: RFC 3533 (Ogg), RFC 7845 (Ogg Opus).

mod opus;
mod page;
mod scan;

pub use opus::{OpusFile, OpusStream, PRE_SKIP, UnsupportedOpusLayout};
pub use page::{
    Page, PageBuilder, PageError, PageWriter, ParsedPage, StreamBoundary, mark_last_page,
    parse_page,
};
pub use scan::{LastPage, OggScanReport, OggScanner};

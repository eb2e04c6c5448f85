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
mod walk;

pub use opus::{NotInOggOpus, OpusFile, OpusStream, PRE_SKIP};
pub use page::{Bundle, Ends, Page, PageError, Parsed, Writer, end, parse};
pub use walk::{Last, Walk, Whole};

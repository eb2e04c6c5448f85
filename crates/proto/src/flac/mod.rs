//! FLAC outside of any codec (RFC 9639): what is in front of the sound, and where frames begin and
//! end.
//!
//! A *block* is here what the standard calls so: the samples that one FLAC frame holds.

mod file;
mod header;
mod info;
mod md5;
mod scan;

pub use file::{Head, Walk, Whole};
pub(crate) use header::{Header, Parsed};
pub use info::Info;
pub use md5::Md5;
pub(crate) use scan::{Look, Scan};

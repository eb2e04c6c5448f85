//! FLAC outside of any codec (RFC 9639): what is in front of the sound, and where frames begin and
//! end.
//!
//! A *block* is here what the standard calls so: the samples that one FLAC frame holds.

mod chapters;
mod file;
mod frame_end;
mod header;
mod info;
mod md5;

pub use chapters::Chapters;
pub use file::{FlacFileHeader, FlacScanReport, FlacScanner};
pub(crate) use frame_end::{FrameEnd, FrameEndSearch};
pub(crate) use header::{FrameHeader, ParsedFrameHeader};
pub use info::StreamInfo;
pub use md5::Md5;

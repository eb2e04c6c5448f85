//! FLAC without a codec (RFC 9639): metadata, frame headers and frame boundaries.
//!
//! A *block* is a block in the sense of the standard: the samples of one FLAC frame.

mod chapters;
mod file;
mod frame_end;
mod header;
mod info;
mod md5;
mod renumber;
mod verbatim;

pub use chapters::Chapters;
pub use file::{FlacFileHeader, FlacScanReport, FlacScanner};
pub(crate) use frame_end::{FrameEnd, FrameEndSearch};
pub(crate) use header::{FrameHeader, ParsedFrameHeader};
pub use info::StreamInfo;
pub use md5::Md5;
pub use renumber::FrameRenumberer;
pub use verbatim::VerbatimFrameWriter;

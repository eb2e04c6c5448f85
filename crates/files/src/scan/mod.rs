//! Loudness measurement of many files: `aulos scan` without its output.
//!
//! ```text
//!  paths -> find_files -> [file, ...] -> scan_files: one decoder and one meter per file
//!                                         -> one ScanReport per file, in the order of the files
//! ```
//!
//! A file that cannot be measured results in a [`ScanReport`] with a [`ScanError`] and never ends
//! the run. Files are assigned one by one, in order: splitting the list in halves, as a parallel
//! iterator does by default, would delay the first line of output until half of the work is done.

mod error;
mod find;
mod measure;
mod meter_file;
mod options;
mod positions;
mod progress;
mod run;
mod segment;
mod sound;
pub mod tag;
#[cfg(test)]
mod tests;

pub use error::ScanError;
pub(crate) use find::walk_folder;
pub use find::{ScanFile, find_all_files, find_files, has_audio_name};
pub use measure::{AudioProperties, LoudnessSummary, ScanReport, measure_file};
pub use meter_file::LoudnessCurve;
pub use options::ScanOptions;
pub(crate) use positions::positions;
pub use progress::ScanProgress;
pub use run::{ScanEvent, scan_files};
pub use segment::{FileSegment, join_segments, measure_segment};

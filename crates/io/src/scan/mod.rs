//! Many files measured: what `aulos scan` does, apart from what it prints.
//!
//! ```text
//!  paths -> find -> [file, file, ...] -> run: one decoder and one meter per file, some at a time
//!                                         -> one Report per file, in the order of the files
//! ```
//!
//! A file that cannot be measured is a [`Report`] with a [`ScanError`], never the end of the run.
//! Files are handed out one by one, in order: splitting the list in halves, as a parallel iterator
//! does by itself, would hold the first line back until half of the work is done.

mod error;
mod find;
mod measure;
mod meter_file;
mod positions;
mod progress;
mod run;
mod sound;
pub mod tag;
#[cfg(test)]
mod tests;

pub use error::ScanError;
pub use find::{ScanFile, find_files};
pub use measure::{FileShape, LoudnessSummary, ScanOptions, ScanReport, measure_file};
pub use meter_file::LoudnessCurve;
pub(crate) use positions::positions;
pub use progress::ScanProgress;
pub use run::{ScanEvent, scan_files};

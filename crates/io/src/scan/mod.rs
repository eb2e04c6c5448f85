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
mod listen;
mod measure;
mod place;
mod progress;
mod run;
mod sound;
pub mod tag;
#[cfg(test)]
mod tests;

pub use error::ScanError;
pub use find::{Found, find};
pub use listen::Curve;
pub use measure::{Loudness, Options, Report, Shape, measure};
pub(crate) use place::positions;
pub use progress::Progress;
pub use run::{Event, run};

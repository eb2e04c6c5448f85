//! The legal logger: an index of a recorder's files that shows later changes, holds that retention
//! respects, gaps with their causes, and exports by wall-clock time.
//!
//! ```text
//!  recorder --complete file--> LoggerIndex --line--> NAME.logger.jsonl    one line per file
//!  folder ------------------> LoggerCatalog: find, gaps, export, verify   without the server
//!  NAME.holds.jsonl   ranges that must not be deleted
//!  NAME.exports.jsonl who exported which range
//! ```
//!
//! Each line of the index has the hash of the line before it and ends with its own, so a line or a
//! file that was changed, removed or added later is found ([`verify_log`]). Only the last lines
//! could be cut off unseen; a head that is kept elsewhere shows that as well. The sidecars have
//! the same facts, so that a lost index is written anew. A database was rejected: a stranger must
//! be able to check the log with `sha256sum` alone.

mod catalog;
mod coverage;
mod export;
mod gap;
mod holds;
mod index;
mod index_line;
mod local_time;
mod observer;
mod report;
mod verify;

pub use catalog::{LoggerCatalog, LoggerError};
pub use coverage::{ExportPart, FoundRange};
pub use export::{
    ExportError, ExportOutput, ExportSummary, MAX_EXPORT, exact_bits, export_log, is_exportable,
    note_export,
};
pub use gap::{LogGap, LogGapCause};
pub use holds::{Hold, MAX_REASON_BYTES, add_hold, list_holds, release_hold};
pub use index_line::LoggedFile;
pub use local_time::{LocalTimeError, local_text, parse_local_time};
pub use observer::{IndexState, LoggerIndex};
pub use report::LogReport;
pub use verify::{VerifyProblem, VerifyReport, verify_log};

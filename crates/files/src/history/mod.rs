//! The history of a station's loudness on disk, from seconds to years.
//!
//! ```text
//!  samples, 10 a second -> record of a second -> TierStack: blocks of four tiers
//!                                                  |  1 s, 10 s, 1 min, 15 min
//!                          day files, append-only <-  HistoryStore  -> Series of a query
//! ```
//!
//! A data base was rejected: a commit a minute of 10 stations writes 200 to 560 MB a day with the
//! embedded ones, and 24 MB as whole blocks that are only appended. A day file needs no recovery
//! but a look at its end, can be copied at any time, and is forgotten by deleting it. The layout is
//! in `docs/reference/history.md`.
//!
//! [`HistoryStore`] does the I/O; everything else here is a function of bytes, records and times.

mod block;
mod day_file;
mod query;
mod record;
mod stack;
mod store;
#[cfg(test)]
mod tests;
mod tier;

pub use query::{HistoryRange, InvalidRange, MAX_POINTS, MAX_SPAN_S, Series};
pub use record::{HistoryFigure, HistoryFlags, HistoryRecord};
pub use store::{HistoryPoint, HistoryStats, HistoryStore, MAX_HISTORY_STATIONS};
pub use tier::{DEFAULT_KEEP_DAYS, HistoryTier, KEEP_DAYS};

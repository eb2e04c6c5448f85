//! Recordings on disk: the recorder's edge.
//!
//! ```text
//!  station -ring-> Job: Recorder -> Framer -> Medium   one thread for each disk
//!                   |                           `-> Syncer: makes last what was written
//!                   `-> Finisher: names, sums, sidecars, deletes, repairs
//!  Deck: commands and status, from any thread
//! ```
//!
//! A file grows under its name with `.part` behind it and can be read at every moment; complete, it
//! gets the name, which nothing else has, and a sidecar in JSON. What the disk does not take waits:
//! 64 kB in the file's own buffer, the rest in the ring, and when that is full as well, silence of
//! the exact length stands in the file for what was lost.

mod clock;
mod file;
mod finish;
pub mod format;
mod job;
mod kept;
mod marker;
mod name;
mod note;
mod report;
mod retain;
mod run;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod wish;

pub use clock::{local_at, parse_utc};
pub use marker::{
    MAX_LABEL, MAX_MARKERS, MAX_WAITING, Marker, MarkerRefused, MarkerRequest, is_label,
};
pub use name::{BadPattern, MAX_NAME, Pattern, rfc3339};
pub use report::{Closed, Doing, Event, Measured, Rule, Segment, Status, Trouble, What};
pub use run::{CannotRecord, Deck, Recorders, STOP_LIMIT};
pub use wish::{
    DEFAULT_FLUSH, DEFAULT_PATTERN, DEFAULT_SYNC, Heir, MAX_FLUSH, MIN_SYNC, Retention, Safety,
    Sync, Wish,
};

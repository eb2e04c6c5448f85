//! The counters of a source from a cluster.

use super::RecordError;

/// Messages by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsInputCounts {
    /// Chunks that were accepted.
    pub accepted: u64,
    /// Messages that are no record of ours, or of another version.
    pub malformed: u64,
    /// Messages with a wrong checksum.
    pub checksum: u64,
    /// Chunks of a later epoch or of another node, or before the stream's record has come.
    pub foreign: u64,
    /// Chunks and records of an earlier epoch: another origin has the stream now.
    pub fenced: u64,
    /// Chunks that were accepted already.
    pub repeated: u64,
    /// Chunks that a later one has overtaken.
    pub out_of_order: u64,
    /// Chunks whose number is too far ahead.
    pub implausible: u64,
    /// Chunks that never came, as the numbers of others show.
    pub missing: u64,
    /// Messages that were dropped because they were not taken in time.
    pub overflow: u64,
}

impl NatsInputCounts {
    /// The counts with the names of their causes.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("accepted", self.accepted),
            ("malformed", self.malformed),
            ("checksum", self.checksum),
            ("foreign", self.foreign),
            ("fenced", self.fenced),
            ("repeated", self.repeated),
            ("out_of_order", self.out_of_order),
            ("implausible", self.implausible),
            ("missing", self.missing),
            ("overflow", self.overflow),
        ]
    }

    pub(super) const fn count_refused(&mut self, error: RecordError) {
        match error {
            RecordError::Checksum => self.checksum += 1,
            _ => self.malformed += 1,
        }
    }
}

//! The status of a file with many writers.

use super::error::FileWriteError;

/// The status of a file. Bytes count from when it was opened here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileWriterStatus {
    /// Bytes of all accepted records.
    pub accepted: u64,
    /// Accepted bytes that are in the file.
    pub written: u64,
    /// Written bytes that would survive a power failure.
    pub synced: u64,
    /// Records that [`RealtimeProducer::add_or_drop`](super::RealtimeProducer::add_or_drop)
    /// dropped.
    pub dropped_records: u64,
    /// The bytes of these records.
    pub dropped_bytes: u64,
    /// The state of the file.
    pub state: FileWriterState,
}

/// The state of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FileWriterState {
    /// It accepts and writes records.
    Open,
    /// The disk or a quota is full. Accepted data is kept, and the write is retried with increasing
    /// pauses of at most a second.
    DiskFull,
    /// It accepts no more records, and writes what is pending.
    Closing,
    /// Everything is written.
    Closed,
    /// It cannot be written any more.
    Failed(FileWriteError),
}

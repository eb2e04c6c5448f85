//! A log for threads that must not format, lock or write.
//!
//! The real-time side stores a record as it is (an enum of events, for example) with its time;
//! another thread formats it. Records that do not fit are counted, and the count appears at the
//! position where they are missing. Formatting is too slow for the real-time side
//! (`docs/decisions/real-time-memory.md`).
//!
//! The server does not use it: its real-time threads publish counters. It is for other programs;
//! the example `c_callback` shows it.

use crate::ring::{Consumer, Producer, ring};

/// Creates a log with room for `capacity` records that were not read yet.
///
/// Not for a real-time thread: allocates.
///
/// # Panics
/// If that many records do not fit into memory.
///
/// # Examples
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Event {
///     Underrun { frames: u32 },
/// }
///
/// let (mut log, mut reader) = aulos_rt::rt_log(1);
/// log.push(1_000, Event::Underrun { frames: 64 });
/// log.push(2_000, Event::Underrun { frames: 65 });
/// let entry = reader.next().unwrap();
/// assert_eq!((entry.nanos, entry.record), (1_000, Event::Underrun { frames: 64 }));
/// log.push(3_000, Event::Underrun { frames: 66 });
/// let entry = reader.next().unwrap();
/// assert_eq!((entry.nanos, entry.lost_before), (3_000, 1));
/// ```
#[must_use]
pub fn rt_log<T: Copy + Send>(capacity: usize) -> (RtLog<T>, RtLogReader<T>) {
    let (entries, there) = ring(capacity);
    (RtLog { entries, lost: 0 }, RtLogReader { entries: there })
}

/// The real-time end of a log.
#[derive(Debug)]
pub struct RtLog<T> {
    entries: Producer<LogEntry<T>>,
    /// Number of records lost since the latest one that was stored.
    lost: u32,
}

impl<T: Copy + Send> RtLog<T> {
    /// Stores a record of an event at `nanos`, on the clock that the reader expects. A record that
    /// does not fit is counted as lost.
    ///
    /// # Real-time
    /// Wait-free, no allocation, no system call.
    #[inline]
    pub fn push(&mut self, nanos: u64, record: T) {
        let entry = LogEntry { nanos, record, lost_before: self.lost };
        self.lost = match self.entries.push(entry) {
            Ok(()) => 0,
            Err(_) => self.lost.saturating_add(1),
        };
    }
}

/// The reading end of a log. An iterator over the records that are there now: after `None` there
/// may be more later.
#[derive(Debug)]
pub struct RtLogReader<T> {
    entries: Consumer<LogEntry<T>>,
}

impl<T: Copy + Send> RtLogReader<T> {
    /// Whether the real-time end is gone; its records can still be read.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.entries.is_abandoned()
    }
}

impl<T: Copy + Send> Iterator for RtLogReader<T> {
    type Item = LogEntry<T>;

    fn next(&mut self) -> Option<LogEntry<T>> {
        self.entries.pop()
    }
}

/// One record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEntry<T> {
    /// Time of the event.
    pub nanos: u64,
    /// The event.
    pub record: T,
    /// Number of records that were lost between the previous one and this one.
    pub lost_before: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_counted_where_it_is_missing() {
        let (mut log, reader) = rt_log(3);
        (0..10).for_each(|i| log.push(i, i));
        let mut reader = reader;
        let lost: Vec<_> = reader.by_ref().map(|entry| (entry.record, entry.lost_before)).collect();
        assert_eq!(lost, [(0, 0), (1, 0), (2, 0)]);
        log.push(10, 10);
        log.push(11, 11);
        let lost: Vec<_> = reader.by_ref().map(|entry| (entry.record, entry.lost_before)).collect();
        assert_eq!(lost, [(10, 7), (11, 0)]);
        drop(log);
        assert!(reader.is_abandoned());
    }
}

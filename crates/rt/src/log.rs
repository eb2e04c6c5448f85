//! A log for threads that may not format, lock or write.
//!
//! The real-time side stores a record as it is (a small enum of facts, say) with its time; another
//! thread turns it into words. Records that find no room are counted, and the count shows up at
//! the place where they are missing. Formatting into a fixed buffer on the real-time side was
//! rejected: it costs microseconds there, and the words are usually read by nobody.

use crate::ring::{Consumer, Producer, ring};

/// Makes a log with room for `capacity` records that were not read yet.
///
/// Not for a real-time thread: allocates.
///
/// # Panics
/// When that many records do not fit into memory.
///
/// # Examples
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Event {
///     Underrun { frames: u32 },
/// }
///
/// let (mut log, mut reader) = aulos_rt::rt_log(1);
/// log.note(1_000, Event::Underrun { frames: 64 });
/// log.note(2_000, Event::Underrun { frames: 65 });
/// let entry = reader.next().unwrap();
/// assert_eq!((entry.nanos, entry.record), (1_000, Event::Underrun { frames: 64 }));
/// log.note(3_000, Event::Underrun { frames: 66 });
/// let entry = reader.next().unwrap();
/// assert_eq!((entry.nanos, entry.lost_before), (3_000, 1));
/// ```
#[must_use]
pub fn rt_log<T: Copy + Send>(capacity: usize) -> (RtLog<T>, RtLogReader<T>) {
    let (entries, there) = ring(capacity);
    (RtLog { entries, lost: 0 }, RtLogReader { entries: there })
}

/// The real-time side of a log.
#[derive(Debug)]
pub struct RtLog<T> {
    entries: Producer<LogEntry<T>>,
    /// Since the latest record that was stored.
    lost: u32,
}

impl<T: Copy + Send> RtLog<T> {
    /// Stores a record of what happened at `nanos`, on whatever clock the reader expects. Without
    /// room it is counted and gone.
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

/// The side of a log that puts records into words. An iterator over what is there now: after `None`
/// there may be more later.
#[derive(Debug)]
pub struct RtLogReader<T> {
    entries: Consumer<LogEntry<T>>,
}

impl<T: Copy + Send> RtLogReader<T> {
    /// The real-time side is gone; what it noted can still be read.
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
    /// When it happened.
    pub nanos: u64,
    /// What happened.
    pub record: T,
    /// Records that were lost between the one before and this.
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

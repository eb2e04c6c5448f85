//! Lines of many threads for one output that may stand still, such as a log.
//!
//! A line is never waited for: what does not fit is lost and counted. The output is written by one
//! thread, which says how many lines are missing as soon as the output takes lines again. A pipe
//! whose reader stands still, a full disk and a closed terminal thus cost lines, and nothing else.
//!
//! Rejected: writing only when `poll` says that the output has room. A file on a network disk
//! always says so and then waits, and of two threads that were told so only one is right.

use std::io;
use std::time::Duration;

use crate::channel::{Receiver, Sender, TryRecvError, bounded};
use crate::sync::{Arc, AtomicU64, AtomicUsize, Ordering};

/// Creates a queue. Its writer is for a thread of its own.
#[must_use]
pub fn line_queue() -> (LineSender, LineWriter) {
    let (items, queued) = bounded(MAX_LINES);
    let counts = Arc::<Counts>::default();
    let sender = LineSender { items, counts: Arc::clone(&counts) };
    (sender, LineWriter { queued, counts, reason: None, is_torn: false })
}

/// Lines that wait: the output of seconds at the highest rate at which a server logs.
const MAX_LINES: usize = 4_096;

/// Bytes that wait, of all lines.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
struct Counts {
    /// Bytes of the lines that wait.
    bytes: AtomicUsize,
    /// Lines that were lost since this was last said.
    lost: AtomicU64,
    /// Lines that were lost since the beginning.
    total_lost: AtomicU64,
}

impl Counts {
    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.total_lost.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// Dropped when everything before it has been written.
    Flush(#[allow(dead_code, reason = "its drop is the answer")] Sender<()>),
}

/// The end of a queue that takes lines; its clones belong to the same queue.
#[derive(Clone, Debug)]
pub struct LineSender {
    items: Sender<Item>,
    counts: Arc<Counts>,
}

impl LineSender {
    /// Appends a line, which ends with a line feed, or a piece of one.
    ///
    /// Never waits: a line that does not fit is counted as lost. Allocates nothing, but wakes a
    /// thread, so it is not for a real-time thread.
    pub fn push(&self, line: Vec<u8>) {
        let length = line.len();
        let before = self.counts.bytes.fetch_add(length, Ordering::Relaxed);
        let fits = before.saturating_add(length) <= MAX_BYTES;
        if !fits || self.items.try_send(Item::Line(line)).is_err() {
            self.counts.bytes.fetch_sub(length, Ordering::Relaxed);
            self.counts.lose();
        }
    }

    /// How many lines were lost since the beginning, whether the output says so or not.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.counts.total_lost.load(Ordering::Relaxed)
    }

    /// Waits until what was appended before has been written or lost, but no longer than `limit`;
    /// whether it has been.
    pub fn flush(&self, limit: Duration) -> bool {
        let (written, mut answer) = bounded(1);
        if self.items.send_timeout(Item::Flush(written), limit).is_err() {
            return false;
        }
        matches!(answer.recv_timeout(limit), Err(TryRecvError::Closed))
    }
}

/// Lines that are missing in an output.
#[derive(Debug)]
#[non_exhaustive]
pub struct LostLines {
    /// How many.
    pub count: u64,
    /// Why the output refused the last of them; none if they did not fit into the queue.
    pub reason: Option<io::Error>,
}

/// The end of a queue that writes.
#[derive(Debug)]
pub struct LineWriter {
    queued: Receiver<Item>,
    counts: Arc<Counts>,
    /// Why the output refused the last line.
    reason: Option<io::Error>,
    /// Whether the output has the beginning of a line whose rest it refused.
    is_torn: bool,
}

impl LineWriter {
    /// Writes until the last sender is dropped. `report` makes the line that says what is missing.
    pub fn run(mut self, out: &mut impl io::Write, report: impl Fn(&LostLines) -> Vec<u8>) {
        while let Some(item) = self.queued.recv() {
            let Item::Line(line) = item else { continue };
            self.counts.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.report_lost(out, &report);
            if self.is_refused(out, &line) {
                self.counts.lose();
            }
        }
    }

    /// Says what is missing before this place, if the output takes it.
    fn report_lost(&mut self, out: &mut impl io::Write, report: &impl Fn(&LostLines) -> Vec<u8>) {
        let count = self.counts.lost.swap(0, Ordering::Relaxed);
        if count == 0 {
            return;
        }
        let text = report(&LostLines { count, reason: self.reason.take() });
        if self.is_refused(out, &text) {
            self.counts.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn is_refused(&mut self, out: &mut impl io::Write, line: &[u8]) -> bool {
        let end_of_torn_line: &[u8] = if self.is_torn { b"\n" } else { b"" };
        for part in [end_of_torn_line, line] {
            match write_all(out, part) {
                Ok(()) => self.is_torn = false,
                Err((written, error)) => {
                    self.is_torn |= written > 0;
                    self.reason = Some(error);
                    return true;
                }
            }
        }
        false
    }
}

/// Writes everything, or returns how many bytes were written before the error.
fn write_all(out: &mut impl io::Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = bytes.get(written..) {
        match out.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    out.flush().map_err(|error| (written, error))
}

#[cfg(test)]
mod tests;

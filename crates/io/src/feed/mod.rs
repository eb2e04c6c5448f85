//! Sources whose bytes come through a file descriptor: FIFO, TCP, process, standard input.
//!
//! A feeder is looked at on a tick, not woken by its descriptor. A sender that writes one frame at
//! a time would otherwise wake us 48,000 times a second, and a FIFO without a writer reports a
//! hang-up without end. The kernel's own buffer bridges the ticks.

mod bytes;
mod fifo;
mod file;
mod process;
mod stdin;
mod stream;
mod tcp;

use aulos_core::{Instant, Span};

pub use bytes::{ByteFeed, FEED_BLOCKS};
pub use fifo::{Fifo, FifoError, FifoMode, make_fifo};
pub use file::{FileSource, FileState};
pub use process::{Process, ProcessConfig, own, split_arguments};
pub use stdin::Stdin;
pub use stream::{RAW_BYTES, StreamParts, StreamSource, StreamState, StreamWriter};
pub use tcp::{TcpClient, TcpServer};

/// Moves bytes from a descriptor into a station's ring, when it is told to look.
pub trait Feeder: Send {
    /// Takes what is there, without waiting, and says when to look again.
    fn tick(&mut self, now: Instant) -> Next;
}

/// When to look at a feeder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Sound is flowing.
    Soon,
    /// Nothing is going on.
    Later,
    /// It is over for good.
    Never,
}

/// What a feeder is doing, for people to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedState {
    /// Open, and nobody is sending.
    Waiting,
    /// A sender is there.
    Running,
    /// It could not be opened or broke; holds the system's error number. It will be tried again.
    Failed(i32),
    /// The sender has gone and will not come back (standard input).
    Finished,
}

/// The pause before the next try: 0.5 s, doubled up to 30 s, and back to the start after a minute
/// of health.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    delay: Span,
    retry_at: Instant,
    healthy_since: Option<Instant>,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { delay: FIRST_DELAY, retry_at: Instant::ZERO, healthy_since: None }
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.retry_at
    }

    pub(crate) const fn succeeded(&mut self, now: Instant) {
        self.healthy_since = Some(now);
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        if self.healthy_since.take().is_some_and(|since| now.since(since) >= HEALTHY_FOR) {
            self.delay = FIRST_DELAY;
        }
        self.retry_at = now + self.delay;
        self.delay = (self.delay + self.delay).min(LAST_DELAY);
    }
}

const FIRST_DELAY: Span = Span::from_millis(500);
const LAST_DELAY: Span = Span::from_secs(30);
const HEALTHY_FOR: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_half_a_minute_and_health_forgives() {
        let mut backoff = Backoff::new();
        let mut now = Instant::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            backoff.failed(now);
            pauses.push((backoff.retry_at - now).as_millis());
            now = backoff.retry_at;
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        backoff.succeeded(now);
        backoff.failed(now + Span::from_secs(61));
        assert!(backoff.is_due(now + Span::from_millis(61_500)));
    }
}

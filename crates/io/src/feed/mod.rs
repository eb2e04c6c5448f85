//! Sources that read from a file descriptor: FIFO, TCP, process, standard input, web radio.
//!
//! A feeder is polled on a tick and not woken by its descriptor. A sender of single frames would
//! otherwise cause a wake-up for each (`docs/decisions/reactors.md`). The kernel's buffer covers
//! the time between ticks.

mod bytes;
mod dj;
mod fifo;
mod http;
mod process;
mod stdin;
mod stream;
mod tcp;
#[cfg(test)]
mod testing;

use std::path::Path;

use aulos_core::{Instant, Rng, Span};

pub use bytes::{ByteFeed, FEED_BLOCKS};
pub use dj::{
    DJ_STALL_TIMEOUT, DjCounters, DjEndReason, DjFeeder, DjFeederState, DjMountPermit, DjMountSlot,
    DjStream,
};
pub use fifo::{FifoCounters, FifoError, FifoFeeder, FifoMode, make_fifo};
pub use http::{HttpBody, HttpBodyEnd, HttpBodyError, HttpFeeder, HttpFeederCommand};
pub use process::{ProcessConfig, ProcessFeeder, isolate_child, split_arguments};
pub use stdin::StdinFeeder;
pub use stream::{
    BodyMark, RAW_BYTES, StreamCounts, StreamError, StreamInfo, StreamReader, StreamState,
    StreamWriter, stream_channel,
};
pub use tcp::{TcpClientFeeder, TcpServerFeeder};

/// Moves bytes from a descriptor to the ring of a station when polled.
pub trait Feeder: Send {
    /// Reads what is available without waiting, and returns when to poll again.
    fn tick(&mut self, now: Instant) -> NextPoll;
}

/// When to poll a feeder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPoll {
    /// Soon: audio is flowing.
    Soon,
    /// Later: the feeder is idle.
    Later,
    /// Never: the feeder has finished.
    Never,
}

/// The state of a feeder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedState {
    /// Open, without a sender.
    Waiting,
    /// A sender is connected.
    Running,
    /// It could not be opened or failed, and will be retried. Holds the system's error number; 0
    /// for a program that has ended, and `EEXIST` where something else has the name of a FIFO.
    Failed(i32),
    /// The sender has gone and will not return (standard input).
    Finished,
}

impl FeedState {
    /// As [`FeedState::problem`], for the output of a program.
    #[must_use]
    pub fn program_problem(self, program: &Path) -> Option<String> {
        match self {
            Self::Failed(libc::ENOENT) if program.components().count() == 1 => {
                Some(format!("no program `{}` in PATH", program.display()))
            }
            Self::Failed(libc::ENOENT) => Some(format!("no such program: {}", program.display())),
            other => other.problem(),
        }
    }

    /// The problem as text, if there is one.
    #[must_use]
    pub fn problem(self) -> Option<String> {
        let Self::Failed(error) = self else { return None };
        Some(match error {
            0 => "the program has exited".to_owned(),
            libc::EEXIST => FifoError::NotAFifo.to_string(),
            libc::EXDEV => crate::beneath::OUTSIDE_ROOTS.to_owned(),
            error => std::io::Error::from_raw_os_error(error).to_string(),
        })
    }
}

/// Exponential back-off for retries: at most 0.5 s, then 1 s and so on up to 30 s, without end, and
/// from the beginning again after a minute without failure.
///
/// The pause is random between zero and that limit (full jitter), so that a thousand clients of a
/// failed server do not return at the same moment. The randomness comes from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The limits of the first and of the longest pause.
    bounds: (Span, Span),
    delay: Span,
    retry_at: Instant,
    healthy_since: Option<Instant>,
    rng: Rng,
}

impl Backoff {
    /// No failure so far. The same seed results in the same pauses.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self::between(FIRST_DELAY, LAST_DELAY, seed)
    }

    /// The same with pauses of at most `first`, doubled up to `last`.
    #[must_use]
    pub const fn between(first: Span, last: Span, seed: u64) -> Self {
        Self {
            bounds: (first, last),
            delay: first,
            retry_at: Instant::ZERO,
            healthy_since: None,
            rng: Rng::new(seed),
        }
    }

    /// Whether a retry is due.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.retry_at
    }

    /// When the next retry is due.
    #[must_use]
    pub const fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// Records that it works; the first call since a failure counts.
    pub fn succeeded(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// Records a failure.
    pub fn failed(&mut self, now: Instant) {
        if self.healthy_since.take().is_some_and(|since| now.since(since) >= HEALTHY_FOR) {
            self.delay = self.bounds.0;
        }
        self.retry_at = now + self.jitter();
        self.delay = (self.delay + self.delay).min(self.bounds.1);
    }

    /// Records a failure that a quick retry cannot fix.
    pub fn refused(&mut self, now: Instant) {
        self.healthy_since = None;
        self.delay = self.bounds.1;
        self.retry_at = now + self.jitter();
    }

    /// A random pause up to the current limit.
    fn jitter(&mut self) -> Span {
        let most = u128::try_from(self.delay.as_nanos()).unwrap_or(0) + 1;
        Span::from_nanos(i64::try_from((u128::from(self.rng.next_u64()) * most) >> 64).unwrap_or(0))
    }
}

const FIRST_DELAY: Span = Span::from_millis(500);
const LAST_DELAY: Span = Span::from_secs(30);
const HEALTHY_FOR: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_doubles_up_to_half_a_minute_and_health_forgives() {
        let mut backoff = Backoff::new(1);
        let mut now = Instant::ZERO;
        for most in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            assert_eq!(backoff.delay.as_millis(), most);
            backoff.failed(now);
            assert!(backoff.retry_at >= now && backoff.retry_at <= now + Span::from_millis(most));
            now = backoff.retry_at;
        }
        // Success is recorded repeatedly; the time of the first record counts.
        for second in 0..=60 {
            backoff.succeeded(now + Span::from_secs(second));
        }
        backoff.failed(now + Span::from_secs(61));
        assert!(backoff.is_due(now + Span::from_millis(61_500)));
        backoff.refused(now);
        assert_eq!(backoff.delay, LAST_DELAY);
    }

    #[test]
    fn a_hundred_feeds_reconnect_spread_over_the_delay() {
        let mut all: Vec<_> = (0..100).map(Backoff::new).collect();
        let now = Instant::from_nanos(1_000_000_000);
        for most in [500, 1_000, 2_000] {
            let mut histogram = [0; 10];
            for backoff in &mut all {
                backoff.failed(now);
                let pause = (backoff.retry_at - now).as_nanos();
                histogram[usize::try_from(pause / (most * 100_000)).unwrap().min(9)] += 1;
            }
            println!("pauses of 0 to {most} ms, in tenths: {histogram:?}");
            // Ten are expected in each bin; with full jitter a bin with more than 22 or fewer than
            // 2 has a probability of one in thousands, and the seeds are fixed.
            assert!(histogram.iter().all(|count| (2..=22).contains(count)), "{histogram:?}");
        }
    }
}

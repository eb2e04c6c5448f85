//! Sources whose bytes come through a file descriptor: FIFO, TCP, process, standard input.
//!
//! A feeder is looked at on a tick, not woken by its descriptor. A sender that writes one frame at
//! a time would otherwise wake us 48,000 times a second, and a FIFO without a writer reports a
//! hang-up without end. The kernel's own buffer bridges the ticks.

mod bytes;
mod dj;
mod fifo;
mod file;
mod http;
mod measure;
mod process;
mod stdin;
mod stream;
mod tcp;

use aulos_core::{Instant, Rng, Span};

pub use bytes::{ByteFeed, FEED_BLOCKS};
pub use dj::{
    DJ_STALL_TIMEOUT, DjCounters, DjEndReason, DjFeeder, DjFeederState, DjMountPermit, DjMountSlot,
    DjStream,
};
pub use fifo::{FifoCounters, FifoError, FifoFeeder, FifoMode, make_fifo};
pub use file::{FileSource, FileState};
pub use http::{HttpBody, HttpBodyEnd, HttpBodyError, HttpFeeder, HttpFeederCommand};
pub use measure::FileMeter;
pub use process::{ProcessConfig, ProcessFeeder, isolate_child, split_arguments};
pub use stdin::StdinFeeder;
pub use stream::{RAW_BYTES, StreamParts, StreamSource, StreamState, StreamWriter};
pub use tcp::{TcpClientFeeder, TcpServerFeeder};

/// Moves bytes from a descriptor into a station's ring, when it is told to look.
pub trait Feeder: Send {
    /// Takes what is there, without waiting, and says when to look again.
    fn tick(&mut self, now: Instant) -> NextPoll;
}

/// When to look at a feeder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPoll {
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
    /// It could not be opened or broke; holds the system's error number, 0 for a program that has
    /// ended, and `EEXIST` where something else has the name of a FIFO. It will be tried again.
    Failed(i32),
    /// The sender has gone and will not come back (standard input).
    Finished,
}

impl FeedState {
    /// What is wrong, if something is.
    #[must_use]
    pub fn problem(self) -> Option<String> {
        let Self::Failed(error) = self else { return None };
        Some(match error {
            0 => "the program has ended".to_owned(),
            libc::EEXIST => FifoError::NotAFifo.to_string(),
            libc::EXDEV => crate::decode::OUTSIDE_ROOTS.to_owned(),
            error => std::io::Error::from_raw_os_error(error).to_string(),
        })
    }
}

/// When to try again what has failed: after at most 0.5 s, then 1 s and so on up to 30 s, for ever,
/// and from the beginning again after a minute of health.
///
/// The pause is anything from nothing to that (full jitter): a thousand listeners whose server dies
/// do not all come back in the same moment. Chance is given from outside, as a seed.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first pause's limit, and the last one's.
    bounds: (Span, Span),
    delay: Span,
    retry_at: Instant,
    healthy_since: Option<Instant>,
    rng: Rng,
}

impl Backoff {
    /// Nothing has failed yet. Two with the same seed have the same pauses.
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

    /// Whether it is time to try.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.retry_at
    }

    /// When it is time to try.
    #[must_use]
    pub const fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// It works, since now or since it was said first.
    pub fn succeeded(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// It has failed.
    pub fn failed(&mut self, now: Instant) {
        if self.healthy_since.take().is_some_and(|since| now.since(since) >= HEALTHY_FOR) {
            self.delay = self.bounds.0;
        }
        self.retry_at = now + self.jitter();
        self.delay = (self.delay + self.delay).min(self.bounds.1);
    }

    /// It has failed in a way that asking again soon does not mend.
    pub fn refused(&mut self, now: Instant) {
        self.healthy_since = None;
        self.delay = self.bounds.1;
        self.retry_at = now + self.jitter();
    }

    /// Anything from nothing to the present delay.
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
        // It is said again and again that it works; what counts is since when.
        for second in 0..=60 {
            backoff.succeeded(now + Span::from_secs(second));
        }
        backoff.failed(now + Span::from_secs(61));
        assert!(backoff.is_due(now + Span::from_millis(61_500)));
        backoff.refused(now);
        assert_eq!(backoff.delay, LAST_DELAY);
    }

    #[test]
    fn a_hundred_whose_server_dies_come_back_spread_over_the_pause() {
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
            // Ten are expected in each; with full jitter a tenth with more than 22 or fewer than 2
            // is a matter of one in thousands, and the seeds are fixed.
            assert!(histogram.iter().all(|count| (2..=22).contains(count)), "{histogram:?}");
        }
    }
}

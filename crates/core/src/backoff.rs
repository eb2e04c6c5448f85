//! The pauses between retries, for everything that is tried again.
//!
//! The pause doubles from a first limit up to a longest one, so that what has failed for hours is
//! rarely tried and a short failure is still over soon. What many programs retry at the same server
//! is jittered: a thousand clients of a failed server must not return at the same moment.

use crate::{Instant, Rng, Span};

/// Exponential back-off: without end, and from the beginning again after a minute without failure.
///
/// The randomness comes from a seed: the same seed gives the same pauses. It reads no clock; a
/// caller that never reports success goes on with the longest pause.
///
/// # Examples
/// ```
/// use aulos_core::{Backoff, Instant, Span};
///
/// let mut backoff = Backoff::exact(Span::from_millis(100), Span::from_secs(5));
/// let now = Instant::ZERO;
/// assert_eq!(backoff.failed(now), Span::from_millis(100));
/// assert!(!backoff.is_due(now) && backoff.is_due(backoff.retry_at()));
/// assert_eq!(backoff.failed(now), Span::from_millis(200));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Span,
    longest: Span,
    /// Upper limit of the next pause.
    limit: Span,
    jitter: Jitter,
    retry_at: Instant,
    healthy_since: Option<Instant>,
    failures: u32,
}

/// The random part of a pause.
#[derive(Clone, Copy, Debug)]
enum Jitter {
    /// None: there is one retrier, for example of a local disk.
    None,
    /// The upper half: the pause is never much shorter than its limit.
    Half(Rng),
    /// All of it.
    Full(Rng),
}

impl Backoff {
    /// Retries of a source or a peer: random pauses of at most 0.5 s, then 1 s and so on up to 30
    /// s.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self::full_jitter(FIRST_PAUSE, LONGEST_PAUSE, seed)
    }

    /// Random pauses between zero and a limit that doubles from `first` to `longest`.
    #[must_use]
    pub const fn full_jitter(first: Span, longest: Span, seed: u64) -> Self {
        Self::with_jitter(first, longest, Jitter::Full(Rng::new(seed)))
    }

    /// Random pauses between half and all of a limit that doubles from `first` to `longest`.
    #[must_use]
    pub const fn half_jitter(first: Span, longest: Span, seed: u64) -> Self {
        Self::with_jitter(first, longest, Jitter::Half(Rng::new(seed)))
    }

    /// Pauses that double from `first` to `longest`, not random.
    #[must_use]
    pub const fn exact(first: Span, longest: Span) -> Self {
        Self::with_jitter(first, longest, Jitter::None)
    }

    const fn with_jitter(first: Span, longest: Span, jitter: Jitter) -> Self {
        let (retry_at, healthy_since) = (Instant::ZERO, None);
        Self { first, longest, limit: first, jitter, retry_at, healthy_since, failures: 0 }
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

    /// Failures since the beginning or the last reset.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Records that it works; the first call since a failure counts.
    pub fn succeeded(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// Records a failure; returns the pause until the retry.
    pub fn failed(&mut self, now: Instant) -> Span {
        if self.healthy_since.take().is_some_and(|since| now.since(since) >= HEALTHY_FOR) {
            self.reset();
        }
        let pause = self.pause_from(now);
        self.limit = (self.limit + self.limit).min(self.longest);
        pause
    }

    /// Records a failure that a quick retry cannot fix; returns the pause until the retry.
    pub fn refused(&mut self, now: Instant) -> Span {
        self.healthy_since = None;
        self.limit = self.longest;
        self.pause_from(now)
    }

    /// Begins again with the first pause; a retry is due at once.
    pub const fn reset(&mut self) {
        self.limit = self.first;
        self.retry_at = Instant::ZERO;
        self.healthy_since = None;
        self.failures = 0;
    }

    fn pause_from(&mut self, now: Instant) -> Span {
        let limit = self.limit;
        let pause = match &mut self.jitter {
            Jitter::None => limit,
            Jitter::Half(rng) => limit - up_to(limit / 2, rng),
            Jitter::Full(rng) => up_to(limit, rng),
        };
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now + pause;
        pause
    }
}

/// A random span from zero to `most`.
fn up_to(most: Span, rng: &mut Rng) -> Span {
    let most = u128::try_from(most.as_nanos()).unwrap_or(0) + 1;
    Span::from_nanos(i64::try_from((u128::from(rng.next_u64()) * most) >> 64).unwrap_or(0))
}

const FIRST_PAUSE: Span = Span::from_millis(500);
const LONGEST_PAUSE: Span = Span::from_secs(30);
const HEALTHY_FOR: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_pause_doubles_up_to_half_a_minute_and_health_forgives() {
        let mut backoff = Backoff::new(1);
        let mut now = Instant::ZERO;
        for most in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            assert_eq!(backoff.limit.as_millis(), most);
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
        assert_eq!(backoff.limit, LONGEST_PAUSE);
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
            // Ten are expected in each bin; with full jitter a bin with more than 22 or fewer than
            // 2 has a probability of one in thousands, and the seeds are fixed.
            assert!(histogram.iter().all(|count| (2..=22).contains(count)), "{histogram:?}");
        }
    }

    proptest! {
        #[test]
        fn every_pause_is_within_its_doubled_limit(
            (first, longest) in (1_i64..1_000_000_000).prop_flat_map(|f| (Just(f), f..f * 1_000)),
            seed: u64,
            now: u64,
        ) {
            let (first, longest) = (Span::from_nanos(first), Span::from_nanos(longest));
            let now = Instant::from_nanos(now / 2);
            let mut exact = Backoff::exact(first, longest);
            let mut half = Backoff::half_jitter(first, longest, seed);
            let mut full = Backoff::full_jitter(first, longest, seed);
            let mut limit = first;
            for failures in 1..=20 {
                prop_assert_eq!(exact.failed(now), limit);
                let pause = half.failed(now);
                prop_assert!(limit / 2 <= pause && pause <= limit);
                let pause = full.failed(now);
                prop_assert!(Span::ZERO <= pause && pause <= limit);
                prop_assert_eq!(full.retry_at(), now + pause);
                prop_assert_eq!(full.failures(), failures);
                limit = (limit + limit).min(longest);
            }
        }

        #[test]
        fn only_a_minute_of_health_or_a_reset_starts_again(
            failures in 1_usize..12,
            healthy_for in 0_i64..120_000,
        ) {
            let mut backoff = Backoff::exact(FIRST_PAUSE, LONGEST_PAUSE);
            let now = Instant::ZERO;
            for _ in 0..failures {
                backoff.failed(now);
            }
            let next = backoff.limit;
            backoff.succeeded(now);
            let pause = backoff.failed(now + Span::from_millis(healthy_for));
            prop_assert_eq!(pause, if healthy_for >= 60_000 { FIRST_PAUSE } else { next });
            prop_assert_eq!(backoff.refused(now), LONGEST_PAUSE);
            backoff.reset();
            prop_assert!(backoff.is_due(now) && backoff.failures() == 0);
            prop_assert_eq!(backoff.failed(now), FIRST_PAUSE);
        }

        #[test]
        fn no_time_and_no_span_overflows(first: i64, longest: i64, now: u64, seed: u64) {
            let (first, longest) = (Span::from_nanos(first), Span::from_nanos(longest));
            let now = Instant::from_nanos(now);
            for mut backoff in [
                Backoff::exact(first, longest),
                Backoff::half_jitter(first, longest, seed),
                Backoff::full_jitter(first, longest, seed),
            ] {
                for _ in 0..70 {
                    backoff.failed(now);
                }
                backoff.succeeded(now);
                backoff.refused(now);
            }
        }
    }
}

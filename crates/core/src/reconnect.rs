//! The pauses before a peer is contacted again whose stream has broken off.
//!
//! A peer that has worked is expected back soon: a radio server closes connections, or the mount is
//! away while its source restarts. With the pauses of [`Backoff`] alone, which grow to half a
//! minute and are forgiven after a minute without failure, such a source would be off air for
//! longer than its peer is.

use crate::{Backoff, Instant, Span};

/// Pauses between connections to one peer: none after a stream that lasted, then 1, 2 and 4 s while
/// the peer is expected back, and those of [`Backoff::new`] for one that has not worked lately.
///
/// It reads no clock, and its random part comes from a seed.
///
/// # Examples
/// ```
/// use aulos_core::{Instant, ReconnectBackoff, Span};
///
/// let mut backoff = ReconnectBackoff::new(1);
/// let now = Instant::ZERO + Span::from_secs(100);
/// backoff.succeeded(now - Span::from_secs(4));
/// assert_eq!(backoff.failed(now), Span::ZERO);
/// assert!(backoff.failed(now) >= Span::from_millis(500));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReconnectBackoff {
    /// The pauses of a peer that has not worked lately.
    unknown: Backoff,
    /// Those of a peer that is expected back.
    expected: Backoff,
    working_since: Option<Instant>,
    /// The last time at which it worked.
    worked_at: Option<Instant>,
    retry_at: Instant,
}

impl ReconnectBackoff {
    /// Pauses for a peer that has never worked.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            unknown: Backoff::new(seed),
            expected: Backoff::half_jitter(FIRST_PAUSE, LONGEST_PAUSE, seed),
            working_since: None,
            worked_at: None,
            retry_at: Instant::ZERO,
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
        self.working_since.get_or_insert(now);
    }

    /// Records a failure; returns the pause until the retry.
    pub fn failed(&mut self, now: Instant) -> Span {
        let lasted = self.working_since.take().map(|since| now.since(since));
        if lasted.is_some() {
            self.worked_at = Some(now);
        }
        let pause = if lasted.is_some_and(|lasted| lasted >= LASTING) {
            self.unknown.reset();
            self.expected.reset();
            Span::ZERO
        } else if self.is_expected_back(now) {
            self.expected.failed(now)
        } else {
            self.unknown.failed(now)
        };
        self.retry_at = now + pause;
        pause
    }

    /// Records that the peer answers, but does not have what is wanted; returns the pause. That is
    /// a failure like others while it is expected back, and else as in
    /// [`ReconnectBackoff::refused`].
    pub fn absent(&mut self, now: Instant) -> Span {
        if self.working_since.is_some() || self.is_expected_back(now) {
            self.failed(now)
        } else {
            self.refused(now)
        }
    }

    /// Records a failure that a quick retry cannot fix; returns the pause until the retry.
    pub fn refused(&mut self, now: Instant) -> Span {
        if self.working_since.take().is_some() {
            self.worked_at = Some(now);
        }
        let pause = self.unknown.refused(now);
        self.retry_at = now + pause;
        pause
    }

    /// Begins again, as for a peer that has never worked; a retry is due at once.
    pub const fn reset(&mut self) {
        self.unknown.reset();
        self.expected.reset();
        (self.working_since, self.worked_at) = (None, None);
        self.retry_at = Instant::ZERO;
    }

    /// Whether it worked so lately that it is expected back.
    #[must_use]
    pub fn is_expected_back(&self, now: Instant) -> bool {
        self.worked_at.is_some_and(|last| now.since(last) < EXPECTED_FOR)
    }
}

/// The first pause after a retry at once has failed, and the longest while the peer is expected
/// back.
const FIRST_PAUSE: Span = Span::from_secs(1);
const LONGEST_PAUSE: Span = Span::from_secs(4);

/// A stream of this length is followed by a retry at once. A peer that accepts and closes in a loop
/// is asked once in some seconds.
const LASTING: Span = Span::from_secs(2);

/// For so long a peer that has worked is asked every few seconds: a restart of a server or of a
/// studio's program is over by then.
const EXPECTED_FOR: Span = Span::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::ZERO + Span::from_secs(1_000 + seconds)
    }

    #[test]
    fn a_server_that_closes_every_few_seconds_is_asked_at_once_each_time() {
        let mut backoff = ReconnectBackoff::new(1);
        for round in 0..100 {
            let now = at(round * 4);
            assert!(backoff.is_due(now));
            backoff.succeeded(now);
            backoff.succeeded(now + Span::from_secs(3));
            assert_eq!(backoff.failed(now + Span::from_secs(4)), Span::ZERO);
        }
    }

    #[test]
    fn a_mount_that_is_away_is_asked_after_one_two_and_four_seconds() {
        let mut backoff = ReconnectBackoff::new(2);
        let mut now = at(10);
        backoff.succeeded(at(0));
        assert_eq!(backoff.failed(now), Span::ZERO);
        for most in [1_000, 2_000, 4_000, 4_000, 4_000] {
            let pause = backoff.absent(now);
            assert!((most / 2..=most).contains(&pause.as_millis()), "{pause:?} of {most}");
            assert_eq!(backoff.retry_at(), now + pause);
            now = backoff.retry_at();
        }
        // It works again, and the pauses begin again.
        backoff.succeeded(now);
        assert_eq!(backoff.failed(now + LASTING), Span::ZERO);
        assert!(backoff.failed(now + LASTING) <= FIRST_PAUSE);
    }

    #[test]
    fn what_never_worked_or_is_long_gone_or_refuses_is_rarely_asked() {
        let mut backoff = ReconnectBackoff::new(3);
        // The limits of a random pause: 0.5 s, doubled up to 30 s.
        let many = |backoff: &mut ReconnectBackoff, now: Instant| {
            (0..100).map(|_| backoff.failed(now)).max().unwrap_or_default()
        };
        assert!(backoff.failed(at(0)) <= Span::from_millis(500));
        assert!(many(&mut backoff, at(1)) > Span::from_secs(20));
        assert!((0..20).any(|_| backoff.absent(at(2)) > Span::from_secs(10)));
        backoff.succeeded(at(3));
        assert_eq!(backoff.failed(at(10)), Span::ZERO);
        assert!(many(&mut backoff, at(11)) <= LONGEST_PAUSE);
        assert!((0..20).any(|_| backoff.refused(at(12)) > Span::from_secs(10)));
        assert!(many(&mut backoff, at(10) + EXPECTED_FOR) > Span::from_secs(20));
    }

    #[test]
    fn a_server_that_accepts_and_closes_is_asked_once_in_some_seconds() {
        let mut backoff = ReconnectBackoff::new(4);
        let (mut now, mut attempts) = (at(0), 0);
        while now < at(60) {
            backoff.succeeded(now);
            now += Span::from_millis(100);
            backoff.failed(now);
            now = backoff.retry_at();
            attempts += 1;
        }
        assert!((15..35).contains(&attempts), "{attempts} attempts in a minute");
    }
}

//! How often something may happen, so that whoever asks too often can be told from the rest.

use crate::{Instant, Span};

/// So many at once, and one more every so often: a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u32,
    most: u32,
    interval: Span,
    since: Instant,
}

impl Budget {
    /// `most` at once, one more every `interval`; full at `now`.
    #[must_use]
    pub const fn new(most: u32, interval: Span, now: Instant) -> Self {
        Self { left: most, most, interval, since: now }
    }

    /// Whether there is one left, which is then gone.
    ///
    /// # Real-time
    /// Yes.
    pub fn take(&mut self, now: Instant) -> bool {
        self.earn(now);
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }

    /// Whether there is one left, which stays.
    pub fn has(&mut self, now: Instant) -> bool {
        self.earn(now);
        self.left > 0
    }

    /// Whether nothing is missing: it says no more than a new one.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.earn(now);
        self.left == self.most
    }

    fn earn(&mut self, now: Instant) {
        let interval = self.interval.as_nanos().max(1);
        let earned = now.since(self.since).as_nanos() / interval;
        self.since += Span::from_nanos(earned.saturating_mul(interval));
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(earned).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_spent_and_comes_back_one_by_one() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut budget = Budget::new(3, Span::from_millis(10), at(0));
        assert!(budget.is_full(at(5)));
        assert!((0..3).all(|_| budget.take(at(9))));
        assert!(!budget.has(at(9)) && !budget.take(at(9)));
        assert!(budget.has(at(10)) && budget.take(at(10)) && !budget.take(at(19)));
        assert!(!budget.is_full(at(39)) && budget.is_full(at(40)));
        // Time that goes backwards earns nothing.
        assert!((0..3).all(|_| budget.take(at(50))) && !budget.take(at(0)));
    }
}

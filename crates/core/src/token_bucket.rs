//! Rate limiting.

use crate::{Instant, Span};

/// A token bucket: allows a burst, then one event per interval.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    tokens: u32,
    capacity: u32,
    interval: Span,
    refilled_at: Instant,
}

impl TokenBucket {
    /// Creates a bucket that holds `most` tokens, full at `now`; one token is added every
    /// `interval`.
    #[must_use]
    pub const fn new(capacity: u32, interval: Span, now: Instant) -> Self {
        Self { tokens: capacity, capacity, interval, refilled_at: now }
    }

    /// Takes a token; false if the bucket is empty.
    ///
    /// # Real-time
    /// Yes.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let taken = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        taken
    }

    /// Whether the bucket holds a token; takes none.
    pub fn has_token(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.tokens > 0
    }

    /// Whether the bucket is full, that is, equivalent to a new one.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.tokens == self.capacity
    }

    fn refill(&mut self, now: Instant) {
        let interval = self.interval.as_nanos().max(1);
        let earned = now.since(self.refilled_at).as_nanos() / interval;
        self.refilled_at += Span::from_nanos(earned.saturating_mul(interval));
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(earned).min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_consumed_and_refilled_token_by_token() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut budget = TokenBucket::new(3, Span::from_millis(10), at(0));
        assert!(budget.is_full(at(5)));
        assert!((0..3).all(|_| budget.try_take(at(9))));
        assert!(!budget.has_token(at(9)) && !budget.try_take(at(9)));
        assert!(budget.has_token(at(10)) && budget.try_take(at(10)) && !budget.try_take(at(19)));
        assert!(!budget.is_full(at(39)) && budget.is_full(at(40)));
        // Time that goes backwards adds no token.
        assert!((0..3).all(|_| budget.try_take(at(50))) && !budget.try_take(at(0)));
    }
}

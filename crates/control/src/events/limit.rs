//! The limit of the lines and events that peers can cause.

use std::sync::{Mutex, PoisonError};

use aulos_core::{Instant, Span, TokenBucket};

use super::targets::ACCESS;

/// Limits the lines that peers can cause; those left out are counted and reported.
#[derive(Debug)]
pub(super) struct LogLimit(Mutex<LimitState>);

#[derive(Debug)]
struct LimitState {
    budget: TokenBucket,
    omitted: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        let budget = TokenBucket::new(PEER_LINES, PEER_LINE_INTERVAL, Instant::ZERO);
        Self(Mutex::new(LimitState { budget, omitted: 0 }))
    }
}

impl LogLimit {
    /// Whether one more line may be logged now.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let (admitted, omitted) = self.take(now);
        if omitted > 0 {
            tracing::warn!(target: ACCESS, lines = omitted, "lines about clients and logins were left out");
        }
        admitted
    }

    /// Whether one more line is admitted, and the number of lines left out before it.
    fn take(&self, now: Instant) -> (bool, u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.budget.try_take(now) {
            return (true, std::mem::take(&mut state.omitted));
        }
        state.omitted += 1;
        (false, 0)
    }
}

/// A large installation connects at once after a power failure, and each client has a line.
const PEER_LINES: u32 = 2_000;
/// Ten lines a second fill less than 100 MB a day.
const PEER_LINE_INTERVAL: Span = Span::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_peers_cause_are_limited_and_counted() {
        let limit = LogLimit::default();
        let later = Instant::ZERO + Span::from_secs(1_000);
        let admitted = (0..PEER_LINES + 5).filter(|_| limit.take(later).0).count();
        assert_eq!(admitted, PEER_LINES as usize);
        assert_eq!(limit.take(later + PEER_LINE_INTERVAL), (true, 5));
        assert_eq!(limit.take(later + PEER_LINE_INTERVAL), (false, 0));
    }
}

//! The status and the counters of web radio sources.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aulos_control::backend::RadioState;
use aulos_session::radio::{RADIO_FAILURE_NAMES, RadioError};

/// Counters of all web radio sources; never reset.
#[derive(Debug, Default)]
pub struct RadioCounters {
    pub(super) connects: AtomicU64,
    pub(super) redirects: AtomicU64,
    failures: [AtomicU64; RADIO_FAILURE_NAMES.len()],
}

impl RadioCounters {
    /// The counters, under stable names.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = vec![
            ("radio_connects", read(&self.connects)),
            ("radio_redirects", read(&self.redirects)),
        ];
        all.extend(RADIO_FAILURE_NAMES.into_iter().zip(self.failures.iter().map(read)));
        all
    }

    pub(super) fn count_failure(&self, failure: &RadioError) {
        if let Some(count) = self.failures.get(failure.counter_index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Handle to the state of one source.
#[derive(Clone, Debug, Default)]
pub struct RadioStatusHandle(Arc<Mutex<RadioState>>);

impl RadioStatusHandle {
    /// The current state.
    #[must_use]
    pub fn state(&self) -> RadioState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut RadioState)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

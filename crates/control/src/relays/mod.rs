//! RTP relays. They are independent of stations, so they have a lock of their own: ports are opened
//! and closed under it.

pub(crate) mod calls;
mod watch;

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::backend::RelayControl;
use crate::events::EventLog;
use watch::RelayWatch;

/// The relays, and which of them drop packets.
pub struct RelaySupervisor(Mutex<RelayState>);

struct RelayState {
    relays: Box<dyn RelayControl>,
    watch: RelayWatch,
}

impl RelaySupervisor {
    pub(crate) fn new(relays: Box<dyn RelayControl>) -> Self {
        Self(Mutex::new(RelayState { relays, watch: RelayWatch::default() }))
    }

    /// Periodic work, and events of relays that drop packets.
    pub(crate) fn maintain(&self, now: Instant, events: &EventLog) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.relays.maintain();
        if state.watch.is_due(now) {
            let summary = state.relays.summary();
            for event in state.watch.events(now, &summary) {
                events.add(event);
            }
        }
    }

    /// Ends all relays after they have sent what they hold.
    pub fn end(&self) {
        self.with(|relays| relays.end());
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut dyn RelayControl) -> T) -> T {
        act(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner).relays)
    }
}

impl fmt::Debug for RelaySupervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelaySupervisor").finish_non_exhaustive()
    }
}

//! The clocks of the control plane.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aulos_engine::recorder::WallClock;
use aulos_files::record::wall_clock;
use aulos_io::SystemClock;

use crate::clients::registry::WallTime;

/// The clocks that the control plane reads. A test in virtual time replaces the monotonic one.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Instant + Send + Sync>);

impl Clock {
    /// A clock with this monotonic time.
    pub fn new(monotonic: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        Self(Arc::new(monotonic))
    }

    /// Monotonic time, for delays and intervals.
    #[must_use]
    pub fn now(&self) -> Instant {
        (self.0)()
    }

    /// The time base of the audio side, for rate limits and the moments of recordings.
    pub(crate) fn local(&self) -> aulos_core::Instant {
        SystemClock::now()
    }

    /// Wall time, for display.
    pub(crate) fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Wall time, as Snapcast writes it.
    pub(crate) fn wall_time(&self) -> WallTime {
        let since = self.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime { sec: i64::try_from(since.as_secs()).unwrap_or(0), usec: since.subsec_micros() }
    }

    /// A reading of all clocks, which shows when the wall clock was set.
    pub(crate) fn reading(&self) -> WallClock {
        wall_clock()
    }
}

impl Default for Clock {
    /// The clocks of the system.
    fn default() -> Self {
        Self::new(Instant::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

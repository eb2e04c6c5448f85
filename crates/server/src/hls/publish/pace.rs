//! How often a publisher looks at its window.

use std::time::Duration;

use aulos_core::Instant;
use aulos_session::hls::HlsPublisher;

/// The pause until the window is looked at again.
pub(super) fn pause(publisher: &HlsPublisher, now: Instant) -> Duration {
    let next = publisher.poll_timeout().map(|at| at.since(now).into());
    next.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)
}

/// A fraction of a segment.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

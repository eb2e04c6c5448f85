//! The full status that controllers have yet to get, and its rate limit.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::clients::registry::Notice;
use crate::peers::PeerId;
use serde_json::Value;

/// Rate of full statuses that connecting clients cause, in bytes: four times the status of a full
/// server.
const STATUS_BYTES_PER_SECOND: u64 = 16 << 20;

/// A status up to this size, that of some five hundred clients, is rendered at once and without a
/// rate limit.
const SMALL_STATUS: usize = 256 << 10;

/// Limit of held-back notifications.
const MAX_HELD_BACK: usize = 512;

/// The full status that controllers have yet to get.
#[derive(Debug, Default)]
pub(crate) struct PendingUpdate {
    pub(crate) is_wanted: bool,
    /// Notifications to send after it.
    pub(crate) held_back: VecDeque<DeferredNotice>,
    /// Rate limit: the next status for connecting clients is not rendered earlier.
    pub(crate) not_before: Option<Instant>,
    /// Size of the status that was sent last.
    last_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct DeferredNotice {
    pub(crate) from: Option<PeerId>,
    pub(crate) notice: Notice,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

impl PendingUpdate {
    /// Requests a full status.
    pub(crate) const fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Requests a full status with the next tick, whatever was sent before.
    pub(crate) const fn want_soon(&mut self) {
        self.is_wanted = true;
        self.not_before = None;
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_wanted && self.not_before.is_none_or(|then| now >= then)
    }

    /// Whether a status is rendered apart from the call that changed it, as it takes long.
    pub(crate) const fn is_large(&self) -> bool {
        self.last_bytes > SMALL_STATUS
    }

    /// Records a sent status of this size.
    pub(crate) fn sent(&mut self, bytes: usize, now: Instant) {
        self.last_bytes = bytes;
        self.not_before = now.checked_add(pause_after(bytes));
    }

    /// Appends a notification; returns whether the oldest was dropped for it.
    pub(crate) fn hold_back(&mut self, text: DeferredNotice) -> bool {
        let is_full = self.held_back.len() >= MAX_HELD_BACK;
        if is_full {
            self.held_back.pop_front();
        }
        self.held_back.push_back(text);
        is_full
    }
}

/// The delay after a status of this size before the next one for connecting clients.
fn pause_after(bytes: usize) -> Duration {
    if bytes <= SMALL_STATUS {
        return Duration::ZERO;
    }
    let micros = (bytes as u64).saturating_mul(1_000_000) / STATUS_BYTES_PER_SECOND;
    Duration::from_micros(micros)
}

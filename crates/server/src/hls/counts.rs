//! Counters of all segmenters.

use std::sync::atomic::{AtomicU64, Ordering};

use aulos_session::hls::SegmenterStats;

/// What the segmenters of all stations have counted.
#[derive(Debug, Default)]
pub(super) struct HlsCounts {
    segments: AtomicU64,
    filled: AtomicU64,
    restarts: AtomicU64,
    failures: AtomicU64,
}

impl HlsCounts {
    /// Adds what a segmenter has counted since `before`.
    pub(super) fn add(&self, before: SegmenterStats, now: SegmenterStats) {
        let add = |counter: &AtomicU64, before: u64, now: u64| {
            counter.fetch_add(now - before, Ordering::Relaxed);
        };
        add(&self.segments, before.segments, now.segments);
        add(&self.filled, before.filled, now.filled);
        // The first run is no restart.
        add(&self.restarts, before.runs.saturating_sub(1), now.runs.saturating_sub(1));
        add(&self.failures, before.failures, now.failures);
    }

    /// By their names in the status.
    pub(super) fn values(&self) -> [(&'static str, u64); 4] {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("hls_segments", get(&self.segments)),
            ("hls_segments_filled", get(&self.filled)),
            ("hls_restarts", get(&self.restarts)),
            ("hls_encoder_failures", get(&self.failures)),
        ]
    }
}

//! What is known of a media playlist, over its reloads.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::http::HttpUrl;
use aulos_proto::m3u8::{MAX_SEGMENTS, MediaPlaylist, MediaSegment};

/// A segment that is to be fetched.
#[derive(Clone, Debug)]
pub(super) struct QueuedSegment {
    pub(super) sequence: u64,
    pub(super) segment: MediaSegment,
    /// The media before it does not lead up to it.
    pub(super) begins: bool,
}

/// The playlist that is followed.
#[derive(Debug)]
pub(super) struct MediaState {
    /// Its final address, to which those in it are relative.
    pub(super) url: HttpUrl,
    pub(super) target: Span,
    pub(super) is_ended: bool,
    pub(super) queue: VecDeque<QueuedSegment>,
    /// Number of the next segment that is new; `None` before the first playlist.
    next: Option<u64>,
    /// When it had new segments last.
    changed_at: Instant,
    pub(super) reload_at: Instant,
    /// Media that fell out of the playlist or was lost, before the next segment.
    missing: Span,
    /// The next segment does not continue what was given out before.
    begins: bool,
}

/// What a reload has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReloadOutcome {
    /// Segments that fell out before they could be fetched.
    pub(super) lost: u64,
    /// The numbers went back: the server has started anew.
    pub(super) restarted: bool,
}

impl MediaState {
    pub(super) fn new(url: HttpUrl, now: Instant) -> Self {
        Self {
            url,
            target: Span::ZERO,
            is_ended: false,
            queue: VecDeque::new(),
            next: None,
            changed_at: now,
            reload_at: now,
            missing: Span::ZERO,
            begins: false,
        }
    }

    /// Takes in a version of the playlist (RFC 8216, 6.3.3 and 6.3.4).
    pub(super) fn update(&mut self, now: Instant, playlist: MediaPlaylist) -> ReloadOutcome {
        let MediaPlaylist { target, sequence, is_ended, segments } = playlist;
        let mut outcome = ReloadOutcome::default();
        self.target = target;
        self.is_ended = is_ended;
        let end = sequence + segments.len() as u64;
        // One of several servers may lag behind the others.
        outcome.restarted = self.next.is_some_and(|next| end < next.saturating_sub(MAX_LAG));
        if outcome.restarted {
            self.next = None;
        }
        let mut begins = self.next.is_none();
        let from = self.next.unwrap_or_else(|| sequence + start(&segments, target, is_ended));
        if sequence > from {
            outcome.lost = sequence - from;
            let lost = i64::try_from(outcome.lost).unwrap_or(i64::MAX);
            self.missing += Span::from_nanos(target.as_nanos().saturating_mul(lost));
        }
        let is_changed = end > from;
        for (sequence, segment) in (sequence..end).zip(segments) {
            if sequence < from {
                continue;
            }
            begins |= segment.is_discontinuous;
            self.queue.push_back(QueuedSegment { sequence, segment, begins });
            begins = false;
        }
        self.next = Some(self.next.map_or(end, |next| next.max(end)));
        if is_changed {
            self.changed_at = now;
        }
        let pause = if is_changed { target } else { target / 2 };
        self.reload_at = now + pause.max(MIN_RELOAD);
        outcome.lost += self.drop_backlog();
        outcome
    }

    /// A reload has failed.
    pub(super) fn retry(&mut self, now: Instant) {
        self.reload_at = now + (self.target / 2).max(MIN_RELOAD);
    }

    /// The time since the last new segment, once that is too long.
    pub(super) fn staleness(&self, now: Instant) -> Option<Span> {
        let since = now.since(self.changed_at);
        let limit = (self.target * STALE_TARGETS).max(MIN_STALE);
        (!self.is_ended && since >= limit).then_some(since)
    }

    /// The media missing before the next segment; longer holes than `most` are none: what follows
    /// begins anew.
    pub(super) fn take_missing(&mut self, begins: &mut bool) -> Span {
        let missing = core::mem::replace(&mut self.missing, Span::ZERO);
        let most = (self.target * START_TARGETS).min(MAX_HOLE);
        *begins |= core::mem::take(&mut self.begins) || missing > most;
        if *begins { Span::ZERO } else { missing }
    }

    /// The segment at the front is not fetched.
    pub(super) fn drop_front(&mut self) -> Option<QueuedSegment> {
        let dropped = self.queue.pop_front()?;
        self.missing += dropped.segment.duration;
        self.begins |= dropped.begins;
        Some(dropped)
    }

    /// Begins again near the end when fetching cannot keep up.
    fn drop_backlog(&mut self) -> u64 {
        let mut backlog = self.queue.iter().fold(Span::ZERO, |sum, it| sum + it.segment.duration);
        let is_short = backlog <= self.target * MAX_BACKLOG_TARGETS;
        if self.is_ended || is_short && self.queue.len() <= MAX_SEGMENTS {
            return 0;
        }
        let mut lost = 0;
        while self.queue.len() > 1
            && (backlog > self.target * START_TARGETS || self.queue.len() > MAX_SEGMENTS)
            && let Some(dropped) = self.queue.pop_front()
        {
            backlog -= dropped.segment.duration;
            lost += 1;
        }
        self.begins = true;
        lost
    }
}

/// The index of the segment to begin with: the first, where all are there; otherwise the one with
/// which at least three target durations are left.
fn start(segments: &[MediaSegment], target: Span, is_ended: bool) -> u64 {
    if is_ended {
        return 0;
    }
    let mut left = target * START_TARGETS;
    let from_end = segments.iter().rev().take_while(|segment| {
        let is_needed = left > Span::ZERO;
        left -= segment.duration;
        is_needed
    });
    (segments.len() - from_end.count()) as u64
}

/// How far before the end of a live playlist to begin, in target durations (RFC 8216, 6.3.3).
pub(super) const START_TARGETS: i64 = 3;

/// Target durations without a change after which a playlist is dead, and the least time for that.
const STALE_TARGETS: i64 = 3;
const MIN_STALE: Span = Span::from_secs(10);

/// The shortest time between two reloads, whatever the target duration is.
const MIN_RELOAD: Span = Span::from_millis(500);

/// The longest hole that is filled with silence.
const MAX_HOLE: Span = Span::from_secs(30);

/// The most media that waits to be fetched, in target durations.
const MAX_BACKLOG_TARGETS: i64 = 10;

/// Segments by which a server may lag behind another one of the same stream.
const MAX_LAG: u64 = 3;

//! When the current segment of a recording is cut: by its length, its size, or the clock.

use aulos_core::{Frames, MediaTime, Span};

use super::{ClockAlignment, Recorder, Segment, SegmentReason, UnixTime};

impl Recorder {
    /// When the segment ends, and why; a time in the past becomes now.
    pub(super) fn due(
        &self,
        segment: &Segment,
        next: MediaTime,
    ) -> Option<(MediaTime, SegmentReason)> {
        if self.config.rotation.bytes.is_some_and(|limit| segment.bytes >= limit) {
            return Some((next, SegmentReason::Size));
        }
        self.timed_cut(segment, next)
    }

    pub(super) fn timed_cut(
        &self,
        segment: &Segment,
        next: MediaTime,
    ) -> Option<(MediaTime, SegmentReason)> {
        let rotation = &self.config.rotation;
        let duration = rotation.duration.map(|span| {
            let left = self.rate().frames(span) - segment.frames;
            (next + left, SegmentReason::Duration)
        });
        let clock =
            rotation.clock.map(|align| (self.next_clock_cut(align, segment), SegmentReason::Clock));
        duration.into_iter().chain(clock).min_by_key(|(at, _)| *at)
    }

    /// The first frame of the next clock slot. If the wall clock was set back, the segment is
    /// limited to the length of one slot.
    fn next_clock_cut(&self, align: ClockAlignment, segment: &Segment) -> MediaTime {
        let Some(line) = self.timeline else { return segment.start };
        let local = self.clock.local_at(align.slot_end(&self.clock, segment.slot_time));
        let frame = line.media_at(local);
        let early = if line.local_at(frame) < local { Frames(1) } else { Frames::ZERO };
        let longest = line.rate().frames(align.interval() + SHORT_SLOT);
        (frame + early).min(segment.start + longest)
    }

    /// A moment in the clock slot of a segment that starts with this frame: just before the next
    /// slot it is that one.
    pub(super) fn slot_time(&self, at: MediaTime) -> UnixTime {
        let utc = self.utc(at).as_nanos().saturating_add(SHORT_SLOT.as_nanos());
        UnixTime::from_nanos(utc)
    }
}

/// A segment that starts less than this before a slot boundary belongs to the next slot: clocks are
/// adjusted by fractions of a second, which must not produce a file of a second.
const SHORT_SLOT: Span = Span::from_secs(2);

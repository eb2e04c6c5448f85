//! Which time of the input belongs to a frame of the output.
//!
//! Output is input, some frames later: a frame keeps the timestamp that it came with. Counting from
//! the first timestamp was the alternative; it would drift away from a sender whose clock is not
//! ours.

use std::collections::VecDeque;

use aulos_core::{Frames, SampleRate, Span};

/// Times of the frames between input and output, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct TimeMap {
    rate: SampleRate,
    /// From which frame on a time holds, in order. At most one for each frame that is delayed.
    marks: VecDeque<(u64, u64)>,
    /// Frames that came in.
    end: u64,
}

impl TimeMap {
    pub(crate) const fn new(rate: SampleRate) -> Self {
        Self { rate, marks: VecDeque::new(), end: 0 }
    }

    pub(crate) const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Whether `time` is not where the next frame is expected: audio is missing, or is repeated.
    pub(crate) fn is_jump(&self, time: Option<u64>) -> bool {
        let expected = self.marks.back().map(|mark| self.after(*mark, self.end));
        match (time, expected) {
            (Some(time), Some(expected)) => time.abs_diff(expected) > LARGEST_JITTER_NS,
            _ => false,
        }
    }

    /// How much audio is missing before `time`, in nanoseconds, if it is more than jitter.
    pub(crate) fn gap_before(&self, time: Option<u64>) -> Option<u64> {
        let expected = self.marks.back().map(|mark| self.after(*mark, self.end))?;
        time?.checked_sub(expected).filter(|gap| *gap > LARGEST_JITTER_NS)
    }

    /// Adds frames, the first of which has this time.
    pub(crate) fn push(&mut self, time: Option<u64>, frames: usize) {
        if frames > 0
            && let Some(time) = time
        {
            let expected = self.marks.back().map(|mark| self.after(*mark, self.end));
            // Times are rounded; a mark for each buffer would add these errors up.
            let frame_ns = 1_000_000_000 / u64::from(self.rate.hz());
            if expected.is_none_or(|expected| expected.abs_diff(time) > frame_ns) {
                self.marks.push_back((self.end, time));
            }
        }
        self.end += frames as u64;
    }

    /// The times of the frames from `start` on, and of the first one behind them. Earlier frames
    /// are forgotten.
    pub(crate) fn take(&mut self, start: u64, frames: usize) -> Option<(u64, u64)> {
        while self.marks.get(1).is_some_and(|(frame, _)| *frame <= start) {
            self.marks.pop_front();
        }
        let mark = *self.marks.front().filter(|(frame, _)| *frame <= start)?;
        Some((self.after(mark, start), self.after(mark, start + frames as u64)))
    }

    fn after(&self, (frame, time): (u64, u64), at: u64) -> u64 {
        let span = self.rate.span(Frames(at - frame)).max(Span::ZERO);
        time.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(0))
    }
}

/// A time in nanoseconds; the largest is that of no time.
pub(crate) fn clock_time(nanos: u64) -> Option<gst::ClockTime> {
    (nanos < u64::MAX).then(|| gst::ClockTime::from_nseconds(nanos))
}

/// A duration of GStreamer's.
pub(crate) fn span(time: gst::ClockTime) -> Span {
    Span::from_nanos(i64::try_from(time.nseconds()).unwrap_or(i64::MAX))
}

/// The same in GStreamer's form; a negative one is zero.
pub(crate) fn nanoseconds(span: Span) -> gst::ClockTime {
    gst::ClockTime::from_nseconds(u64::try_from(span.as_nanos()).unwrap_or(0))
}

/// As GStreamer's own elements for audio: larger differences are gaps.
const LARGEST_JITTER_NS: u64 = 40_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_times_through_jitter() {
        let mut map = TimeMap::new(SampleRate::HZ_48000);
        map.push(Some(1_000_000_000), 480);
        map.push(Some(1_010_000_003), 480);
        map.push(Some(1_025_000_000), 480);
        assert_eq!(map.take(0, 480), Some((1_000_000_000, 1_010_000_000)));
        assert_eq!(map.take(720, 240), Some((1_015_000_000, 1_020_000_000)));
        assert_eq!(map.take(960, 480), Some((1_025_000_000, 1_035_000_000)));
        assert!(!map.is_jump(Some(1_040_000_000)) && !map.is_jump(None));
        assert!(map.is_jump(Some(900_000_000)) && map.is_jump(Some(u64::MAX)));
        assert_eq!(map.gap_before(Some(1_135_000_000)), Some(100_000_000));
        assert_eq!([900_000_000, 1_040_000_000].map(|time| map.gap_before(Some(time))), [None; 2]);
    }

    #[test]
    fn frames_without_times_continue_those_before() {
        let mut map = TimeMap::new(SampleRate::HZ_48000);
        map.push(None, 48);
        map.push(Some(0), 48);
        map.push(None, 48);
        assert_eq!(map.take(0, 48), None);
        assert_eq!(map.take(96, 48), Some((1_000_000, 2_000_000)));
    }
}

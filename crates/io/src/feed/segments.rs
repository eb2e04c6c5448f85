//! The reserve of an HLS stream: whole segments on their way to a decoder, in real time.
//!
//! ```text
//!  SegmentQueue --segments--> SegmentFeed (a feeder, on a reactor) --bytes--> StreamWriter
//!  (control)    <---state---
//! ```
//!
//! Control fetches segments in bursts. The feed holds them, and releases their bytes as
//! [`SegmentPacer`] says that their media is due.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
use aulos_proto::packets::FormatHint;
use aulos_rt::channel::{Receiver, SendError, Sender, TryRecvError, bounded};
use aulos_rt::{LatestPublisher, LatestReader};
use aulos_session::hls_source::{HlsSegment, SegmentPacer};

use super::stream::StreamWriter;

/// An item of the queue of segments.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third thing")]
pub enum SegmentItem {
    /// The next segment.
    Segment(HlsSegment),
    /// The stream has ended; what is there is played.
    End,
}

/// The state of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what the status shows")]
pub struct SegmentFeedState {
    /// Media that was released so far.
    pub released: Span,
    /// Bytes that were released so far.
    pub released_bytes: u64,
    /// Segments that were released so far.
    pub released_segments: u64,
    /// How often no media was left.
    pub dry_runs: u64,
    /// Parts per million by which media is released faster than our clock runs.
    pub pace_ppm: f64,
}

/// Control's end.
#[derive(Debug)]
pub struct SegmentQueue {
    items: Sender<SegmentItem>,
    state: LatestReader<SegmentFeedState>,
}

impl SegmentQueue {
    /// Adds an item; gives it back when the queue is full, or the feed is gone.
    ///
    /// # Errors
    /// The item.
    pub fn push(&self, item: SegmentItem) -> Result<(), SegmentItem> {
        self.items.try_send(item).map_err(SendError::into_item)
    }

    /// The state of the feed.
    pub fn state(&mut self) -> SegmentFeedState {
        *self.state.read()
    }
}

/// The feeder's end.
#[derive(Debug)]
pub struct SegmentFeed {
    items: Receiver<SegmentItem>,
    state: LatestPublisher<SegmentFeedState>,
    pacer: Option<SegmentPacer>,
    target: Span,
    queue: VecDeque<HlsSegment>,
    /// Whether the decoder knows of the segment at the front, and bytes of it that it has.
    is_begun: bool,
    written: usize,
    /// Media of the segments before the front, and of all that were received.
    before: Span,
    received: Span,
    released: Span,
    released_bytes: u64,
    released_segments: u64,
    has_ended: bool,
}

/// What a feed does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentFeedStatus {
    Playing,
    /// All of it has been released.
    Ended,
    /// Its sender is gone, and everything was released.
    Abandoned,
}

/// A queue of segments of at most `target`.
#[must_use]
pub fn segment_channel(target: Span) -> (SegmentQueue, SegmentFeed) {
    let (sender, items) = bounded(MAX_ITEMS);
    let (state, reader) = aulos_rt::latest(SegmentFeedState::default());
    let feed = SegmentFeed {
        items,
        state,
        pacer: None,
        target,
        queue: VecDeque::with_capacity(MAX_ITEMS),
        is_begun: false,
        written: 0,
        before: Span::ZERO,
        received: Span::ZERO,
        released: Span::ZERO,
        released_bytes: 0,
        released_segments: 0,
        has_ended: false,
    };
    (SegmentQueue { items: sender, state: reader }, feed)
}

impl SegmentFeed {
    /// Releases what is due at `now` and fits.
    pub(super) fn feed(&mut self, now: Instant, writer: &mut StreamWriter) -> SegmentFeedStatus {
        let is_abandoned = self.receive();
        // A full queue is all that can be had, whatever its segments say that they last.
        let is_complete = self.has_ended || is_abandoned || self.queue.len() == MAX_ITEMS;
        let pacer = self.pacer.get_or_insert_with(|| SegmentPacer::new(self.target, now));
        let reserve = self.received - self.released;
        let due = pacer.due(now, self.released, reserve, is_complete);
        let (dry_runs, pace_ppm) = (pacer.dry_runs(), pacer.pace_ppm());
        self.release(due, writer);
        let Self { released, released_bytes, released_segments, .. } = *self;
        self.state.publish(SegmentFeedState {
            released,
            released_bytes,
            released_segments,
            dry_runs,
            pace_ppm,
        });
        match self.queue.is_empty() {
            true if self.has_ended => SegmentFeedStatus::Ended,
            true if is_abandoned => SegmentFeedStatus::Abandoned,
            _ => SegmentFeedStatus::Playing,
        }
    }

    /// Takes what has arrived; whether nothing more will.
    fn receive(&mut self) -> bool {
        while self.queue.len() < MAX_ITEMS {
            match self.items.try_recv() {
                Ok(SegmentItem::Segment(segment)) => {
                    self.received += segment.missing + segment.duration;
                    self.queue.push_back(segment);
                }
                Ok(SegmentItem::End) => self.has_ended = true,
                Err(TryRecvError::Closed) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Writes the bytes of the media up to `due`.
    fn release(&mut self, due: Span, writer: &mut StreamWriter) {
        while let Some(front) = self.queue.front() {
            if due <= self.before && self.written == 0 {
                return;
            }
            if front.begins && !self.is_begun {
                self.is_begun = writer.begin(FormatHint::Segments);
                if !self.is_begun {
                    return;
                }
            }
            let wanted = bytes_due(front, due - self.before);
            let fresh = front.bytes.get(self.written..wanted).unwrap_or_default();
            let written = writer.write(fresh);
            self.written += written;
            self.released_bytes += written as u64;
            if self.written < wanted {
                return;
            }
            let end = self.before + front.missing + front.duration;
            self.released = self.released.max(due.min(end));
            if due < end {
                return;
            }
            (self.before, self.is_begun, self.written) = (end, false, 0);
            self.released_segments += 1;
            self.queue.pop_front();
        }
    }
}

/// How many bytes of a segment are due `media` after its beginning. What is missing before it comes
/// first: the decoder sees how much that is in the first packets behind it, so these come at once.
fn bytes_due(segment: &HlsSegment, media: Span) -> usize {
    let HlsSegment { bytes, duration, missing, .. } = segment;
    let is_hole = *missing > Span::ZERO;
    let first = if is_hole { media.min(FIRST_PACKETS) } else { Span::ZERO };
    let media = (media - *missing).max(first).max(Span::ZERO);
    if media >= *duration {
        return bytes.len();
    }
    let part = i128::from(media.as_nanos()) * bytes.len() as i128 / i128::from(duration.as_nanos());
    usize::try_from(part).unwrap_or(0)
}

/// Segments that are held at most: more than six target durations of the shortest.
const MAX_ITEMS: usize = 32;

/// Media in which there is a packet with a time.
const FIRST_PACKETS: Span = Span::from_millis(500);

#[cfg(test)]
mod tests {
    use super::super::stream::stream_channel;
    use super::*;

    fn segment(seconds: i64, missing: i64, begins: bool) -> SegmentItem {
        SegmentItem::Segment(HlsSegment {
            bytes: vec![0; 1_000 * usize::try_from(seconds).unwrap()],
            duration: Span::from_secs(seconds),
            missing: Span::from_secs(missing),
            begins,
        })
    }

    /// Bytes that are there after each second.
    fn released(items: Vec<SegmentItem>, seconds: usize) -> Vec<usize> {
        let (queue, mut feed) = segment_channel(Span::from_secs(6));
        let (mut writer, mut reader) = stream_channel();
        items.into_iter().for_each(|item| queue.push(item).unwrap());
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut all = 0;
        let mut seen = Vec::new();
        for _ in 0..seconds {
            for _ in 0..10 {
                feed.feed(now, &mut writer);
                while reader.next_mark().is_some() {}
                all += reader.read(|bytes| bytes.len());
                now += Span::from_millis(100);
            }
            seen.push(all / 100);
        }
        seen
    }

    #[test]
    fn media_is_released_in_real_time_once_there_is_a_reserve() {
        let nine = vec![segment(6, 0, true), segment(6, 0, false)];
        assert_eq!(released(nine, 4), [34, 44, 54, 64]);
        // Less than one and a half target durations, until nothing more comes.
        assert_eq!(released(vec![segment(6, 0, true)], 2), [0, 0]);
        assert_eq!(released(vec![segment(6, 0, true), SegmentItem::End], 2), [34, 44]);
    }

    #[test]
    fn the_first_packets_behind_a_hole_come_at_its_begin_and_the_rest_at_its_end() {
        let items = vec![segment(2, 0, true), segment(6, 3, false), SegmentItem::End];
        assert_eq!(released(items, 6), [25, 25, 25, 34, 44, 54]);
    }
}

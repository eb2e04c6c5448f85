//! Graphs: they carry audio from a source to a sink.

use std::fmt;

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_rt::{LatestPublisher, LatestReader};

use super::{PushResult, Sink, StreamEnd};
use crate::source::{BLOCK_SAMPLES, PullResult, Source};
use crate::station::Station;

/// A task with a timer that shares a thread with others.
pub trait TimedTask: Send {
    /// Does the work that is due.
    ///
    /// # Real-time
    /// Does not wait, lock, allocate or call the system, and works only for a small part of the
    /// time until the next call.
    fn handle_timeout(&mut self, now: Instant);

    /// Time of the next call.
    fn poll_timeout(&self) -> Instant;

    /// Takes how long the last call of [`Self::handle_timeout`] took, for statistics.
    ///
    /// # Real-time
    /// As [`Self::handle_timeout`].
    fn record_step(&mut self, _took: Span) {}
}

impl TimedTask for Station {
    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Self::poll_timeout(self)
    }

    fn record_step(&mut self, took: Span) {
        Self::record_step(self, took);
    }
}

/// Pacing of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphPace {
    /// In real time: for a source that delivers as much as is pulled (a tone, a file), and is heard
    /// as it plays.
    #[default]
    Clock,
    /// Everything that the source has and the sink takes, at every call: for a source with its own
    /// clock, and for offline processing.
    Free,
}

/// Carries sound from a source to a sink until one of them ends.
///
/// It runs every 10 ms, so the source should have, and the sink should have room for, more than
/// that.
pub struct Graph {
    source: Box<dyn Source>,
    sink: Box<dyn Sink>,
    pace: GraphPace,
    /// The pulled block, and how much of it was pushed.
    block: Block,
    pushed: Frames,
    /// The graph's clock, at the rate of the last block.
    timeline: Timeline,
    next: Instant,
    ended: bool,
    status: GraphStatus,
    published: LatestPublisher<GraphStatus>,
}

/// Status of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStatus {
    /// Frames that the sink took.
    pub frames: u64,
    /// Calls at which the source had nothing although something was due.
    pub waits_for_source: u64,
    /// Calls at which the sink had no room for everything available.
    pub waits_for_sink: u64,
    /// Frames whose rate or channels did not fit the sink; they were dropped.
    pub mismatched: u64,
    /// Stalls of more than a second; the missed audio is not caught up.
    pub stalls: u64,
    /// How it ended; `None` while it runs. [`StreamEnd::Lost`] also when the receiver disappeared.
    pub ended: Option<StreamEnd>,
}

impl Graph {
    /// Creates a graph that starts at `now`.
    ///
    /// Not for a real-time thread: allocates.
    #[must_use]
    pub fn new(
        source: impl Source + 'static,
        sink: impl Sink + 'static,
        pace: GraphPace,
        now: Instant,
    ) -> Self {
        let (published, _) = aulos_rt::latest(GraphStatus::default());
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
        Self {
            source: Box::new(source),
            sink: Box::new(sink),
            pace,
            block: Block::with_capacity(rate, layout, BLOCK_SAMPLES),
            pushed: Frames::ZERO,
            timeline: Timeline::new(MediaTime::ZERO, now, rate),
            next: now,
            ended: false,
            status: GraphStatus::default(),
            published,
        }
    }

    /// Returns the reader of its status, for any thread. There is one: a second call replaces it.
    #[must_use]
    pub fn status_reader(&mut self) -> LatestReader<GraphStatus> {
        let (published, reader) = aulos_rt::latest(self.status);
        self.published = published;
        reader
    }

    /// Its status.
    #[must_use]
    pub const fn status(&self) -> GraphStatus {
        self.status
    }

    fn run(&mut self, now: Instant) {
        let mut most = Frames::from(MAX_SAMPLES / self.block.layout().channels());
        let mut due = self.due(now);
        loop {
            if self.pushed >= self.block.frames() {
                if due == Frames::ZERO || most == Frames::ZERO || !self.pull(now) {
                    return;
                }
                // It may be the first block, or of another rate.
                due = self.due(now);
            }
            let whole = self.block.frames() - self.pushed;
            match self.sink.push(now, &self.block, self.pushed) {
                PushResult::Accepted(frames) => {
                    self.pushed += frames;
                    self.status.frames += frames.0;
                    (due, most) = (due - frames, most - frames);
                    if frames < whole {
                        self.status.waits_for_sink += 1;
                        return;
                    }
                }
                PushResult::FormatMismatch => {
                    self.pushed += whole;
                    self.status.mismatched += whole.0;
                    (due, most) = (due - whole, most - whole);
                }
                PushResult::Disconnected => return self.end(StreamEnd::Lost),
            }
        }
    }

    /// Pulls the next block; returns whether there was one.
    fn pull(&mut self, now: Instant) -> bool {
        match self.source.pull(now, &mut self.block) {
            PullResult::Block => {}
            PullResult::Pending => {
                self.status.waits_for_source += 1;
                self.block.resize(Frames::ZERO);
                self.pushed = Frames::ZERO;
                return false;
            }
            PullResult::Ended => {
                self.end(StreamEnd::Finished);
                return false;
            }
            PullResult::Lost => {
                self.end(StreamEnd::Lost);
                return false;
            }
        }
        self.pushed = Frames::ZERO;
        let rate = self.block.rate();
        if rate != self.timeline.rate() {
            let delivered = self.delivered();
            let begun = self.timeline.local_at(delivered);
            // The new rate applies from here on; earlier frames keep their time.
            self.timeline = Timeline::new(delivered, begun, rate);
        }
        true
    }

    /// Frames that are due now.
    fn due(&mut self, now: Instant) -> Frames {
        if self.pace == GraphPace::Free {
            return Frames(u64::MAX);
        }
        let delivered = self.delivered();
        let behind = now.since(self.timeline.local_at(delivered));
        if behind > MAX_CATCH_UP {
            self.timeline = self.timeline.delayed(behind);
            self.status.stalls += 1;
        }
        self.timeline.media_at(now).since(delivered)
    }

    /// Frames that were pulled and passed on.
    const fn delivered(&self) -> MediaTime {
        MediaTime(self.status.frames + self.status.mismatched)
    }

    fn end(&mut self, how: StreamEnd) {
        self.ended = true;
        self.status.ended = Some(how);
        self.sink.end(how);
        self.block.resize(Frames::ZERO);
    }
}

impl TimedTask for Graph {
    fn handle_timeout(&mut self, now: Instant) {
        if self.ended {
            return;
        }
        self.run(now);
        self.published.publish(self.status);
        // On a grid, so that a late call does not move later ones.
        self.next += INTERVAL;
        if self.next <= now {
            self.next = now + INTERVAL;
        }
    }

    fn poll_timeout(&self) -> Instant {
        if self.ended { Instant::from_nanos(u64::MAX) } else { self.next }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Interval of the calls: half a chunk.
const INTERVAL: Span = Span::from_millis(10);

/// Maximum number of samples per call, 340 ms of stereo: the other graphs of the thread wait
/// meanwhile.
const MAX_SAMPLES: usize = 32_768;

/// A longer stall is not caught up.
const MAX_CATCH_UP: Span = Span::from_secs(1);

//! What carries sound from a source to a sink.

use std::fmt;

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span, Timeline};
use aulos_rt::{LatestPublisher, LatestReader};

use super::{PushResult, Sink, StreamEnd};
use crate::source::{BLOCK_SAMPLES, PullResult, Source};
use crate::station::Station;

/// Something that wants to be called at certain times, and shares a thread with others like it.
pub trait TimedTask: Send {
    /// Does what is due.
    ///
    /// # Real-time
    /// Does not wait, lock, allocate or call the system, nor does it work for longer than a small
    /// part of the time until the next call.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call next.
    fn poll_timeout(&self) -> Instant;
}

impl TimedTask for Station {
    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Instant {
        Self::poll_timeout(self)
    }
}

/// How fast a graph runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphPace {
    /// As many frames as time has passed: for a source that gives as much as it is asked for (a tone,
    /// a file), and is to be heard as it goes.
    #[default]
    Clock,
    /// All that the source has and the sink takes, at every look: for a source that comes by a clock of
    /// its own, and for work that nobody listens to.
    Free,
}

/// Carries sound from a source to a sink until one of them ends.
///
/// It looks every 10 ms, so the source should have, and the sink should have room for, more than that.
pub struct Graph {
    source: Box<dyn Source>,
    sink: Box<dyn Sink>,
    pace: GraphPace,
    /// What was pulled, and how much of it was pushed.
    block: Block,
    pushed: Frames,
    /// What the clock says; at the rate of the last block.
    timeline: Timeline,
    next: Instant,
    ended: bool,
    status: GraphStatus,
    published: LatestPublisher<GraphStatus>,
}

/// What a graph has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStatus {
    /// Frames that the sink took.
    pub frames: u64,
    /// Looks at which the source had nothing, while something was wanted of it.
    pub waits_for_source: u64,
    /// Looks at which the sink had no room for all that there was.
    pub waits_for_sink: u64,
    /// Frames that did not fit the sink: another rate, other channels. They were not taken.
    pub mismatched: u64,
    /// Times that everything stood still for more than a second; what was not played then is not
    /// played faster now.
    pub stalls: u64,
    /// How it ended; none while it runs. [`Ending::Lost`] also when nobody took the sound any more.
    pub ended: Option<StreamEnd>,
}

impl Graph {
    /// A graph that begins at `now`.
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

    /// The end where somebody can see how it does, from any thread. There is one: a second call takes
    /// the place of the first.
    #[must_use]
    pub fn status_reader(&mut self) -> LatestReader<GraphStatus> {
        let (published, reader) = aulos_rt::latest(self.status);
        self.published = published;
        reader
    }

    /// What it has come to.
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
                // It may be the first, or of another rate.
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

    /// The next block, if there is one.
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
            let gone = self.delivered();
            let begun = self.timeline.local_at(gone);
            // From here on by the new rate: what has gone stays when it was.
            self.timeline = Timeline::new(gone, begun, rate);
        }
        true
    }

    /// Frames that the clock wants now.
    fn due(&mut self, now: Instant) -> Frames {
        if self.pace == GraphPace::Free {
            return Frames(u64::MAX);
        }
        let gone = self.delivered();
        let behind = now.since(self.timeline.local_at(gone));
        if behind > MAX_CATCH_UP {
            self.timeline = self.timeline.delayed(behind);
            self.status.stalls += 1;
        }
        self.timeline.media_at(now).since(gone)
    }

    /// What has left the source and is not in hand any more.
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
        // On a grid, so that a late call does not move those behind it.
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

/// Time between two looks: half a chunk of the house.
const INTERVAL: Span = Span::from_millis(10);

/// Samples that one look carries at most, 340 ms of stereo: the other graphs of the thread wait for it.
const MAX_SAMPLES: usize = 32_768;

/// More than this is not made good.
const MAX_CATCH_UP: Span = Span::from_secs(1);

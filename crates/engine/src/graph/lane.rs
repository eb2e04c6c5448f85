//! Frames on their way from one thread to another.
//!
//! A lane is a pipe of `rt` that carries 32-bit samples and knows their rate and channels. Its end
//! is signalled by an atomic beside the pipe: a pipe ends when its writing end is freed, but the
//! writer may be on a thread that must not free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_rt::pipe::{
    OverflowPolicy, PipeConfig, PipeConfigError, PipeMonitor, PipeReader, PipeWriter,
    SampleEncoding, pipe,
};

use super::{PushResult, StreamEnd};
use crate::source::{Pacing, PullResult};

/// Configuration of a lane. Both of its ends have this rate and layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneConfig {
    /// Frames per second.
    pub rate: SampleRate,
    /// The channels of a frame.
    pub layout: ChannelLayout,
    /// Maximum amount of buffered audio.
    pub capacity: Span,
    /// What happens when it is full.
    pub overflow: LaneOverflow,
    /// The longest block that is read at once.
    pub block: Span,
    /// The clock that paces it, for readers that pull blocks.
    pub pacing: Pacing,
}

/// What happens to frames that do not fit into a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneOverflow {
    /// The writer keeps them: back-pressure.
    #[default]
    Block,
    /// The oldest buffered frames are dropped: for readers that need current audio.
    DropOldest,
    /// The new frames are dropped: for readers that need what has started.
    DropNewest,
}

impl LaneConfig {
    /// A lane of 200 ms with back-pressure and blocks of up to 10 ms.
    #[must_use]
    pub const fn new(rate: SampleRate, layout: ChannelLayout) -> Self {
        Self {
            rate,
            layout,
            capacity: Span::from_millis(200),
            overflow: LaneOverflow::Block,
            block: Span::from_millis(10),
            pacing: Pacing::Live,
        }
    }

    /// Sets the capacity, a frame at least.
    #[must_use]
    pub const fn capacity(mut self, room: Span) -> Self {
        self.capacity = room;
        self
    }

    /// Sets the overflow policy.
    #[must_use]
    pub const fn overflow(mut self, rule: LaneOverflow) -> Self {
        self.overflow = rule;
        self
    }

    /// Sets the longest block.
    #[must_use]
    pub const fn block(mut self, block: Span) -> Self {
        self.block = block;
        self
    }

    /// Sets the pacing, if it differs from the writer's.
    #[must_use]
    pub const fn pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    /// Creates both ends.
    pub(super) fn open(&self) -> Result<(LaneWriter, LaneReader), PipeConfigError> {
        let channels = self.layout.channels();
        let room = self.rate.frames(self.capacity).as_usize().max(1);
        let config = PipeConfig {
            overflow: match self.overflow {
                LaneOverflow::Block => OverflowPolicy::Block,
                LaneOverflow::DropOldest => OverflowPolicy::DropOldest,
                LaneOverflow::DropNewest => OverflowPolicy::DropNewest,
            },
            ..PipeConfig::audio(self.rate.hz(), channels, SampleEncoding::F32Le, room)
        };
        let (writer, reader) = pipe(&config)?;
        let ending = Arc::new(AtomicU8::new(RUNNING));
        let monitor = LaneMonitor(writer.monitor());
        let (rate, layout) = (self.rate, self.layout);
        let way_in = LaneWriter {
            writer,
            rate,
            layout,
            blocking: self.overflow == LaneOverflow::Block,
            left_out: Frames::ZERO,
            ending: Arc::clone(&ending),
        };
        let block = self.rate.frames(self.block).max(Frames(1));
        let way_out = LaneReader {
            reader,
            rate,
            layout,
            block,
            pacing: self.pacing,
            ending,
            monitor,
            next: MediaTime::ZERO,
            left_out: Frames::ZERO,
            lost: Frames::ZERO,
        };
        Ok((way_in, way_out))
    }
}

/// A view of a lane for any thread.
#[derive(Clone, Debug)]
pub struct LaneMonitor(PipeMonitor);

impl LaneMonitor {
    /// Buffered frames.
    ///
    /// # Real-time
    /// Wait-free, as all of these methods.
    #[must_use]
    pub fn buffered(&self) -> Frames {
        Frames::from(self.0.fill().frames)
    }

    /// Capacity in frames.
    #[must_use]
    pub fn capacity(&self) -> Frames {
        Frames::from(self.0.capacity().frames)
    }

    /// Maximum number of frames that were ever buffered.
    #[must_use]
    pub fn high_water(&self) -> Frames {
        Frames::from(self.0.high_water().frames)
    }

    /// Frames lost because it was full.
    #[must_use]
    pub fn lost(&self) -> Frames {
        Frames(self.0.dropped_frames())
    }
}

/// The writing end.
#[derive(Debug)]
pub(super) struct LaneWriter {
    writer: PipeWriter,
    rate: SampleRate,
    layout: ChannelLayout,
    blocking: bool,
    /// Frames dropped before they were in the pipe. A stamp tells the reader.
    left_out: Frames,
    ending: Arc<AtomicU8>,
}

impl LaneWriter {
    /// Writes whole frames of `samples`; returns how many, dropped frames included. `None` when the
    /// reader is gone.
    pub(super) fn push(&mut self, samples: &[f32]) -> Option<Frames> {
        let channels = self.layout.channels();
        // Whole frames, whatever their size.
        let piece = COPY_SAMPLES / channels * channels;
        let whole = samples.len() / channels * channels;
        let mut bytes = [0; COPY_SAMPLES * 4];
        let mut taken = 0;
        for samples in samples[..whole].chunks(piece) {
            let bytes = &mut bytes[..samples.len() * 4];
            for (to, sample) in bytes.chunks_exact_mut(4).zip(samples) {
                to.copy_from_slice(&sample.to_le_bytes());
            }
            let written = self.writer.write(bytes).ok()?;
            let left = (bytes.len() - written.stored) / 4;
            if left > 0 && self.blocking {
                taken += samples.len() - left;
                break;
            }
            taken += samples.len();
            if left > 0 {
                // These were never in the pipe, so its own count lacks them.
                self.left_out += Frames::from(left / channels);
                self.writer.stamp(self.left_out.0);
            }
        }
        Some(Frames::from(taken / channels))
    }

    /// The same for a block, from frame `from` on.
    pub(super) fn push_block(&mut self, block: &Block, from: Frames) -> PushResult {
        if (block.rate(), block.layout()) != (self.rate, self.layout) {
            return PushResult::FormatMismatch;
        }
        let first = from.as_usize().saturating_mul(self.layout.channels());
        let samples = block.samples().get(first..).unwrap_or(&[]);
        self.push(samples).map_or(PushResult::Disconnected, PushResult::Accepted)
    }

    pub(super) fn end(&self, how: StreamEnd) {
        let how = match how {
            StreamEnd::Finished => FINISHED,
            StreamEnd::Lost => LOST,
        };
        // The first call counts. A reader that sees the end also sees everything written before it.
        let _ = self.ending.compare_exchange(RUNNING, how, Ordering::Release, Ordering::Relaxed);
    }

    pub(super) fn free(&self) -> Frames {
        Frames::from(self.writer.free().frames)
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.writer.is_abandoned()
    }

    pub(super) fn monitor(&self) -> LaneMonitor {
        LaneMonitor(self.writer.monitor())
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        self.end(StreamEnd::Lost);
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanePull {
    /// The number of the first frame, counted from the first one written.
    pub(super) at: MediaTime,
    pub(super) frames: Frames,
    /// Number of frames lost before it.
    pub(super) lost: Frames,
}

/// The reading end.
#[derive(Debug)]
pub(super) struct LaneReader {
    reader: PipeReader,
    rate: SampleRate,
    layout: ChannelLayout,
    block: Frames,
    pacing: Pacing,
    ending: Arc<AtomicU8>,
    monitor: LaneMonitor,
    /// The number of the next expected frame.
    next: MediaTime,
    /// Frames that the pipe's count lacks.
    left_out: Frames,
    lost: Frames,
}

impl LaneReader {
    /// Fills as much of `samples` as is buffered.
    pub(super) fn pull(&mut self, samples: &mut [f32]) -> LanePull {
        let channels = self.layout.channels();
        let wanted = samples.len() / channels * channels * 4;
        let there = self.reader.available().bytes.min(wanted);
        // The oldest frames are not dropped during a peek. `None`: they were dropped just now.
        let bytes = self.reader.peek(there).unwrap_or(&[]);
        for (sample, from) in samples.iter_mut().zip(bytes.chunks_exact(4)) {
            *sample = f32::from_le_bytes([from[0], from[1], from[2], from[3]]);
        }
        let taken = bytes.len();
        self.reader.advance(taken, taken);
        let frames = Frames::from(taken / 4 / channels);
        let first = Frames(self.reader.position()) - frames;
        if let Some(stamp) = self.reader.writer_stamp().filter(|stamp| stamp.frame <= first.0) {
            self.left_out = Frames(stamp.nanos);
        }
        let at = MediaTime::ZERO + first + self.left_out;
        let mut lost = Frames::ZERO;
        if frames > Frames::ZERO {
            lost = at.since(self.next);
            self.next = at + frames;
            self.lost += lost;
        }
        LanePull { at, frames, lost }
    }

    pub(super) fn pull_block(&mut self, now: Instant, into: &mut Block) -> PullResult {
        // Loaded before the read: everything written before the end is then visible.
        let ending = self.ending.load(Ordering::Acquire);
        into.reset(self.rate, self.layout);
        into.resize(self.block);
        let LanePull { at, frames, .. } = self.pull(into.samples_mut());
        into.resize(frames);
        if frames > Frames::ZERO {
            (into.pts, into.received) = (at, now);
            return PullResult::Block;
        }
        match ending {
            RUNNING => PullResult::Pending,
            FINISHED => PullResult::Ended,
            _ => PullResult::Lost,
        }
    }

    /// How it ended; `None` while frames are buffered or may arrive.
    pub(super) fn ending(&self) -> Option<StreamEnd> {
        let ending = self.ending.load(Ordering::Acquire);
        match ending {
            RUNNING => None,
            _ if self.monitor.buffered() > Frames::ZERO => None,
            FINISHED => Some(StreamEnd::Finished),
            _ => Some(StreamEnd::Lost),
        }
    }

    pub(super) const fn lost(&self) -> Frames {
        self.lost
    }

    pub(super) fn available(&self) -> Frames {
        Frames::from(self.reader.available().frames)
    }

    pub(super) fn monitor(&self) -> LaneMonitor {
        self.monitor.clone()
    }

    pub(super) const fn pacing(&self) -> Pacing {
        self.pacing
    }
}

/// Samples that are converted to bytes at once, on the stack; a frame of the most channels fits.
const COPY_SAMPLES: usize = 1_024;

const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const LOST: u8 = 2;

//! Frames on their way from one thread to another.
//!
//! A lane is a pipe of `rt` that carries samples of 32 bits and knows their rate and channels. Its end
//! is a number beside the pipe: a pipe is ended by giving up the memory of its writing end, and who
//! writes here may be a thread that must not free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, Span};
use aulos_rt::pipe::{
    OverflowPolicy, PipeConfig, PipeConfigError, PipeMonitor, PipeReader, PipeWriter,
    SampleEncoding, pipe,
};

use super::{PushResult, StreamEnd};
use crate::source::{Pacing, PullResult};

/// What a lane is to be. Both of its ends have the rate and the channels that stand here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneConfig {
    /// Frames per second.
    pub rate: SampleRate,
    /// The channels of a frame.
    pub layout: ChannelLayout,
    /// How much of it waits at most.
    pub capacity: Span,
    /// What happens to more.
    pub overflow: LaneOverflow,
    /// The longest block that comes out of it at once.
    pub block: Span,
    /// By whose clock it comes, for those who pull blocks out of it.
    pub pacing: Pacing,
}

/// What happens to frames for which a lane has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneOverflow {
    /// They stay with who has them, and he is told: back-pressure.
    #[default]
    Block,
    /// The oldest that wait are lost: for who wants to be up to date.
    DropOldest,
    /// They are lost themselves: for who wants what began to go on.
    DropNewest,
}

impl LaneConfig {
    /// A lane with room for 200 ms that holds who fills it, with blocks of up to 10 ms.
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

    /// With room for so much, a frame at least.
    #[must_use]
    pub const fn capacity(mut self, room: Span) -> Self {
        self.capacity = room;
        self
    }

    /// With another rule for what finds no room.
    #[must_use]
    pub const fn overflow(mut self, rule: LaneOverflow) -> Self {
        self.overflow = rule;
        self
    }

    /// With other blocks.
    #[must_use]
    pub const fn block(mut self, block: Span) -> Self {
        self.block = block;
        self
    }

    /// By another clock than that of who fills it.
    #[must_use]
    pub const fn pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    /// The two ends.
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
    /// Frames that wait in it.
    ///
    /// # Real-time
    /// Wait-free, as all of them.
    #[must_use]
    pub fn buffered(&self) -> Frames {
        Frames::from(self.0.fill().frames)
    }

    /// Frames that have room in it.
    #[must_use]
    pub fn capacity(&self) -> Frames {
        Frames::from(self.0.capacity().frames)
    }

    /// The most that ever waited in it.
    #[must_use]
    pub fn high_water(&self) -> Frames {
        Frames::from(self.0.high_water().frames)
    }

    /// Frames that were lost because it was full.
    #[must_use]
    pub fn lost(&self) -> Frames {
        Frames(self.0.dropped_frames())
    }
}

/// The end that frames go into.
#[derive(Debug)]
pub(super) struct LaneWriter {
    writer: PipeWriter,
    rate: SampleRate,
    layout: ChannelLayout,
    blocking: bool,
    /// Frames that were lost before they were in the pipe. The reader learns of it by a stamp.
    left_out: Frames,
    ending: Arc<AtomicU8>,
}

impl LaneWriter {
    /// Takes whole frames of `samples`; says how many, those that were lost as told included. None
    /// when nobody takes them out.
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
                // These were never in the pipe, so its own numbers do not have them.
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
        // The first word counts. What was written before is seen by whoever sees this.
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

/// What came out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanePull {
    /// The number of the first frame, of all that were put in.
    pub(super) at: MediaTime,
    pub(super) frames: Frames,
    /// How many were lost in front of it.
    pub(super) lost: Frames,
}

/// The end that they come out of.
#[derive(Debug)]
pub(super) struct LaneReader {
    reader: PipeReader,
    rate: SampleRate,
    layout: ChannelLayout,
    block: Frames,
    pacing: Pacing,
    ending: Arc<AtomicU8>,
    monitor: LaneMonitor,
    /// The number of the frame that should come next.
    next: MediaTime,
    /// What the pipe's numbers lack.
    left_out: Frames,
    lost: Frames,
}

impl LaneReader {
    /// Fills as much of `samples` as there is.
    pub(super) fn pull(&mut self, samples: &mut [f32]) -> LanePull {
        let channels = self.layout.channels();
        let wanted = samples.len() / channels * channels * 4;
        let there = self.reader.available().bytes.min(wanted);
        // While it is looked at, nobody takes away what is the oldest. None: somebody just did.
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
        // Asked before the look: what was written before the end is there then.
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

    /// How it ended; none while something waits or may come.
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

/// Samples that are turned into bytes at once, on the stack; a frame of the most channels fits.
const COPY_SAMPLES: usize = 1_024;

const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const LOST: u8 = 2;

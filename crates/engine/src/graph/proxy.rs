//! Many graphs hear one.
//!
//! Each reader has a lane of its own, so each goes at its own pace and none holds the sender or
//! another reader: who is slow loses the oldest of what waits for it, and learns how much. (One
//! graph into one other, with back-pressure, is a [`queue`](super::queue()).) Readers come and go
//! while the sound goes on: they reach the sender's thread through a ring, and leave it through a bin,
//! so that nothing is allocated or freed there.

use std::fmt;

use aulos_core::{Block, ChannelLayout, Frames, Instant, SampleRate};
use aulos_rt::pipe::PipeConfigError;
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{DropCollector, DropQueue, drop_queue};

use super::ends::LaneSource;
use super::lane::{LaneConfig, LaneOverflow, LaneReader, LaneWriter};
use super::{AppReader, PushResult, Sink, StreamEnd};

/// Where the one graph ends, and where readers are made.
///
/// Not for a real-time thread: allocates.
#[must_use]
pub fn proxy(rate: SampleRate, layout: ChannelLayout) -> (ProxySink, Proxy) {
    let (orders, told) = ring(MAX_READERS);
    let (bin, gone) = drop_queue(2 * MAX_READERS);
    let readers = Vec::with_capacity(MAX_READERS);
    let sink = ProxySink { rate, layout, told, readers, bin, ended: None };
    (sink, Proxy { rate, layout, orders, gone })
}

/// Makes readers: for a thread that may allocate.
#[derive(Debug)]
pub struct Proxy {
    rate: SampleRate,
    layout: ChannelLayout,
    orders: Producer<LaneWriter>,
    gone: DropCollector<LaneWriter>,
}

impl Proxy {
    /// A source that hears the sound from the next block on, for another graph. `lane` says how far
    /// it may be behind and how long its blocks are; what it has of rate, channels and fullness does
    /// not count here.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn source(&mut self, lane: &LaneConfig) -> Result<LaneSource, ProxyError> {
        self.open(lane).map(LaneSource)
    }

    /// The same for a program, which pulls samples.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn reader(&mut self, lane: &LaneConfig) -> Result<AppReader, ProxyError> {
        self.open(lane).map(AppReader::of)
    }

    /// Frees the ends of readers that have left.
    pub fn tidy(&mut self) {
        self.gone.collect();
    }

    fn open(&mut self, lane: &LaneConfig) -> Result<LaneReader, ProxyError> {
        self.tidy();
        let (rate, layout) = (self.rate, self.layout);
        let lane = LaneConfig { rate, layout, overflow: LaneOverflow::DropOldest, ..*lane };
        let (way_in, way_out) = lane.open().map_err(ProxyError::Lane)?;
        self.orders.push(way_in).map_err(|_| ProxyError::Busy)?;
        Ok(way_out)
    }
}

/// Why there is no reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyError {
    /// The sender has not taken the last ones in yet, or has stopped: try again later.
    Busy,
    /// No memory for so much room.
    Lane(PipeConfigError),
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "{MAX_READERS} readers wait to be taken in: try again later"),
            Self::Lane(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProxyError {}

/// Where the one graph ends. See [`proxy`]. Without a reader, its sound goes nowhere.
#[derive(Debug)]
pub struct ProxySink {
    rate: SampleRate,
    layout: ChannelLayout,
    told: Consumer<LaneWriter>,
    readers: Vec<LaneWriter>,
    bin: DropQueue<LaneWriter>,
    ended: Option<StreamEnd>,
}

impl Sink for ProxySink {
    fn push(&mut self, _now: Instant, block: &Block, from: Frames) -> PushResult {
        self.take_orders();
        if (block.rate(), block.layout()) != (self.rate, self.layout) {
            return PushResult::FormatMismatch;
        }
        let mut at = 0;
        while let Some(reader) = self.readers.get_mut(at) {
            match reader.push_block(block, from) {
                PushResult::Disconnected => {
                    let left = self.readers.swap_remove(at);
                    self.discard(left);
                }
                PushResult::Accepted(_) | PushResult::FormatMismatch => at += 1,
            }
        }
        PushResult::Accepted(block.frames() - from)
    }

    fn end(&mut self, how: StreamEnd) {
        self.take_orders();
        self.ended = Some(how);
        self.readers.iter().for_each(|reader| reader.end(how));
    }
}

impl ProxySink {
    /// Readers that it has now.
    #[must_use]
    pub const fn readers(&self) -> usize {
        self.readers.len()
    }

    fn take_orders(&mut self) {
        // One that is too many waits in the ring, and then those who come next are told.
        while self.readers.len() < MAX_READERS {
            let Some(reader) = self.told.pop() else { return };
            if let Some(how) = self.ended {
                reader.end(how);
            }
            self.readers.push(reader);
        }
    }

    fn discard(&mut self, reader: LaneWriter) {
        // Whoever makes readers empties the bin before, and there is room for all that there can be.
        drop(self.bin.discard(reader));
    }
}

/// Readers of one graph, and those that wait to be taken in.
pub const MAX_READERS: usize = 64;

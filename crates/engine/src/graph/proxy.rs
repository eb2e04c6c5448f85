//! One graph with many readers.
//!
//! Each reader has a lane of its own, so each goes at its own pace and none blocks the sender or
//! another reader: a slow reader loses its oldest frames, and learns how many. (One graph into one
//! other, with back-pressure, is a [`queue`](super::queue()).) Readers come and go at run time:
//! they reach the sender's thread as commands, and leave it as events, so that nothing is allocated
//! or freed there.

use std::fmt;

use aulos_core::{Block, ChannelLayout, Frames, Instant, SampleRate};
use aulos_rt::pipe::PipeConfigError;

use super::ends::LaneSource;
use super::lane::{LaneConfig, LaneOverflow, LaneReader, LaneWriter};
use super::{AppReader, PushResult, Sink, StreamEnd};
use crate::control_port::{ControlPort, Message, PortLimits, RealTimePort, control_ports};

/// Creates the sink of the sending graph, and the handle that creates readers.
///
/// Not for a real-time thread: allocates.
#[must_use]
pub fn proxy(rate: SampleRate, layout: ChannelLayout) -> (ProxySink, Proxy) {
    let (control, port) = control_ports(LIMITS);
    let readers = Vec::with_capacity(MAX_READERS);
    let sink = ProxySink { rate, layout, port, readers, ended: None };
    (sink, Proxy { rate, layout, control })
}

/// Creates readers, on a thread that may allocate.
#[derive(Debug)]
pub struct Proxy {
    rate: SampleRate,
    layout: ChannelLayout,
    control: ControlPort<LaneWriter, LaneWriter>,
}

impl Proxy {
    /// Creates a source for another graph, which starts with the next block. `lane` sets its
    /// capacity and block length; the rate, the layout and the overflow policy of `lane` are
    /// ignored.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn source(&mut self, lane: &LaneConfig) -> Result<LaneSource, ProxyError> {
        self.open(lane).map(LaneSource)
    }

    /// The same for a program, which reads samples.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn reader(&mut self, lane: &LaneConfig) -> Result<AppReader, ProxyError> {
        self.open(lane).map(AppReader::of)
    }

    /// Frees the ends of readers that have left.
    pub fn tidy(&mut self) {
        self.control.collect();
    }

    fn open(&mut self, lane: &LaneConfig) -> Result<LaneReader, ProxyError> {
        self.tidy();
        let (rate, layout) = (self.rate, self.layout);
        let lane = LaneConfig { rate, layout, overflow: LaneOverflow::DropOldest, ..*lane };
        let (way_in, way_out) = lane.open().map_err(ProxyError::Lane)?;
        if !self.control.has_room() {
            return Err(ProxyError::Busy);
        }
        self.control.send(way_in);
        Ok(way_out)
    }
}

/// Why no reader was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyError {
    /// The sender has not accepted the last readers yet, or has stopped: try again later.
    Busy,
    /// No memory for this capacity.
    Lane(PipeConfigError),
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "too many pending readers ({MAX_READERS}); try again later"),
            Self::Lane(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProxyError {}

/// The sink of the sending graph; see [`proxy`]. Without readers, the audio is discarded.
#[derive(Debug)]
pub struct ProxySink {
    rate: SampleRate,
    layout: ChannelLayout,
    port: RealTimePort<LaneWriter, LaneWriter>,
    readers: Vec<LaneWriter>,
    ended: Option<StreamEnd>,
}

impl Sink for ProxySink {
    fn push(&mut self, _now: Instant, block: &Block, from: Frames) -> PushResult {
        self.take_readers();
        if (block.rate(), block.layout()) != (self.rate, self.layout) {
            return PushResult::FormatMismatch;
        }
        let mut at = 0;
        while let Some(reader) = self.readers.get_mut(at) {
            match reader.push_block(block, from) {
                PushResult::Disconnected => {
                    let left = self.readers.swap_remove(at);
                    self.port.reply(left);
                }
                PushResult::Accepted(_) | PushResult::FormatMismatch => at += 1,
            }
        }
        PushResult::Accepted(block.frames() - from)
    }

    fn end(&mut self, how: StreamEnd) {
        self.take_readers();
        self.ended = Some(how);
        self.readers.iter().for_each(|reader| reader.end(how));
    }
}

impl ProxySink {
    /// Number of readers.
    #[must_use]
    pub const fn readers(&self) -> usize {
        self.readers.len()
    }

    fn take_readers(&mut self) {
        // A surplus reader waits in the ring; a full ring refuses further ones.
        while self.readers.len() < MAX_READERS {
            let Some(reader) = self.port.next() else { return };
            if let Some(how) = self.ended {
                reader.end(how);
            }
            self.readers.push(reader);
        }
    }
}

/// Maximum number of readers of a graph, those that wait to be accepted included.
pub const MAX_READERS: usize = 64;

/// As many readers again can wait in the ring.
const LIMITS: PortLimits =
    PortLimits { commands: MAX_READERS, reserved: 2 * MAX_READERS, notices: 0 };

impl Message for LaneWriter {}

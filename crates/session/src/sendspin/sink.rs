//! The output of a Sendspin source: decoded audio as blocks for the station.

use aulos_core::Span;
use aulos_engine::source::SourceItem;
use aulos_engine::standby::StandbyHandle;
use aulos_proto::sendspin::TransportCommand;
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader};

use super::status::SendspinInputStatus;
use crate::block_sink::BlockSink;

/// The output of a [`SendspinInput`](super::SendspinInput).
#[derive(Debug)]
pub struct SendspinInputSink {
    pub(super) blocks: BlockSink,
    pub(super) commands: Consumer<SourceCommand>,
    state: LatestPublisher<SendspinInputStatus>,
    published: SendspinInputStatus,
}

/// What surrounds a source: its blocks, its status, and the way of commands to its server.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "the ends of a source")]
pub struct SendspinInputHandles {
    /// The blocks, for the station (a live source).
    pub items: Consumer<SourceItem>,
    /// The status.
    pub status: LatestReader<SendspinInputStatus>,
    /// Commands; a full ring means that the source does not run.
    pub commands: Producer<SourceCommand>,
}

/// A command for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what the caller can want")]
pub enum SourceCommand {
    /// Tell this to the server, if it can be told.
    Transport(TransportCommand),
    /// From the time at which sound goes to the station until its players sound.
    Delay(Span),
}

impl SendspinInputSink {
    /// A sink, and its other ends.
    #[must_use]
    pub fn new() -> (Self, SendspinInputHandles) {
        let (blocks, items) = BlockSink::new();
        let (state, status) = aulos_rt::latest(SendspinInputStatus::default());
        let (producer, commands) = ring(MAX_COMMANDS);
        let published = SendspinInputStatus::default();
        let handles = SendspinInputHandles { items, status, commands: producer };
        (Self { blocks, commands, state, published }, handles)
    }

    /// Connects it to the station's stand-by control, if the station has one for this source.
    #[must_use]
    pub fn with_standby(mut self, standby: Option<StandbyHandle>) -> Self {
        self.blocks.set_standby(standby);
        self
    }

    pub(super) fn publish(&mut self, status: &SendspinInputStatus) {
        if *status == self.published {
            return;
        }
        self.blocks.report(status.error.is_some());
        self.published.clone_from(status);
        self.state.publish(status.clone());
    }
}

/// Commands of people that wait for a tick.
const MAX_COMMANDS: usize = 16;

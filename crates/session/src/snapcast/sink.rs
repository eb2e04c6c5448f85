//! The output of a Snapcast source: decoded audio as blocks for the station.

use aulos_engine::ready_chunk::ReadyChunkSink;
use aulos_engine::source::SourceItem;
use aulos_engine::standby::StandbyHandle;
use aulos_rt::ring::Consumer;
use aulos_rt::{LatestPublisher, LatestReader};

use super::pass::EdgeChunk;
use super::status::SnapcastInputStatus;
use crate::block_sink::BlockSink;

/// The output of a [`SnapcastInput`](super::SnapcastInput).
#[derive(Debug)]
pub struct SnapcastInputSink {
    pub(super) blocks: BlockSink,
    state: LatestPublisher<SnapcastInputStatus>,
    published: SnapcastInputStatus,
    ready_chunks: Option<ReadyChunkSink>,
}

impl SnapcastInputSink {
    /// A sink, its consumer for the station (a live source), and a reader of its status.
    #[must_use]
    pub fn new() -> (Self, Consumer<SourceItem>, LatestReader<SnapcastInputStatus>) {
        let (blocks, consumer) = BlockSink::new();
        let (state, reader) = aulos_rt::latest(SnapcastInputStatus::default());
        let published = SnapcastInputStatus::default();
        (Self { blocks, state, published, ready_chunks: None }, consumer, reader)
    }

    /// Connects it to the station's stand-by control, if the station has one for this source.
    #[must_use]
    pub fn with_standby(mut self, standby: Option<StandbyHandle>) -> Self {
        self.blocks.set_standby(standby);
        self
    }

    /// Lets it hand over chunks as well as samples.
    #[must_use]
    pub fn with_ready_chunks(mut self, chunks: ReadyChunkSink) -> Self {
        self.ready_chunks = Some(chunks);
        self
    }

    /// Hands a chunk to the station. False if it has no room.
    pub(super) fn pass(&mut self, chunk: EdgeChunk<'_>) -> bool {
        let times = (chunk.stamp, chunk.duration);
        let chunks = self.ready_chunks.as_mut();
        chunks.is_some_and(|chunks| {
            chunks.push(times, Some(chunk.origin), chunk.codec_header, chunk.payload)
        })
    }

    pub(super) fn publish(&mut self, status: &SnapcastInputStatus) {
        if *status == self.published {
            return;
        }
        self.blocks.report(status.error.is_some());
        self.published.clone_from(status);
        self.state.publish(status.clone());
    }
}

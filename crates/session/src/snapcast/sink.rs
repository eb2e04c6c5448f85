//! The output of a Snapcast source: decoded audio as blocks for the station.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, SampleSpec};
use aulos_engine::ready_chunk::ReadyChunkSink;
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{LinkState, StandbyHandle, StandbyRequest};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader, Pool};

use super::pass::EdgeChunk;
use super::status::SnapcastInputStatus;

/// The output of a [`SnapcastInput`](super::SnapcastInput).
#[derive(Debug)]
pub struct SnapcastInputSink {
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    position: MediaTime,
    /// Whether blocks have gone out since the last end.
    in_stream: bool,
    state: LatestPublisher<SnapcastInputStatus>,
    published: SnapcastInputStatus,
    standby: Option<StandbyHandle>,
    ready_chunks: Option<ReadyChunkSink>,
}

impl SnapcastInputSink {
    /// A sink, its consumer for the station (a live source), and a reader of its status.
    #[must_use]
    pub fn new() -> (Self, Consumer<SourceItem>, LatestReader<SnapcastInputStatus>) {
        // One more slot than there are blocks, so that the end mark always fits.
        let (items, consumer) = ring(BLOCKS + 1);
        let (state, reader) = aulos_rt::latest(SnapcastInputStatus::default());
        let block =
            || Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let sink = Self {
            pool: Pool::new(BLOCKS, block),
            items,
            position: MediaTime::ZERO,
            in_stream: false,
            state,
            published: SnapcastInputStatus::default(),
            standby: None,
            ready_chunks: None,
        };
        (sink, consumer, reader)
    }

    /// Connects it to the station's stand-by control, if the station has one for this source.
    #[must_use]
    pub fn with_standby(mut self, standby: Option<StandbyHandle>) -> Self {
        self.standby = standby;
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

    pub(super) fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// What the station currently needs.
    pub(super) fn request(&mut self) -> StandbyRequest {
        self.standby.as_mut().map_or(StandbyRequest::Play, StandbyHandle::request)
    }

    /// Hands `samples`, which were due at `received`, to the station; returns how many of them
    /// there was room for.
    pub(super) fn push(&mut self, spec: SampleSpec, received: Instant, samples: &[f32]) -> usize {
        let channels = spec.layout.channels();
        let mut taken = 0;
        while taken < samples.len() {
            let Some(mut block) = self.pool.take() else { break };
            block.reset(spec.rate, spec.layout);
            let rest = &samples[taken..];
            let frames = block.resize(Frames::from(rest.len() / channels));
            let count = frames.as_usize() * channels;
            if count == 0 {
                break;
            }
            block.samples_mut().copy_from_slice(&rest[..count]);
            (block.pts, block.received) = (self.position, received);
            self.position += frames;
            taken += count;
            self.in_stream = true;
            // The ring has a slot for every block of the pool, so it cannot be full.
            drop(self.items.push(SourceItem::Block(block)));
        }
        taken
    }

    /// The sender is lost, and everything it has sent was handed over.
    pub(super) fn mark_lost(&mut self) {
        if core::mem::take(&mut self.in_stream) {
            // Without room for the mark, the time-out of the station detects the end.
            drop(self.items.push(SourceItem::Lost));
        }
    }

    /// The station does not need the source and discards what it has.
    pub(super) const fn discard(&mut self) {
        self.in_stream = false;
    }

    pub(super) fn publish(&mut self, status: &SnapcastInputStatus) {
        if *status == self.published {
            return;
        }
        if let Some(standby) = &mut self.standby {
            let is_broken = status.error.is_some();
            standby.report(if is_broken { LinkState::Broken } else { LinkState::Healthy });
        }
        self.published.clone_from(status);
        self.state.publish(status.clone());
    }
}

/// Blocks between the source and its station: more than half a second of chunks of 20 ms.
const BLOCKS: usize = 32;

//! The way of decoded audio from a machine to its station.

use aulos_core::{Block, ChannelLayout, Frames, Instant, MediaTime, SampleRate, SampleSpec};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{LinkState, StandbyHandle, StandbyRequest};
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, Producer, ring};

/// Puts decoded audio into the ring of a station, a live source.
#[derive(Debug)]
pub(crate) struct BlockSink {
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    position: MediaTime,
    /// Whether blocks have gone out since the last end.
    in_stream: bool,
    standby: Option<StandbyHandle>,
}

impl BlockSink {
    /// A sink, and its consumer for the station.
    pub(crate) fn new() -> (Self, Consumer<SourceItem>) {
        // One more slot than there are blocks, so that the end mark always fits.
        let (items, consumer) = ring(BLOCKS + 1);
        let block =
            || Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let (pool, position) = (Pool::new(BLOCKS, block), MediaTime::ZERO);
        (Self { pool, items, position, in_stream: false, standby: None }, consumer)
    }

    /// Connects it to the station's stand-by control, if the station has one for this source.
    pub(crate) fn set_standby(&mut self, standby: Option<StandbyHandle>) {
        self.standby = standby;
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.items.is_abandoned()
    }

    /// What the station currently needs.
    pub(crate) fn request(&mut self) -> StandbyRequest {
        self.standby.as_mut().map_or(StandbyRequest::Play, StandbyHandle::request)
    }

    /// Tells the station whether the sender can be reached.
    pub(crate) fn report(&mut self, is_broken: bool) {
        if let Some(standby) = &mut self.standby {
            standby.report(if is_broken { LinkState::Broken } else { LinkState::Healthy });
        }
    }

    /// Hands `samples`, which were due at `received`, to the station; returns how many of them
    /// there was room for.
    pub(crate) fn push(&mut self, spec: SampleSpec, received: Instant, samples: &[f32]) -> usize {
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
    pub(crate) fn mark_lost(&mut self) {
        if core::mem::take(&mut self.in_stream) {
            // Without room for the mark, the time-out of the station detects the end.
            drop(self.items.push(SourceItem::Lost));
        }
    }

    /// The sender has closed cleanly, and everything it has sent was handed over.
    pub(crate) fn mark_ended(&mut self) {
        self.in_stream = false;
        drop(self.items.push(SourceItem::End));
    }

    /// The station does not need the source and discards what it has.
    pub(crate) const fn discard(&mut self) {
        self.in_stream = false;
    }
}

/// Blocks between the source and its station: more than half a second of chunks of 20 ms.
const BLOCKS: usize = 32;

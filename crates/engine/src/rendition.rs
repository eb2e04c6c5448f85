//! One encoding of a station's audio, on its way to the reactors.
//!
//! A station has one rendition from the start. Clients that need something else (one channel of it,
//! say) share a further one. It is made from the same blocks and carries the same timestamps, so
//! that a client can change from one to the other and stay in sync.

use aulos_core::{Block, ChannelMap, Chunk, Frames, HEADROOM, Instant, MediaTime, SampleSpec};
use aulos_dsp::route;
use aulos_rt::Pool;
use aulos_rt::ring::Producer;

use crate::encode::Encoder;
use crate::fanout::TimedChunk;
use crate::status::StationStatus;

/// Writes the wire header of a chunk right-aligned into its headroom: (headroom, time of
/// serialization, timestamp, payload length) -> bytes used. The engine knows no wire format; its
/// user passes in that of its sessions.
pub type WriteHeader = fn(&mut [u8], Instant, Instant, usize) -> usize;

/// Encodes blocks, and passes each chunk to every reactor.
pub struct Rendition {
    encoder: Box<dyn Encoder>,
    pool: Pool<Vec<u8>>,
    outputs: Vec<Producer<TimedChunk>>,
    write_header: WriteHeader,
    /// The channel map and the mapped block; `None` for an unmapped rendition.
    routed: Option<(ChannelMap, Block)>,
}

impl Rendition {
    /// A rendition of blocks as they are.
    ///
    /// `pool` provides the buffers of the chunks, each with room for headroom and payload;
    /// `outputs` are the rings to the reactors.
    #[must_use]
    pub fn new(
        encoder: Box<dyn Encoder>,
        pool: Pool<Vec<u8>>,
        outputs: Vec<Producer<TimedChunk>>,
        write_header: WriteHeader,
    ) -> Self {
        Self { encoder, pool, outputs, write_header, routed: None }
    }

    /// The same with mapped channels, of blocks of up to `quantum`.
    #[must_use]
    pub fn with_channel_map(mut self, map: ChannelMap, quantum: Frames) -> Self {
        let spec = self.encoder.spec();
        let samples = quantum.as_usize() * spec.layout.channels();
        let block = Block::with_capacity(spec.rate, spec.layout, samples);
        self.routed = (map != ChannelMap::Stereo).then_some((map, block));
        self
    }

    /// The format of its samples.
    pub(crate) fn spec(&self) -> SampleSpec {
        self.encoder.spec()
    }

    /// Encodes a block and sends it; counts chunks and failures in `status`.
    ///
    /// # Real-time
    /// Does not wait, lock, or call the system; allocates nothing of its own after warm-up.
    pub(crate) fn send(
        &mut self,
        block: &Block,
        now: Instant,
        (pts, timestamp): (MediaTime, Instant),
        status: &mut StationStatus,
    ) {
        let Some(mut bytes) = self.pool.take() else {
            status.pool_exhausted += 1;
            return;
        };
        let duration = block.frames();
        let block = match &mut self.routed {
            None => block,
            Some((map, routed)) => {
                routed.reset(block.rate(), block.layout());
                routed.resize(duration);
                route(*map, block.samples(), routed.samples_mut(), block.layout().channels());
                routed
            }
        };
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        if self.encoder.encode(block, &mut bytes).is_err() {
            status.encode_errors += 1;
            return;
        }
        let payload = bytes.len() - HEADROOM;
        let header = (self.write_header)(&mut bytes[..HEADROOM], now, timestamp, payload);
        let codec = self.encoder.codec();
        let chunk = Chunk { pts, duration, codec, header, bytes: bytes.freeze() };
        let stamped = TimedChunk { chunk, timestamp };
        for output in &mut self.outputs {
            if output.push(stamped.clone()).is_err() {
                status.fanout_full += 1;
            }
        }
        status.chunks += 1;
        status.payload_bytes += payload as u64;
    }
}

impl core::fmt::Debug for Rendition {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let map = self.routed.as_ref().map(|(map, _)| *map);
        f.debug_struct("Rendition").field("map", &map).finish_non_exhaustive()
    }
}

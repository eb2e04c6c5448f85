//! One encoding of a station's audio, on its way to the reactors.
//!
//! A station has one rendition from the start. Clients that need something else (one channel of it,
//! say) share a further one. It is made from the same blocks and carries the same timestamps, so
//! that a client can change from one to the other and stay in sync.

mod pass_through;
mod stamps;

use std::sync::Arc;

use aulos_core::{Block, ChannelMap, Chunk, Frames, HEADROOM, Instant, MediaTime, SampleSpec};
use aulos_dsp::route;
use aulos_dsp::sound::{SoundProcessor, SoundProgram};
use aulos_rt::ring::Producer;
use aulos_rt::{Pool, Pooled};

use crate::encode::{Effort, Encoder};
use crate::fanout::{Demand, OriginTime, TimedChunk};
use crate::status::StationStatus;
use stamps::PassThrough;
pub(crate) use stamps::QuantumTime;

/// Writes the wire header of a chunk right-aligned into its headroom: (headroom, time of
/// serialization, timestamp, payload length) -> bytes used. The engine knows no wire format; its
/// user passes in that of its sessions.
pub type WriteHeader = fn(&mut [u8], Instant, Instant, usize) -> usize;

/// The channels and the sound of some clients.
struct ClientStage {
    map: ChannelMap,
    sound: Option<Box<SoundProcessor>>,
    block: Block,
}

/// Encodes blocks, and passes each chunk to every reactor.
pub struct Rendition {
    encoder: Box<dyn Encoder>,
    pool: Pool<Vec<u8>>,
    outputs: Vec<Producer<TimedChunk>>,
    write_header: WriteHeader,
    demand: Demand,
    /// What makes it differ from the station's audio.
    client: Option<ClientStage>,
    /// `None` for a rendition that only encodes.
    pass_through: Option<PassThrough>,
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
        let demand = Demand::always();
        Self { encoder, pool, outputs, write_header, demand, client: None, pass_through: None }
    }

    /// The same for readers that may be absent: meanwhile it is encoded with the least work. It
    /// goes on all the same, so that a client that joins has sound at once.
    #[must_use]
    pub fn with_demand(mut self, demand: Demand) -> Self {
        self.demand = demand;
        self
    }

    /// The same with mapped channels, of blocks of up to `quantum`.
    #[must_use]
    pub fn with_channel_map(mut self, map: ChannelMap, quantum: Frames) -> Self {
        if map != ChannelMap::Stereo {
            self.client_stage(quantum).map = map;
        }
        self
    }

    /// The same with the sound of a client, which can change while it plays.
    #[must_use]
    pub fn with_sound(mut self, program: &SoundProgram, quantum: Frames) -> Self {
        let SampleSpec { rate, layout, .. } = self.encoder.spec();
        let processor = SoundProcessor::new(rate, layout, program);
        self.client_stage(quantum).sound = Some(Box::new(processor));
        self
    }

    fn client_stage(&mut self, quantum: Frames) -> &mut ClientStage {
        let SampleSpec { rate, layout, .. } = self.encoder.spec();
        let samples = quantum.as_usize() * layout.channels();
        self.client.get_or_insert_with(|| ClientStage {
            map: ChannelMap::Stereo,
            sound: None,
            block: Block::with_capacity(rate, layout, samples),
        })
    }

    /// Changes the sound, with a cross-fade; one that was made without stays as it is.
    ///
    /// # Real-time
    /// Does not allocate.
    pub(crate) fn set_sound(&mut self, program: &SoundProgram) {
        if let Some(sound) = self.client.as_mut().and_then(|client| client.sound.as_mut()) {
            sound.set(program);
        }
    }

    /// The format of its samples.
    pub(crate) fn spec(&self) -> SampleSpec {
        self.encoder.spec()
    }

    /// Whether every reactor has room for another chunk.
    pub(crate) fn has_room(&self) -> bool {
        self.outputs.iter().all(|output| output.free() > 0)
    }

    /// Encodes a block and sends it; counts chunks and failures in `status`.
    ///
    /// # Real-time
    /// Does not wait, lock, or call the system; allocates nothing of its own after warm-up, unless
    /// the codec's library panics.
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
        let (block, latency) = match &mut self.client {
            None => (block, Frames::ZERO),
            Some(client) => client.process(block),
        };
        bytes.clear();
        bytes.resize(HEADROOM, 0);
        let panics = self.encoder.panics();
        let is_wanted = self.demand.is_valid(now);
        self.encoder.set_effort(if is_wanted { Effort::Full } else { Effort::Least });
        let encoded = self.encoder.encode(block, &mut bytes);
        status.codec_panics += self.encoder.panics() - panics;
        if encoded.is_err() {
            status.encode_errors += 1;
            return;
        }
        // A frame of MP3 is longer than a block, and comes with a later one.
        if bytes.len() == HEADROOM {
            return;
        }
        let timestamp = match &mut self.pass_through {
            Some(stamps) => stamps.place(timestamp, self.encoder.spec().rate.span(duration)),
            // What the limiter delays is played that much earlier.
            None => timestamp - self.encoder.spec().rate.span(latency),
        };
        self.fan_out(bytes, (pts, duration), (now, timestamp), (None, None), status);
        status.chunks += 1;
    }

    /// Writes the wire header, and passes the chunk to every reactor.
    fn fan_out(
        &mut self,
        mut bytes: Pooled<Vec<u8>>,
        (pts, duration): (MediaTime, Frames),
        (now, timestamp): (Instant, Instant),
        (codec_header, origin): (Option<Arc<[u8]>>, Option<OriginTime>),
        status: &mut StationStatus,
    ) {
        let payload = bytes.len() - HEADROOM;
        status.payload_bytes += payload as u64;
        let header = (self.write_header)(&mut bytes[..HEADROOM], now, timestamp, payload);
        let codec = self.encoder.codec();
        let chunk = Chunk { pts, duration, codec, header, bytes: bytes.freeze() };
        let stamped = TimedChunk { chunk, timestamp, codec_header, origin };
        for output in &mut self.outputs {
            if output.push(stamped.clone()).is_err() {
                status.fanout_full += 1;
            }
        }
    }
}

impl ClientStage {
    /// The audio of the clients, and the frames by which it is late.
    fn process(&mut self, station: &Block) -> (&Block, Frames) {
        let Self { map, sound, block } = self;
        block.reset(station.rate(), station.layout());
        block.resize(station.frames());
        route(*map, station.samples(), block.samples_mut(), station.layout().channels());
        let latency = sound.as_mut().map_or(Frames::ZERO, |sound| {
            sound.process(block.samples_mut());
            sound.latency()
        });
        (block, latency)
    }
}

impl core::fmt::Debug for Rendition {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let map = self.client.as_ref().map(|client| client.map);
        f.debug_struct("Rendition").field("map", &map).finish_non_exhaustive()
    }
}

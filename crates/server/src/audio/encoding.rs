//! One encoding of a station: its encoder and buffers, and its channel in the reactors.
//!
//! A station and each of its renditions have one.

use std::io;
use std::sync::Arc;

use aulos_config::StationSettings;
use aulos_core::{Codec, Frames, HEADROOM, SampleFormat, Span};
use aulos_engine::encode::Encoder;
use aulos_engine::fanout::{Demand, TimedChunk};
use aulos_engine::rendition::WriteHeader;
use aulos_io::encoder;
use aulos_io::reactor::StationDescriptor;
use aulos_proto::snap;
use aulos_rt::Pool;
use aulos_rt::ring::{Consumer, Producer, ring};

use super::state::AudioState;

/// One encoding of a station: encoder, buffers, rings and the reactors' channel.
pub(super) struct EncodingHandles {
    pub(super) encoder: Box<dyn Encoder>,
    pub(super) quantum: Frames,
    pub(super) pool: Pool<Vec<u8>>,
    pub(super) outputs: Vec<Producer<TimedChunk>>,
    pub(super) channel: StationDescriptor,
    pub(super) taps: Vec<Consumer<TimedChunk>>,
}

impl EncodingHandles {
    pub(super) fn new(config: &StationSettings, name: &str, reactors: usize) -> io::Result<Self> {
        let chunk = Span::from_millis(i64::from(config.chunk_ms));
        let quantum = config.spec.rate.frames(chunk);
        let encoder =
            encoder::make_encoder(config.codec, config.spec, quantum).map_err(io::Error::other)?;
        let header =
            snap::wire::codec_header(config.codec.codec(), encoder.spec(), encoder.header());
        let channel = StationDescriptor {
            name: name.to_owned(),
            codec: config.codec.codec(),
            bitrate: config.codec.bitrate(encoder.spec()),
            spec: encoder.spec(),
            stream_header: encoder.header().to_vec(),
            // A codec that Snapcast does not have is for web listeners only.
            codec_header: header.unwrap_or_default().into(),
            buffer: Span::from_millis(i64::from(config.buffer_ms)),
            chunk,
            // A cluster's readers are elsewhere.
            demand: if config.publish { Demand::always() } else { Demand::none() },
            icy: Arc::new(config.icy.clone()),
            mount: None,
        };
        let (outputs, taps) = (0..reactors).map(|_| ring(RING_CHUNKS)).unzip();
        let pool = pool(&channel, quantum);
        Ok(Self { encoder, quantum, pool, outputs, channel, taps })
    }
}

/// Registers a channel with the reactors, under `number`, a free number or a new one.
pub(super) fn register_stream(
    number: Option<usize>,
    channel: &StationDescriptor,
    taps: Vec<Consumer<TimedChunk>>,
    inner: &mut AudioState,
) -> usize {
    let is_free = |number: &usize| inner.renditions.iter().all(|mapped| mapped.number != *number);
    let empty = || {
        let stations = inner.stations.iter().enumerate();
        let mut empty = stations.filter(|(_, slot)| slot.is_none()).map(|(number, _)| number);
        empty.find(is_free)
    };
    match number.or_else(empty) {
        Some(number) => {
            inner.context.replace_station(number, channel, taps);
            number
        }
        None => {
            inner.context.add_station(channel, taps);
            inner.stations.push(None);
            inner.stations.len() - 1
        }
    }
}

/// Writes the chunk header of the Snapcast protocol.
pub(super) const SNAPCAST_CHUNK_HEADER: WriteHeader = snap::wire::write_chunk_header;

/// Buffers for every chunk that a log or a ring can hold, and for those being written.
///
/// Most are in use only after a reactor has stood still for a second. They have their memory from
/// the beginning all the same: a station's thread does not allocate.
fn pool(channel: &StationDescriptor, quantum: Frames) -> Pool<Vec<u8>> {
    let (count, _) = buffers(channel, quantum);
    let bytes = HEADROOM + max_payload(channel, quantum);
    Pool::new(count, || Vec::with_capacity(bytes))
}

/// The number of these buffers, and the greatest payload of a chunk in any codec.
pub(super) fn buffers(channel: &StationDescriptor, quantum: Frames) -> (usize, usize) {
    let kept = channel.lifetime().as_nanos() / channel.chunk.as_nanos().max(1);
    let count = usize::try_from(kept).unwrap_or(0) + RING_CHUNKS + CHUNKS_IN_FLIGHT;
    // No codec makes a chunk larger than 4 bytes per sample plus a header.
    let samples = quantum.as_usize() * channel.spec.layout.channels();
    (count, samples * 4 + MAX_CODEC_OVERHEAD)
}

/// The greatest payload of a chunk in the channel's codec.
fn max_payload(channel: &StationDescriptor, quantum: Frames) -> usize {
    let samples = quantum.as_usize() * channel.spec.layout.channels();
    let sound = match (channel.codec, channel.spec.format) {
        // A frame that cannot be compressed is stored, with one more bit for a difference.
        (Codec::Flac, SampleFormat::S16Le) => samples * 2 + samples / 8,
        (Codec::Flac, _) => samples * 3 + samples / 8,
        (Codec::Pcm, format) => samples * format.bytes(),
        (Codec::Opus, _) => {
            let frames = 1 + channel.chunk.as_nanos() / OPUS_FRAME.as_nanos();
            usize::try_from(frames).unwrap_or(1) * MAX_OPUS_FRAME_BYTES
        }
        _ => return buffers(channel, quantum).1,
    };
    sound + MAX_CODEC_OVERHEAD
}

/// Chunks between a station and a reactor: more than a second at 20 ms. A reactor polls five times
/// a second.
pub(super) const RING_CHUNKS: usize = 64;

/// Chunks being encoded, with a margin.
const CHUNKS_IN_FLIGHT: usize = 8;

/// The longest frame of Opus that has a limit of its own, and that limit (RFC 6716, section 3.2.1).
const OPUS_FRAME: Span = Span::from_millis(20);
const MAX_OPUS_FRAME_BYTES: usize = 1_275;

/// Overhead of a codec for samples that it cannot compress.
const MAX_CODEC_OVERHEAD: usize = 256;

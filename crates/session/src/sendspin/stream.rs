//! A stream of a server: its chunks, encoded until they are due.

use aulos_core::{ChannelLayout, Codec, Instant, SampleFormat, SampleRate, SampleSpec, Span};
use aulos_proto::sendspin::SupportedFormat;

use super::status::SendspinInputCounts;
use crate::player::StreamFormat;
use crate::player::decoder::ChunkDecoder;
use crate::player::queue::ChunkQueue;

/// What a `stream/start` begins.
pub(super) struct InputStream {
    pub(super) format: StreamFormat,
    pub(super) decoder: ChunkDecoder,
    pub(super) queue: ChunkQueue,
    /// The duration of its last chunk.
    pub(super) chunk: Span,
}

impl InputStream {
    pub(super) fn new(format: SupportedFormat) -> Option<Self> {
        let sample = match (format.codec, format.bits) {
            (Codec::Opus, _) | (Codec::Pcm | Codec::Flac, 16) => SampleFormat::S16Le,
            (Codec::Pcm, 24) => SampleFormat::S24Le,
            (Codec::Flac, 24) => SampleFormat::S24In32Le,
            (Codec::Pcm, 32) => SampleFormat::S32Le,
            _ => return None,
        };
        let layout = ChannelLayout::new(usize::from(format.channels)).ok()?;
        let spec = SampleSpec { rate: SampleRate::new(format.hz).ok()?, format: sample, layout };
        let decoder = ChunkDecoder::new(format.codec, spec)?;
        Some(Self {
            format: StreamFormat { codec: format.codec, spec },
            decoder,
            queue: ChunkQueue::new(MAX_QUEUED_BYTES),
            chunk: Span::from_millis(25),
        })
    }
}

/// Queues a chunk that is to sound at `at`, if it is new and its time makes sense.
pub(super) fn take_chunk(
    stream: &mut InputStream,
    (timestamp, payload): (Instant, &[u8]),
    (at, now): (Option<Instant>, Instant),
    taken: &mut Option<Instant>,
    counts: &mut SendspinInputCounts,
) {
    // Without a clock nobody knows when it is due; the server was asked to wait for that.
    let Some(at) = at else {
        counts.late += 1;
        return;
    };
    if at - now > MAX_AHEAD {
        counts.early += 1;
        return;
    }
    if taken.is_some_and(|taken| timestamp <= taken) {
        counts.repeated += 1;
        return;
    }
    let before = stream.queue.stats.no_room;
    stream.queue.push(timestamp, payload, true);
    let dropped = stream.queue.stats.no_room - before;
    counts.dropped += dropped;
    if dropped == 0 {
        *taken = Some(timestamp);
    }
}

/// Keeps [`FADE`] of the samples, which fade out.
#[allow(clippy::cast_precision_loss, reason = "some hundred frames")]
pub(super) fn fade_out(samples: &mut Vec<f32>, spec: SampleSpec) {
    let channels = spec.layout.channels();
    let frames = spec.rate.frames(FADE).as_usize().min(samples.len() / channels);
    samples.truncate(frames * channels);
    for (number, frame) in samples.chunks_exact_mut(channels).enumerate() {
        let gain = 1.0 - (number as f32 + 1.0) / frames as f32;
        frame.iter_mut().for_each(|sample| *sample *= gain);
    }
}

/// Encoded audio that waits; `buffer_capacity` states less.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// Servers send no further ahead (30 s, and the output delay).
pub(super) const MAX_AHEAD: Span = Span::from_secs(40);

/// How long a stream that is cut fades.
pub(super) const FADE: Span = Span::from_millis(10);

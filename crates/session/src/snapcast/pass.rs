//! Pass-through: the chunks of the other server as ready chunks of the station.
//!
//! A chunk keeps its bytes and gets a stamp on the own clock with which the station's clients play
//! it when those of the other server do:
//!
//! ```text
//!  the server's stamp --own clock--> recorded --------- delay there ---------> playout
//!                                        transit --> |-- input --| stamp -- own buffer -->
//! ```
//!
//! Its samples go to the station so early that they, too, are played at that time. What remains of
//! the delay there is for the way of a chunk: see `docs/decisions/pass-through.md`.

use core::fmt;
use std::sync::Arc;

use aulos_core::{Codec, Frames, Instant, SampleSpec, Span};
use aulos_engine::fanout::OriginTime;
use aulos_proto::snap::wire::stream_begin;

use crate::player::StreamFormat;

/// What the station of a source sends and needs.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what the caller chooses")]
pub struct PassConfig {
    /// The codec of the station.
    pub codec: Codec,
    /// What its chunks decode to.
    pub spec: SampleSpec,
    /// The payload of its codec header message.
    pub codec_header: Arc<[u8]>,
    /// The duration of its chunks.
    pub chunk: Span,
    /// From the stamp of a chunk to its playout by the station's clients.
    pub buffer: Span,
    /// The buffer of the source's input.
    pub input_buffer: Span,
}

/// A chunk for the station's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeChunk<'a> {
    /// Time of its first frame on the own clock, the station's buffer before its playout.
    pub stamp: Instant,
    /// What it decodes to.
    pub duration: Frames,
    /// The payload of the codec header message that it needs; `None` for the station's own.
    pub codec_header: Option<&'a Arc<[u8]>>,
    /// When the other server recorded it.
    pub origin: OriginTime,
    /// The bytes that the other server has sent.
    pub payload: &'a [u8],
}

/// Why no chunk of the present stream can be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassObstacle {
    /// The other server has another codec or sample spec.
    Format {
        /// What it sends.
        theirs: StreamFormat,
        /// What the station sends.
        own: StreamFormat,
    },
    /// Its chunks are shorter than those of the station, whose logs are counted in chunks.
    ShortChunks(Span),
    /// The station's buffer leaves no time for the way of a chunk.
    NoRoom {
        /// The station's buffer.
        buffer: Span,
        /// From a stamp of the other server to its playout there.
        delay: Span,
        /// The longest buffer of the station with which chunks can be passed; zero if there is
        /// none.
        most: Span,
    },
}

impl fmt::Display for PassObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { theirs, own } => write!(
                f,
                "the other server sends {} {}, the station {} {}: give both the same `codec` and \
                 `spec`",
                theirs.codec, theirs.spec, own.codec, own.spec
            ),
            Self::ShortChunks(span) => write!(
                f,
                "the other server's chunks have {} ms, less than those of the station: set its \
                 `chunk_ms` to that",
                span.as_millis()
            ),
            Self::NoRoom { delay, most, .. } if *most <= Span::ZERO => write!(
                f,
                "the other server's clients play after {} ms, which is too soon to pass its chunks \
                 on",
                delay.as_millis()
            ),
            Self::NoRoom { buffer, delay, most } => write!(
                f,
                "the station's `buffer_ms` of {} leaves no time to pass chunks on that the other \
                 server's clients play after {} ms: set it to {} at most",
                buffer.as_millis(),
                delay.as_millis(),
                most.as_millis()
            ),
        }
    }
}

/// Turns chunks of the other server into chunks of the station.
#[derive(Debug)]
pub(super) struct ChunkPass {
    config: PassConfig,
    /// The header of the last chunk, and the one before, of which chunks are still in the station's
    /// logs: it is freed here and not by a thread that sends them.
    headers: [Option<Arc<[u8]>>; 2],
    obstacle: Option<PassObstacle>,
}

impl ChunkPass {
    pub(super) const fn new(config: PassConfig) -> Self {
        Self { config, headers: [None, None], obstacle: None }
    }

    /// The payload of the codec header message for a stream of the other server; `None` if that is
    /// the station's own.
    pub(super) fn codec_header(&self, codec: &[u8], header: &[u8]) -> Option<Arc<[u8]>> {
        let payload = stream_begin(codec, header);
        (*payload != *self.config.codec_header).then(|| Arc::from(payload))
    }

    /// How much earlier than their playout there, which is `delay` after the stamp, samples go to
    /// the station; zero if there is no room.
    pub(super) fn lead(&self, delay: Span) -> Span {
        let lead = self.full_lead();
        if delay - lead >= MIN_TRANSIT { lead } else { Span::ZERO }
    }

    /// When the samples of a chunk count as received that is played at `playout`.
    pub(super) fn received(&self, playout: Instant, duration: Span) -> Instant {
        playout - self.config.buffer + duration - self.config.input_buffer
    }

    /// The chunk for the station, of one with this `payload` that was recorded at `origin`, and that
    /// clients of the other server play at `playout`, `delay` later; `None` with an obstacle.
    pub(super) fn chunk<'a>(
        &mut self,
        (format, header): (StreamFormat, Option<&'a Arc<[u8]>>),
        (origin, playout, delay): (OriginTime, Instant, Span),
        duration: Frames,
        payload: &'a [u8],
    ) -> Option<EdgeChunk<'a>> {
        self.obstacle = self.find_obstacle(format, delay, duration);
        if self.obstacle.is_some() {
            return None;
        }
        if header != self.headers[0].as_ref() {
            self.headers.swap(0, 1);
            self.headers[0] = header.cloned();
        }
        let stamp = playout - self.config.buffer;
        Some(EdgeChunk { stamp, duration, codec_header: header, origin, payload })
    }

    /// Why the last chunk was not passed.
    pub(super) const fn obstacle(&self) -> Option<PassObstacle> {
        self.obstacle
    }

    fn find_obstacle(
        &self,
        theirs: StreamFormat,
        delay: Span,
        duration: Frames,
    ) -> Option<PassObstacle> {
        let own = StreamFormat { codec: self.config.codec, spec: self.config.spec };
        if theirs != own {
            return Some(PassObstacle::Format { theirs, own });
        }
        let span = theirs.spec.rate.span(duration);
        if span < self.config.chunk - MAX_ROUNDING {
            return Some(PassObstacle::ShortChunks(span));
        }
        let buffer = self.config.buffer;
        let most = delay - MIN_TRANSIT - (self.full_lead() - buffer);
        (buffer > most).then_some(PassObstacle::NoRoom { buffer, delay, most })
    }

    fn full_lead(&self) -> Span {
        self.config.buffer + self.config.input_buffer - self.config.chunk
    }
}

/// From the stamp of a chunk to the time at which its samples go to the station: the chunk itself,
/// 20 to 40 ms, the time for which the other server collects chunks, up to 100 ms, and the network.
const MIN_TRANSIT: Span = Span::from_millis(150);

/// Durations are whole frames.
const MAX_ROUNDING: Span = Span::from_millis(1);

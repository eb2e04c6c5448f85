//! A reactor's view of a station: its description and its most recent chunks.

use std::sync::Arc;

use aulos_core::{Codec, Instant, SampleSpec, Span};
use aulos_engine::fanout::{ChunkCursor, ChunkLog, Demand, TimedChunk};
use aulos_proto::http::icy::IcyInfo;
use aulos_rt::ring::{Consumer, ring};

/// The properties of a station that a reactor needs.
#[derive(Clone, Debug)]
pub struct StationDescriptor {
    /// The station's name.
    pub name: String,
    /// How its chunks are encoded.
    pub codec: Codec,
    /// Bits per second on average, where a setting of the encoder determines them.
    pub bitrate: Option<u32>,
    /// The format that the chunks decode to.
    pub spec: SampleSpec,
    /// The stream header of the codec, as web listeners get it.
    pub stream_header: Vec<u8>,
    /// The same header in Snapcast's wire format.
    pub codec_header: Arc<[u8]>,
    /// From the timestamp of a chunk to its playout.
    pub buffer: Span,
    /// The duration of a chunk.
    pub chunk: Span,
    /// Renewed while a session plays it.
    pub demand: Demand,
    /// What listeners are told of it.
    pub icy: Arc<IcyInfo>,
    /// Set for a mount, whose chunks are parts of a stream as listeners get it.
    pub mount: Option<MountStreamInfo>,
}

/// How listeners get a mount.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what a response needs")]
pub struct MountStreamInfo {
    /// The media type.
    pub media_type: &'static str,
    /// Whether it has titles of its own, and gets no others.
    pub has_titles: bool,
    /// Whether a frame may need bytes of those before it.
    pub has_reservoir: bool,
    /// What each listener gets before the stream; the bytes are shared.
    pub intro: Vec<TimedChunk>,
    /// Bytes that a listener gets at once.
    pub burst: u32,
    /// After which a listener is disconnected.
    pub max_duration: Option<Span>,
}

impl StationDescriptor {
    /// The greatest age of a chunk when it returns to its pool.
    #[must_use]
    pub fn lifetime(&self) -> Span {
        self.history() + ZERO_COPY_GRACE + MAINTENANCE
    }

    /// The length of the log.
    #[must_use]
    pub fn history(&self) -> Span {
        self.buffer + EXTRA_HISTORY
    }
}

/// A station on one reactor.
#[derive(Debug)]
pub(super) struct ReactorStation {
    pub(super) descriptor: StationDescriptor,
    pub(super) log: ChunkLog,
    /// What each listener of a mount gets first.
    pub(super) intro: ChunkLog,
    /// The current title as a single line; empty if unknown.
    pub(super) title: Arc<str>,
    chunks: Consumer<TimedChunk>,
}

impl ReactorStation {
    pub(super) fn new(descriptor: StationDescriptor, chunks: Consumer<TimedChunk>) -> Self {
        let kept = descriptor.history().as_nanos() / descriptor.chunk.as_nanos().max(1) + 1;
        let log = ChunkLog::new(usize::try_from(kept).unwrap_or(1));
        let mount = descriptor.mount.as_ref();
        let first = mount.map(|mount| mount.intro.as_slice()).unwrap_or_default();
        let mut intro = ChunkLog::new(first.len());
        first.iter().for_each(|chunk| intro.push(chunk.clone()));
        Self { descriptor, log, intro, title: Arc::from(""), chunks }
    }

    /// The station is gone: its chunks return to their pool.
    pub(super) fn close(&mut self) {
        self.log = ChunkLog::new(1);
        (_, self.chunks) = ring(1);
    }

    /// Takes the new chunks of the station.
    pub(super) fn drain(&mut self) {
        while let Some(chunk) = self.chunks.pop() {
            self.log.push(chunk);
        }
    }

    /// The first chunk to send, at `now`, to a client that plays each chunk `buffer` after its
    /// timestamp.
    pub(super) fn first_playable(&self, now: Instant, buffer: Span) -> ChunkCursor {
        let margin = (buffer / 10).clamp(MIN_MARGIN, MAX_MARGIN);
        self.log.cursor_from(now - buffer + margin)
    }

    /// The codec header with which the chunk at `cursor` is decoded.
    pub(super) fn codec_header(&self, cursor: ChunkCursor) -> &Arc<[u8]> {
        let chunk = self.log.get(cursor, 0).ok().flatten();
        let own = &self.descriptor.codec_header;
        chunk.and_then(|chunk| chunk.codec_header.as_ref()).unwrap_or(own)
    }

    pub(super) fn has_chunk(&self, cursor: ChunkCursor) -> bool {
        matches!(self.log.get(cursor, 0), Ok(Some(_)))
    }

    /// Whether the chunk at `cursor` is too late to be played.
    pub(super) fn is_stale(&self, cursor: ChunkCursor, now: Instant, buffer: Span) -> bool {
        match self.log.get(cursor, 0) {
            Ok(Some(stamped)) => stamped.timestamp + buffer < now,
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

/// By how much the log exceeds the client's buffer: a client with a negative latency can still play
/// such old chunks.
const EXTRA_HISTORY: Span = Span::from_millis(500);

/// How much longer than the log the kernel may hold a chunk that it sends without copying.
pub(super) const ZERO_COPY_GRACE: Span = Span::from_millis(250);

/// The interval of session maintenance.
pub(super) const MAINTENANCE: Span = Span::from_millis(250);

/// The time that a chunk needs to travel and be decoded: a tenth of the buffer, within these
/// limits. When many clients connect at once, each gets its history in turn, and the second slice
/// must arrive before the first has been played.
const MIN_MARGIN: Span = Span::from_millis(30);
const MAX_MARGIN: Span = Span::from_millis(100);

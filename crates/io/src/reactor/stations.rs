//! A reactor's view of a station: what it sends, and the newest chunks of it.

use std::sync::Arc;

use aulos_core::{Codec, Instant, SampleSpec, Span};
use aulos_engine::fanout::{ChunkCursor, ChunkLog, TimedChunk};
use aulos_rt::ring::{Consumer, ring};

/// What a reactor has to know of a station besides its chunks.
#[derive(Clone, Debug)]
pub struct StationDescriptor {
    /// The station's name.
    pub name: String,
    /// How its chunks are encoded.
    pub codec: Codec,
    /// Bits per second on average, where a setting of the encoder determines them.
    pub bitrate: Option<u32>,
    /// What they decode to.
    pub spec: SampleSpec,
    /// The codec's own stream header, as web listeners get it.
    pub stream_header: Vec<u8>,
    /// The same as Snapcast's wire has it.
    pub codec_header: Arc<[u8]>,
    /// How long after its timestamp a chunk is to be heard.
    pub buffer: Span,
    /// How long a chunk is.
    pub chunk: Span,
}

impl StationDescriptor {
    /// How old a chunk can be when the last of it goes back to its pool.
    #[must_use]
    pub fn lifetime(&self) -> Span {
        self.history() + ZERO_COPY_GRACE + MAINTENANCE
    }

    /// How much of the past a reactor keeps.
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
    /// What is played, in one line; empty where nobody has said it.
    pub(super) title: Arc<str>,
    chunks: Consumer<TimedChunk>,
}

impl ReactorStation {
    pub(super) fn new(descriptor: StationDescriptor, chunks: Consumer<TimedChunk>) -> Self {
        let kept = descriptor.history().as_nanos() / descriptor.chunk.as_nanos().max(1) + 1;
        let log = ChunkLog::new(usize::try_from(kept).unwrap_or(1));
        Self { descriptor, log, title: Arc::from(""), chunks }
    }

    /// The station is gone: nothing comes any more, and what there was goes back to its pool.
    pub(super) fn close(&mut self) {
        self.log = ChunkLog::new(1);
        (_, self.chunks) = ring(1);
    }

    /// Takes in what the station has made since the last time.
    pub(super) fn drain(&mut self) {
        while let Some(chunk) = self.chunks.pop() {
            self.log.push(chunk);
        }
    }

    /// Where a client whose sound is due `buffer` after the timestamps has to start at `now`.
    pub(super) fn first_playable(&self, now: Instant, buffer: Span) -> ChunkCursor {
        let margin = (buffer / 10).clamp(MIN_MARGIN, MAX_MARGIN);
        self.log.cursor_from(now - buffer + margin)
    }

    /// The chunk at `cursor` is too late to be heard.
    pub(super) fn is_stale(&self, cursor: ChunkCursor, now: Instant, buffer: Span) -> bool {
        match self.log.get(cursor, 0) {
            Ok(Some(stamped)) => stamped.timestamp + buffer < now,
            Ok(None) => false,
            Err(_) => true,
        }
    }
}

/// How much older than the client's buffer the log may be: a client with a negative latency can
/// still play it.
const EXTRA_HISTORY: Span = Span::from_millis(500);

/// How much longer than a log the kernel may keep a chunk that it sends without a copy.
pub(super) const ZERO_COPY_GRACE: Span = Span::from_millis(250);

/// How often a reactor looks after its sessions.
pub(super) const MAINTENANCE: Span = Span::from_millis(250);

/// What a chunk needs to travel and be decoded before it is due: a tenth of the buffer. When a whole
/// house comes at once, each gets its history in turns, and the second slice must not come too late
/// for what follows the first.
const MIN_MARGIN: Span = Span::from_millis(30);
const MAX_MARGIN: Span = Span::from_millis(100);

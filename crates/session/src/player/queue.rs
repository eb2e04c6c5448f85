//! The chunks that have arrived and are not decoded yet.
//!
//! Chunks stay encoded until shortly before they sound: a second of FLAC takes 100 kB, decoded it
//! would take 400.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};

/// Chunks in the order of their timestamps.
#[derive(Debug)]
pub(crate) struct ChunkQueue {
    chunks: VecDeque<QueuedChunk>,
    bytes: usize,
    /// Chunks that may have sound.
    sounds: usize,
    max_bytes: usize,
    /// Buffers of decoded chunks, for the next ones.
    spare: Vec<Vec<u8>>,
    pub(crate) stats: QueueStats,
}

/// A chunk in the queue.
#[derive(Debug)]
pub(crate) struct QueuedChunk {
    /// Time of its first frame on the server's clock.
    pub(crate) timestamp: Instant,
    pub(crate) payload: Vec<u8>,
    /// False if it is known to be silent.
    pub(crate) has_sound: bool,
}

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueStats {
    /// Chunks received.
    pub(crate) received: u64,
    /// Chunks dropped because the queue was full.
    pub(crate) no_room: u64,
    /// Chunks dropped because the server's timeline began again at an earlier time.
    pub(crate) replaced: u64,
}

impl Default for ChunkQueue {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

impl ChunkQueue {
    /// An empty queue for at most so many bytes.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let (chunks, spare) = (VecDeque::new(), Vec::new());
        Self { chunks, bytes: 0, max_bytes, sounds: 0, spare, stats: QueueStats::default() }
    }

    /// Appends a chunk. One that is not later than its predecessors replaces them: the server's
    /// timeline has begun again.
    pub(crate) fn push(&mut self, timestamp: Instant, payload: &[u8], has_sound: bool) {
        self.stats.received += 1;
        while self.chunks.back().is_some_and(|last| last.timestamp >= timestamp) {
            if let Some(chunk) = self.chunks.pop_back() {
                self.removed(&chunk);
                self.stats.replaced += 1;
                self.recycle(chunk);
            }
        }
        if self.bytes + payload.len() > self.max_bytes || self.chunks.len() >= MAX_CHUNKS {
            self.stats.no_room += 1;
            return;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        self.bytes += payload.len();
        self.sounds += usize::from(has_sound);
        self.chunks.push_back(QueuedChunk { timestamp, payload: buffer, has_sound });
    }

    /// Puts a chunk that was overtaken into its place; one that is there already is dropped.
    pub(crate) fn insert(&mut self, timestamp: Instant, payload: &[u8], has_sound: bool) {
        let place = self.chunks.partition_point(|chunk| chunk.timestamp < timestamp);
        if self.chunks.get(place).is_none_or(|next| next.timestamp == timestamp) {
            // The last one of all is in order.
            if place == self.chunks.len() {
                self.push(timestamp, payload, has_sound);
            }
            return;
        }
        self.stats.received += 1;
        if self.bytes + payload.len() > self.max_bytes || self.chunks.len() >= MAX_CHUNKS {
            self.stats.no_room += 1;
            return;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        self.bytes += payload.len();
        self.sounds += usize::from(has_sound);
        self.chunks.insert(place, QueuedChunk { timestamp, payload: buffer, has_sound });
    }

    pub(crate) fn front(&self) -> Option<&QueuedChunk> {
        self.chunks.front()
    }

    /// The timestamp of the chunk after the first.
    pub(crate) fn second_timestamp(&self) -> Option<Instant> {
        self.chunks.get(1).map(|chunk| chunk.timestamp)
    }

    /// Takes the first chunk; give it to [`recycle`](Self::recycle) when it is decoded.
    pub(crate) fn pop(&mut self) -> Option<QueuedChunk> {
        let chunk = self.chunks.pop_front()?;
        self.removed(&chunk);
        Some(chunk)
    }

    /// Drops chunks that are over at `time`; returns how many of them may have had sound.
    pub(crate) fn drop_until(&mut self, time: Instant) -> u64 {
        let mut sounds = 0;
        while self.second_timestamp().is_some_and(|next| next <= time) {
            let Some(chunk) = self.pop() else { break };
            sounds += u64::from(chunk.has_sound);
            self.recycle(chunk);
        }
        sounds
    }

    /// Whether a chunk may have sound.
    pub(crate) const fn has_sound(&self) -> bool {
        self.sounds > 0
    }

    fn removed(&mut self, chunk: &QueuedChunk) {
        self.bytes -= chunk.payload.len();
        self.sounds -= usize::from(chunk.has_sound);
    }

    pub(crate) fn recycle(&mut self, chunk: QueuedChunk) {
        if self.spare.len() < MAX_SPARE {
            let mut buffer = chunk.payload;
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.bytes = 0;
        self.sounds = 0;
    }

    /// From the first chunk to the beginning of the last one.
    pub(crate) fn span(&self) -> Span {
        let ends = self.chunks.front().zip(self.chunks.back());
        ends.map_or(Span::ZERO, |(first, last)| last.timestamp - first.timestamp)
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }
}

/// A minute of 192 kHz in 24 bits and stereo, the longest buffer that servers have.
const MAX_BYTES: usize = 96 << 20;

/// A minute of the shortest chunks.
const MAX_CHUNKS: usize = 6_000;

/// A buffer for each chunk that arrives in one read.
const MAX_SPARE: usize = 16;

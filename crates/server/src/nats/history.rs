//! The last chunks of an origin: what it has published, for edges that have missed some, and what
//! it has withheld while another origin had the lease.

use std::collections::VecDeque;

use aulos_core::{Frames, Instant, MediaTime, Span};
use aulos_proto::nats::RepairRequest;
use bytes::Bytes;

/// Encoded chunks, the oldest first. Those that can no longer be played are forgotten.
#[derive(Debug, Default)]
pub(super) struct ChunkHistory(VecDeque<PublishedChunk>);

#[derive(Debug)]
struct PublishedChunk {
    epoch: u32,
    sequence: u64,
    recorded: Instant,
    message: Bytes,
}

impl ChunkHistory {
    /// Adds a chunk, whose epoch and number are these.
    pub(super) fn push(
        &mut self,
        (epoch, sequence): (u32, u64),
        recorded: Instant,
        message: Bytes,
    ) {
        if self.0.len() == MAX_CHUNKS {
            self.0.pop_front();
        }
        self.0.push_back(PublishedChunk { epoch, sequence, recorded, message });
    }

    /// Forgets what was recorded longer than `buffer` ago.
    pub(super) fn forget(&mut self, now: Instant, buffer: Span) {
        while self.0.front().is_some_and(|chunk| now - chunk.recorded > buffer) {
            self.0.pop_front();
        }
    }

    /// The chunks of this epoch.
    pub(super) fn of_epoch(&self, epoch: u32) -> Vec<Bytes> {
        self.messages(|chunk| chunk.epoch == epoch)
    }

    /// The chunks that a request asks for.
    pub(super) fn requested(&self, request: RepairRequest) -> Vec<Bytes> {
        self.messages(|chunk| request.contains(chunk.epoch, chunk.sequence))
    }

    fn messages(&self, is_wanted: impl Fn(&PublishedChunk) -> bool) -> Vec<Bytes> {
        self.0.iter().filter(|chunk| is_wanted(chunk)).map(|chunk| chunk.message.clone()).collect()
    }
}

/// A chunk of the station outside of its pool.
#[derive(Debug)]
pub(super) struct CopiedChunk {
    pub(super) first_frame: MediaTime,
    pub(super) frames: Frames,
    /// The time of the first frame on this node's clock.
    pub(super) recorded: Instant,
    pub(super) payload: Bytes,
}

/// The chunks that an origin has not sent because another one had the lease, the oldest first.
#[derive(Debug, Default)]
pub(super) struct WithheldChunks(VecDeque<CopiedChunk>);

impl WithheldChunks {
    /// Adds a chunk, and forgets what was recorded longer than `buffer` ago.
    pub(super) fn push(&mut self, chunk: CopiedChunk, now: Instant, buffer: Span) {
        if self.0.len() == MAX_CHUNKS {
            self.0.pop_front();
        }
        self.0.push_back(chunk);
        while self.0.front().is_some_and(|chunk| now - chunk.recorded > buffer) {
            self.0.pop_front();
        }
    }

    /// All that can still be played; nothing is left.
    pub(super) fn take(&mut self, now: Instant, buffer: Span) -> VecDeque<CopiedChunk> {
        let mut chunks = std::mem::take(&mut self.0);
        chunks.retain(|chunk| now - chunk.recorded <= buffer);
        chunks
    }
}

/// More than two seconds of chunks of 10 ms.
const MAX_CHUNKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_withheld_is_taken_once_and_only_while_it_can_be_played() {
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let buffer = Span::from_millis(1_000);
        let chunk = |millis| CopiedChunk {
            first_frame: MediaTime(0),
            frames: Frames(960),
            recorded: at(millis),
            payload: Bytes::new(),
        };
        let mut withheld = WithheldChunks::default();
        (0..200).for_each(|number| withheld.push(chunk(number * 20), at(number * 20), buffer));
        let recorded = |chunks: &VecDeque<CopiedChunk>| {
            chunks.iter().map(|chunk| chunk.recorded).collect::<Vec<_>>()
        };
        let taken = withheld.take(at(4_500), buffer);
        assert_eq!(recorded(&taken), (175..200).map(|number| at(number * 20)).collect::<Vec<_>>());
        assert!(withheld.take(at(4_500), buffer).is_empty());
        // However short chunks are and however long the buffer is.
        (0..1_000).for_each(|number| withheld.push(chunk(number), at(number), buffer * 60));
        assert_eq!(withheld.take(at(1_000), buffer * 60).len(), MAX_CHUNKS);
    }

    #[test]
    fn what_was_lost_is_found_while_it_can_be_played() {
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let mut history = ChunkHistory::default();
        for number in 0..300_u16 {
            let message = Bytes::copy_from_slice(&number.to_le_bytes());
            history.push((u32::from(number / 290), number.into()), at(i64::from(number)), message);
        }
        let request = RepairRequest { epoch: 0, first: 285, count: 20 };
        assert_eq!(history.requested(request).len(), 5);
        assert_eq!((history.of_epoch(0).len(), history.of_epoch(1).len()), (MAX_CHUNKS - 10, 10));
        history.forget(at(300), Span::from_millis(12));
        assert_eq!((history.of_epoch(0).len(), history.of_epoch(1).len()), (2, 10));
    }
}

//! The chunks that an origin has published last, for edges that have missed some.

use std::collections::VecDeque;

use aulos_core::{Instant, Span};
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

/// More than two seconds of chunks of 10 ms.
const MAX_CHUNKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

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

//! A file on its way to a station.

use aulos_core::Block;
use aulos_engine::source::SourceItem;
use aulos_rt::Pool;
use aulos_rt::ring::Producer;

use super::error::DecodeError;
use super::file::{FileDecodeStatus, FileDecoder, FileInfo};

/// Decodes a file into a ring, step by step, on whatever thread calls it.
#[derive(Debug)]
pub struct FileFeed {
    decoder: FileDecoder,
    pool: Pool<Block>,
    ring: Producer<SourceItem>,
    end: Option<FileFeedStatus>,
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFeedStatus {
    /// The ring or the pool has no room: step again when blocks have been taken.
    Full,
    /// The file is over, and [`Item::End`] is in the ring: close the feed.
    Ended,
    /// The file gives no more, and [`Item::End`] is in the ring: close the feed, say why.
    Failed(DecodeError),
    /// Nobody holds the other end of the ring: drop the feed.
    Abandoned,
}

impl FileFeed {
    /// Feeds `ring` with blocks from `pool`, which were made with
    /// [`BLOCK_SAMPLES`](aulos_engine::source::BLOCK_SAMPLES).
    #[must_use]
    pub const fn new(decoder: FileDecoder, pool: Pool<Block>, ring: Producer<SourceItem>) -> Self {
        Self { decoder, pool, ring, end: None }
    }

    /// Decodes until there is no room or no more file, at most one ring of blocks.
    ///
    /// Waits for nothing but the disk. Not for a real-time thread: codecs allocate.
    pub fn step(&mut self) -> FileFeedStatus {
        for _ in 0..self.ring.capacity() {
            if self.ring.is_abandoned() {
                return FileFeedStatus::Abandoned;
            }
            if let Some(end) = self.end {
                return end;
            }
            if self.ring.free() == 0 {
                return FileFeedStatus::Full;
            }
            let Some(mut block) = self.pool.take() else { return FileFeedStatus::Full };
            let end = match self.decoder.next(&mut block) {
                Ok(FileDecodeStatus::Block) => None,
                Ok(FileDecodeStatus::End) => Some(FileFeedStatus::Ended),
                Err(error) => Some(FileFeedStatus::Failed(error)),
            };
            self.end = end;
            let item = if end.is_some() { SourceItem::End } else { SourceItem::Block(block) };
            // There was room a moment ago, and only this end fills it.
            if self.ring.push(item).is_err() {
                return FileFeedStatus::Full;
            }
            if let Some(end) = end {
                return end;
            }
        }
        FileFeedStatus::Full
    }

    /// Closes the file. What is left keeps the blocks: while it is there, a station that gives one
    /// back frees nothing.
    #[must_use]
    pub fn close(self) -> (Pool<Block>, Producer<SourceItem>) {
        (self.pool, self.ring)
    }

    /// What the file is.
    #[must_use]
    pub const fn info(&self) -> &FileInfo {
        self.decoder.info()
    }

    /// Packets that were skipped because they were damaged.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.decoder.damaged()
    }
}

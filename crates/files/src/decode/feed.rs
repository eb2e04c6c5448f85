//! Decodes a file into the ring of a station.

use aulos_core::Block;
use aulos_engine::source::SourceItem;
use aulos_rt::Pool;
use aulos_rt::ring::Producer;

use super::error::FileDecodeError;
use super::file::{FileDecodeStatus, FileDecoder, FileInfo};
use super::warning::FileWarning;

/// Decodes a file into a ring, step by step, on the calling thread.
#[derive(Debug)]
pub struct FileFeed {
    decoder: FileDecoder,
    pool: Pool<Block>,
    ring: Producer<SourceItem>,
    end: Option<FileFeedStatus>,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFeedStatus {
    /// The ring or the pool is full: step again when blocks have been taken.
    Full,
    /// The file has ended, and [`SourceItem::End`] is in the ring: close the feed.
    Ended,
    /// The file cannot be decoded further, and [`SourceItem::End`] is in the ring: close the feed,
    /// report the error.
    Failed(FileDecodeError),
    /// The consumer of the ring is gone: drop the feed.
    Abandoned,
}

impl FileFeed {
    /// Feeds `ring` with blocks from `pool`, whose blocks must hold
    /// [`BLOCK_SAMPLES`](aulos_engine::source::BLOCK_SAMPLES).
    #[must_use]
    pub const fn new(decoder: FileDecoder, pool: Pool<Block>, ring: Producer<SourceItem>) -> Self {
        Self { decoder, pool, ring, end: None }
    }

    /// Decodes until the ring is full or the file ends, at most one ring of blocks.
    ///
    /// Blocks only on the disk. Not for a real-time thread: codecs allocate.
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
            // There was room before, and only this end fills the ring.
            if self.ring.push(item).is_err() {
                return FileFeedStatus::Full;
            }
            if let Some(end) = end {
                return end;
            }
        }
        FileFeedStatus::Full
    }

    /// Closes the file. The returned pool keeps the blocks alive, so that a station that returns a
    /// block frees no memory.
    #[must_use]
    pub fn close(self) -> (Pool<Block>, Producer<SourceItem>) {
        (self.pool, self.ring)
    }

    /// The format of the file.
    #[must_use]
    pub const fn info(&self) -> &FileInfo {
        self.decoder.info()
    }

    /// What the file does otherwise than its header says; complete when it has been decoded once.
    #[must_use]
    pub fn warnings(&self) -> Vec<FileWarning> {
        self.decoder.warnings()
    }

    /// Packets that were skipped because of damage.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.decoder.damaged()
    }
}

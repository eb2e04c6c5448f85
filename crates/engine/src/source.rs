//! Where blocks come from.

use aulos_core::{Block, Instant};
use aulos_rt::Pooled;
use aulos_rt::ring::Consumer;

/// Something that gives blocks when asked.
///
/// A source has its own rate, layout and clock; the input behind it adapts them. It runs on a
/// station's thread, so it must answer at once.
///
/// # Real-time
/// `pull` does not wait, lock or call the system, and does not allocate after warm-up.
pub trait Source: Send {
    /// Fills or exchanges `into` with the next block, if there is one.
    ///
    /// `into` has the house's block capacity ([`BLOCK_SAMPLES`]); an implementation may swap it for
    /// another block of the same capacity.
    fn pull(&mut self, now: Instant, into: &mut Block) -> PullResult;

    /// Whether the source has a clock of its own.
    fn pacing(&self) -> Pacing;

    /// Begins again, where that means anything.
    fn rewind(&mut self) {}
}

/// The answer of [`Source::pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullResult {
    /// `into` holds the next block.
    Block,
    /// Nothing has arrived yet.
    Pending,
    /// The sender closed cleanly, and everything that it sent has been pulled. Blocks may follow
    /// when another sender comes.
    Ended,
    /// The sender is gone without having closed cleanly. Blocks may follow as above.
    Lost,
}

/// Who decides how fast a source runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The sender, by its own clock: it has to be buffered and its drift followed.
    Live,
    /// We: it gives as much as it is asked for (files, generators).
    OnDemand,
    /// Another station: it comes in real time as [`Live`](Self::Live) does, by our own clock, so
    /// there is no drift to follow and its samples stay as they are.
    LocalClock,
    /// The sender, by its own clock, in lumps: a page of Ogg has a second of sound, and then nothing
    /// comes for as long. It is late only when what waits is used up.
    Streamed,
}

/// What travels through the ring between a reader (a reactor, the codec pool) and a station.
#[derive(Debug)]
pub enum SourceItem {
    /// The next block.
    Block(Pooled<Block>),
    /// The sender closed cleanly.
    End,
    /// The sender is gone without having closed cleanly.
    Lost,
}

/// The station's end of a ring that a reader on another thread fills.
#[derive(Debug)]
pub struct RingSource {
    items: Consumer<SourceItem>,
    pacing: Pacing,
}

impl RingSource {
    /// A source that gives what comes out of `items`.
    #[must_use]
    pub const fn new(items: Consumer<SourceItem>, pacing: Pacing) -> Self {
        Self { items, pacing }
    }
}

impl Source for RingSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        match self.items.pop() {
            // The two blocks change places, so the pool gets a block of the same size back.
            Some(SourceItem::Block(mut block)) => {
                core::mem::swap(into, &mut block);
                PullResult::Block
            }
            Some(SourceItem::End) => PullResult::Ended,
            Some(SourceItem::Lost) => PullResult::Lost,
            None => PullResult::Pending,
        }
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }
}

/// Samples (frames times channels) that every block of the house can hold.
pub const BLOCK_SAMPLES: usize = 8_192;

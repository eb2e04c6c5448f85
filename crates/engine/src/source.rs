//! Sources of audio blocks.

use aulos_core::{Block, Instant};
use aulos_rt::Pooled;
use aulos_rt::ring::Consumer;

/// A producer of audio blocks that is polled.
///
/// A source has its own rate, layout and clock; the input behind it adapts them. It runs on a
/// station's thread, so it must return at once.
///
/// # Real-time
/// `pull` does not wait, lock or call the system, and does not allocate after warm-up.
pub trait Source: Send {
    /// Fills or exchanges `into` with the next block, if there is one.
    ///
    /// `into` has the common block capacity ([`BLOCK_SAMPLES`]); an implementation may swap it for
    /// another block of the same capacity.
    fn pull(&mut self, now: Instant, into: &mut Block) -> PullResult;

    /// Which clock paces the source.
    fn pacing(&self) -> Pacing;

    /// Whether frames have their time: a block counts as received when its last frame is due, and
    /// plays so much later as the input's buffer is long. Without that an input goes on air with a
    /// quantum, up to half of one early or late.
    fn is_timed(&self) -> bool {
        false
    }

    /// Starts again from the beginning, where that is supported.
    fn rewind(&mut self) {}
}

/// Result of [`Source::pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullResult {
    /// `into` holds the next block.
    Block,
    /// No data has arrived yet.
    Pending,
    /// The sender closed cleanly, and everything it sent has been pulled. Blocks may follow when
    /// another sender connects.
    Ended,
    /// The sender was lost without a clean close. Blocks may follow as above.
    Lost,
}

/// Which clock paces a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The sender's clock: the source is buffered, and its drift is followed.
    Live,
    /// The station: the source delivers as much as is pulled (files, generators).
    OnDemand,
    /// This process's clock: another station. It arrives in real time as [`Live`](Self::Live) does,
    /// but without drift, so its samples stay unchanged.
    LocalClock,
    /// The sender's clock, in bursts: a page of Ogg holds a second of audio, and the next one
    /// follows a second later. The source is late only when its buffer is used up.
    Streamed,
}

/// What a reader (a reactor, the codec pool) sends to a station through the ring.
#[derive(Debug)]
pub enum SourceItem {
    /// The next block.
    Block(Pooled<Block>),
    /// The sender closed cleanly.
    End,
    /// The sender was lost without a clean close.
    Lost,
}

/// The station's end of a ring that a reader on another thread fills.
#[derive(Debug)]
pub struct RingSource {
    items: Consumer<SourceItem>,
    pacing: Pacing,
    is_timed: bool,
}

impl RingSource {
    /// Creates a source of the blocks from `items`.
    #[must_use]
    pub const fn new(items: Consumer<SourceItem>, pacing: Pacing) -> Self {
        Self { items, pacing, is_timed: false }
    }

    /// A live source whose frames have their time: see [`Source::is_timed`].
    #[must_use]
    pub const fn timed(items: Consumer<SourceItem>) -> Self {
        Self { items, pacing: Pacing::Live, is_timed: true }
    }
}

impl Source for RingSource {
    fn pull(&mut self, _now: Instant, into: &mut Block) -> PullResult {
        match self.items.pop() {
            // The two blocks are swapped, so the pool gets a block of the same size back.
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

    fn is_timed(&self) -> bool {
        self.is_timed
    }
}

/// Sample capacity (frames times channels) of every block.
pub const BLOCK_SAMPLES: usize = 8_192;

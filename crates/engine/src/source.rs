//! Where blocks come from.

use aulos_core::{Block, Instant};

/// Something that gives blocks when asked.
///
/// A source has its own rate, layout and clock; the input behind it adapts them. It runs
/// on a station's thread, so it must answer at once.
///
/// # Real-time
/// `pull` does not wait, lock or call the system, and does not allocate after warm-up.
pub trait Source: Send {
    /// Fills or exchanges `into` with the next block, if there is one.
    ///
    /// `into` has the house's block capacity ([`BLOCK_SAMPLES`]); an implementation may swap it for
    /// another block of the same capacity.
    fn pull(&mut self, now: Instant, into: &mut Block) -> Pulled;

    /// Whether the source has a clock of its own.
    fn pacing(&self) -> Pacing;
}

/// The answer of [`Source::pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// `into` holds the next block.
    Block,
    /// Nothing has arrived yet.
    Pending,
    /// The sender closed cleanly, and everything that it sent has been pulled. Blocks may follow
    /// when another sender comes.
    Ended,
}

/// Who decides how fast a source runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The sender, by its own clock: it has to be buffered and its drift followed.
    Live,
    /// We: it gives as much as it is asked for (files, generators).
    OnDemand,
}

/// Samples (frames times channels) that every block of the house can hold.
pub const BLOCK_SAMPLES: usize = 8_192;

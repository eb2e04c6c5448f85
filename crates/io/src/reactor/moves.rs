//! Sessions on their way from one rendition of a station to another.

use std::sync::Arc;

/// Counts sessions that are told to continue on another rendition and have not moved yet. Clones
/// count together.
#[derive(Clone, Debug, Default)]
pub struct PendingMoves(Arc<()>);

impl PendingMoves {
    /// Whether no session is on its way: each has moved, has been told otherwise, or is gone.
    ///
    /// Once it is true, what the new renditions encode later is sent to every session.
    #[must_use]
    pub fn is_done(&self) -> bool {
        // One clone is with each session.
        Arc::strong_count(&self.0) == 1
    }
}

/// Where a session continues.
#[derive(Debug)]
pub(super) struct Continuation {
    pub(super) station: usize,
    /// Counts it.
    _pending: PendingMoves,
}

impl Continuation {
    pub(super) const fn new(station: usize, pending: PendingMoves) -> Self {
        Self { station, _pending: pending }
    }
}

//! Limits of the remembered clients, and what was lost to them.

/// Limit of remembered clients. The largest tested installation has 5,000; the status of this many
/// is four megabytes, half of what may wait for one controller.
pub const MAX_CLIENTS: usize = 8_192;

/// Clients that play without being remembered: as many as one address may have sessions, and an
/// eighth of [`MAX_CLIENTS`].
pub const MAX_TRANSIENT: usize = 1_024;

/// Counts of what was lost for lack of room; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    /// Clients without settings that were forgotten for newer ones.
    pub evicted: u64,
    /// Clients that were not remembered.
    pub transient: u64,
}

/// Whether a new client is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRetention {
    /// It is remembered.
    Remembered,
    /// It is forgotten when it disconnects.
    Transient,
}

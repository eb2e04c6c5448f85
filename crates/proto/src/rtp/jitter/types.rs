//! Input and output types of the jitter buffer.

use aulos_core::{Instant, Ppm, Span};

/// Header fields and arrival time of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Extended sequence number.
    pub sequence: u64,
    /// Extended timestamp.
    pub timestamp: u64,
    /// Duration in ticks; 0 when only the next packet reveals it.
    pub ticks: u32,
    /// First packet after a silence.
    pub marker: bool,
    /// Arrival time.
    pub received: Instant,
}

/// Result of inserting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum InsertOutcome<P> {
    /// Stored.
    Held,
    /// Too late for playout. A relay forwards it unchanged, because the receiver's delay may be
    /// longer.
    Late(P),
    /// Duplicate of a received packet.
    Duplicate(P),
    /// Not related to the current run. If the next packet continues it, a new run begins.
    Stray(P),
    /// Too far ahead. All stored packets are due now: take the output of
    /// [`super::JitterBuffer::poll`] until it returns `Wait`, then insert the packet again.
    Full(P),
}

/// Output of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum JitterOutput<P> {
    /// Packet to play or to send.
    Packet(BufferedPacket<P>),
    /// Gap: the current media time has no packet.
    Missing(MediaGap),
    /// Packet that exceeds the capacity or the delay. Its media time passes without output.
    Skip(BufferedPacket<P>),
    /// Nothing until this time; `None`: until a packet is inserted.
    Wait(Option<Instant>),
}

/// A packet that comes out of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferedPacket<P> {
    /// As inserted.
    pub sequence: u64,
    /// As inserted.
    pub timestamp: u64,
    /// Media time, in ticks since the first packet.
    pub position: u64,
    /// Duration in ticks.
    pub ticks: u32,
    /// As inserted.
    pub marker: bool,
    /// The sender has restarted with this packet: reset the decoder.
    pub begins_run: bool,
    /// As inserted.
    pub received: Instant,
    /// As inserted.
    pub payload: P,
}

/// Media time without a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaGap {
    /// Start, in ticks since the first packet.
    pub position: u64,
    /// Length in ticks.
    pub ticks: u64,
    /// Cause of the gap.
    pub cause: GapCause,
}

/// Cause of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapCause {
    /// Lost: later packets have arrived. Conceal it.
    Lost,
    /// The buffer is empty: packets are lost or late, or the sender is silent. Conceal it.
    Underrun,
    /// The sender intentionally sent nothing. Play comfort noise or silence.
    Silence,
    /// Part of a silence that is skipped to shorten the delay. Play nothing for it.
    Shortened,
}

/// Counters since the beginning, and current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitterStats {
    /// Packets received, including late ones, without duplicates.
    pub received: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Packets received after one with a higher number.
    pub reordered: u64,
    /// Packets received after their playout time.
    pub late: u64,
    /// Lost packets.
    pub lost: u64,
    /// Packets that belonged to no run.
    pub strays: u64,
    /// Packets skipped because there were too many.
    pub skipped: u64,
    /// Units to conceal, without those that turned out to be silence.
    pub concealed: u64,
    /// Units of silence, for which the sender sent nothing.
    pub silent: u64,
    /// Restarts of the sender.
    pub restarts: u64,
    /// Packets currently stored.
    pub held: usize,
    /// Interarrival jitter of RFC 3550.
    pub jitter: Span,
    /// Current playout delay, relative to the fastest packets. Zero in relay mode.
    pub delay: Span,
    /// Target of [`JitterStats::delay`].
    pub target: Span,
    /// Drift of the sender's clock, for a servo.
    pub drift: Ppm,
}

//! What goes into a jitter buffer and comes out of it.

use aulos_core::{Instant, Ppm, Span};

/// What is known of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The sequence number, unwrapped.
    pub sequence: u64,
    /// The timestamp, unwrapped.
    pub timestamp: u64,
    /// How long its media is, in units of the timestamp; 0 when only the next packet tells.
    pub units: u32,
    /// The first packet after a silence.
    pub marker: bool,
    /// When it came.
    pub received: Instant,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum InsertOutcome<P> {
    /// It stands in line.
    Held,
    /// Its time has passed. A relay sends it on as it is: who listens may have more patience.
    Late(P),
    /// It is there already, or was.
    Duplicate(P),
    /// It does not belong to what is there. If the next one belongs to it, a new run begins.
    Stray(P),
    /// It is too far ahead. Take what [`super::JitterBuffer::next`] gives until it says `Wait`, all of
    /// which is now due, and insert it again: then there is room.
    Full(P),
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum JitterOutput<P> {
    /// This is to be played, or sent.
    Packet(BufferedPacket<P>),
    /// Nothing is there for the media time that is due.
    Missing(MediaGap),
    /// There is more than can be held or played in time. Its media time passes, but is not to be heard.
    Skip(BufferedPacket<P>),
    /// Nothing until then; `None`: until something is inserted.
    Wait(Option<Instant>),
}

/// A packet whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferedPacket<P> {
    /// As it was inserted.
    pub sequence: u64,
    /// As it was inserted.
    pub timestamp: u64,
    /// Its media time, in units since the first packet.
    pub position: u64,
    /// How long its media is, in units.
    pub units: u32,
    /// As it was inserted.
    pub marker: bool,
    /// The sender began anew with this one: what a decoder remembers is void.
    pub begins_run: bool,
    /// As it was inserted.
    pub received: Instant,
    /// As it was inserted.
    pub payload: P,
}

/// A piece of media time for which there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaGap {
    /// Where it begins, in units since the first packet.
    pub position: u64,
    /// How long it is, in units.
    pub units: u64,
    /// Why there is none.
    pub cause: GapCause,
}

/// Why there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GapCause {
    /// Packets behind it are there: it is lost. To be concealed.
    Lost,
    /// Nothing is there at all: lost, late, or the sender is silent. To be concealed.
    Underrun,
    /// The sender sent nothing, on purpose. Comfort noise, or nothing.
    Silence,
    /// Part of a silence that is left out, so that the delay becomes shorter. Nothing is to be
    /// heard for it.
    Shortened,
}

/// What was counted since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitterStats {
    /// Packets that came, late ones too, copies not.
    pub received: u64,
    /// Copies of packets that had come.
    pub duplicates: u64,
    /// Packets that came after one with a higher number.
    pub reordered: u64,
    /// Packets that came after their time.
    pub late: u64,
    /// Packets that did not come.
    pub lost: u64,
    /// Packets that belonged to nothing.
    pub strays: u64,
    /// Packets that were skipped because there were too many.
    pub skipped: u64,
    /// Units that were to be concealed. What turned out to be a silence is not among them.
    pub concealed: u64,
    /// Units for which the sender sent nothing.
    pub silent: u64,
    /// How often the sender began anew.
    pub restarts: u64,
    /// Packets that stand in line.
    pub held: usize,
    /// The interarrival jitter of RFC 3550.
    pub jitter: Span,
    /// How much later than the fastest packets sound is played now. Zero in a relay.
    pub delay: Span,
    /// What [`Stats::delay`] should be.
    pub target: Span,
    /// How fast the sender's clock is, for a servo.
    pub drift: Ppm,
}

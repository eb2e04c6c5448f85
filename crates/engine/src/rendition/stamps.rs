//! The stamps of a rendition that passes ready chunks and encodes by turns.
//!
//! Chunks of the encoder begin where the station's timeline says, passed chunks where the source
//! says. The phase between the two can be anything up to half a chunk, and the clocks of both
//! drift. So the rendition has stamps of its own: each chunk begins where the one before has ended,
//! and the stamps approach what they should be by at most [`MAX_SLEW`] per second, which clients
//! follow without a gap. See `docs/decisions/pass-through.md`.

use aulos_core::{Instant, MediaTime, Span};

/// The stamps of a rendition that may pass chunks.
#[derive(Debug, Default)]
pub(super) struct PassThrough {
    /// Where the last chunk has ended, as clients know it.
    pub(super) end: Option<Instant>,
    /// Where the last chunk has ended by its source's stamps, while chunks are passed.
    pub(super) passed: Option<Instant>,
    /// A chunk was missing: chunks are passed again from this time on.
    pub(super) retry_at: Option<Instant>,
}

impl PassThrough {
    /// The stamp of the next chunk, which should be `target`, and which lasts `span`.
    pub(super) fn place(&mut self, target: Instant, span: Span) -> Instant {
        let stamp = match self.end {
            Some(end) if (target - end).abs() <= MAX_JOIN => {
                let most = max_slew(span);
                end + (target - end).clamp(-most, most)
            }
            Some(end) => target.max(end),
            None => target,
        };
        self.end = Some(stamp + span);
        stamp
    }
}

/// A quantum of the station.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantumTime {
    pub(crate) now: Instant,
    pub(crate) pts: MediaTime,
    /// The stamp of its first frame by the station's timeline.
    pub(crate) stamp: Instant,
    pub(crate) span: Span,
}

pub(super) fn max_slew(span: Span) -> Span {
    span * MAX_SLEW.as_nanos() / NANOS_PER_SECOND
}

/// By how much the stamps approach their target per second: clients follow 500 ppm by resampling.
const MAX_SLEW: Span = Span::from_micros(500);

/// A larger difference is no phase but a jump of the timeline.
const MAX_JOIN: Span = Span::from_millis(100);

const NANOS_PER_SECOND: i64 = 1_000_000_000;

//! What follows from how a source is paced: how much of it is buffered, and how long a pause may
//! be.

use aulos_core::{SampleRate, Span};
use aulos_dsp::silence::SilenceDetector;

use crate::source::Pacing;

/// The limits of an input.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputTiming {
    pub(super) pacing: Pacing,
    /// The delay that the buffer is kept at.
    pub(super) buffer: Span,
    /// When a source that delivers nothing counts as late.
    pub(super) timeout: Span,
}

impl InputTiming {
    /// Whether the sender has a clock of its own.
    pub(super) const fn has_clock(self) -> bool {
        matches!(self.pacing, Pacing::Live | Pacing::Streamed)
    }

    /// Maximum number of buffered frames. For live sources it is twice the buffer, so that a burst
    /// fits while its start is still unplayed, and at least [`MIN_CAPACITY`].
    pub(super) fn max_frames(self, rate: SampleRate) -> usize {
        let span = match self.pacing {
            Pacing::Live | Pacing::LocalClock | Pacing::Streamed => {
                (self.buffer + self.buffer).max(MIN_CAPACITY)
            }
            Pacing::OnDemand => ON_DEMAND_AHEAD,
        };
        rate.frames(span).as_usize()
    }

    /// The same while the source is silent: the sound before the decision that there is sound
    /// fits.
    pub(super) fn max_frames_in_silence(self, rate: SampleRate) -> usize {
        let onset = match self.pacing {
            Pacing::Live | Pacing::LocalClock | Pacing::Streamed => {
                rate.frames(SilenceDetector::ONSET + MIN_CAPACITY).as_usize()
            }
            Pacing::OnDemand => 0,
        };
        self.max_frames(rate).max(onset)
    }

    /// The longest gap in the data after which new audio still belongs to the audio before.
    pub(super) fn max_gap(self) -> Span {
        match self.pacing {
            Pacing::Streamed => self.timeout.max(self.buffer).max(MOMENTARY),
            _ => self.timeout.max(MOMENTARY),
        }
    }

    /// When a sender that has delivered nothing for so long may be gone, so that the look-ahead is
    /// emptied; `None` for a source that is paced on demand.
    pub(super) fn drain_delay(self) -> Option<Span> {
        match self.pacing {
            Pacing::OnDemand => None,
            Pacing::Streamed => Some(self.max_gap()),
            _ => Some(self.timeout.min(self.buffer).max(MIN_DRAIN_DELAY)),
        }
    }
}

/// Twice the longest chunk of a station: the next quantum and the reserve for a fade fit, however
/// short the buffer is.
const MIN_CAPACITY: Span = Span::from_millis(120);

/// Read-ahead of files and generators.
const ON_DEMAND_AHEAD: Span = Span::from_millis(60);

/// The shortest loudness window: older audio does not belong to the current loudness.
const MOMENTARY: Span = Span::from_millis(400);

/// Shortest interruption after which the look-ahead is emptied.
const MIN_DRAIN_DELAY: Span = Span::from_millis(100);

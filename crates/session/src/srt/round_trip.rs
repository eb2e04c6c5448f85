//! The round-trip time.

use aulos_core::Span;

/// The round-trip time and how much it varies.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    mean: Span,
    variance: Span,
    is_measured: bool,
}

impl RoundTrip {
    pub(super) const fn new() -> Self {
        Self { mean: FIRST_MEAN, variance: FIRST_VARIANCE, is_measured: false }
    }

    /// A measured one.
    pub(super) fn measure(&mut self, sample: Span) {
        let sample = sample.max(Span::ZERO).min(LONGEST);
        if !self.is_measured {
            (self.mean, self.variance, self.is_measured) = (sample, sample / 2, true);
            return;
        }
        self.variance = (self.variance * 3 + (self.mean - sample).abs()) / 4;
        self.mean = (self.mean * 7 + sample) / 8;
    }

    pub(super) const fn mean(&self) -> Span {
        self.mean
    }

    /// In microseconds, with the variance.
    pub(super) fn on_wire(&self) -> (u32, u32) {
        let micros = |span: Span| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
        (micros(self.mean), micros(self.variance))
    }

    /// Nearly every round trip is shorter.
    pub(super) fn longest(&self) -> Span {
        self.mean + self.variance * 4
    }

    /// Nearly every round trip is longer.
    pub(super) fn shortest(&self) -> Span {
        (self.mean - self.variance * 4).max(Span::ZERO)
    }
}

const FIRST_MEAN: Span = Span::from_millis(100);
const FIRST_VARIANCE: Span = Span::from_millis(50);

/// What takes longer is no measurement.
const LONGEST: Span = Span::from_secs(10);

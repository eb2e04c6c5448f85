//! A sound card with its own clock.

use aulos_core::{Frames, Instant, MediaTime, Ppm, SampleRate, Timeline};

/// A card that requests, or delivers, `period` frames at a time.
#[derive(Clone, Copy, Debug)]
pub struct SoundCard {
    line: Timeline,
    period: Frames,
    position: MediaTime,
}

impl SoundCard {
    /// A card that starts at `start` and is fast by `drift`.
    #[must_use]
    pub fn new(rate: SampleRate, period: Frames, drift: Ppm, start: Instant) -> Self {
        let line =
            Timeline::new(MediaTime::ZERO, start, rate).with_drift_from(MediaTime::ZERO, drift);
        Self { line, period, position: MediaTime::ZERO }
    }

    /// The end of its next period.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.line.local_at(self.position + self.period)
    }

    /// The frames of one period if one is over at `now`. A card that was not polled for long has
    /// several, one per call.
    pub fn period(&mut self, now: Instant) -> Option<Frames> {
        if self.poll_timeout() > now {
            return None;
        }
        self.position += self.period;
        Some(self.period)
    }

    /// The frames of all periods so far.
    #[must_use]
    pub fn position(&self) -> MediaTime {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use aulos_core::Span;

    use super::*;

    #[test]
    fn a_fast_card_is_a_second_ahead_after_three_hours() {
        let hours = Instant::ZERO + Span::from_secs(10_000);
        let mut card =
            SoundCard::new(SampleRate::HZ_48000, Frames(480), Ppm::from_ppm(100), Instant::ZERO);
        while card.period(hours).is_some() {}
        assert_eq!(card.position(), MediaTime(480_048_000));
    }
}

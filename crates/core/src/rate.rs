//! Sample rates.

use core::fmt;

use crate::{Frames, Span};

/// A sample rate in frames per second, between [`SampleRate::MIN`] and [`SampleRate::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleRate(u32);

impl SampleRate {
    /// The lowest rate for which the filters of ITU-R BS.1770 can be designed.
    pub const MIN: u32 = 16;
    /// 64 times 44.1 kHz, the highest rate in use (DSD converted to PCM).
    pub const MAX: u32 = 2_822_400;
    /// 44,100 Hz.
    pub const HZ_44100: Self = Self(44_100);
    /// 48,000 Hz, the default rate.
    pub const HZ_48000: Self = Self(48_000);

    /// Creates a rate of `hz` frames per second.
    ///
    /// # Errors
    /// [`InvalidSampleRate`] if `hz` is outside `MIN..=MAX`.
    pub const fn new(hz: u32) -> Result<Self, InvalidSampleRate> {
        if hz < Self::MIN || hz > Self::MAX { Err(InvalidSampleRate(hz)) } else { Ok(Self(hz)) }
    }

    /// The rate in frames per second.
    #[must_use]
    pub const fn hz(self) -> u32 {
        self.0
    }

    /// Duration of `frames`, rounded down to a nanosecond; saturates after 292 years.
    #[must_use]
    pub fn span(self, frames: Frames) -> Span {
        let nanos = u128::from(frames.0) * NANOS_PER_SECOND / u128::from(self.0);
        Span::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// Number of whole frames that fit into `span`; zero for a negative span.
    #[must_use]
    pub fn frames(self, span: Span) -> Frames {
        let nanos = u128::try_from(span.as_nanos()).unwrap_or(0);
        Frames(u64::try_from(nanos * u128::from(self.0) / NANOS_PER_SECOND).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Hz", self.0)
    }
}

impl fmt::Debug for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error: sample rate out of range; holds the offending number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSampleRate(pub u32);

impl fmt::Display for InvalidSampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sample rate {} Hz is out of range: expected {} to {} Hz",
            self.0,
            SampleRate::MIN,
            SampleRate::MAX
        )
    }
}

impl core::error::Error for InvalidSampleRate {}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_milliseconds_are_960_frames_at_48_khz() {
        assert_eq!(SampleRate::HZ_48000.frames(Span::from_millis(20)), Frames(960));
        assert_eq!(SampleRate::HZ_48000.span(Frames(960)), Span::from_millis(20));
    }

    #[test]
    fn a_negative_span_holds_no_frame_and_centuries_saturate() {
        assert_eq!(SampleRate::HZ_44100.frames(Span::from_millis(-5)), Frames(0));
        assert_eq!(SampleRate::HZ_44100.span(Frames(u64::MAX)), Span::from_nanos(i64::MAX));
    }

    #[test]
    fn the_bounds_hold() {
        assert_eq!(SampleRate::new(15), Err(InvalidSampleRate(15)));
        assert_eq!(SampleRate::new(16).map(SampleRate::hz), Ok(16));
        assert_eq!(SampleRate::new(2_822_401), Err(InvalidSampleRate(2_822_401)));
    }
}

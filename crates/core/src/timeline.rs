//! Conversion between media time and local time.
//!
//! A timeline is a straight line through a known point, evaluated in integers: rounding errors do
//! not accumulate, however long a stream runs. To follow a drifting clock,
//! [`Timeline::with_drift_from`] changes the slope at a point; times before that point keep their
//! mapping.

use crate::{Instant, MediaTime, Ppm, SampleRate, Span};

/// Maps media time to local time for a stream whose clock deviates by some parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    media: MediaTime,
    local: Instant,
    rate: SampleRate,
    drift: Ppm,
}

impl Timeline {
    /// A line through (`media`, `local`) at the nominal rate.
    #[must_use]
    pub const fn new(media: MediaTime, local: Instant, rate: SampleRate) -> Self {
        Self { media, local, rate, drift: Ppm::ZERO }
    }

    /// The same line up to `media`, continued with `drift`.
    ///
    /// A positive drift means that the stream's clock is fast: more frames per local second.
    #[must_use]
    pub fn with_drift_from(self, media: MediaTime, drift: Ppm) -> Self {
        Self { media, local: self.local_at(media), rate: self.rate, drift }
    }

    /// The same line, delayed by `span`.
    #[must_use]
    pub fn delayed(self, span: Span) -> Self {
        Self { local: self.local + span, ..self }
    }

    /// The nominal rate.
    #[must_use]
    pub const fn rate(self) -> SampleRate {
        self.rate
    }

    /// The drift of the stream's clock against the local one.
    #[must_use]
    pub const fn drift(self) -> Ppm {
        self.drift
    }

    /// Local time of the start of the frame at `media`; saturates at the ends of the clock.
    #[must_use]
    pub fn local_at(self, media: MediaTime) -> Instant {
        let frames = i128::from(media.0) - i128::from(self.media.0);
        let nanos = div_ceil(frames * NANOS * BILLION, self.frames_per_giga_second());
        let local = i128::from(self.local.as_nanos()) + nanos;
        Instant::from_nanos(u64::try_from(local.max(0)).unwrap_or(u64::MAX))
    }

    /// The frame that is current at `local`; saturates at the start of the stream.
    #[must_use]
    pub fn media_at(self, local: Instant) -> MediaTime {
        let nanos = i128::from(local.as_nanos()) - i128::from(self.local.as_nanos());
        let frames = (nanos * self.frames_per_giga_second()).div_euclid(NANOS * BILLION);
        let media = i128::from(self.media.0) + frames;
        MediaTime(u64::try_from(media.max(0)).unwrap_or(u64::MAX))
    }

    fn frames_per_giga_second(self) -> i128 {
        i128::from(self.rate.hz()) * (BILLION + i128::from(self.drift.as_ppb()))
    }
}

fn div_ceil(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}

const NANOS: i128 = 1_000_000_000;
const BILLION: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Frames;

    #[test]
    fn a_day_at_44100_ends_on_the_nanosecond() {
        let line = Timeline::new(MediaTime(7), Instant::from_nanos(1_000), SampleRate::HZ_44100);
        let day = MediaTime(7) + Frames(44_100 * 86_400);
        assert_eq!(line.local_at(day), Instant::from_nanos(1_000 + 86_400_000_000_000));
    }

    #[test]
    fn a_fast_clock_gives_more_frames() {
        let line = Timeline::new(MediaTime::ZERO, Instant::ZERO, SampleRate::HZ_48000)
            .with_drift_from(MediaTime::ZERO, Ppm::from_ppm(100));
        assert_eq!(line.media_at(Instant::ZERO + Span::from_secs(1_000)), MediaTime(48_004_800));
    }

    #[test]
    fn bending_leaves_the_past_alone() {
        let line = Timeline::new(MediaTime::ZERO, Instant::ZERO, SampleRate::HZ_48000);
        let bent = line.with_drift_from(MediaTime(48_000), Ppm::from_ppm(-250));
        assert_eq!(bent.local_at(MediaTime(48_000)), line.local_at(MediaTime(48_000)));
        assert!(bent.local_at(MediaTime(96_000)) > line.local_at(MediaTime(96_000)));
    }

    proptest! {
        #[test]
        fn frame_to_time_conversion_is_reversible(
            media in 0..u64::MAX >> 16, origin in 0..1u64 << 50, local in 0..1u64 << 62,
            hz in SampleRate::MIN..=SampleRate::MAX, ppm in -1_000i32..=1_000,
        ) {
            let rate = SampleRate::new(hz).unwrap();
            let line = Timeline::new(MediaTime(origin), Instant::from_nanos(local), rate)
                .with_drift_from(MediaTime(origin), Ppm::from_ppm(ppm));
            let there = line.local_at(MediaTime(media));
            if there > Instant::ZERO && there < Instant::from_nanos(u64::MAX) {
                prop_assert_eq!(line.media_at(there), MediaTime(media));
            }
        }
    }
}

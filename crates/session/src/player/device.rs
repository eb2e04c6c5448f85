//! When a frame sounds: the clock of the sound device against the local one.
//!
//! A device says how many of the frames that it was given it has played. The answer is true for a
//! moment that is a little earlier than the one in which a program learns of it, by the time that
//! the program takes to wake up or that a sound server's report is old. So a position is a bound,
//! and the line along the most punctual positions is the device's clock.

use aulos_core::{ClockBounds, ClockLine, Frames, Instant, Ppm, SampleRate, Span};

/// How far a device has played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what every output reports")]
pub struct DevicePosition {
    /// Frames that have sounded, of all that were written since the device was opened.
    pub played: Frames,
    /// Local time at which that was known.
    pub at: Instant,
}

/// The line of a device's positions.
#[derive(Debug)]
pub(super) struct DeviceClock {
    rate: SampleRate,
    bounds: ClockBounds,
    /// The most punctual position since the last update, as an offset.
    best: Option<(Instant, Span)>,
    next_update: Instant,
    last: Option<DevicePosition>,
    /// How far the last updates lay behind the line, and a mean of that.
    lags: [Span; SLIP_AFTER],
    usual_lag: Span,
    slips: u64,
}

impl DeviceClock {
    pub(super) fn new(rate: SampleRate) -> Self {
        Self {
            rate,
            bounds: ClockBounds::new(WINDOW),
            best: None,
            next_update: Instant::ZERO,
            last: None,
            lags: [Span::ZERO; SLIP_AFTER],
            usual_lag: Span::ZERO,
            slips: 0,
        }
    }

    /// Adds a position.
    pub(super) fn push(&mut self, position: DevicePosition) {
        let DevicePosition { played, at } = position;
        // An old report goes back a little, a device that counts anew far.
        let back = self.rate.frames(MAX_AGE);
        if self.last.is_some_and(|last| played + back < last.played) {
            self.restart();
        }
        self.last = Some(position);
        let offset = self.device_time(played) - at;
        if self.best.is_none_or(|(_, best)| offset > best) {
            self.best = Some((at, offset));
        }
        if at >= self.next_update || self.bounds.line().is_none() {
            self.next_update = at + UPDATE_INTERVAL;
            self.update();
        }
    }

    fn update(&mut self) {
        let Some((at, offset)) = self.best.take() else { return };
        let lag = self.bounds.line().map_or(Span::ZERO, |line| line.offset_at(at) - offset);
        self.usual_lag += (lag.max(Span::ZERO) - self.usual_lag) / LAG_WEIGHT;
        self.lags.rotate_left(1);
        self.lags[SLIP_AFTER - 1] = lag;
        let least = self.lags.into_iter().min().unwrap_or(lag);
        let most = self.lags.into_iter().max().unwrap_or(lag);
        // All of them are late by about the same time, and by more than others were: the device has
        // stood still. Reports that are late by different times come back to the line.
        if least > MAX_LAG.max(self.usual_lag * 3) && most - least < least {
            self.slips += 1;
            self.restart();
        }
        self.bounds.push_lower(at, offset);
        self.bounds.update();
    }

    fn restart(&mut self) {
        self.bounds.clear();
        self.best = None;
        self.lags = [Span::ZERO; SLIP_AFTER];
    }

    /// Local time at which frame number `frame` sounds; `None` before the first position.
    pub(super) fn sounds_at(&self, frame: Frames) -> Option<Instant> {
        self.bounds.line().map(|line| line.own_time(self.device_time(frame)))
    }

    /// How fast the device is, against the local clock.
    pub(super) fn drift(&self) -> Ppm {
        self.bounds.line().map_or(Ppm::ZERO, |line| line.drift)
    }

    pub(super) fn line(&self) -> Option<ClockLine> {
        self.bounds.line()
    }

    /// How often the device stood still.
    pub(super) const fn slips(&self) -> u64 {
        self.slips
    }

    /// Frames as a time on the device's own clock.
    fn device_time(&self, frames: Frames) -> Instant {
        Instant::ZERO + self.rate.span(frames)
    }
}

/// A minute of updates.
const WINDOW: usize = 240;

const UPDATE_INTERVAL: Span = Span::from_millis(250);

/// A device that is behind its line by more for [`SLIP_AFTER`] updates has stood still.
const MAX_LAG: Span = Span::from_millis(1);
const SLIP_AFTER: usize = 4;

/// A report may be so much older than the one before.
const MAX_AGE: Span = Span::from_millis(100);

/// Updates in the mean of the lags.
const LAG_WEIGHT: i64 = 16;

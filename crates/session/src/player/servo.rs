//! The rate of play-out: the drift that is known, and a share of the error that remains.

use aulos_core::{Ppm, Span};

/// Decides by how much faster or slower the content is consumed.
#[derive(Debug, Default)]
pub(super) struct RateServo {
    /// Parts per million.
    command: f64,
    is_resting: bool,
    age: f64,
}

impl RateServo {
    /// The rate for the next `span`. `error` is how far the content is ahead of its time, `drift`
    /// how much faster than the device the server's clock runs.
    ///
    /// With next to no drift and error the rate is exactly nominal, so that sound passes bit by
    /// bit.
    pub(super) fn step(&mut self, span: Span, error: Span, drift: f64) -> Ppm {
        let first = self.age == 0.0;
        self.age += span.as_secs_f64();
        let young = self.age < YOUNG_SECONDS;
        let error_us = error.as_secs_f64() * 1e6;
        let limit = if self.is_resting { REST_LEAVE_US } else { REST_ENTER_US };
        self.is_resting = drift.abs() <= REST_DRIFT && error_us.abs() <= limit;
        if self.is_resting {
            self.command = 0.0;
            return self.rate();
        }
        let share = if young { YOUNG_SHARE } else { SHARE };
        let target = (drift - share * error_us).clamp(-MAX_COMMAND, MAX_COMMAND);
        let slew = if young { YOUNG_SLEW } else { SLEW } * span.as_secs_f64();
        self.command =
            if first { target } else { target.clamp(self.command - slew, self.command + slew) };
        self.rate()
    }

    /// The rate of the last step.
    pub(super) fn rate(&self) -> Ppm {
        #[allow(clippy::cast_possible_truncation, reason = "at most 500,000")]
        let ppb = (self.command * 1e3).round() as i32;
        Ppm::from_ppb(ppb)
    }

    /// Begins anew, where the content is placed.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Inaudible: 0.9 cent.
const MAX_COMMAND: f64 = 500.0;

/// Correction per second: a share of the error, and more at the beginning, when the estimate of
/// the server's clock still moves.
const SHARE: f64 = 0.15;
const YOUNG_SHARE: f64 = 0.5;

/// Change of the rate in ppm per second.
const SLEW: f64 = 50.0;
const YOUNG_SLEW: f64 = 500.0;

const YOUNG_SECONDS: f64 = 10.0;

/// Below this drift in ppm and this error in microseconds the rate is nominal, until the error is
/// larger again. At rest the content is at whole frames, so half a frame is the least error.
const REST_DRIFT: f64 = 2.0;
const REST_ENTER_US: f64 = 16.0;
const REST_LEAVE_US: f64 = 30.0;

//! Follows the clock of a live source.
//!
//! The sender's card and ours never agree. The difference shows as a buffer that slowly fills or
//! drains; a proportional-integral controller on that fill gives the drift to resample by. The
//! alternative, to skip or repeat frames when the buffer has run out of bounds, is what listeners
//! hear as a click every few minutes.
//!
//! As long as the fill stays near its target the servo keeps out of the way: a sender whose clock
//! agrees with ours is passed on bit by bit.

use aulos_core::{Ppm, Span};

/// Turns the fill of a buffer into a drift, at most [`Servo::LIMIT`] either way.
///
/// Constants: the loop is critically damped with a time constant of about three minutes, slow
/// enough that arrival jitter of hundreds of milliseconds moves the pitch by less than 0.005 %.
#[derive(Clone, Debug)]
pub struct Servo {
    target: Span,
    average: f64,
    settled: f64,
    integral: f64,
    engaged: bool,
}

impl Servo {
    /// The fastest correction, 0.05 %: less than a cent, inaudible.
    pub const LIMIT: Ppm = Ppm::from_ppm(500);

    /// A servo that keeps a buffer at `target`.
    #[must_use]
    pub const fn new(target: Span) -> Self {
        Self { target, average: 0.0, settled: 0.0, integral: 0.0, engaged: false }
    }

    /// Forgets the past, for a sender that has just come.
    pub const fn restart(&mut self) {
        *self = Self::new(self.target);
    }

    /// Takes the `fill` after `elapsed` time and answers with the drift of the sender's clock:
    /// positive when it is fast.
    ///
    /// # Real-time
    /// A few multiplications.
    pub fn update(&mut self, fill: Span, elapsed: Span) -> Ppm {
        let error = (fill - self.target).as_secs_f64();
        let dt = elapsed.as_secs_f64();
        self.settled += dt;
        // A plain mean while there is little history, a slow low-pass after it.
        let weight = (dt / self.settled.min(AVERAGE_S)).min(1.0);
        self.average += weight * (error - self.average);
        if self.settled < AVERAGE_S {
            return Ppm::ZERO;
        }
        self.engaged |= self.average.abs() > DEAD_BAND_S;
        if !self.engaged {
            return Ppm::ZERO;
        }
        let limit = f64::from(Self::LIMIT.as_ppb());
        let slope = GAIN_PPB_PER_S * GAIN_PPB_PER_S * 1e-9 / 4.0;
        self.integral = (self.integral + slope * self.average * dt).clamp(-limit, limit);
        let drift = (GAIN_PPB_PER_S * self.average + self.integral).clamp(-limit, limit);
        ppm(drift)
    }

    /// What is known by now of the sender's clock: positive when it is fast.
    ///
    /// Steadier than the answers of [`Servo::update`], which also bring the buffer to its target
    /// and follow what arrival times pretend: a pipe that is looked at every 10 ms by a clock 100
    /// ppm away looks 40 ppm faster or slower for half a minute at a time.
    #[must_use]
    pub const fn drift(&self) -> Ppm {
        ppm(self.integral)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "within the limit, which is far below")]
const fn ppm(ppb: f64) -> Ppm {
    Ppm::from_ppb(ppb as i32)
}

const AVERAGE_S: f64 = 5.0;
/// An input goes on air at the first quantum that finds its buffer filled, and that quantum is then
/// read from it: it begins up to 20 ms below its target, or a sender's period above it.
const DEAD_BAND_S: f64 = 0.025;
const GAIN_PPB_PER_S: f64 = 10_000_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender whose clock is off by `ppm`, with arrival jitter, for `hours`; returns the largest
    /// distance of the fill from its target in the last half, in milliseconds.
    fn follow(ppm: f64, hours: f64) -> f64 {
        let target = Span::from_millis(400);
        let mut servo = Servo::new(target);
        let (mut fill, mut drift, mut worst) = (0.4, 0.0, 0.0f64);
        let step = 0.02;
        let mut noise = 1u32;
        let mut time = 0.0;
        while time < hours * 3_600.0 {
            fill += step * (ppm - drift) * 1e-6;
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let jitter = f64::from(noise >> 16) / 65_536.0 * 0.08 - 0.04;
            #[allow(clippy::cast_possible_truncation, reason = "a test signal")]
            let seen = Span::from_nanos(((fill + jitter) * 1e9) as i64);
            drift = f64::from(servo.update(seen, Span::from_millis(20)).as_ppb()) * 1e-3;
            time += step;
            if time > hours * 1_800.0 {
                worst = worst.max((fill - 0.4).abs() * 1e3);
            }
        }
        worst
    }

    #[test]
    fn a_fast_or_slow_sender_is_followed_for_a_day() {
        for ppm in [-300.0, -100.0, 100.0, 300.0] {
            let worst = follow(ppm, 24.0);
            assert!(worst < 20.0, "{ppm} ppm: {worst} ms away");
        }
    }

    #[test]
    fn a_sender_in_step_is_left_alone() {
        let mut servo = Servo::new(Span::from_millis(400));
        for n in 0..100_000 {
            let fill = Span::from_millis(400 + (n % 20) - 10);
            assert_eq!(servo.update(fill, Span::from_millis(20)), Ppm::ZERO);
        }
    }
}

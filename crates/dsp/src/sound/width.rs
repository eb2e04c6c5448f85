//! The quality factor of a band from the other measures of width.
//!
//! The formulas are those of the Audio EQ Cookbook, and for the corner of a shelf those of
//! Equalizer APO (`BiQuadFilterFactory`).

use core::f64::consts::{LN_2, PI};

/// The slope of a shelf without a given one.
pub(super) const DEFAULT_SLOPE: f64 = 0.9;

/// The quality factor of a band that is `octaves` wide.
pub(super) fn q_of_bandwidth(octaves: f64, hz: f64, rate: f64) -> f64 {
    let w = 2.0 * PI * hz / rate;
    1.0 / (2.0 * (LN_2 / 2.0 * octaves * w / w.sin()).sinh())
}

/// The quality factor of a shelf of this slope, where 1 is the steepest without a resonance.
pub(super) fn q_of_slope(slope: f64, gain_db: f64) -> f64 {
    let a = amplitude(gain_db);
    1.0 / ((a + 1.0 / a) * (1.0 / slope - 1.0) + 2.0).sqrt()
}

/// The slope of a shelf of this quality factor.
pub(super) fn slope_of_q(q: f64, gain_db: f64) -> f64 {
    let a = amplitude(gain_db);
    1.0 / ((1.0 / (q * q) - 2.0) / (a + 1.0 / a) + 1.0)
}

/// The ratio of a low shelf's center frequency to its corner frequency; of a high shelf, the
/// reverse.
pub(super) fn center_of_corner(slope: f64, gain_db: f64) -> f64 {
    10f64.powf(gain_db.abs() / 80.0 / slope)
}

fn amplitude(gain_db: f64) -> f64 {
    10f64.powf(gain_db / 40.0)
}

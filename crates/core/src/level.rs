//! Levels and rate differences as types with a unit.

use core::fmt;
use core::ops::{Add, Neg, Sub};

/// An amplitude ratio in decibels; silence is negative infinity. Never NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Db(f64);

impl Db {
    /// 0 dB: unity gain.
    pub const ZERO: Self = Self(0.0);
    /// Digital silence.
    pub const SILENCE: Self = Self(f64::NEG_INFINITY);

    /// `db` decibels; NaN becomes silence.
    #[must_use]
    pub const fn new(db: f64) -> Self {
        if db.is_nan() { Self::SILENCE } else { Self(db) }
    }

    /// The level of a linear amplitude, full scale being 1.0.
    #[must_use]
    pub fn from_amplitude(amplitude: f64) -> Self {
        Self::new(20.0 * amplitude.abs().log10())
    }

    /// The linear factor to multiply samples by.
    #[must_use]
    pub fn amplitude(self) -> f64 {
        10f64.powf(self.0 / 20.0)
    }

    /// The value in decibels.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Add for Db {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.0 + other.0)
    }
}

impl Sub for Db {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::new(self.0 - other.0)
    }
}

impl Neg for Db {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl fmt::Display for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} dB", self.0)
    }
}

/// A loudness in LUFS (ITU-R BS.1770); silence is negative infinity. Never NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Lufs(f64);

impl Lufs {
    /// Digital silence.
    pub const SILENCE: Self = Self(f64::NEG_INFINITY);

    /// `lufs` loudness units relative to full scale; NaN becomes silence.
    #[must_use]
    pub const fn new(lufs: f64) -> Self {
        if lufs.is_nan() { Self::SILENCE } else { Self(lufs) }
    }

    /// The value in loudness units relative to full scale.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Sub for Lufs {
    type Output = Db;
    /// The difference in LU, which equals decibels.
    fn sub(self, other: Self) -> Db {
        Db::new(self.0 - other.0)
    }
}

impl Add<Db> for Lufs {
    type Output = Self;
    fn add(self, gain: Db) -> Self {
        Self::new(self.0 + gain.0)
    }
}

impl fmt::Display for Lufs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} LUFS", self.0)
    }
}

/// A relative rate difference, with a resolution of one part per billion.
///
/// Limited to +-10 %, so that a rate times a drift neither vanishes nor overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppm(i32);

impl Ppm {
    /// No difference.
    pub const ZERO: Self = Self(0);
    const LIMIT: i32 = 100_000_000;

    /// `ppm` parts per million, clamped to +-100,000.
    #[must_use]
    pub const fn from_ppm(ppm: i32) -> Self {
        Self::from_ppb(ppm.saturating_mul(1_000))
    }

    /// `ppb` parts per billion, clamped to +-100,000,000.
    #[must_use]
    pub const fn from_ppb(ppb: i32) -> Self {
        if ppb > Self::LIMIT {
            Self(Self::LIMIT)
        } else if ppb < -Self::LIMIT {
            Self(-Self::LIMIT)
        } else {
            Self(ppb)
        }
    }

    /// The value in parts per billion.
    #[must_use]
    pub const fn as_ppb(self) -> i32 {
        self.0
    }

    /// The factor 1 + difference.
    #[must_use]
    pub fn factor(self) -> f64 {
        1.0 + f64::from(self.0) * 1e-9
    }
}

impl fmt::Display for Ppm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.1} ppm", f64::from(self.0) * 1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decibels_and_amplitudes() {
        assert!((Db::from_amplitude(0.5).get() + 6.0206).abs() < 1e-4);
        assert!((Db::new(-20.0).amplitude() - 0.1).abs() < 1e-12);
        assert_eq!(Db::from_amplitude(0.0), Db::SILENCE);
    }

    #[test]
    fn silence_minus_silence_is_silence_and_not_nan() {
        assert_eq!(Db::SILENCE - Db::SILENCE, Db::SILENCE);
        assert_eq!(Lufs::SILENCE - Lufs::SILENCE, Db::SILENCE);
    }

    #[test]
    fn drift_is_clamped() {
        assert_eq!(Ppm::from_ppm(i32::MAX), Ppm::from_ppm(100_000));
        assert!((Ppm::from_ppm(100).factor() - 1.0001).abs() < 1e-15);
    }
}

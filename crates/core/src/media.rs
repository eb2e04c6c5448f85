//! Media time, counted in frames.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A number of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frames(pub u64);

impl Frames {
    /// No frames.
    pub const ZERO: Self = Self(0);

    /// The count as a length of a slice; saturates on 32-bit machines.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl From<usize> for Frames {
    fn from(count: usize) -> Self {
        Self(count as u64)
    }
}

impl Add for Frames {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Frames {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Frames {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Frames {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl fmt::Display for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames", self.0)
    }
}

/// A position on a stream's own clock: frames since the stream began, at the stream's rate.
///
/// 64 bits at 48 kHz last twelve million years, so media time never wraps; protocol clocks that
/// wrap (RTP) are unwrapped on input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaTime(pub u64);

impl MediaTime {
    /// The start of the stream.
    pub const ZERO: Self = Self(0);

    /// Frames from `earlier` to `self`; zero if `earlier` is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Frames {
        Frames(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Frames> for MediaTime {
    type Output = Self;
    fn add(self, frames: Frames) -> Self {
        Self(self.0.saturating_add(frames.0))
    }
}

impl AddAssign<Frames> for MediaTime {
    fn add_assign(&mut self, frames: Frames) {
        *self = *self + frames;
    }
}

impl Sub<Frames> for MediaTime {
    type Output = Self;
    /// Saturates at the start of the stream.
    fn sub(self, frames: Frames) -> Self {
        Self(self.0.saturating_sub(frames.0))
    }
}

impl fmt::Display for MediaTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_lengths_add_up() {
        let start = MediaTime(100);
        assert_eq!((start + Frames(960)).since(start), Frames(960));
        assert_eq!(start.since(start + Frames(1)), Frames::ZERO);
        assert_eq!(start - Frames(1_000), MediaTime::ZERO);
    }
}

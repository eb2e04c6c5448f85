//! What a kernel needs of a vector register.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no registers to use"))]

/// Several doubles that are computed with at once: [`Doubles::LANES`] = 2 channels x segments.
///
/// The functions are inlined into kernels that are compiled for the register, and must not be
/// called from anywhere else.
pub(super) trait Doubles: Copy {
    /// How many; the slices below are at least as long.
    const LANES: usize;
    fn splat(value: f64) -> Self;
    fn read(from: &[f64]) -> Self;
    fn write(self, to: &mut [f64]);
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// `self * factor + addend`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    /// `from - self * factor`.
    fn times_from(self, factor: Self, from: Self) -> Self;
    /// Sums of neighbours: lane 2i is the i-th pair of `self`, lane 2i + 1 the i-th of `other`.
    fn pair_sums(self, other: Self) -> Self;
    /// Pairs of samples, `step` apart, starting at `from[0]`.
    fn pairs_narrow(from: &[f32], step: usize) -> Self;
    /// Pairs of samples, `step` apart, starting at `from[0]`.
    fn pairs_wide(from: &[f64], step: usize) -> Self;
}

/// Several singles that are computed with at once.
pub(super) trait Singles: Copy {
    /// How many; the slices below are at least as long.
    const LANES: usize;
    fn splat(value: f32) -> Self;
    fn read(from: &[f32]) -> Self;
    fn times(self, other: Self) -> Self;
    /// `self * factor + addend`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    fn magnitude(self) -> Self;
    fn greater(self, other: Self) -> Self;
    /// Bit i is set where lane i of `self` is greater than that of `other`.
    fn exceeds(self, other: Self) -> u32;
}

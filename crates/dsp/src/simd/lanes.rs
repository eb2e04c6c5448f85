//! The operations of a vector register that kernels need.

#![allow(unsafe_code, reason = "registers are filled through pointers")]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no registers to use"))]

/// A vector of doubles: [`F64Lanes::LANES`] = 2 channels x segments.
///
/// The functions are inlined into kernels that are compiled for the register, and must not be
/// called from anywhere else.
pub(super) trait F64Lanes: Copy {
    /// Number of lanes; the slices below are at least as long.
    const LANES: usize;
    fn splat(value: f64) -> Self;
    fn read(from: &[f64]) -> Self;
    fn write(self, to: &mut [f64]);
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// `self * factor + addend`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    /// `from - self * factor`.
    fn times_from(self, factor: Self, from: Self) -> Self;
    /// The first of each pair: lane 2i is that of `self`, lane 2i + 1 that of `other`.
    fn firsts(self, other: Self) -> Self;
    /// The second of each pair.
    fn seconds(self, other: Self) -> Self;
    /// Pairs of samples, `step` apart, the first at `from`.
    ///
    /// # Safety
    /// There are `LANES / 2` pairs.
    unsafe fn pairs_narrow(from: *const f32, step: usize) -> Self;
    /// Pairs of doubles, `step` apart, the first at `from`.
    ///
    /// # Safety
    /// There are `LANES / 2` pairs.
    unsafe fn pairs_wide(from: *const f64, step: usize) -> Self;
    /// [`F64Lanes::pairs_narrow`] at `from` and, `stride` samples later, of the next frame.
    ///
    /// # Safety
    /// There are as many pairs in both frames.
    #[inline(always)]
    unsafe fn two_narrow(from: *const f32, stride: usize, step: usize) -> [Self; 2] {
        // SAFETY: the caller vouches for the pairs of this frame.
        let first = unsafe { Self::pairs_narrow(from, step) };
        // SAFETY: the caller vouches for the pairs of the next.
        [first, unsafe { Self::pairs_narrow(from.wrapping_add(stride), step) }]
    }
    /// The same for doubles.
    ///
    /// # Safety
    /// There are as many pairs in both frames.
    #[inline(always)]
    unsafe fn two_wide(from: *const f64, stride: usize, step: usize) -> [Self; 2] {
        // SAFETY: the caller vouches for the pairs of this frame.
        let first = unsafe { Self::pairs_wide(from, step) };
        // SAFETY: the caller vouches for the pairs of the next.
        [first, unsafe { Self::pairs_wide(from.wrapping_add(stride), step) }]
    }
    /// Stores the pairs where [`F64Lanes::pairs_wide`] reads them.
    ///
    /// # Safety
    /// There is room for `LANES / 2` pairs.
    unsafe fn put_pairs(self, to: *mut f64, step: usize);
    /// Adjacent samples, one per lane.
    ///
    /// # Safety
    /// There are `LANES`.
    unsafe fn row_narrow(from: *const f32) -> Self;
    /// Adjacent doubles.
    ///
    /// # Safety
    /// There are `LANES`.
    unsafe fn row_wide(from: *const f64) -> Self;
    /// Stores the sum of all pairs, or adds it to the stored pair.
    ///
    /// # Safety
    /// There is room for a pair.
    unsafe fn put_sum(self, to: *mut f64, add: bool);
}

/// Prefetches memory that will be read soon. A hint without effect on processors that have none.
#[inline(always)]
pub(super) fn prefetch<T>(soon: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(soon.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = soon;
}

/// A vector of singles.
pub(super) trait F32Lanes: Copy {
    /// Number of lanes; the slices below are at least as long.
    const LANES: usize;
    fn splat(value: f32) -> Self;
    fn read(from: &[f32]) -> Self;
    /// Reads without a bounds check.
    ///
    /// # Safety
    /// There are `LANES` values at `from`.
    unsafe fn load(from: *const f32) -> Self;
    fn write(self, to: &mut [f32]);
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// `self * factor + addend`.
    fn times_plus(self, factor: Self, addend: Self) -> Self;
    fn magnitude(self) -> Self;
    fn greater(self, other: Self) -> Self;
    /// Bit i is set where lane i of `self` is greater than that of `other`.
    fn exceeds(self, other: Self) -> u32;
}

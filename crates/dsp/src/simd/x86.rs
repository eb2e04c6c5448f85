//! The registers of x86-64.

#![allow(unsafe_code, reason = "vector registers are reached by intrinsics only")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one register is filled by several loads")]

use core::arch::x86_64::{
    __m128d, __m256, __m256d, __m512, __m512d, _CMP_GT_OQ, _mm_castpd_ps, _mm_load_sd,
    _mm_loadh_pd, _mm_loadu_pd, _mm256_add_pd, _mm256_and_ps, _mm256_castpd_ps, _mm256_cmp_ps,
    _mm256_cvtps_pd, _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_fnmadd_pd, _mm256_loadu_pd,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_movemask_ps, _mm256_mul_pd, _mm256_mul_ps,
    _mm256_set_m128d, _mm256_set1_pd, _mm256_set1_ps, _mm256_storeu_pd, _mm256_unpackhi_pd,
    _mm256_unpacklo_pd, _mm512_abs_ps, _mm512_add_pd, _mm512_castpd256_pd512, _mm512_cmp_ps_mask,
    _mm512_cvtps_pd, _mm512_fmadd_pd, _mm512_fmadd_ps, _mm512_fnmadd_pd, _mm512_insertf64x4,
    _mm512_loadu_pd, _mm512_loadu_ps, _mm512_max_ps, _mm512_mul_pd, _mm512_mul_ps, _mm512_set1_pd,
    _mm512_set1_ps, _mm512_storeu_pd, _mm512_unpackhi_pd, _mm512_unpacklo_pd,
};

use super::lanes::{Doubles, Singles};

/// Two pairs of f32, `step` apart, each moved as one 64-bit word.
///
/// # Safety
/// The processor has SSE2, and `from` reaches to `step + 2`.
#[inline(always)]
unsafe fn two_pairs(from: *const f32, step: usize) -> __m128d {
    // SAFETY: the caller vouches for both pairs.
    unsafe { _mm_loadh_pd(_mm_load_sd(from.cast()), from.add(step).cast()) }
}

impl Doubles for __m256d {
    const LANES: usize = 4;
    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_set1_pd(value) }
    }
    #[inline(always)]
    fn read(from: &[f64]) -> Self {
        let from = &from[..4];
        // SAFETY: kernels run where AVX2 was detected, and four doubles are there.
        unsafe { _mm256_loadu_pd(from.as_ptr()) }
    }
    #[inline(always)]
    fn write(self, to: &mut [f64]) {
        let to = &mut to[..4];
        // SAFETY: kernels run where AVX2 was detected, and there is room for four doubles.
        unsafe { _mm256_storeu_pd(to.as_mut_ptr(), self) }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_add_pd(self, other) }
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_mul_pd(self, other) }
    }
    #[inline(always)]
    fn times_plus(self, factor: Self, addend: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_fmadd_pd(self, factor, addend) }
    }
    #[inline(always)]
    fn times_from(self, factor: Self, from: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_fnmadd_pd(self, factor, from) }
    }
    #[inline(always)]
    fn pair_sums(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_add_pd(_mm256_unpacklo_pd(self, other), _mm256_unpackhi_pd(self, other)) }
    }
    #[inline(always)]
    fn pairs_narrow(from: &[f32], step: usize) -> Self {
        let from = &from[..step + 2];
        // SAFETY: kernels run where AVX2 was detected, and both pairs are inside the slice.
        unsafe { _mm256_cvtps_pd(_mm_castpd_ps(two_pairs(from.as_ptr(), step))) }
    }
    #[inline(always)]
    fn pairs_wide(from: &[f64], step: usize) -> Self {
        let from = &from[..step + 2];
        // SAFETY: kernels run where AVX2 was detected, and both pairs are inside the slice.
        unsafe {
            let second = _mm_loadu_pd(from.as_ptr().add(step));
            _mm256_set_m128d(second, _mm_loadu_pd(from.as_ptr()))
        }
    }
}

impl Doubles for __m512d {
    const LANES: usize = 8;
    #[inline(always)]
    fn splat(value: f64) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_set1_pd(value) }
    }
    #[inline(always)]
    fn read(from: &[f64]) -> Self {
        let from = &from[..8];
        // SAFETY: kernels run where AVX-512 F was detected, and eight doubles are there.
        unsafe { _mm512_loadu_pd(from.as_ptr()) }
    }
    #[inline(always)]
    fn write(self, to: &mut [f64]) {
        let to = &mut to[..8];
        // SAFETY: kernels run where AVX-512 F was detected, and there is room for eight doubles.
        unsafe { _mm512_storeu_pd(to.as_mut_ptr(), self) }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_add_pd(self, other) }
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_mul_pd(self, other) }
    }
    #[inline(always)]
    fn times_plus(self, factor: Self, addend: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_fmadd_pd(self, factor, addend) }
    }
    #[inline(always)]
    fn times_from(self, factor: Self, from: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_fnmadd_pd(self, factor, from) }
    }
    #[inline(always)]
    fn pair_sums(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_add_pd(_mm512_unpacklo_pd(self, other), _mm512_unpackhi_pd(self, other)) }
    }
    #[inline(always)]
    fn pairs_narrow(from: &[f32], step: usize) -> Self {
        let from = &from[..3 * step + 2];
        // SAFETY: kernels run where AVX-512 F was detected, and four pairs are inside the slice.
        unsafe {
            let low = two_pairs(from.as_ptr(), step);
            let high = two_pairs(from.as_ptr().add(2 * step), step);
            _mm512_cvtps_pd(_mm256_castpd_ps(_mm256_set_m128d(high, low)))
        }
    }
    #[inline(always)]
    fn pairs_wide(from: &[f64], step: usize) -> Self {
        let (low, high) = from[..3 * step + 2].split_at(2 * step);
        let (low, high) = (__m256d::pairs_wide(low, step), __m256d::pairs_wide(high, step));
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high) }
    }
}

impl Singles for __m256 {
    const LANES: usize = 8;
    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    fn read(from: &[f32]) -> Self {
        let from = &from[..8];
        // SAFETY: kernels run where AVX2 was detected, and eight singles are there.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_mul_ps(self, other) }
    }
    #[inline(always)]
    fn times_plus(self, factor: Self, addend: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_fmadd_ps(self, factor, addend) }
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        let mask = Self::splat(f32::from_bits(0x7fff_ffff));
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_and_ps(self, mask) }
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_max_ps(self, other) }
    }
    #[inline(always)]
    #[allow(clippy::cast_sign_loss, reason = "a mask")]
    fn exceeds(self, other: Self) -> u32 {
        // SAFETY: kernels run where AVX2 and FMA were detected.
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self, other)) as u32 }
    }
}

impl Singles for __m512 {
    const LANES: usize = 16;
    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    fn read(from: &[f32]) -> Self {
        let from = &from[..16];
        // SAFETY: kernels run where AVX-512 F was detected, and sixteen singles are there.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_mul_ps(self, other) }
    }
    #[inline(always)]
    fn times_plus(self, factor: Self, addend: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_fmadd_ps(self, factor, addend) }
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_abs_ps(self) }
    }
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX-512 F was detected.
        unsafe { _mm512_max_ps(self, other) }
    }
    #[inline(always)]
    fn exceeds(self, other: Self) -> u32 {
        // SAFETY: kernels run where AVX-512 F was detected.
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self, other) })
    }
}

//! The registers of x86-64.

#![allow(unsafe_code, reason = "vector registers are reached by intrinsics only")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one register is filled by several loads")]

use core::arch::x86_64::{
    __m128d, __m256, __m256d, __m512d, _CMP_GT_OQ, _mm_add_pd, _mm_castpd_ps, _mm_load_sd,
    _mm_loadh_pd, _mm_loadu_pd, _mm_loadu_ps, _mm_storeu_pd, _mm256_add_pd, _mm256_add_ps,
    _mm256_and_ps, _mm256_castpd_ps, _mm256_castpd256_pd128, _mm256_cmp_ps, _mm256_cvtps_pd,
    _mm256_extractf128_pd, _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_fnmadd_pd, _mm256_loadu_pd,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_movemask_ps, _mm256_mul_pd, _mm256_permute2f128_pd,
    _mm256_set_m128d, _mm256_set1_pd, _mm256_set1_ps, _mm256_storeu_pd, _mm256_storeu_ps,
    _mm256_sub_pd, _mm256_sub_ps, _mm256_unpackhi_pd, _mm256_unpacklo_pd, _mm512_add_pd,
    _mm512_castpd256_pd512, _mm512_castpd512_pd256, _mm512_cvtps_pd, _mm512_extractf64x4_pd,
    _mm512_fmadd_pd, _mm512_fnmadd_pd, _mm512_insertf64x4, _mm512_loadu_pd, _mm512_mul_pd,
    _mm512_set1_pd, _mm512_storeu_pd, _mm512_sub_pd, _mm512_unpackhi_pd, _mm512_unpacklo_pd,
};

use super::lanes::{F32Lanes, F64Lanes};

/// Two pairs of f32, `step` apart, each moved as one 64-bit word.
///
/// # Safety
/// The processor has SSE2, and `from` reaches to `step + 2`.
#[inline(always)]
unsafe fn two_pairs(from: *const f32, step: usize) -> __m128d {
    // SAFETY: the caller vouches for both pairs.
    unsafe { _mm_loadh_pd(_mm_load_sd(from.cast()), from.add(step).cast()) }
}

/// Operations that differ only in the names of the intrinsics between register widths.
macro_rules! arithmetic {
    ($lanes:literal, $splat:ident, $read:ident, $write:ident, $($name:ident = $with:ident),*) => {
        const LANES: usize = $lanes;
        #[inline(always)]
        fn splat(value: f64) -> Self {
            // SAFETY: kernels run where their registers were detected.
            unsafe { $splat(value) }
        }
        #[inline(always)]
        fn read(from: &[f64]) -> Self {
            let from = &from[..$lanes];
            // SAFETY: kernels run where their registers were detected, and all lanes are there.
            unsafe { $read(from.as_ptr()) }
        }
        #[inline(always)]
        fn write(self, to: &mut [f64]) {
            let to = &mut to[..$lanes];
            // SAFETY: kernels run where their registers were detected, and there is room.
            unsafe { $write(to.as_mut_ptr(), self) }
        }
        $(#[inline(always)]
        fn $name(self, other: Self) -> Self {
            // SAFETY: kernels run where their registers were detected.
            unsafe { $with(self, other) }
        })*
    };
}

impl F64Lanes for __m256d {
    arithmetic!(
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        plus = _mm256_add_pd,
        minus = _mm256_sub_pd,
        times = _mm256_mul_pd,
        firsts = _mm256_unpacklo_pd,
        seconds = _mm256_unpackhi_pd
    );
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
    unsafe fn pairs_narrow(from: *const f32, step: usize) -> Self {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for both pairs.
        unsafe { _mm256_cvtps_pd(_mm_castpd_ps(two_pairs(from, step))) }
    }
    #[inline(always)]
    unsafe fn pairs_wide(from: *const f64, step: usize) -> Self {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for both pairs.
        unsafe { _mm256_set_m128d(_mm_loadu_pd(from.add(step)), _mm_loadu_pd(from)) }
    }
    #[inline(always)]
    unsafe fn two_narrow(from: *const f32, stride: usize, step: usize) -> [Self; 2] {
        if stride != 2 {
            // SAFETY: the caller vouches for all pairs.
            return unsafe {
                [Self::pairs_narrow(from, step), Self::pairs_narrow(from.add(stride), step)]
            };
        }
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for neighbouring
        // pairs.
        unsafe {
            let here = _mm256_cvtps_pd(_mm_loadu_ps(from));
            let there = _mm256_cvtps_pd(_mm_loadu_ps(from.add(step)));
            let first = _mm256_permute2f128_pd::<0x20>(here, there);
            [first, _mm256_permute2f128_pd::<0x31>(here, there)]
        }
    }
    #[inline(always)]
    unsafe fn put_pairs(self, to: *mut f64, step: usize) {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for the room.
        unsafe {
            _mm_storeu_pd(to, _mm256_castpd256_pd128(self));
            _mm_storeu_pd(to.add(step), _mm256_extractf128_pd::<1>(self));
        }
    }
    #[inline(always)]
    unsafe fn row_narrow(from: *const f32) -> Self {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for four samples.
        unsafe { _mm256_cvtps_pd(_mm_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn row_wide(from: *const f64) -> Self {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for four doubles.
        unsafe { _mm256_loadu_pd(from) }
    }
    #[inline(always)]
    unsafe fn put_sum(self, to: *mut f64, add: bool) {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for the room.
        unsafe {
            let sum = _mm_add_pd(_mm256_castpd256_pd128(self), _mm256_extractf128_pd::<1>(self));
            _mm_storeu_pd(to, if add { _mm_add_pd(sum, _mm_loadu_pd(to)) } else { sum });
        }
    }
}

impl F64Lanes for __m512d {
    arithmetic!(
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        plus = _mm512_add_pd,
        minus = _mm512_sub_pd,
        times = _mm512_mul_pd,
        firsts = _mm512_unpacklo_pd,
        seconds = _mm512_unpackhi_pd
    );
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
    unsafe fn pairs_narrow(from: *const f32, step: usize) -> Self {
        // SAFETY: kernels run where AVX-512 was detected, and the caller vouches for four pairs.
        unsafe {
            let high = two_pairs(from.add(2 * step), step);
            _mm512_cvtps_pd(_mm256_castpd_ps(_mm256_set_m128d(high, two_pairs(from, step))))
        }
    }
    #[inline(always)]
    unsafe fn pairs_wide(from: *const f64, step: usize) -> Self {
        // SAFETY: kernels run where AVX-512 was detected, and the caller vouches for four pairs.
        unsafe {
            let high = __m256d::pairs_wide(from.add(2 * step), step);
            let low = __m256d::pairs_wide(from, step);
            _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high)
        }
    }
    #[inline(always)]
    unsafe fn put_pairs(self, to: *mut f64, step: usize) {
        // SAFETY: kernels run where AVX-512 was detected, and the caller vouches for the room.
        unsafe {
            _mm512_castpd512_pd256(self).put_pairs(to, step);
            _mm512_extractf64x4_pd::<1>(self).put_pairs(to.add(2 * step), step);
        }
    }
    #[inline(always)]
    unsafe fn row_narrow(from: *const f32) -> Self {
        // SAFETY: kernels run where AVX-512 was detected, and the caller vouches for the samples.
        unsafe { _mm512_cvtps_pd(_mm256_loadu_ps(from)) }
    }
    #[inline(always)]
    unsafe fn row_wide(from: *const f64) -> Self {
        // SAFETY: kernels run where AVX-512 was detected, and the caller vouches for the doubles.
        unsafe { _mm512_loadu_pd(from) }
    }
    #[inline(always)]
    unsafe fn put_sum(self, to: *mut f64, add: bool) {
        // SAFETY: kernels run where AVX-512 was detected, and the caller vouches for the room.
        unsafe {
            let (low, high) = (_mm512_castpd512_pd256(self), _mm512_extractf64x4_pd::<1>(self));
            _mm256_add_pd(low, high).put_sum(to, add);
        }
    }
}

impl F32Lanes for __m256 {
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
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for eight singles.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    fn write(self, to: &mut [f32]) {
        let to = &mut to[..8];
        // SAFETY: kernels run where AVX2 was detected, and there is room for eight singles.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self) }
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 was detected.
        unsafe { _mm256_add_ps(self, other) }
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        // SAFETY: kernels run where AVX2 was detected.
        unsafe { _mm256_sub_ps(self, other) }
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

//! The registers of x86-64.

#![allow(unsafe_code, reason = "vector registers are reached by intrinsics only")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one register is filled by several loads")]

use core::arch::x86_64::{
    __m128d, __m256, __m256d, __m512d, _CMP_GT_OQ, _mm_castpd_ps, _mm_load_sd, _mm_loadh_pd,
    _mm_loadu_pd, _mm256_add_pd, _mm256_add_ps, _mm256_and_ps, _mm256_castpd_ps, _mm256_cmp_ps,
    _mm256_cvtps_pd, _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_fnmadd_pd, _mm256_loadu_pd,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_movemask_ps, _mm256_mul_pd, _mm256_permute2f128_pd,
    _mm256_permute4x64_pd, _mm256_set_m128d, _mm256_set1_pd, _mm256_set1_ps, _mm256_setr_pd,
    _mm256_storeu_pd, _mm256_sub_ps, _mm256_unpackhi_pd, _mm256_unpacklo_pd, _mm512_add_pd,
    _mm512_castpd256_pd512, _mm512_cvtps_pd, _mm512_fmadd_pd, _mm512_fnmadd_pd, _mm512_insertf64x4,
    _mm512_loadu_pd, _mm512_mul_pd, _mm512_set1_pd, _mm512_storeu_pd, _mm512_unpackhi_pd,
    _mm512_unpacklo_pd,
};

use super::lanes::{Doubles, Singles};
use super::weigh::WIDEST;
use crate::meter::filter::State;

/// Two pairs of f32, `step` apart, each moved as one 64-bit word.
///
/// # Safety
/// The processor has SSE2, and `from` reaches to `step + 2`.
#[inline(always)]
unsafe fn two_pairs(from: *const f32, step: usize) -> __m128d {
    // SAFETY: the caller vouches for both pairs.
    unsafe { _mm_loadh_pd(_mm_load_sd(from.cast()), from.add(step).cast()) }
}

/// One register holds the four values of a state; the two channels take turns.
#[inline(always)]
fn inherit<const SEGMENTS: usize>(
    power: &[State; 4],
    ends: &mut [[f64; 2 * WIDEST]; 4],
    states: [&mut State; 2],
) {
    let [left, right] = states;
    let [a, b, c, d] = power;
    let powers = [__m256d::read(a), __m256d::read(b), __m256d::read(c), __m256d::read(d)];
    let mut both = [__m256d::read(left), __m256d::read(right)];
    for segment in 0..SEGMENTS {
        for (channel, state) in both.iter_mut().enumerate() {
            let lane = 2 * segment + channel;
            let [e0, e1, e2, e3] = ends.each_ref().map(|end| end[lane]);
            let mut start = [0.0; 4];
            state.write(&mut start);
            // SAFETY: kernels run where AVX2 and FMA were detected.
            *state = unsafe {
                let end = _mm256_setr_pd(e0, e1, e2, e3);
                let first = powers[0].times_plus(_mm256_permute4x64_pd::<0x00>(*state), end);
                let second = powers[1].times(_mm256_permute4x64_pd::<0x55>(*state));
                let first = powers[2].times_plus(_mm256_permute4x64_pd::<0xaa>(*state), first);
                powers[3].times_plus(_mm256_permute4x64_pd::<0xff>(*state), second).plus(first)
            };
            for (end, start) in ends.iter_mut().zip(start) {
                end[lane] = start;
            }
        }
    }
    both[0].write(left);
    both[1].write(right);
}

/// Four columns become four runs, four rows at a time.
#[inline(always)]
fn put_transposed(
    rows: &[f64],
    stride: usize,
    length: usize,
    segments: [usize; 4],
    add: bool,
    out: &mut [f64],
) {
    assert!((length - 1) * stride + 4 <= rows.len(), "all rows");
    assert!(segments.iter().all(|segment| (segment + 1) * length <= out.len()), "all runs");
    let starts = segments.map(|segment| segment * length);
    let whole = length / 4 * 4;
    for frame in (0..whole).step_by(4) {
        // SAFETY: kernels run where AVX2 was detected; rows and runs were checked above.
        unsafe {
            let row = rows.as_ptr().add(frame * stride);
            let (a, b) = (_mm256_loadu_pd(row), _mm256_loadu_pd(row.add(stride)));
            let c = _mm256_loadu_pd(row.add(2 * stride));
            let d = _mm256_loadu_pd(row.add(3 * stride));
            let (ab_even, ab_odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (cd_even, cd_odd) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            for (start, column) in starts.into_iter().zip([
                _mm256_permute2f128_pd::<0x20>(ab_even, cd_even),
                _mm256_permute2f128_pd::<0x20>(ab_odd, cd_odd),
                _mm256_permute2f128_pd::<0x31>(ab_even, cd_even),
                _mm256_permute2f128_pd::<0x31>(ab_odd, cd_odd),
            ]) {
                let to = out.as_mut_ptr().add(start + frame);
                let column = if add { _mm256_add_pd(_mm256_loadu_pd(to), column) } else { column };
                _mm256_storeu_pd(to, column);
            }
        }
    }
    for frame in whole..length {
        for (column, start) in starts.into_iter().enumerate() {
            let before = if add { out[start + frame] } else { 0.0 };
            out[start + frame] = before + rows[frame * stride + column];
        }
    }
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
    fn inherit(power: &[State; 4], ends: &mut [[f64; 2 * WIDEST]; 4], states: [&mut State; 2]) {
        inherit::<{ Self::LANES }>(power, ends, states);
    }
    #[inline(always)]
    fn put_transposed(
        rows: &[f64],
        stride: usize,
        length: usize,
        segments: [usize; 4],
        add: bool,
        out: &mut [f64],
    ) {
        put_transposed(rows, stride, length, segments, add, out);
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
    fn inherit(power: &[State; 4], ends: &mut [[f64; 2 * WIDEST]; 4], states: [&mut State; 2]) {
        inherit::<{ Self::LANES }>(power, ends, states);
    }
    #[inline(always)]
    fn put_transposed(
        rows: &[f64],
        stride: usize,
        length: usize,
        segments: [usize; 4],
        add: bool,
        out: &mut [f64],
    ) {
        put_transposed(rows, stride, length, segments, add, out);
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
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: kernels run where AVX2 was detected, and the caller vouches for eight singles.
        unsafe { _mm256_loadu_ps(from) }
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

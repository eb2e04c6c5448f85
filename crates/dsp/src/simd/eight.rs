//! Eight singles, in the registers that every processor of an architecture has.
//!
//! For kernels that must be fast also where the compiler optimizes for size and vectorizes nothing.

#![allow(unsafe_code, reason = "vector registers are reached by intrinsics only")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "eight singles are two registers")]

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m128, _mm_add_ps, _mm_loadu_ps, _mm_mul_ps, _mm_set1_ps, _mm_storeu_ps,
};

/// Eight singles.
#[derive(Clone, Copy)]
#[cfg(target_arch = "x86_64")]
pub(crate) struct F32x8(__m128, __m128);

#[cfg(target_arch = "x86_64")]
impl F32x8 {
    #[inline(always)]
    pub(crate) fn splat(value: f32) -> Self {
        // SAFETY: SSE is part of x86-64.
        let four = unsafe { _mm_set1_ps(value) };
        Self(four, four)
    }

    #[inline(always)]
    pub(crate) fn read(from: &[f32; 8]) -> Self {
        let from = from.as_ptr();
        // SAFETY: SSE is part of x86-64, and the array has eight singles.
        unsafe { Self(_mm_loadu_ps(from), _mm_loadu_ps(from.add(4))) }
    }

    #[inline(always)]
    pub(crate) fn write(self) -> [f32; 8] {
        let mut to = [0.0; 8];
        let start: *mut f32 = to.as_mut_ptr();
        // SAFETY: SSE is part of x86-64, and the array has room for eight singles.
        unsafe {
            _mm_storeu_ps(start, self.0);
            _mm_storeu_ps(start.add(4), self.1);
        }
        to
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        // SAFETY: SSE is part of x86-64.
        unsafe { Self(_mm_add_ps(self.0, other.0), _mm_add_ps(self.1, other.1)) }
    }

    /// `self * factor + addend`, rounded twice.
    #[inline(always)]
    pub(crate) fn times_plus(self, factor: Self, addend: Self) -> Self {
        // SAFETY: SSE is part of x86-64.
        unsafe {
            Self(
                _mm_add_ps(_mm_mul_ps(self.0, factor.0), addend.0),
                _mm_add_ps(_mm_mul_ps(self.1, factor.1), addend.1),
            )
        }
    }
}

/// Eight singles.
#[derive(Clone, Copy)]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) struct F32x8([f32; 8]);

#[cfg(not(target_arch = "x86_64"))]
impl F32x8 {
    #[inline(always)]
    pub(crate) fn splat(value: f32) -> Self {
        Self([value; 8])
    }

    #[inline(always)]
    pub(crate) fn read(from: &[f32; 8]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    pub(crate) fn write(self) -> [f32; 8] {
        self.0
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(core::array::from_fn(|lane| self.0[lane] + other.0[lane]))
    }

    /// `self * factor + addend`, rounded twice.
    #[inline(always)]
    pub(crate) fn times_plus(self, factor: Self, addend: Self) -> Self {
        Self(core::array::from_fn(|lane| self.0[lane] * factor.0[lane] + addend.0[lane]))
    }
}

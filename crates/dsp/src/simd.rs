//! Kernels in vector registers, chosen at run time; the only unsafe code of this crate.
//!
//! A filter's recursion is serial: one channel's next sample depends on its last. A run is
//! therefore cut into as many segments as a register has pairs of lanes, and the lanes process all
//! segments at once. The state at the start of each segment is computed before, exactly, as a
//! weighted sum of the samples of the segment before it (see `filter_modes`), for an eighth of the
//! work of filtering. The rejected alternatives: starting from zero and adding the missing part
//! afterwards (four products per sample and a second pass over all outputs), running each segment
//! in over the 400 ms before it (wasted for calls shorter than seconds) and block state-space
//! matrices (twice the products). Three channels and more fill a register without segments (see
//! `row`).

mod eight;
mod filter_modes;
mod intersample;
mod lanes;
mod peak;
mod row;
mod weigh;
mod weighting;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use eight::F32x8;
pub(crate) use intersample::IntersampleInterpolator;
pub(crate) use peak::{
    FoundPeaks, PeakScratch, PeakSearch, TruePeakTaps, all_finite, sample_peaks, search_peaks,
};
pub(crate) use row::side_by_side;
pub(crate) use weigh::{PairContext, sum, weigh};
pub(crate) use weighting::WeightingTask;

/// Instruction set of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimdLevel {
    /// One sample after the other: the reference, and the fallback for other processors.
    Scalar,
    /// AVX2 and FMA: 4 doubles.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 8 doubles.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl SimdLevel {
    /// All levels that this processor supports, the best last.
    pub(crate) fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            const ALL: [SimdLevel; 3] = [SimdLevel::Scalar, SimdLevel::Avx2, SimdLevel::Avx512];
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            // Every server processor with AVX-512 has these; with F alone the compiler's code is
            // less certain.
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            &ALL[..1 + usize::from(avx2) + usize::from(avx512)]
        }
        #[cfg(not(target_arch = "x86_64"))]
        &[Self::Scalar]
    }
}

//! The K-weighting of adjacent channels, one per lane.
//!
//! From three channels on, a register is filled without cutting a run into segments: nothing is
//! computed twice, and memory is read once, in order. The rejected alternative, one pair after the
//! other in segments, reads a run of 5.1 five times.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use super::SimdLevel;
use super::lanes::F64Lanes;
use super::weighting::{KernelCoefficients, WIDEST, WeightingTask, load_states, store_states};
use crate::meter::SampleView;
use crate::meter::weighting::{Coefficients, FilterState};

/// How many of `left` channels are filtered at once.
pub(crate) fn side_by_side(level: SimdLevel, left: usize) -> usize {
    match (level, left) {
        #[cfg(target_arch = "x86_64")]
        (SimdLevel::Avx512, 5..) => left.min(8),
        #[cfg(target_arch = "x86_64")]
        (SimdLevel::Avx2 | SimdLevel::Avx512, 3..) => left.min(4),
        _ => left.min(2),
    }
}

/// Filters as many frames as the kernel supports; returns their number.
#[cfg(target_arch = "x86_64")]
pub(super) fn weigh_row(
    coefficients: &Coefficients,
    task: WeightingTask<'_>,
    states: &mut [FilterState],
) -> usize {
    let wide = states.len() > 4;
    match task.view {
        // SAFETY: `side_by_side` asks for more than four channels with AVX-512 only.
        SampleView::Narrow(x) if wide => unsafe { narrow_eight(coefficients, x, task, states) },
        // SAFETY: `side_by_side` asks for more than four channels with AVX-512 only.
        SampleView::Wide(x) if wide => unsafe { wide_eight(coefficients, x, task, states) },
        // SAFETY: `side_by_side` asks for more than two channels with AVX2 and FMA only.
        SampleView::Narrow(x) => unsafe { narrow_four(coefficients, x, task, states) },
        // SAFETY: `side_by_side` asks for more than two channels with AVX2 and FMA only.
        SampleView::Wide(x) => unsafe { wide_four(coefficients, x, task, states) },
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident, $features:literal, $register:ty, $sample:ty, $read:ident) => {
        #[target_feature(enable = $features)]
        fn $name(
            coefficients: &Coefficients,
            samples: &[$sample],
            task: WeightingTask<'_>,
            states: &mut [FilterState],
        ) -> usize {
            let read = <$register>::$read;
            kernel::<$register, $sample>(coefficients, samples, read, task, states)
        }
    };
}

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m256d, __m512d};
#[cfg(target_arch = "x86_64")]
entry!(narrow_four, "avx2,fma", __m256d, f32, row_narrow);
#[cfg(target_arch = "x86_64")]
entry!(wide_four, "avx2,fma", __m256d, f64, row_wide);
#[cfg(target_arch = "x86_64")]
entry!(narrow_eight, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", __m512d, f32, row_narrow);
#[cfg(target_arch = "x86_64")]
entry!(wide_eight, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", __m512d, f64, row_wide);

/// Lanes beyond the channels process the following samples of the run, with a weight of zero.
#[inline(always)]
fn kernel<V: F64Lanes, T>(
    coefficients: &Coefficients,
    samples: &[T],
    read: unsafe fn(*const T) -> V,
    task: WeightingTask<'_>,
    states: &mut [FilterState],
) -> usize {
    let samples = samples.get(task.first..).unwrap_or_default();
    let Some(last) = samples.len().checked_sub(V::LANES) else { return 0 };
    let frames = (last / task.stride + 1).min(task.out.len()) / 2 * 2;
    let (mut starts, mut weights) = ([[0.0; WIDEST]; 4], [0.0; WIDEST]);
    for (lane, (state, &weight)) in states.iter().zip(task.weights).enumerate() {
        weights[lane] = weight;
        for (row, value) in starts.iter_mut().zip(state) {
            // Values without weight must not affect later results.
            row[lane] = if weight > 0.0 { *value } else { 0.0 };
        }
    }
    let weights = V::read(&weights);
    let (firsts, seconds) = (weights.firsts(weights), weights.seconds(weights));
    let kernel = KernelCoefficients::<V>::new(coefficients);
    let mut inside = load_states(&starts);
    assert!(frames <= task.out.len(), "room for all energies");
    for frame in (0..frames).step_by(2) {
        let from = samples.as_ptr().wrapping_add(frame * task.stride);
        // SAFETY: `last` is where the last register of samples begins.
        let y = kernel.step(unsafe { read(from) }, &mut inside);
        // SAFETY: `last` is where the last register of samples begins.
        let next = kernel.step(unsafe { read(from.wrapping_add(task.stride)) }, &mut inside);
        let (y, z) = (y.firsts(next), y.seconds(next));
        let energies = seconds.times(z).times_plus(z, firsts.times(y).times(y));
        // SAFETY: the assertion covers both energies.
        unsafe { energies.put_sum(task.out.as_mut_ptr().wrapping_add(frame), task.add) };
    }
    let ends = store_states(inside);
    for (lane, (state, &weight)) in states.iter_mut().zip(task.weights).enumerate() {
        if weight > 0.0 {
            *state = [ends[0][lane], ends[1][lane], ends[2][lane], ends[3][lane]];
        }
    }
    frames
}

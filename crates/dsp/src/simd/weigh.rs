//! The K-weighting of two channels, several segments of a run at once.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use super::SimdLevel;
use super::filter_modes::{BLOCK, FilterModes};
use super::lanes::{F64Lanes, prefetch};
#[cfg(target_arch = "x86_64")]
use super::row::weigh_row;
use super::weighting::{
    KernelCoefficients, WIDEST, WeightingTask, broadcast_pair, load_states, store_states,
};
use crate::meter::SampleView;
use crate::meter::weighting::{Coefficients, FilterState};

/// Coefficients and weights of the kernel for two channels.
#[derive(Clone, Debug)]
pub(crate) struct PairContext {
    coefficients: Coefficients,
    modes: FilterModes,
    /// Contribution of each frame of a block to the state at its end, a register per value; for 4
    /// and 8 lanes that are adjacent in one channel or pairs of channels.
    weights: [[Box<[f64]>; 2]; 2],
}

impl PairContext {
    pub(crate) fn new(coefficients: &Coefficients, level: SimdLevel) -> Self {
        let longest = if level == SimdLevel::Scalar { BLOCK } else { LONGEST_SEGMENT };
        let modes = FilterModes::new(coefficients, longest);
        let weights = [4, 8].map(|lanes| [1, 2].map(|channels| weights(&modes, lanes, channels)));
        Self { coefficients: *coefficients, modes, weights }
    }
}

fn weights(modes: &FilterModes, lanes: usize, channels: usize) -> Box<[f64]> {
    let mut weights = vec![0.0; 4 * channels * BLOCK];
    for (frame, later) in (0..BLOCK).rev().enumerate() {
        let values = [modes.pass.weight(later), modes.shelf.weight(later)];
        for (value, weight) in values.into_iter().flatten().enumerate() {
            let register = 4 * (channels * frame / lanes) + value;
            let lane = register * lanes + channels * frame % lanes;
            weights[lane..lane + channels].fill(weight);
        }
    }
    weights.into()
}

/// Filters as many frames as the kernel supports; returns their number.
pub(crate) fn weigh(
    pair: &PairContext,
    level: SimdLevel,
    task: WeightingTask<'_>,
    states: &mut [FilterState],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level != SimdLevel::Scalar && states.len() > 2 {
        return weigh_row(&pair.coefficients, task, states);
    }
    // Half as many segments have half the overhead.
    #[cfg(target_arch = "x86_64")]
    let level = match level {
        SimdLevel::Avx512 if task.out.len() < FEW => SimdLevel::Avx2,
        other => other,
    };
    match (level, task.view) {
        (SimdLevel::Scalar, _) => 0,
        #[cfg(target_arch = "x86_64")]
        (SimdLevel::Avx2, SampleView::Narrow(x)) => {
            // SAFETY: `SimdLevel::available` found AVX2 and FMA.
            unsafe { narrow_avx2(pair, &x[task.first..], task, states) }
        }
        #[cfg(target_arch = "x86_64")]
        (SimdLevel::Avx2, SampleView::Wide(x)) => {
            // SAFETY: `SimdLevel::available` found AVX2 and FMA.
            unsafe { wide_avx2(pair, &x[task.first..], task, states) }
        }
        #[cfg(target_arch = "x86_64")]
        (SimdLevel::Avx512, SampleView::Narrow(x)) => {
            // SAFETY: `SimdLevel::available` found AVX-512.
            unsafe { narrow_avx512(pair, &x[task.first..], task, states) }
        }
        #[cfg(target_arch = "x86_64")]
        (SimdLevel::Avx512, SampleView::Wide(x)) => {
            // SAFETY: `SimdLevel::available` found AVX-512.
            unsafe { wide_avx512(pair, &x[task.first..], task, states) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident, $features:literal, $register:ty, $sample:ty, $read:ident, $two:ident) => {
        #[target_feature(enable = $features)]
        fn $name(
            pair: &PairContext,
            samples: &[$sample],
            task: WeightingTask<'_>,
            states: &mut [FilterState],
        ) -> usize {
            let read = (<$register>::$read as Read<_, _>, <$register>::$two as ReadTwo<_, _>);
            match states {
                [one, two] if task.weights[1] > 0.0 => {
                    kernel::<$register, $sample, 2>(pair, samples, read, task, [one, two])
                }
                [one, ..] => kernel::<$register, $sample, 1>(pair, samples, read, task, [one]),
                [] => 0,
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m256d, __m512d};
#[cfg(target_arch = "x86_64")]
entry!(narrow_avx2, "avx2,fma", __m256d, f32, pairs_narrow, two_narrow);
#[cfg(target_arch = "x86_64")]
entry!(wide_avx2, "avx2,fma", __m256d, f64, pairs_wide, two_wide);
#[cfg(target_arch = "x86_64")]
entry!(
    narrow_avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
    __m512d,
    f32,
    pairs_narrow,
    two_narrow
);
#[cfg(target_arch = "x86_64")]
entry!(
    wide_avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
    __m512d,
    f64,
    pairs_wide,
    two_wide
);

/// Reads the pairs of a register, `usize` samples apart.
type Read<T, V> = unsafe fn(*const T, usize) -> V;
/// Reads the pairs of two frames, one register each; as above, with the number of samples between
/// frames.
type ReadTwo<T, V> = unsafe fn(*const T, usize, usize) -> [V; 2];

/// For two channels, lane 2i of a register is the left, lane 2i + 1 the right channel of segment i.
/// For one channel, lane 2i is segment i, and lane 2i + 1 the segment half a run later.
#[inline(always)]
fn kernel<V: F64Lanes, T, const CHANNELS: usize>(
    pair: &PairContext,
    samples: &[T],
    (read, read_two): (Read<T, V>, ReadTwo<T, V>),
    mut task: WeightingTask<'_>,
    states: [&mut FilterState; CHANNELS],
) -> usize {
    let segments = V::LANES / CHANNELS;
    // One channel is read in pairs too, the second of which is not used.
    let there = (samples.len().saturating_sub(2) / task.stride + 1).min(task.out.len());
    let length = (there / segments).min(LONGEST_SEGMENT) / segments * segments;
    if length == 0 || samples.len() < 2 {
        return 0;
    }
    let weights = &pair.weights[usize::from(V::LANES == WIDEST)];
    let mut starts = [[0.0; WIDEST]; 4];
    // Zero, or not finite if a sample of the neighbour is not.
    let mut passed = 0.0;
    let mut here = states.each_ref().map(|state| pair.modes.to_modes(**state));
    for segment in 0..segments {
        for (channel, apart) in here.iter().enumerate() {
            let lane = lane_of::<V>(segment, channel, CHANNELS);
            for (row, value) in starts.iter_mut().zip(pair.modes.to_filter_state(*apart)) {
                row[lane] = value;
            }
        }
        // The neighbour of a single channel is read as well.
        let told = CHANNELS == 1 && task.stride > 1;
        if segment + 1 < segments || told {
            let samples = &samples[segment * length * task.stride..];
            let sums = match task.stride {
                1 => neighbours::<V, T>(&pair.modes, &weights[0], samples, read, length),
                // With a stride known at compile time, adjacent samples are read at once.
                2 => sums::<V, T, 2>(&pair.modes, &weights[1], samples, read, 2, length),
                n => sums::<V, T, 2>(&pair.modes, &weights[1], samples, read, n, length),
            };
            if told {
                passed += 0.0 * sums[1].iter().sum::<f64>();
            }
            for (channel, apart) in here.iter_mut().enumerate() {
                *apart = initial_state(&pair.modes, length, *apart, &sums[channel]);
            }
        }
    }
    #[allow(clippy::float_cmp, reason = "the constant of most channels")]
    let unit = task.weights.iter().take(CHANNELS).all(|&weight| weight == 1.0);
    let filters = &pair.coefficients;
    // With a stride known at compile time, adjacent samples are read two at a time.
    let (read, task) = (read_two, &mut task);
    let ends = match (unit, task.stride) {
        (true, 2) => run::<V, T, CHANNELS, true, 2>(filters, samples, read, task, length, &starts),
        (true, _) => {
            run::<V, T, CHANNELS, true, ANY>(filters, samples, read, task, length, &starts)
        }
        (false, _) => {
            run::<V, T, CHANNELS, false, ANY>(filters, samples, read, task, length, &starts)
        }
    };
    task.out[0] += passed;
    for (channel, state) in states.into_iter().enumerate() {
        let lane = lane_of::<V>(segments - 1, channel, CHANNELS);
        *state = [ends[0][lane], ends[1][lane], ends[2][lane], ends[3][lane]];
    }
    segments * length
}

#[inline(always)]
fn lane_of<V: F64Lanes>(segment: usize, channel: usize, channels: usize) -> usize {
    let half = V::LANES / 2;
    if channels == 2 { 2 * segment + channel } else { segment % half * 2 + segment / half }
}

/// The state after a segment: the decayed state before it, and the segment's contribution.
#[inline(always)]
fn initial_state(
    modes: &FilterModes,
    length: usize,
    before: [[f64; 2]; 2],
    new: &FilterState,
) -> [[f64; 2]; 2] {
    let (pass, shelf) =
        (modes.pass.advance(length, before[1]), modes.shelf.advance(length, before[0]));
    [[shelf[0] + new[2], shelf[1] + new[3]], [pass[0] + new[0], pass[1] + new[1]]]
}

/// [`sums`] of a single channel: all lanes belong to it.
#[inline(always)]
fn neighbours<V: F64Lanes, T>(
    modes: &FilterModes,
    weights: &[f64],
    samples: &[T],
    read: Read<T, V>,
    length: usize,
) -> [FilterState; 2] {
    let [mut one, other] = sums::<V, T, 1>(modes, weights, samples, read, 1, length);
    for (one, other) in one.iter_mut().zip(other) {
        *one += other;
    }
    [one, [0.0; 4]]
}

/// Contribution of a segment to the states of the even and the odd lanes: two values of the
/// high-pass, two of the shelf.
#[inline(always)]
fn sums<V: F64Lanes, T, const CHANNELS: usize>(
    modes: &FilterModes,
    weights: &[f64],
    samples: &[T],
    read: Read<T, V>,
    stride: usize,
    length: usize,
) -> [FilterState; 2] {
    let [pass, shelf] = [modes.pass.block(), modes.shelf.block()];
    let [pass, shelf]: [[[V; 2]; 2]; 2] = [
        [broadcast_pair(pass[0]), broadcast_pair(pass[1])],
        [broadcast_pair(shelf[0]), broadcast_pair(shelf[1])],
    ];
    let late = length.saturating_sub(modes.shelf_decay_blocks * BLOCK);
    let zero = V::splat(0.0);
    let mut sums = [zero; 4];
    let mut at = 0;
    // The first block is the remainder.
    let mut frames = (length - 1) % BLOCK + 1;
    while at < length {
        let samples = &samples[at * stride..];
        at += frames;
        let [a, b, c, d] = if at <= late {
            block::<V, T, CHANNELS, false>(weights, samples, read, stride, frames)
        } else {
            block::<V, T, CHANNELS, true>(weights, samples, read, stride, frames)
        };
        let [e, f, g, h] = sums;
        sums[0] = f.times_plus(pass[0][1], e.times_plus(pass[0][0], a));
        sums[1] = f.times_plus(pass[1][1], e.times_plus(pass[1][0], b));
        if at > late {
            sums[2] = h.times_plus(shelf[0][1], g.times_plus(shelf[0][0], c));
            sums[3] = h.times_plus(shelf[1][1], g.times_plus(shelf[1][0], d));
        }
        frames = BLOCK;
    }
    let mut both = [[0.0; 4]; 2];
    for (value, sum) in sums.into_iter().enumerate() {
        let mut lanes = [0.0; WIDEST];
        sum.write(&mut lanes);
        for pair in lanes.chunks_exact(2) {
            both[0][value] += pair[0];
            both[1][value] += pair[1];
        }
    }
    both
}

/// Contribution of a block, by the weights of the last `frames` frames; with `ALL`, for the shelf
/// too.
#[inline(always)]
fn block<V: F64Lanes, T, const CHANNELS: usize, const ALL: bool>(
    weights: &[f64],
    samples: &[T],
    read: Read<T, V>,
    stride: usize,
    frames: usize,
) -> [V; 4] {
    // Two sums of each, so that products need not wait for each other.
    let mut sums = [[V::splat(0.0); 4]; 2];
    let (at_once, step) = (V::LANES / CHANNELS, if CHANNELS == 1 { 2 } else { stride });
    assert!((frames - 1) * stride + CHANNELS <= samples.len(), "all of the block");
    let mut samples = samples.as_ptr();
    let weights = &weights[4 * CHANNELS * (BLOCK - frames)..];
    let mut twice = weights.chunks_exact(2 * 4 * V::LANES);
    for weights in &mut twice {
        for (weights, sums) in weights.chunks_exact(4 * V::LANES).zip(&mut sums) {
            // SAFETY: the weights are those of `frames` frames, which are there.
            let x = unsafe { read(samples, step) };
            add::<V, ALL>(x, weights, sums);
            samples = samples.wrapping_add(at_once * stride);
        }
    }
    if !twice.remainder().is_empty() {
        // SAFETY: the weights are those of `frames` frames, which are there.
        let x = unsafe { read(samples, step) };
        add::<V, ALL>(x, twice.remainder(), &mut sums[0]);
    }
    let [even, odd] = sums;
    [even[0].plus(odd[0]), even[1].plus(odd[1]), even[2].plus(odd[2]), even[3].plus(odd[3])]
}

#[inline(always)]
fn add<V: F64Lanes, const ALL: bool>(x: V, weights: &[f64], sums: &mut [V; 4]) {
    for (value, sum) in sums.iter_mut().enumerate().take(if ALL { 4 } else { 2 }) {
        *sum = x.times_plus(V::read(&weights[value * V::LANES..]), *sum);
    }
}

/// Filters all segments from their initial states and writes their energies; returns the final
/// states. With `UNIT` all weights are 1; `STRIDE` is the task's stride.
#[inline(always)]
fn run<V: F64Lanes, T, const CHANNELS: usize, const UNIT: bool, const STRIDE: usize>(
    coefficients: &Coefficients,
    samples: &[T],
    read_two: ReadTwo<T, V>,
    task: &mut WeightingTask<'_>,
    length: usize,
    starts: &[[f64; WIDEST]; 4],
) -> [[f64; WIDEST]; 4] {
    let stride = if STRIDE == ANY { task.stride } else { STRIDE };
    let (step, half) = (length * stride, V::LANES / 2);
    let frames = V::LANES / CHANNELS * length;
    assert!((frames - 1) * stride + 2 <= samples.len(), "all samples");
    assert!(frames <= task.out.len(), "room for all energies");
    let kernel = KernelCoefficients::<V>::new(coefficients);
    let (left, right) = (V::splat(task.weights[0]), V::splat(task.weights[CHANNELS - 1]));
    let mut states = load_states(starts);
    for frame in (0..length).step_by(2) {
        let from = samples.as_ptr().wrapping_add(frame * stride);
        let to = task.out.as_mut_ptr().wrapping_add(frame);
        // The next run begins with a pass that is faster than memory.
        let soon = frames + (V::LANES / CHANNELS - 1) * frame;
        prefetch(samples.as_ptr().wrapping_add(soon * stride));
        // SAFETY: the first assertion covers all pairs.
        let [x, next] = unsafe { read_two(from, stride, step) };
        if CHANNELS == 2 {
            let (y, next) = (kernel.step(x, &mut states), kernel.step(next, &mut states));
            let (y, z) = (y.firsts(next), y.seconds(next));
            let energies =
                weighted::<V, UNIT>(z, right).times_plus(z, weighted::<V, UNIT>(y, left).times(y));
            // SAFETY: the second assertion covers all pairs.
            unsafe { put(energies, to, length, task.add) };
        } else {
            let from = from.wrapping_add(half * step);
            // SAFETY: the first assertion covers all pairs.
            let [late, late_next] = unsafe { read_two(from, stride, step) };
            let y = kernel.step(x.firsts(late), &mut states);
            let next = kernel.step(next.firsts(late_next), &mut states);
            let y = weighted::<V, UNIT>(y, left).times(y);
            let next = weighted::<V, UNIT>(next, left).times(next);
            // SAFETY: the second assertion covers all pairs.
            unsafe { put(y.firsts(next), to, length, task.add) };
            let to = to.wrapping_add(half * length);
            // SAFETY: the second assertion covers all pairs.
            unsafe { put(y.seconds(next), to, length, task.add) };
        }
    }
    store_states(states)
}

/// (A closure might not be inlined, and then be compiled without the registers.)
#[inline(always)]
fn weighted<V: F64Lanes, const UNIT: bool>(y: V, weight: V) -> V {
    if UNIT { y } else { y.times(weight) }
}

/// Stores two energies of each segment, or adds them.
///
/// # Safety
/// There is room for `LANES / 2` pairs that are `length` apart.
#[inline(always)]
unsafe fn put<V: F64Lanes>(energies: V, to: *mut f64, length: usize, add: bool) {
    let energies = if add {
        // SAFETY: the caller vouches for the pairs.
        energies.plus(unsafe { V::pairs_wide(to, length) })
    } else {
        energies
    };
    // SAFETY: the caller vouches for the room.
    unsafe { energies.put_pairs(to, length) };
}

/// The sum of the values.
pub(crate) fn sum(values: &[f64]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if values.len() >= 64 && is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was detected.
        return unsafe { sum_avx2(values) };
    }
    sum_of::<8>(values)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(values: &[f64]) -> f64 {
    sum_of::<16>(values)
}

/// The sum, in independent chains of additions.
#[inline(always)]
fn sum_of<const CHAINS: usize>(values: &[f64]) -> f64 {
    let mut parts = [0.0; CHAINS];
    let (rows, rest) = values.as_chunks::<CHAINS>();
    for row in rows {
        for (part, value) in parts.iter_mut().zip(row) {
            *part += value;
        }
    }
    parts.iter().sum::<f64>() + rest.iter().sum::<f64>()
}

/// A stride that is not known at compile time.
const ANY: usize = 0;
/// Frames of the longest segment.
const LONGEST_SEGMENT: usize = 2400;
/// Runs of fewer frames do not use the widest register, because of the overhead of its many
/// segments.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 256;

//! The K-weighting of two channels, several segments of a run at once.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use super::Level;
use super::lanes::Doubles;
use super::modes::{BLOCK, Modes};
use crate::meter::View;
use crate::meter::filter::{Coefficients, State};

/// What the kernel for two channels needs besides the filters' states.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    coefficients: Coefficients,
    modes: Modes,
    /// What each frame of a block gives for the state at its end, a register for each value.
    weights: Box<[f64]>,
}

impl Pair {
    pub(crate) fn new(coefficients: &Coefficients, level: Level) -> Self {
        let longest = if level == Level::Scalar { BLOCK } else { LONGEST_SEGMENT };
        let modes = Modes::new(coefficients, longest);
        let lanes = level.lanes();
        let mut weights = vec![0.0; 4 * 2 * BLOCK];
        for (frame, later) in (0..BLOCK).rev().enumerate() {
            let values = [modes.pass.weight(later), modes.shelf.weight(later)];
            for (value, weight) in values.into_iter().flatten().enumerate() {
                let register = 4 * (2 * frame / lanes) + value;
                let lane = register * lanes + 2 * frame % lanes;
                weights[lane..lane + 2].fill(weight);
            }
        }
        Self { coefficients: *coefficients, modes, weights: weights.into() }
    }
}

/// Where the samples of two channels lie, and where their energies go.
pub(crate) struct Task<'a> {
    pub(crate) view: View<'a>,
    /// Samples from frame to frame.
    pub(crate) stride: usize,
    /// The first of the two channels.
    pub(crate) first: usize,
    pub(crate) weights: [f64; 2],
    /// Whether energies are added to what is in `out`.
    pub(crate) add: bool,
    pub(crate) out: &'a mut [f64],
}

/// Weighs as far as the kernel comes; returns how many frames it did.
pub(crate) fn weigh_pair(pair: &Pair, level: Level, task: Task<'_>, states: &mut [State]) -> usize {
    let [one, two] = states else { return 0 };
    let both = [one, two];
    match (level, task.view) {
        (Level::Scalar, _) => 0,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, View::Narrow(x)) => {
            // SAFETY: `Level::available` found AVX2 and FMA.
            unsafe { narrow_avx2(pair, &x[task.first..], task, both) }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, View::Wide(x)) => {
            // SAFETY: `Level::available` found AVX2 and FMA.
            unsafe { wide_avx2(pair, &x[task.first..], task, both) }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, View::Narrow(x)) => {
            // SAFETY: `Level::available` found AVX-512.
            unsafe { narrow_avx512(pair, &x[task.first..], task, both) }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, View::Wide(x)) => {
            // SAFETY: `Level::available` found AVX-512.
            unsafe { wide_avx512(pair, &x[task.first..], task, both) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident, $features:literal, $register:ty, $sample:ty, $read:ident) => {
        #[target_feature(enable = $features)]
        fn $name(
            pair: &Pair,
            samples: &[$sample],
            task: Task<'_>,
            states: [&mut State; 2],
        ) -> usize {
            kernel::<$register, $sample>(pair, samples, <$register>::$read, task, states)
        }
    };
}

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m256d, __m512d};
#[cfg(target_arch = "x86_64")]
entry!(narrow_avx2, "avx2,fma", __m256d, f32, pairs_narrow);
#[cfg(target_arch = "x86_64")]
entry!(wide_avx2, "avx2,fma", __m256d, f64, pairs_wide);
#[cfg(target_arch = "x86_64")]
entry!(narrow_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", __m512d, f32, pairs_narrow);
#[cfg(target_arch = "x86_64")]
entry!(wide_avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", __m512d, f64, pairs_wide);

/// Reads the pairs of a register, so many samples apart.
type Read<T, V> = unsafe fn(*const T, usize) -> V;

/// Lane 2i of a register is the left, lane 2i + 1 the right channel of segment i.
#[inline(always)]
fn kernel<V: Doubles, T>(
    pair: &Pair,
    samples: &[T],
    read: Read<T, V>,
    task: Task<'_>,
    states: [&mut State; 2],
) -> usize {
    let segments = V::LANES / 2;
    // Whole registers of frames, and two frames at a time.
    let length = (task.out.len() / segments).min(LONGEST_SEGMENT) / segments * segments;
    if length == 0 {
        return 0;
    }
    let frames = segments * length;
    assert!((frames - 1) * task.stride + 2 <= samples.len(), "all segments");
    let mut starts = [[0.0; 2 * WIDEST]; 4];
    let mut here = states.each_ref().map(|state| pair.modes.apart(**state));
    for segment in 0..segments {
        for (channel, apart) in here.iter().enumerate() {
            let start = pair.modes.together(*apart);
            for (row, value) in starts.iter_mut().zip(start) {
                row[2 * segment + channel] = value;
            }
        }
        if segment + 1 < segments {
            let samples = &samples[segment * length * task.stride..];
            let sums = sums::<V, T>(pair, samples, read, task.stride, length);
            for (channel, apart) in here.iter_mut().enumerate() {
                *apart = inherit(&pair.modes, length, *apart, &sums[channel]);
            }
        }
    }
    let ends = run::<V, T>(&pair.coefficients, samples, read, task, length, &starts);
    for (channel, state) in states.into_iter().enumerate() {
        *state = ends.each_ref().map(|row| row[V::LANES - 2 + channel]);
    }
    frames
}

/// The state after a segment: what is left of that before it, and what it adds itself.
#[inline(always)]
fn inherit(modes: &Modes, length: usize, [shelf, pass]: [[f64; 2]; 2], new: &State) -> [[f64; 2]; 2] {
    let (pass, shelf) = (modes.pass.after(length, pass), modes.shelf.after(length, shelf));
    [[shelf[0] + new[2], shelf[1] + new[3]], [pass[0] + new[0], pass[1] + new[1]]]
}

/// What a segment adds to the state of each channel: two values of the high-pass, two of the shelf.
#[inline(always)]
fn sums<V: Doubles, T>(
    pair: &Pair,
    samples: &[T],
    read: Read<T, V>,
    stride: usize,
    length: usize,
) -> [State; 2] {
    let [pass, shelf] = [pair.modes.pass.block(), pair.modes.shelf.block()]
        .map(|turn| turn.map(|row| row.map(V::splat)));
    let late = length.saturating_sub(pair.modes.fades * BLOCK);
    let zero = V::splat(0.0);
    let mut sums = [zero; 4];
    let mut at = 0;
    // The first block is what the others leave over.
    let mut frames = (length - 1) % BLOCK + 1;
    while at < length {
        let samples = &samples[at * stride..];
        at += frames;
        let [a, b, c, d] = if at <= late {
            block::<V, T, false>(&pair.weights, samples, read, stride, frames)
        } else {
            block::<V, T, true>(&pair.weights, samples, read, stride, frames)
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

/// What a block adds, by the weights of the last `frames` frames; with `ALL`, for the shelf too.
#[inline(always)]
fn block<V: Doubles, T, const ALL: bool>(
    weights: &[f64],
    samples: &[T],
    read: Read<T, V>,
    stride: usize,
    frames: usize,
) -> [V; 4] {
    let mut sums = [V::splat(0.0); 4];
    let at_once = V::LANES / 2;
    assert!((frames - 1) * stride + 2 <= samples.len(), "all of the block");
    let weights = &weights[4 * 2 * (BLOCK - frames)..];
    for (index, weights) in weights.chunks_exact(4 * V::LANES).enumerate() {
        // SAFETY: the weights are those of `frames` frames, which are there.
        let x = unsafe { read(samples.as_ptr().add(index * at_once * stride), stride) };
        sums[0] = x.times_plus(V::read(weights), sums[0]);
        sums[1] = x.times_plus(V::read(&weights[V::LANES..]), sums[1]);
        if ALL {
            sums[2] = x.times_plus(V::read(&weights[2 * V::LANES..]), sums[2]);
            sums[3] = x.times_plus(V::read(&weights[3 * V::LANES..]), sums[3]);
        }
    }
    sums
}

/// Filters all segments from where they start and writes their energies; returns where they end.
#[inline(always)]
fn run<V: Doubles, T>(
    coefficients: &Coefficients,
    samples: &[T],
    read: Read<T, V>,
    task: Task<'_>,
    length: usize,
    starts: &[[f64; 2 * WIDEST]; 4],
) -> [[f64; 2 * WIDEST]; 4] {
    let step = length * task.stride;
    assert!((V::LANES / 2 - 1) * step + (length - 1) * task.stride + 2 <= samples.len(), "samples");
    assert!(V::LANES / 2 * length <= task.out.len(), "room");
    let kernel = Kernel::<V>::new(coefficients);
    let weights = task.weights.map(V::splat);
    let mut states = starts.each_ref().map(|row| V::read(row));
    for frame in (0..length).step_by(2) {
        let from = samples.as_ptr().wrapping_add(frame * task.stride);
        // SAFETY: the first assertion covers all pairs.
        let (x, next) = unsafe { (read(from, step), read(from.add(task.stride), step)) };
        let (y, next) = (kernel.step(x, &mut states), kernel.step(next, &mut states));
        let (left, right) = (y.firsts(next), y.seconds(next));
        let mut energies = left.times(weights[0]).times(left);
        energies = right.times(weights[1]).times_plus(right, energies);
        let to = task.out.as_mut_ptr().wrapping_add(frame);
        // SAFETY: the second assertion covers all pairs.
        unsafe {
            if task.add {
                energies = energies.plus(V::pairs_wide(to, length));
            }
            energies.put_pairs(to, length);
        }
    }
    let mut ends = [[0.0; 2 * WIDEST]; 4];
    for (end, state) in ends.iter_mut().zip(states) {
        state.write(end);
    }
    ends
}

/// The coefficients in registers.
struct Kernel<V> {
    zeros: [V; 2],
    poles: [V; 2],
    keep: V,
    leak: V,
}

impl<V: Doubles> Kernel<V> {
    #[inline(always)]
    fn new(coefficients: &Coefficients) -> Self {
        Self {
            zeros: coefficients.zeros.map(V::splat),
            poles: coefficients.poles.map(V::splat),
            keep: V::splat(coefficients.keep),
            leak: V::splat(coefficients.leak),
        }
    }

    /// [`Coefficients::step`], in all lanes.
    #[inline(always)]
    fn step(&self, x: V, states: &mut [V; 4]) -> V {
        let [w1, w2, difference, before] = *states;
        let w = w1.times_from(self.poles[0], w2.times_from(self.poles[1], x));
        let y = w2.times_plus(self.zeros[1], w1.times_plus(self.zeros[0], w));
        let new = difference.times_plus(self.keep, before.times_from(self.leak, y));
        *states = [w, w1, new, before.plus(difference)];
        new.minus(difference)
    }
}

/// Lanes of the widest register.
pub(super) const WIDEST: usize = 8;
/// Frames of the longest segment.
const LONGEST_SEGMENT: usize = 2400;

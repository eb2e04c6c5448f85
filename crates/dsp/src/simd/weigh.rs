//! The K-weighting of two channels, many segments of a run at once.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use super::Level;
use super::lanes::Doubles;
use crate::meter::View;
use crate::meter::filter::{Coefficients, State};

/// What the kernel for two channels needs besides the filters' states.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    coefficients: Coefficients,
    /// What one frame of each segment gives: the outputs, later the energies.
    rows: Box<[f64]>,
    /// How each state answers, frame after frame, when nothing comes in.
    answers: Box<[State]>,
    /// What each state becomes after as many frames: `powers[frames][from][to]`.
    powers: Box<[[State; 4]]>,
}

impl Pair {
    pub(crate) fn new(coefficients: &Coefficients, level: Level) -> Self {
        let longest = if level == Level::Scalar { 0 } else { LONGEST_SEGMENT };
        let mut answers = vec![[0.0; 4]; longest];
        let mut powers = vec![[[0.0; 4]; 4]; longest + 1];
        for from in 0..4 {
            let mut state = [0.0; 4];
            state[from] = 1.0;
            powers[0][from] = state;
            for frame in 0..longest {
                answers[frame][from] = coefficients.step(0.0, &mut state);
                powers[frame + 1][from] = state;
            }
        }
        Self {
            coefficients: *coefficients,
            rows: vec![0.0; 2 * WIDEST * longest].into(),
            answers: answers.into(),
            powers: powers.into(),
        }
    }
}

/// Puts the energies of the channels `first` and `first + 1` into `out`, or adds them, as far as the
/// kernel comes; returns how many frames it did.
#[allow(clippy::too_many_arguments, reason = "a kernel's registers")]
pub(crate) fn weigh_pair(
    pair: &mut Pair,
    level: Level,
    view: View<'_>,
    stride: usize,
    first: usize,
    weights: [f64; 2],
    add: bool,
    states: &mut [State],
    out: &mut [f64],
) -> usize {
    let [one, two] = states else { return 0 };
    let both = [one, two];
    // Half as many segments have half as much to hand on.
    #[cfg(target_arch = "x86_64")]
    let level = match level {
        Level::Avx512 if out.len() < FEW => Level::Avx2,
        other => other,
    };
    match (level, view) {
        (Level::Scalar, _) => 0,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, View::Narrow(x)) => {
            // SAFETY: `Level::available` found AVX2 and FMA.
            unsafe { narrow_avx2(pair, &x[first..], stride, weights, add, both, out) }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, View::Wide(x)) => {
            // SAFETY: `Level::available` found AVX2 and FMA.
            unsafe { wide_avx2(pair, &x[first..], stride, weights, add, both, out) }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, View::Narrow(x)) => {
            // SAFETY: `Level::available` found AVX-512.
            unsafe { narrow_avx512(pair, &x[first..], stride, weights, add, both, out) }
        }
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, View::Wide(x)) => {
            // SAFETY: `Level::available` found AVX-512.
            unsafe { wide_avx512(pair, &x[first..], stride, weights, add, both, out) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident, $features:literal, $register:ty, $sample:ty, $read:ident) => {
        #[target_feature(enable = $features)]
        fn $name(
            pair: &mut Pair,
            samples: &[$sample],
            stride: usize,
            weights: [f64; 2],
            add: bool,
            states: [&mut State; 2],
            out: &mut [f64],
        ) -> usize {
            let read = <$register>::$read;
            kernel::<$register, $sample>(pair, samples, read, stride, weights, add, states, out)
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

/// Two registers of `V` hold 2 channels of `V::LANES` segments: lane 2i is the left, lane 2i + 1
/// the right channel of segment i.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "a kernel's registers")]
fn kernel<V: Doubles, T>(
    pair: &mut Pair,
    samples: &[T],
    read: unsafe fn(*const T, usize) -> V,
    stride: usize,
    weights: [f64; 2],
    add: bool,
    states: [&mut State; 2],
    out: &mut [f64],
) -> usize {
    let lanes = V::LANES;
    let length = (out.len() / lanes).min(LONGEST_SEGMENT);
    if length < SHORTEST_SEGMENT {
        return 0;
    }
    let mut ends = [[0.0; 2 * WIDEST]; 4];
    let rows = &mut pair.rows[..2 * lanes * length];
    from_rest(&pair.coefficients, rows, samples, read, stride, length, &mut ends);
    V::inherit(&pair.powers[length], &mut ends, states);
    complete::<V>(rows, &pair.answers[..length], &ends, weights);
    let energies = &rows[..lanes * length];
    for from in (0..lanes).step_by(4) {
        // `pair_sums` has put segments of the low and the high half side by side.
        let segments = [from / 2, (lanes + from) / 2, from / 2 + 1, (lanes + from) / 2 + 1];
        V::put_transposed(&energies[from..], lanes, length, segments, add, out);
    }
    lanes * length
}

/// Filters all segments as if silence had been before each; leaves where they end in `ends`.
#[inline(always)]
fn from_rest<V: Doubles, T>(
    coefficients: &Coefficients,
    rows: &mut [f64],
    samples: &[T],
    read: unsafe fn(*const T, usize) -> V,
    stride: usize,
    length: usize,
    ends: &mut [[f64; 2 * WIDEST]; 4],
) {
    let Coefficients { b, a, r } = coefficients;
    let b = [V::splat(b[0]), V::splat(b[1]), V::splat(b[2])];
    let (a, r) = ([V::splat(a[0]), V::splat(a[1])], [V::splat(r[0]), V::splat(r[1])]);
    let two = V::splat(2.0);
    let lanes = V::LANES;
    let step = length * stride;
    assert!((lanes - 1) * step + (length - 1) * stride + 2 <= samples.len(), "all segments");
    let mut s = [[V::splat(0.0); 2]; 4];
    for (frame, row) in rows.chunks_exact_mut(2 * lanes).enumerate().take(length) {
        for half in 0..2 {
            // SAFETY: the last pair that is read ends where the assertion says.
            let from = unsafe { samples.as_ptr().add(frame * stride + half * (lanes / 2) * step) };
            // SAFETY: the last pair that is read ends where the assertion says.
            let x = unsafe { read(from, step) };
            let y = x.times_plus(b[0], s[0][half]);
            s[0][half] = y.times_from(a[0], x.times_plus(b[1], s[1][half]));
            s[1][half] = y.times_from(a[1], x.times(b[2]));
            let w = y.plus(s[2][half]);
            s[2][half] = w.times_from(r[0], y.times_from(two, s[3][half]));
            s[3][half] = w.times_from(r[1], y);
            w.write(&mut row[half * lanes..]);
        }
    }
    for (end, s) in ends.iter_mut().zip(s) {
        s[0].write(end);
        s[1].write(&mut end[lanes..]);
    }
}

/// Adds what each segment inherits, and turns outputs into energies: row i of `rows` is then
/// `LANES` long.
#[inline(always)]
fn complete<V: Doubles>(
    rows: &mut [f64],
    answers: &[State],
    starts: &[[f64; 2 * WIDEST]; 4],
    weights: [f64; 2],
) {
    let lanes = V::LANES;
    let mut weight = [weights[0]; WIDEST];
    for right in weight.iter_mut().skip(1).step_by(2) {
        *right = weights[1];
    }
    let weight = V::read(&weight);
    let [a, b, c, d] = starts;
    let low = [V::read(a), V::read(b), V::read(c), V::read(d)];
    let (a, b, c, d) = (&a[lanes..], &b[lanes..], &c[lanes..], &d[lanes..]);
    let high = [V::read(a), V::read(b), V::read(c), V::read(d)];
    for (frame, answer) in answers.iter().enumerate() {
        let [a, b, c, d] = *answer;
        let answer = [V::splat(a), V::splat(b), V::splat(c), V::splat(d)];
        let row = &rows[2 * lanes * frame..2 * lanes * (frame + 1)];
        let first = squared(V::read(row), &low, &answer);
        let second = squared(V::read(&row[lanes..]), &high, &answer);
        let energies = first.times(weight).pair_sums(second.times(weight));
        energies.write(&mut rows[lanes * frame..]);
    }
}

/// The square of an output, with what its segment inherits. (A closure would not surely be inlined,
/// and then be compiled without the registers.)
#[inline(always)]
fn squared<V: Doubles>(y: V, start: &[V; 4], answer: &[V; 4]) -> V {
    let late = answer[1].times_plus(start[1], answer[0].times(start[0]));
    let y = answer[3].times_plus(start[3], answer[2].times_plus(start[2], y)).plus(late);
    y.times(y)
}

/// Lanes of the widest register.
pub(super) const WIDEST: usize = 8;
/// Frames of the longest segment: a run of 512 over four lanes.
const LONGEST_SEGMENT: usize = 128;
/// Frames for which the widest register is not worth its many segments.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 160;
/// Below this, handing states on costs more than lanes save.
const SHORTEST_SEGMENT: usize = 4;

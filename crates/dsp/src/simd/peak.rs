//! Search for sample peaks and peaks between samples.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use aulos_core::MAX_CHANNELS;

use super::SimdLevel;
use super::lanes::F32Lanes;

/// The interpolator's taps, the newest sample first. The phase that is the sample itself is
/// omitted.
#[derive(Clone, Debug)]
pub(crate) struct TruePeakTaps {
    /// Taps per phase.
    count: usize,
    phases: Vec<f64>,
    /// For each pair of mirrored taps: of the middle phase, and the even and odd part of the first.
    narrow: Vec<f32>,
    /// No output exceeds the greatest input by more than this factor.
    gain: f32,
}

impl TruePeakTaps {
    /// Taps for 4 or 2 times oversampling.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "49 taps")]
    pub(crate) fn new(factor: usize) -> Self {
        let count = (ORDER / factor).max(1);
        let mut phases = Vec::with_capacity(count * (factor - 1));
        for phase in 1..factor {
            for index in (phase..ORDER).step_by(factor) {
                let m = index as f64 - ORDER as f64 / 2.0;
                let angle = m * core::f64::consts::PI / factor as f64;
                let turn = 2.0 * core::f64::consts::PI * index as f64 / ORDER as f64;
                phases.push(angle.sin() / angle * (0.5 * (1.0 - turn.cos())));
            }
        }
        let norm = |phase: &[f64]| phase.iter().map(|tap| tap.abs()).sum::<f64>();
        let gain = phases.chunks(count).map(norm).fold(1.0, f64::max) as f32;
        let half = count / 2;
        let mut narrow = Vec::with_capacity(3 * half);
        for tap in 0..half {
            let (early, late) = (phases[tap], phases[count - 1 - tap]);
            // Half of four: the middle phase is symmetric, the first and the last are mirrored.
            let middle = if factor == 4 { phases[count + tap] } else { 0.0 };
            narrow.extend([middle, (early + late) / 2.0, (early - late) / 2.0].map(|x| x as f32));
        }
        Self { count, phases, narrow, gain: gain * (1.0 + ROUNDING) }
    }

    /// Frames needed before a run.
    pub(crate) fn reach(&self) -> usize {
        self.count.next_multiple_of(12)
    }

    /// Delay of the phase that is the sample itself, in frames.
    pub(crate) fn delay(&self) -> usize {
        self.count / 2
    }

    /// The greatest magnitude between the sample at `index` and its neighbours. In f64, rounded at
    /// the end, summed from the newest sample on: identical to libebur128 to the last bit.
    #[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
    fn exact(&self, samples: &[f32], channels: usize, index: usize) -> f64 {
        let mut past = [0.0; ORDER / 2];
        for (tap, x) in past[..self.count].iter_mut().enumerate() {
            *x = f64::from(samples[index - tap * channels]);
        }
        let mut peak = 0.0;
        for phase in self.phases.chunks_exact(self.count) {
            let sum: f64 = phase.iter().zip(&past).map(|(tap, x)| tap * x).sum();
            peak = f64::from(sum as f32).abs().max(peak);
        }
        peak
    }
}

/// Raises `peaks` to the sample peaks.
pub(crate) fn sample_peaks(level: SimdLevel, samples: &[f32], channels: usize, peaks: &mut [f64]) {
    match level {
        SimdLevel::Scalar => raise(samples, channels, peaks),
        #[cfg(target_arch = "x86_64")]
        _ => {
            // SAFETY: `SimdLevel::available` found AVX2.
            unsafe { raise_avx2(samples, channels, peaks) }
        }
    }
}

/// Whether all samples are finite.
pub(crate) fn all_finite(level: SimdLevel, samples: &[f32]) -> bool {
    match level {
        SimdLevel::Scalar => finite(samples),
        #[cfg(target_arch = "x86_64")]
        _ => {
            // SAFETY: `SimdLevel::available` found AVX2.
            unsafe { finite_avx2(samples) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn finite_avx2(samples: &[f32]) -> bool {
    finite(samples)
}

#[inline(always)]
fn finite(samples: &[f32]) -> bool {
    const MAGNITUDE: u32 = 0x7fff_ffff;
    // As integers, magnitudes compare in the same order, and this vectorizes.
    let top = samples.iter().fold(0, |top: u32, x| top.max(x.to_bits() & MAGNITUDE));
    top < f32::INFINITY.to_bits()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn raise_avx2(samples: &[f32], channels: usize, peaks: &mut [f64]) {
    raise(samples, channels, peaks);
}

#[inline(always)]
fn raise(samples: &[f32], channels: usize, peaks: &mut [f64]) {
    let mut rest = samples;
    if 32usize.is_multiple_of(channels) {
        let mut tops = [0.0f32; 32];
        let (rows, behind) = samples.as_chunks::<32>();
        for row in rows {
            for (top, x) in tops.iter_mut().zip(row) {
                *top = greater(x.abs(), *top);
            }
        }
        raise_plainly(&tops, channels, peaks);
        rest = behind;
    }
    raise_plainly(rest, channels, peaks);
}

#[inline(always)]
fn raise_plainly(samples: &[f32], channels: usize, peaks: &mut [f64]) {
    for frame in samples.chunks(channels) {
        for (peak, x) in peaks.iter_mut().zip(frame) {
            *peak = f64::from(x.abs()).max(*peak);
        }
    }
}

/// Samples to be searched for the peaks between them.
pub(crate) struct PeakSearch<'a> {
    pub(crate) taps: &'a TruePeakTaps,
    /// Interleaved; they begin with [`TruePeakTaps::reach`] frames of the past.
    pub(crate) samples: &'a [f32],
    pub(crate) channels: usize,
    /// Known peaks; only greater ones are searched.
    pub(crate) floor: Option<&'a [f64]>,
}

/// The peaks found in a call.
pub(crate) struct FoundPeaks<'a> {
    /// Sample peaks. Raised, unless `settled`; peaks between samples are found if they exceed
    /// these.
    pub(crate) at: &'a mut [f64],
    pub(crate) settled: bool,
    /// Between samples.
    pub(crate) between: &'a mut [f64],
}

/// Working memory of a search, allocated once. In rows of [`PeakScratch::width`] lanes; lane i
/// holds a value of channel i modulo channels.
#[derive(Clone, Debug)]
pub(crate) struct PeakScratch {
    width: usize,
    /// The greatest samples of the past, and of each block.
    past: Box<[f32]>,
    block_peaks: Box<[f32]>,
    /// Samples below these limits cannot raise a peak.
    limits: Box<[f32]>,
    /// Sums in f32 below these thresholds do not raise a peak.
    thresholds: Box<[f32]>,
}

impl PeakScratch {
    /// For runs of up to `frames` frames.
    pub(crate) fn new(frames: usize, channels: usize) -> Self {
        // Whole frames and whole registers.
        let common =
            (1..=LANES).rev().find(|n| LANES.is_multiple_of(*n) && channels.is_multiple_of(*n));
        let width = channels * LANES / common.unwrap_or(1);
        let row = || vec![0.0; width].into();
        let block_peaks = vec![0.0; (frames.div_ceil(BLOCK) + 1) * width].into();
        Self { width, past: row(), block_peaks, limits: row(), thresholds: row() }
    }
}

/// Raises `found` to the peaks of the search.
pub(crate) fn search_peaks(
    level: SimdLevel,
    search: &PeakSearch<'_>,
    scratch: &mut PeakScratch,
    found: &mut FoundPeaks<'_>,
) {
    match level {
        SimdLevel::Scalar => search.run::<ScalarLanes>(scratch, found),
        // Wider registers exceed the remaining blocks, and were slower.
        #[cfg(target_arch = "x86_64")]
        _ => {
            // SAFETY: `SimdLevel::available` found AVX2 and FMA.
            unsafe { search_avx2(search, scratch, found) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn search_avx2(search: &PeakSearch<'_>, scratch: &mut PeakScratch, found: &mut FoundPeaks<'_>) {
    search.run::<core::arch::x86_64::__m256>(scratch, found);
}

impl PeakSearch<'_> {
    /// Searches candidates in f32, and computes the exact value of those that may raise a peak.
    #[inline(always)]
    fn run<V: F32Lanes>(&self, scratch: &mut PeakScratch, found: &mut FoundPeaks<'_>) {
        let reach = self.taps.reach() * self.channels;
        let block = BLOCK.max(self.taps.reach()) * self.channels;
        let (past, samples) = self.samples.split_at(reach);
        lane_peaks::<V>(past, &mut scratch.past);
        for (samples, row) in
            samples.chunks(block).zip(scratch.block_peaks.chunks_exact_mut(scratch.width))
        {
            lane_peaks::<V>(samples, row);
        }
        let blocks = samples.len().div_ceil(block);
        if !found.settled {
            let mut all = [0.0f32; 8 * MAX_CHANNELS];
            let all = &mut all[..scratch.width];
            lane_peaks::<V>(&scratch.block_peaks[..blocks * scratch.width], all);
            for (lane, top) in all.iter().enumerate() {
                let at = &mut found.at[lane % self.channels];
                *at = f64::from(*top).max(*at);
            }
        }
        self.update_thresholds(scratch, found);
        for index in 0..blocks {
            let end = (index + 1) * scratch.width;
            let now = &scratch.block_peaks[end - scratch.width..end];
            let before = if index == 0 {
                &scratch.past[..]
            } else {
                &scratch.block_peaks[end - 2 * scratch.width..]
            };
            if exceeds::<V>(before, &scratch.limits) || exceeds::<V>(now, &scratch.limits) {
                let start = reach + index * block;
                let end = (start + block).min(self.samples.len());
                match self.taps.count {
                    12 => self.block::<V, 12>(start, end, scratch, found),
                    _ => self.block::<V, 24>(start, end, scratch, found),
                }
            }
        }
    }

    /// Updates the thresholds. No sample of the run exceeds those in `found`, but one of the past
    /// may.
    #[allow(clippy::cast_possible_truncation, reason = "the slack is wider")]
    #[inline(never)]
    fn update_thresholds(&self, scratch: &mut PeakScratch, found: &FoundPeaks<'_>) {
        for lane in 0..scratch.width {
            let channel = lane % self.channels;
            let floor = self.floor.map_or(0.0, |floor| floor[channel]);
            let value = floor.max(found.at[channel]).max(found.between[channel]) as f32;
            scratch.limits[lane] = value / self.taps.gain;
            scratch.thresholds[lane] = value - greater(value, scratch.past[lane]) * SLACK;
        }
        // A lane's past applies to the other lanes of its channel too.
        for lane in self.channels..scratch.width {
            let first = lane % self.channels;
            scratch.thresholds[first] = scratch.thresholds[first].min(scratch.thresholds[lane]);
        }
        for lane in self.channels..scratch.width {
            scratch.thresholds[lane] = scratch.thresholds[lane % self.channels];
        }
    }

    #[inline(always)]
    fn block<V: F32Lanes, const TAPS: usize>(
        &self,
        start: usize,
        end: usize,
        scratch: &mut PeakScratch,
        found: &mut FoundPeaks<'_>,
    ) {
        let mut index = start;
        // Two registers share the taps if one row is one register.
        while scratch.width == V::LANES && index + 2 * V::LANES <= end {
            let threshold = V::read(&scratch.thresholds);
            let candidates = self.find_candidates::<V, TAPS, 2>(index, [threshold; 2]);
            if candidates != 0 {
                self.evaluate_candidates::<V>(index, candidates, scratch, found);
            }
            index += 2 * V::LANES;
        }
        let last = self.samples.len().saturating_sub(V::LANES);
        let mut lane = 0;
        while index < end {
            // The last register of the run covers some samples again, but never the past.
            if index > last {
                self.evaluate_exactly(index, end, found.between);
                return;
            }
            let threshold = V::read(&scratch.thresholds[lane..]);
            let candidates = self.find_candidates::<V, TAPS, 1>(index, [threshold]);
            if candidates != 0 {
                self.evaluate_candidates::<V>(index, candidates, scratch, found);
            }
            index += V::LANES;
            lane = if lane + V::LANES == scratch.width { 0 } else { lane + V::LANES };
        }
    }

    /// Computes the exact values of the lanes whose bits are set.
    #[cold]
    fn evaluate_candidates<V: F32Lanes>(
        &self,
        at: usize,
        candidates: u32,
        scratch: &mut PeakScratch,
        found: &mut FoundPeaks<'_>,
    ) {
        for lane in (0..2 * V::LANES).filter(|lane| candidates >> lane & 1 == 1) {
            self.evaluate_exactly(at + lane, at + lane + 1, found.between);
        }
        self.update_thresholds(scratch, found);
    }

    /// Computes the exact values of some samples.
    fn evaluate_exactly(&self, start: usize, end: usize, peaks: &mut [f64]) {
        for index in start..end {
            let peak = self.taps.exact(self.samples, self.channels, index);
            let slot = &mut peaks[index % self.channels];
            *slot = slot.max(peak);
        }
    }

    /// The lanes of `N` registers from the sample `at` on that may exceed their thresholds.
    #[inline(always)]
    fn find_candidates<V: F32Lanes, const TAPS: usize, const N: usize>(
        &self,
        at: usize,
        thresholds: [V; N],
    ) -> u32 {
        let end = at + N * V::LANES;
        assert!(at >= (TAPS - 1) * self.channels && end <= self.samples.len(), "inside");
        let (taps, _) = self.taps.narrow[..3 * TAPS / 2].as_chunks::<3>();
        let zero = V::splat(0.0);
        let (mut middle, mut even, mut odd) = ([zero; N], [zero; N], [zero; N]);
        for (tap, taps) in taps.iter().enumerate() {
            let [two, sum, difference] = taps.map(V::splat);
            let back = [tap * self.channels, (TAPS - 1 - tap) * self.channels];
            let [late, early] = back.map(|back| self.samples.as_ptr().wrapping_add(at - back));
            for register in 0..N {
                let offset = register * V::LANES;
                // SAFETY: the assertion covers all taps.
                let late = unsafe { V::load(late.wrapping_add(offset)) };
                // SAFETY: the assertion covers all taps.
                let early = unsafe { V::load(early.wrapping_add(offset)) };
                let both = late.plus(early);
                if TAPS == 12 {
                    middle[register] = both.times_plus(two, middle[register]);
                }
                even[register] = both.times_plus(sum, even[register]);
                odd[register] = late.minus(early).times_plus(difference, odd[register]);
            }
        }
        let mut candidates = 0;
        for register in 0..N {
            // The first phase is even + odd, the last even - odd: this is the greater of the two.
            let mut greatest = even[register].magnitude();
            if TAPS == 12 {
                greatest = greatest.plus(odd[register].magnitude());
                greatest = greatest.greater(middle[register].magnitude());
            }
            candidates |= greatest.exceeds(thresholds[register]) << (register * V::LANES);
        }
        candidates
    }
}

/// The greatest magnitudes of samples, in a row that begins with a frame.
#[inline(always)]
fn lane_peaks<V: F32Lanes>(samples: &[f32], row: &mut [f32]) {
    let rest = if row.len() == V::LANES {
        let mut top = V::splat(0.0);
        let mut registers = samples.chunks_exact(V::LANES);
        for register in &mut registers {
            top = V::read(register).magnitude().greater(top);
        }
        top.write(row);
        registers.remainder()
    } else {
        row.fill(0.0);
        let mut rows = samples.chunks_exact(row.len());
        for samples in &mut rows {
            raise_row::<V>(samples, row);
        }
        rows.remainder()
    };
    for (top, x) in row.iter_mut().zip(rest) {
        *top = greater(x.abs(), *top);
    }
}

/// Raises the lanes of one row to the magnitudes of another.
#[inline(always)]
fn raise_row<V: F32Lanes>(from: &[f32], row: &mut [f32]) {
    for (from, row) in from.chunks_exact(V::LANES).zip(row.chunks_exact_mut(V::LANES)) {
        V::read(from).magnitude().greater(V::read(row)).write(row);
    }
}

/// Whether any lane of a row exceeds its limit.
///
/// A loop instead of a fold: a fold may not be inlined and would be compiled without the registers,
/// and then each operation is a call.
#[inline(always)]
fn exceeds<V: F32Lanes>(row: &[f32], limits: &[f32]) -> bool {
    let mut any = 0;
    for (row, limits) in row.chunks_exact(V::LANES).zip(limits.chunks_exact(V::LANES)) {
        any |= V::read(row).exceeds(V::read(limits));
    }
    any != 0
}

/// Eight singles without a vector register.
#[derive(Clone, Copy)]
struct ScalarLanes([f32; LANES]);

impl ScalarLanes {
    fn zip_map(self, other: Self, mut each: impl FnMut(f32, f32) -> f32) -> Self {
        Self(core::array::from_fn(|lane| each(self.0[lane], other.0[lane])))
    }
}

impl F32Lanes for ScalarLanes {
    const LANES: usize = LANES;
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }
    fn read(from: &[f32]) -> Self {
        Self(core::array::from_fn(|lane| from[lane]))
    }
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller vouches for all lanes.
        Self(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
    }
    fn write(self, to: &mut [f32]) {
        to[..LANES].copy_from_slice(&self.0);
    }
    fn plus(self, other: Self) -> Self {
        self.zip_map(other, |a, b| a + b)
    }
    fn minus(self, other: Self) -> Self {
        self.zip_map(other, |a, b| a - b)
    }
    fn times_plus(self, factor: Self, addend: Self) -> Self {
        self.zip_map(factor, |a, b| a * b).plus(addend)
    }
    fn magnitude(self) -> Self {
        Self(self.0.map(f32::abs))
    }
    fn greater(self, other: Self) -> Self {
        self.zip_map(other, greater)
    }
    fn exceeds(self, other: Self) -> u32 {
        (0..LANES).fold(0, |bits, lane| bits | u32::from(self.0[lane] > other.0[lane]) << lane)
    }
}

/// The greater of two; a NaN as `a` is ignored.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Lanes of the registers of the search.
const LANES: usize = 8;
/// The interpolator has one tap more than this; the outermost are zero.
const ORDER: usize = 48;
/// Frames that are checked together: short enough to skip quiet passages between loud ones.
const BLOCK: usize = 16;
/// The maximum error of sums of 24 products in f32, relative to the greatest sample, and a few
/// roundings.
const SLACK: f32 = 5e-6;
/// The maximum error of a few roundings in f32.
const ROUNDING: f32 = 1e-6;

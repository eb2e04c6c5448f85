//! The search for peaks, of samples and between them.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use aulos_core::MAX_CHANNELS;

use super::Level;
use super::lanes::Singles;

/// The interpolator's taps, the newest sample first. The phase that is the sample is left out.
#[derive(Clone, Debug)]
pub(crate) struct Taps {
    /// Taps per phase.
    count: usize,
    phases: Vec<f64>,
    /// For each pair of mirrored taps: of the middle phase, and the even and odd part of the first.
    narrow: Vec<f32>,
    /// No output exceeds the greatest input by more than this factor.
    gain: f32,
}

impl Taps {
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

    /// Frames that must lie before a run.
    pub(crate) fn reach(&self) -> usize {
        self.count.next_multiple_of(12)
    }

    /// Frames by which the phase that is the sample itself comes late.
    pub(crate) fn delay(&self) -> usize {
        self.count / 2
    }

    /// The greatest magnitude between the sample at `index` and its neighbours. In f64, rounded at
    /// the end, summed from the newest sample on: to the last bit what libebur128 computes.
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
pub(crate) fn sample_peaks(level: Level, samples: &[f32], channels: usize, peaks: &mut [f64]) {
    match level {
        Level::Scalar => raise(samples, channels, peaks),
        #[cfg(target_arch = "x86_64")]
        _ => {
            // SAFETY: `Level::available` found AVX2.
            unsafe { raise_avx2(samples, channels, peaks) }
        }
    }
}

/// Whether all samples are finite.
pub(crate) fn all_finite(level: Level, samples: &[f32]) -> bool {
    match level {
        Level::Scalar => finite(samples),
        #[cfg(target_arch = "x86_64")]
        _ => {
            // SAFETY: `Level::available` found AVX2.
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
    // As integers, magnitudes compare in the same order, and this vectorises.
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

/// Raises `peaks` to the greatest magnitudes between samples, but only as far as they exceed what
/// is `heard` of the samples of this call, and the `floor`.
///
/// `samples` are interleaved and begin with [`Taps::reach`] frames of the past.
pub(crate) fn search_peaks(
    level: Level,
    taps: &Taps,
    samples: &[f32],
    channels: usize,
    heard: &[f64],
    floor: Option<&[f64]>,
    peaks: &mut [f64],
) {
    let search = Search { taps, samples, channels, heard, floor };
    match level {
        Level::Scalar => search.plainly(peaks),
        // Wider registers reach beyond the blocks that are left over, and were slower.
        #[cfg(target_arch = "x86_64")]
        _ => {
            // SAFETY: `Level::available` found AVX2 and FMA.
            unsafe { search_avx2(&search, peaks) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn search_avx2(search: &Search<'_>, peaks: &mut [f64]) {
    search.in_lanes::<core::arch::x86_64::__m256>(peaks);
}

struct Search<'a> {
    taps: &'a Taps,
    samples: &'a [f32],
    channels: usize,
    heard: &'a [f64],
    floor: Option<&'a [f64]>,
}

/// The greatest magnitude of each channel.
type Tops = [f32; MAX_CHANNELS];

/// What a value must exceed to be news, rounded towards more work.
struct Known {
    /// By channel: samples that stay below cannot make news.
    limits: Tops,
    /// By sample, from any channel on: sums in f32 that stay below are no news.
    thresholds: [f32; MAX_CHANNELS + 16],
}

impl Search<'_> {
    fn plainly(&self, peaks: &mut [f64]) {
        let mut known = Known { limits: [0.0; MAX_CHANNELS], thresholds: [0.0; MAX_CHANNELS + 16] };
        self.learn(&mut known, peaks, &[0.0; MAX_CHANNELS]);
        self.blocks(peaks, &mut known, |start, end, _, peaks| self.tail(start, end, peaks));
    }

    /// Looks for candidates in f32, and asks for the exact value where one may be news.
    #[inline(always)]
    fn in_lanes<V: Singles>(&self, peaks: &mut [f64]) {
        let mut known = Known { limits: [0.0; MAX_CHANNELS], thresholds: [0.0; MAX_CHANNELS + 16] };
        let mut past = [0.0; MAX_CHANNELS];
        self.tops(&self.samples[..self.taps.reach() * self.channels], &mut past);
        self.learn(&mut known, peaks, &past);
        self.blocks(peaks, &mut known, |start, end, known, peaks| {
            if self.taps.count == 12 {
                self.block::<V, 12>(start, end, &past, known, peaks);
            } else {
                self.block::<V, 24>(start, end, &past, known, peaks);
            }
        });
    }

    /// Looks up what is known. No sample of the run exceeds `heard`, but one of the `past` may.
    #[allow(clippy::cast_possible_truncation, reason = "the slack is wider")]
    fn learn(&self, known: &mut Known, peaks: &[f64], past: &Tops) {
        for channel in 0..self.channels {
            let floor = self.floor.map_or(0.0, |floor| floor[channel]);
            let value = floor.max(self.heard[channel]).max(peaks[channel]) as f32;
            known.limits[channel] = value / self.taps.gain;
            known.thresholds[channel] = value - greater(value, past[channel]) * SLACK;
        }
        for lane in self.channels..self.channels + 16 {
            known.thresholds[lane] = known.thresholds[lane - self.channels];
        }
    }

    /// Visits the blocks which may hold news, as ranges of samples.
    #[inline(always)]
    fn blocks(
        &self,
        peaks: &mut [f64],
        known: &mut Known,
        mut visit: impl FnMut(usize, usize, &mut Known, &mut [f64]),
    ) {
        let past = self.taps.reach() * self.channels;
        let block = BLOCK.max(self.taps.reach()) * self.channels;
        let mut tops = [[0.0; MAX_CHANNELS]; 2];
        let [before, now] = &mut tops;
        let (mut before, mut now) = (before, now);
        self.tops(&self.samples[..past], before);
        let mut start = past;
        while start < self.samples.len() {
            let end = (start + block).min(self.samples.len());
            self.tops(&self.samples[start..end], now);
            let mut news = false;
            for channel in 0..self.channels {
                news |= greater(before[channel], now[channel]) > known.limits[channel];
            }
            if news {
                visit(start, end, known, peaks);
            }
            core::mem::swap(&mut before, &mut now);
            start = end;
        }
    }

    #[inline(always)]
    fn tops(&self, samples: &[f32], tops: &mut Tops) {
        tops[..self.channels].fill(0.0);
        let mut rest = samples;
        if self.channels == 2 {
            let (rows, behind) = samples.as_chunks::<16>();
            let mut wide = [0.0f32; 16];
            for row in rows {
                for (top, x) in wide.iter_mut().zip(row) {
                    *top = greater(x.abs(), *top);
                }
            }
            for half in [8, 4, 2] {
                for lane in 0..half {
                    wide[lane] = greater(wide[lane], wide[lane + half]);
                }
            }
            (tops[0], tops[1]) = (wide[0], wide[1]);
            rest = behind;
        }
        for frame in rest.chunks_exact(self.channels) {
            for (top, x) in tops.iter_mut().zip(frame) {
                *top = greater(x.abs(), *top);
            }
        }
    }

    #[inline(always)]
    fn block<V: Singles, const TAPS: usize>(
        &self,
        start: usize,
        end: usize,
        tops: &Tops,
        known: &mut Known,
        peaks: &mut [f64],
    ) {
        let channels = self.channels;
        let past = self.taps.reach() * channels;
        let last = self.samples.len().saturating_sub(V::LANES);
        let mut index = start;
        while index < end {
            // The last register of the run looks at some samples again, but never at the past.
            let at = index.min(last);
            if at < past {
                self.tail(index, end, peaks);
                return;
            }
            let found = self.register::<V, TAPS>(at, &known.thresholds[at % channels..]);
            if found != 0 {
                for lane in (0..V::LANES).filter(|lane| found >> lane & 1 == 1) {
                    self.tail(at + lane, at + lane + 1, peaks);
                }
                self.learn(known, peaks, tops);
            }
            index += V::LANES;
        }
    }

    /// Takes the exact values of some samples.
    fn tail(&self, start: usize, end: usize, peaks: &mut [f64]) {
        for index in start..end {
            let peak = self.taps.exact(self.samples, self.channels, index);
            let slot = &mut peaks[index % self.channels];
            *slot = slot.max(peak);
        }
    }

    /// Which lanes from the sample `at` on may exceed their thresholds.
    #[inline(always)]
    fn register<V: Singles, const TAPS: usize>(&self, at: usize, thresholds: &[f32]) -> u32 {
        assert!(at >= (TAPS - 1) * self.channels && at + V::LANES <= self.samples.len(), "inside");
        let (taps, _) = self.taps.narrow[..3 * TAPS / 2].as_chunks::<3>();
        let (mut middle, mut even, mut odd) = (V::splat(0.0), V::splat(0.0), V::splat(0.0));
        for (tap, [two, sum, difference]) in taps.iter().enumerate() {
            let back = [tap * self.channels, (TAPS - 1 - tap) * self.channels];
            // SAFETY: the assertion covers all taps.
            let late = unsafe { V::load(self.samples.as_ptr().wrapping_add(at - back[0])) };
            // SAFETY: the assertion covers all taps.
            let early = unsafe { V::load(self.samples.as_ptr().wrapping_add(at - back[1])) };
            let both = late.plus(early);
            if TAPS == 12 {
                middle = both.times_plus(V::splat(*two), middle);
            }
            even = both.times_plus(V::splat(*sum), even);
            odd = late.minus(early).times_plus(V::splat(*difference), odd);
        }
        // The first phase is even + odd, the last even - odd: this is the greater of the two.
        let greatest = if TAPS == 12 {
            even.magnitude().plus(odd.magnitude()).greater(middle.magnitude())
        } else {
            even.magnitude()
        };
        greatest.exceeds(V::read(thresholds))
    }
}

/// The greater of two; NaN in the first place is passed over.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The interpolator has one tap more than this; the outermost are zero.
const ORDER: usize = 48;
/// Frames that are judged together: short enough that quiet between loud is passed over.
const BLOCK: usize = 16;
/// The most by which sums of 24 products in f32 are off, as a part of the greatest sample, and a
/// few roundings.
const SLACK: f32 = 5e-6;
/// The most by which a few roundings in f32 are off.
const ROUNDING: f32 = 1e-6;

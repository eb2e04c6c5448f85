//! The search for peaks, of samples and between them.

#![allow(unsafe_code, reason = "a kernel is entered where its registers were detected")]

use super::Level;
use super::lanes::Singles;

/// The interpolator's taps, the newest sample first. The phase that is the sample is left out.
#[derive(Clone, Debug)]
pub(crate) struct Taps {
    /// Taps per phase.
    count: usize,
    phases: Vec<f64>,
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
        let narrow = phases.iter().map(|&tap| tap as f32).collect();
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
        let mut peak = 0.0;
        for phase in self.phases.chunks(self.count) {
            let past = samples[..=index].iter().rev().step_by(channels);
            let sum: f64 = phase.iter().zip(past).map(|(tap, &x)| tap * f64::from(x)).sum();
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
                *top = if x.abs() > *top { x.abs() } else { *top };
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
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            // SAFETY: `Level::available` found AVX2 and FMA.
            unsafe { search_avx2(&search, peaks) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            // SAFETY: `Level::available` found AVX-512.
            unsafe { search_avx512(&search, peaks) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn search_avx2(search: &Search<'_>, peaks: &mut [f64]) {
    search.in_lanes::<core::arch::x86_64::__m256>(peaks);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn search_avx512(search: &Search<'_>, peaks: &mut [f64]) {
    search.in_lanes::<core::arch::x86_64::__m512>(peaks);
}

struct Search<'a> {
    taps: &'a Taps,
    samples: &'a [f32],
    channels: usize,
    heard: &'a [f64],
    floor: Option<&'a [f64]>,
}

/// The greatest magnitude of each channel, in a run of the past and in the block now; as many
/// entries as there may be channels.
type Tops = [f32; aulos_core::MAX_CHANNELS];

impl Search<'_> {
    /// What a channel's peak must exceed to be news.
    fn known(&self, channel: usize, peaks: &[f64]) -> f64 {
        let floor = self.floor.map_or(0.0, |floor| floor[channel]);
        floor.max(self.heard[channel]).max(peaks[channel])
    }

    /// The blocks which may hold news, as ranges of samples, with the bounds of their channels.
    #[inline(always)]
    fn blocks(&self, peaks: &mut [f64], mut visit: impl FnMut(usize, usize, &Tops, &mut [f64])) {
        let past = self.taps.reach() * self.channels;
        let block = BLOCK.max(self.taps.reach()) * self.channels;
        let mut before = self.tops(&self.samples[..past]);
        let mut start = past;
        while start < self.samples.len() {
            let end = (start + block).min(self.samples.len());
            let now = self.tops(&self.samples[start..end]);
            let mut news = false;
            let mut bounds = [0.0; aulos_core::MAX_CHANNELS];
            for channel in 0..self.channels {
                let top =
                    if before[channel] > now[channel] { before[channel] } else { now[channel] };
                bounds[channel] = top;
                news |= f64::from(top * self.taps.gain) > self.known(channel, peaks);
            }
            if news {
                visit(start, end, &bounds, peaks);
            }
            before = now;
            start = end;
        }
    }

    #[inline(always)]
    fn tops(&self, samples: &[f32]) -> Tops {
        let mut tops = [0.0; aulos_core::MAX_CHANNELS];
        if self.channels == 2 {
            let (rows, rest) = samples.as_chunks::<16>();
            let mut wide = [0.0f32; 16];
            for row in rows {
                for (top, x) in wide.iter_mut().zip(row) {
                    *top = if x.abs() > *top { x.abs() } else { *top };
                }
            }
            for pair in wide.as_chunks::<2>().0.iter().chain(rest.as_chunks::<2>().0) {
                tops[0] = pair[0].abs().max(tops[0]);
                tops[1] = pair[1].abs().max(tops[1]);
            }
            return tops;
        }
        for frame in samples.chunks_exact(self.channels) {
            for (top, x) in tops.iter_mut().zip(frame) {
                *top = x.abs().max(*top);
            }
        }
        tops
    }

    fn plainly(&self, peaks: &mut [f64]) {
        self.blocks(peaks, |start, end, _, peaks| {
            for index in start..end {
                let peak = self.taps.exact(self.samples, self.channels, index);
                let slot = &mut peaks[index % self.channels];
                *slot = slot.max(peak);
            }
        });
    }

    /// Looks for candidates in f32, and asks for the exact value where one may be news.
    #[inline(always)]
    fn in_lanes<V: Singles>(&self, peaks: &mut [f64]) {
        self.blocks(peaks, |start, end, bounds, peaks| {
            if self.taps.count == 12 {
                self.block::<V, 12>(start, end, bounds, peaks);
            } else {
                self.block::<V, 24>(start, end, bounds, peaks);
            }
        });
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "rounded down by the slack")]
    fn block<V: Singles, const TAPS: usize>(
        &self,
        start: usize,
        end: usize,
        bounds: &Tops,
        peaks: &mut [f64],
    ) {
        let channels = self.channels;
        // From any channel on, one register of thresholds.
        let mut thresholds = [f32::INFINITY; aulos_core::MAX_CHANNELS + 16];
        let fill = |thresholds: &mut [f32], peaks: &[f64]| {
            for (lane, threshold) in thresholds[..channels + 16].iter_mut().enumerate() {
                let channel = lane % channels;
                let known = self.known(channel, peaks) as f32;
                *threshold = known - bounds[channel] * SLACK - known * ROUNDING;
            }
        };
        fill(&mut thresholds, peaks);
        let past = self.taps.reach() * channels;
        let mut index = start;
        while index < end {
            // The last register of the run looks at some samples again, but never at the past.
            let last = self.samples.len().saturating_sub(V::LANES);
            let at = index.min(last);
            if at < past {
                self.tail(index, end, peaks);
                return;
            }
            let found = self.register::<V, TAPS>(at, &thresholds[at % channels..]);
            if found != 0 {
                for lane in (0..V::LANES).filter(|lane| found >> lane & 1 == 1) {
                    let peak = self.taps.exact(self.samples, channels, at + lane);
                    let slot = &mut peaks[(at + lane) % channels];
                    *slot = slot.max(peak);
                }
                fill(&mut thresholds, peaks);
            }
            index += V::LANES;
        }
    }

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
        let past = |tap: usize| V::read(&self.samples[at - tap * self.channels..]);
        let newest = past(0);
        let mut greatest = V::splat(0.0);
        if TAPS == 12 {
            let taps: &[f32] = &self.taps.narrow[..36];
            let mut sums = [0, 12, 24].map(|phase| newest.times(V::splat(taps[phase])));
            for tap in 1..12 {
                let x = past(tap);
                for (phase, sum) in sums.iter_mut().enumerate() {
                    *sum = x.times_plus(V::splat(taps[12 * phase + tap]), *sum);
                }
            }
            for sum in sums {
                greatest = sum.magnitude().greater(greatest);
            }
        } else {
            let taps: &[f32] = &self.taps.narrow[..24];
            let mut sums = [newest.times(V::splat(taps[0])), V::splat(0.0)];
            for tap in 1..24 {
                sums[tap % 2] = past(tap).times_plus(V::splat(taps[tap]), sums[tap % 2]);
            }
            greatest = sums[1].times_plus(V::splat(1.0), sums[0]).magnitude();
        }
        greatest.exceeds(V::read(thresholds))
    }
}

/// The interpolator has one tap more than this; the outermost are zero.
const ORDER: usize = 48;
/// Frames that are judged together: short enough that quiet between loud is passed over.
const BLOCK: usize = 16;
/// The most by which sums of 24 products in f32 are off, as a part of the greatest sample.
const SLACK: f32 = 4e-6;
/// The most by which a few roundings in f32 are off.
const ROUNDING: f32 = 1e-6;

//! Sample peak and true peak of each channel.
//!
//! BS.1770-4 annex 2 recommends four times oversampling at 48 kHz. The interpolator is a sinc of 49
//! taps under a Hann window: as in libebur128, 4 times below 96 kHz, 2 times below 192 kHz, none
//! above. Its zeroes make one phase the sample itself, so that 36 products per sample are left, and
//! most of these are never computed: a run whose samples cannot reach the maximum is skipped. That
//! is exact; a resampler in front of the meter, as in FFmpeg, cannot skip anything.

use super::sample::SampleView;
use crate::simd::{self, SimdLevel};

/// Peaks as linear amplitudes, full scale being 1.0.
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    channels: usize,
    level: SimdLevel,
    /// Whether the peaks of the last call alone are exact as well.
    per_call: bool,
    true_peak: Option<Interpolator>,
    sample: Vec<f64>,
    inter: Vec<f64>,
    call_sample: Vec<f64>,
    call_inter: Vec<f64>,
}

impl Peaks {
    pub(super) fn new(
        (hz, channels): (u32, usize),
        true_peak: bool,
        per_call: bool,
        longest_run: usize,
        level: SimdLevel,
    ) -> Self {
        let zero = vec![0.0; channels];
        Self {
            channels,
            level,
            per_call,
            true_peak: true_peak.then(|| Interpolator::new(hz, channels, longest_run)).flatten(),
            sample: zero.clone(),
            inter: zero.clone(),
            call_sample: zero.clone(),
            call_inter: zero,
        }
    }

    /// Continues with another filter, keeping the peaks.
    pub(super) fn carry_over(&mut self, older: &Self) {
        for (new, old) in [(&mut self.sample, &older.sample), (&mut self.inter, &older.inter)] {
            new.clone_from(old);
        }
        self.call_sample.clone_from(&older.call_sample);
        self.call_inter.clone_from(&older.call_inter);
    }

    pub(super) fn begin_call(&mut self, frames: usize) {
        self.call_sample.fill(0.0);
        self.call_inter.fill(0.0);
        if let Some(interpolator) = &self.true_peak {
            // The phase that is the sample itself is delayed: the end of the last call comes out of
            // the interpolator in this call.
            interpolator.delayed(frames.min(interpolator.taps.delay()), &mut self.call_inter);
        }
    }

    /// Fills the interpolator's history.
    pub(super) fn seed(&mut self, view: SampleView<'_>) {
        if let Some(interpolator) = &mut self.true_peak {
            interpolator.keep(view);
        }
    }

    pub(super) fn process(&mut self, view: SampleView<'_>) {
        let floor = if self.per_call { None } else { Some(&self.inter[..]) };
        let (at, between) = (&mut self.call_sample[..], &mut self.call_inter[..]);
        match (&mut self.true_peak, view) {
            (Some(interpolator), SampleView::Narrow(samples)) => {
                interpolator.process(self.level, samples, floor, at, between);
            }
            (None, SampleView::Narrow(samples)) => {
                simd::sample_peaks(self.level, samples, self.channels, at);
            }
            (interpolator, SampleView::Wide(samples)) => {
                for frame in samples.chunks_exact(self.channels) {
                    for (peak, x) in at.iter_mut().zip(frame) {
                        *peak = x.abs().max(*peak);
                    }
                }
                if let Some(interpolator) = interpolator {
                    interpolator.process_wide(self.level, samples, floor, at, between);
                }
            }
        }
    }

    pub(super) fn end_call(&mut self) {
        for (peak, call) in self.sample.iter_mut().zip(&self.call_sample) {
            *peak = peak.max(*call);
        }
        let calls = self.call_inter.iter().zip(&self.call_sample);
        for (peak, (between, at)) in self.inter.iter_mut().zip(calls) {
            *peak = peak.max(*between).max(*at);
        }
    }

    pub(super) fn reset(&mut self) {
        for peaks in
            [&mut self.sample, &mut self.inter, &mut self.call_sample, &mut self.call_inter]
        {
            peaks.fill(0.0);
        }
        self.clear_history();
    }

    /// Clears the interpolator; peaks stay.
    pub(super) fn clear_history(&mut self) {
        if let Some(interpolator) = &mut self.true_peak {
            interpolator.samples.fill(0.0);
        }
    }

    pub(super) fn sample_peak(&self, channel: usize) -> f64 {
        self.sample[channel]
    }

    pub(super) fn true_peak(&self, channel: usize) -> f64 {
        self.inter[channel]
    }

    pub(super) fn last_sample_peak(&self, channel: usize) -> f64 {
        self.call_sample[channel]
    }

    pub(super) fn last_true_peak(&self, channel: usize) -> f64 {
        self.call_inter[channel].max(self.call_sample[channel])
    }
}

/// The taps of the phases between two samples, and the past samples that they need.
#[derive(Clone, Debug)]
struct Interpolator {
    channels: usize,
    taps: simd::TruePeakTaps,
    /// Interleaved: the frames before, then the run or its beginning.
    samples: Vec<f32>,
    scratch: simd::PeakScratch,
}

impl Interpolator {
    fn new(hz: u32, channels: usize, longest_run: usize) -> Option<Self> {
        let factor = match hz {
            ..96_000 => 4,
            96_000..192_000 => 2,
            _ => return None,
        };
        let taps = simd::TruePeakTaps::new(factor);
        let samples = vec![0.0; (taps.reach() + longest_run) * channels];
        let scratch = simd::PeakScratch::new(longest_run, channels);
        Some(Self { channels, taps, samples, scratch })
    }

    /// Raises peaks to those of a run, and stores its end. Of a long run only the beginning is
    /// copied behind the past; the rest is searched in place.
    fn process(
        &mut self,
        level: SimdLevel,
        run: &[f32],
        floor: Option<&[f64]>,
        at: &mut [f64],
        between: &mut [f64],
    ) {
        let reach = self.taps.reach() * self.channels;
        let head = if run.len() > LONG * self.channels { HEAD * self.channels } else { run.len() };
        self.samples[reach..reach + head].copy_from_slice(&run[..head]);
        let Self { taps, channels, scratch, .. } = self;
        let mut found = simd::FoundPeaks { at, settled: false, between };
        let parts = [&self.samples[..reach + head], &run[head.saturating_sub(reach)..]];
        for samples in parts.into_iter().take(1 + usize::from(head < run.len())) {
            let search = simd::PeakSearch { taps, samples, channels: *channels, floor };
            simd::search_peaks(level, &search, scratch, &mut found);
        }
        self.keep(SampleView::Narrow(run));
    }

    /// The same for f64 rounded to f32; the sample peaks are known already.
    fn process_wide(
        &mut self,
        level: SimdLevel,
        run: &[f64],
        floor: Option<&[f64]>,
        at: &mut [f64],
        between: &mut [f64],
    ) {
        let reach = self.taps.reach() * self.channels;
        narrow(run, &mut self.samples[reach..]);
        // A rounded sample may be greater than the original.
        self.delayed(run.len() / self.channels, between);
        let Self { taps, channels, scratch, samples } = self;
        let samples = &samples[..reach + run.len()];
        let mut found = simd::FoundPeaks { at, settled: true, between };
        let search = simd::PeakSearch { taps, samples, channels: *channels, floor };
        simd::search_peaks(level, &search, scratch, &mut found);
        self.keep(SampleView::Wide(run));
    }

    /// Stores the end of a run as the past of the next.
    fn keep(&mut self, view: SampleView<'_>) {
        let reach = self.taps.reach() * self.channels;
        let past = &mut self.samples[..reach];
        let len = match view {
            SampleView::Narrow(run) => run.len(),
            SampleView::Wide(run) => run.len(),
        };
        let new = len.min(reach);
        past.copy_within(new.., 0);
        match view {
            SampleView::Narrow(run) => past[reach - new..].copy_from_slice(&run[len - new..]),
            SampleView::Wide(run) => narrow(&run[len - new..], &mut past[reach - new..]),
        }
    }

    /// The peaks of the samples in the phase that is the sample itself, over `frames` frames.
    fn delayed(&self, frames: usize, peaks: &mut [f64]) {
        let start = self.taps.reach() - self.taps.delay();
        let end = start + frames;
        let late = &self.samples[start * self.channels..end * self.channels];
        for frame in late.chunks_exact(self.channels) {
            for (peak, x) in peaks.iter_mut().zip(frame) {
                *peak = f64::from(x.abs()).max(*peak);
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "rounding to f32 is meant")]
fn narrow(wide: &[f64], out: &mut [f32]) {
    for (slot, &sample) in out.iter_mut().zip(wide) {
        *slot = sample as f32;
    }
}

/// Frames of a run that is not copied, and the part of it that is, in whole blocks of the search.
const LONG: usize = 256;
const HEAD: usize = 48;

//! Sample peak and true peak of each channel.
//!
//! BS.1770-4 annex 2 asks for four times oversampling at 48 kHz. The interpolator is a sinc of 49
//! taps under a Hann window: as in libebur128, 4 times below 96 kHz, 2 times below 192 kHz, none
//! above. Its zeroes make one phase the sample itself, so that 36 products a sample are left, and
//! most of these are never computed: a run whose samples cannot reach the maximum is passed over.
//! That is exact; a resampler in front of the meter, as FFmpeg has it, can not do it.

use super::sample::View;
use crate::simd::{self, Level};

/// Peaks as linear amplitudes, full scale being 1.0.
#[derive(Clone, Debug)]
pub(super) struct Peaks {
    channels: usize,
    level: Level,
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
        hz: u32,
        channels: usize,
        true_peak: bool,
        per_call: bool,
        level: Level,
    ) -> Self {
        let zero = vec![0.0; channels];
        Self {
            channels,
            level,
            per_call,
            true_peak: true_peak.then(|| Interpolator::new(hz, channels)).flatten(),
            sample: zero.clone(),
            inter: zero.clone(),
            call_sample: zero.clone(),
            call_inter: zero,
        }
    }

    /// Continues with another filter, keeping the peaks.
    pub(super) fn inherit(&mut self, older: &Self) {
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
            // The phase that is the sample itself comes late: what was heard at the end of the
            // last call comes out of the interpolator in this one.
            interpolator.delayed(frames.min(interpolator.taps.delay()), &mut self.call_inter);
        }
    }

    /// Warms the interpolator up.
    pub(super) fn seed(&mut self, view: View<'_>) {
        if let Some(interpolator) = &mut self.true_peak {
            let frames = interpolator.load(view);
            interpolator.advance(frames);
        }
    }

    pub(super) fn hear(&mut self, view: View<'_>) {
        let channels = self.channels;
        match view {
            View::Narrow(samples) => {
                simd::sample_peaks(self.level, samples, channels, &mut self.call_sample);
            }
            View::Wide(samples) => {
                for frame in samples.chunks_exact(channels) {
                    for (peak, x) in self.call_sample.iter_mut().zip(frame) {
                        *peak = x.abs().max(*peak);
                    }
                }
            }
        }
        if let Some(interpolator) = &mut self.true_peak {
            let frames = interpolator.load(view);
            if matches!(view, View::Wide(_)) {
                // Rounded to f32, a sample may be greater than it was.
                interpolator.delayed(frames, &mut self.call_inter);
            }
            let floor = if self.per_call { None } else { Some(&self.inter[..]) };
            interpolator.search(self.level, frames, &self.call_sample, floor, &mut self.call_inter);
            interpolator.advance(frames);
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
        self.forget();
    }

    /// Empties the interpolator; peaks stay.
    pub(super) fn forget(&mut self) {
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

/// The taps of the phases between two samples, and the samples that they still need.
#[derive(Clone, Debug)]
struct Interpolator {
    channels: usize,
    taps: simd::Taps,
    /// Interleaved: the frames before, then the run.
    samples: Vec<f32>,
}

impl Interpolator {
    fn new(hz: u32, channels: usize) -> Option<Self> {
        let factor = match hz {
            ..96_000 => 4,
            96_000..192_000 => 2,
            _ => return None,
        };
        let taps = simd::Taps::new(factor);
        let samples = vec![0.0; (taps.reach() + super::sample::RUN) * channels];
        Some(Self { channels, taps, samples })
    }

    /// Puts a run behind the frames before; returns how many frames.
    #[allow(clippy::cast_possible_truncation, reason = "rounding to f32 is meant")]
    fn load(&mut self, view: View<'_>) -> usize {
        let run = &mut self.samples[self.taps.reach() * self.channels..];
        match view {
            View::Narrow(samples) => {
                run[..samples.len()].copy_from_slice(samples);
                samples.len() / self.channels
            }
            View::Wide(samples) => {
                for (slot, &sample) in run.iter_mut().zip(samples) {
                    *slot = sample as f32;
                }
                samples.len() / self.channels
            }
        }
    }

    fn advance(&mut self, frames: usize) {
        let reach = self.taps.reach() * self.channels;
        self.samples.copy_within(frames * self.channels..frames * self.channels + reach, 0);
    }

    /// Raises `peaks` to the peaks between the samples of the run, as far as they exceed `floor`.
    fn search(
        &self,
        level: Level,
        frames: usize,
        heard: &[f64],
        floor: Option<&[f64]>,
        peaks: &mut [f64],
    ) {
        let samples = &self.samples[..(self.taps.reach() + frames) * self.channels];
        simd::search_peaks(level, &self.taps, samples, self.channels, heard, floor, peaks);
    }

    /// The peaks of the samples that the phase which is the sample itself shows in so many frames.
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

//! The buffer of an input: frames in the station's layout that wait to be played, and the
//! resamplers that bring them to the station's rate.

use std::collections::VecDeque;

use aulos_core::{Frames, Ppm, SampleRate, Span};
use aulos_dsp::{ResampleProgress, Resampler};

use super::earlier_rates::{EarlierRate, EarlierRates};

/// Buffered audio of a source, oldest first; at the front are the frames of earlier rates.
pub(super) struct StagedAudio {
    samples: VecDeque<f32>,
    channels: usize,
    /// The station's rate.
    output_rate: SampleRate,
    /// The rate of what arrives now.
    rate: SampleRate,
    earlier_rates: EarlierRates,
    resampler: Resampler,
    drift: Ppm,
}

impl StagedAudio {
    /// An empty buffer with room for `frames`; the source has the station's `rate` for now.
    pub(super) fn new(frames: usize, channels: usize, rate: SampleRate) -> Self {
        Self {
            samples: VecDeque::with_capacity(frames * channels),
            channels,
            output_rate: rate,
            rate,
            earlier_rates: EarlierRates::new(),
            resampler: Resampler::new(channels, rate, rate),
            drift: Ppm::ZERO,
        }
    }

    /// The rate of what arrives now.
    pub(super) const fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Where samples of that rate are appended, interleaved.
    pub(super) const fn samples(&mut self) -> &mut VecDeque<f32> {
        &mut self.samples
    }

    pub(super) fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Whether a source that changes its rate must wait until the oldest audio is played.
    pub(super) fn has_too_many_rates(&self) -> bool {
        self.earlier_rates.is_full()
    }

    /// Reserves room for this many frames.
    pub(super) fn reserve(&mut self, frames: usize) {
        self.samples.reserve((frames * self.channels).saturating_sub(self.samples.len()));
    }

    /// Buffered frames of the source's rate; those of an earlier rate count by their duration.
    pub(super) fn frames(&self) -> usize {
        let earlier = self.earlier_rates.iter();
        let earlier = earlier.map(|it| self.rate.frames(it.rate.span(it.frames.into())));
        earlier.map(Frames::as_usize).sum::<usize>() + self.current_frames()
    }

    /// How long the buffered frames play.
    pub(super) fn duration(&self) -> Span {
        let earlier = self.earlier_rates.iter();
        earlier.fold(Span::ZERO, |span, it| span + it.rate.span(it.frames.into()))
            + self.rate.span(self.current_frames().into())
    }

    /// How much older audio the resampler holds.
    pub(super) fn latency(&self) -> Span {
        match self.earlier_rates.iter().next() {
            Some(earlier) => earlier.rate.span(earlier.resampler.latency()),
            None => self.rate.span(self.resampler.latency()),
        }
    }

    /// Follows the source's clock.
    pub(super) fn set_drift(&mut self, drift: Ppm) {
        if drift == self.drift {
            return;
        }
        self.drift = drift;
        self.resampler.set_drift(drift);
        if let Some(earlier) = self.earlier_rates.front() {
            earlier.resampler.set_drift(drift);
        }
    }

    /// One step of the resampler of the oldest audio.
    pub(super) fn resample(&mut self, out: &mut [f32]) -> ResampleProgress {
        let (front, _) = self.samples.as_slices();
        let step = match self.earlier_rates.front() {
            Some(earlier) => {
                let own = front.len().min(earlier.frames * self.channels);
                let step = earlier.resampler.process(&front[..own], out);
                earlier.frames -= step.consumed.as_usize();
                step
            }
            None => self.resampler.process(front, out),
        };
        self.samples.drain(..step.consumed.as_usize() * self.channels);
        step
    }

    /// Continues with the next rate once the audio of the oldest is played; false if it is not.
    pub(super) fn finish_earlier_rate(&mut self) -> bool {
        self.earlier_rates.pop_played()
    }

    /// What arrives from now on has another rate.
    pub(super) fn begin_rate(&mut self, rate: SampleRate) {
        let mut resampler = Resampler::new(self.channels, rate, self.output_rate);
        resampler.set_drift(self.drift);
        let frames = self.current_frames();
        let resampler = core::mem::replace(&mut self.resampler, resampler);
        if frames > 0 {
            self.earlier_rates.push(EarlierRate { rate: self.rate, frames, resampler });
        }
        self.rate = rate;
    }

    /// Appends silence that pushes the last frames out of the resampler.
    pub(super) fn push_tail(&mut self) {
        let tail = self.resampler.latency().as_usize() * self.channels;
        self.samples.extend(core::iter::repeat_n(0.0, tail));
    }

    /// Begins with this much silence, as far as there is room.
    pub(super) fn push_silence_front(&mut self, length: Span) {
        let rate = self.earlier_rates.front().map_or(self.rate, |earlier| earlier.rate);
        let room = (self.samples.capacity() - self.samples.len()) / self.channels;
        let silent = rate.frames(length).as_usize().min(room);
        (0..silent * self.channels).for_each(|_| self.samples.push_front(0.0));
        if let Some(earlier) = self.earlier_rates.front() {
            earlier.frames += silent;
        }
    }

    /// Discards this many frames of the source's rate, or their duration, at the front.
    pub(super) fn discard(&mut self, frames: Frames) {
        let (earlier, rest) = self.earlier_rates.discard(frames, self.rate);
        let samples = (earlier + rest.as_usize()) * self.channels;
        self.samples.drain(..samples.min(self.samples.len()));
    }

    /// Discards everything, and what the resampler holds with its drift.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.earlier_rates.clear();
        self.resampler.reset();
        self.drift = Ppm::ZERO;
    }

    /// Whether frames of the source's present rate are buffered.
    pub(super) fn has_current_frames(&self) -> bool {
        self.current_frames() > 0
    }

    /// Buffered frames that have the source's present rate.
    fn current_frames(&self) -> usize {
        self.samples.len() / self.channels - self.earlier_rates.frames()
    }
}

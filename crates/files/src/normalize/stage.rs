//! The processing of the audio, with its delay removed: the output begins where the input began.

use aulos_core::{ChannelLayout, Db, SampleRate};
use aulos_dsp::Limiter;
use aulos_dsp::meter::ChannelPosition;
use aulos_dsp::normalize::{LinearGain, LookAhead, Normalizer, Settings};
use aulos_engine::source::BLOCK_SAMPLES;

use super::NormalizeError;

/// A constant gain, a constant gain with the limiter, or a time-varying gain.
pub(super) enum GainStage {
    Gain(LinearGain),
    Delayed(Box<DelayedStage>),
}

/// A processor with a delay that is removed again.
pub(super) struct DelayedStage {
    worker: DelayedProcessor,
    channels: usize,
    /// Samples of the delay that have yet to be skipped.
    samples_to_skip: usize,
    /// Frames still inside the processor.
    frames_inside: usize,
    reduction: Db,
}

enum DelayedProcessor {
    Limiter(LinearGain, Box<Limiter>),
    Live(Box<Normalizer>),
}

impl GainStage {
    /// A constant gain, with the limiter if it would exceed the ceiling.
    pub(super) fn limited(
        plan: LinearGain,
        settings: &Settings,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Self {
        let limiter = Limiter::new(rate, layout, settings.ceiling);
        let latency = limiter.latency().as_usize();
        Self::delayed(
            DelayedProcessor::Limiter(plan, Box::new(limiter)),
            latency,
            layout.channels(),
        )
    }

    pub(super) fn live(
        mode: LookAhead,
        settings: &Settings,
        rate: SampleRate,
        positions: Vec<ChannelPosition>,
    ) -> Result<Self, NormalizeError> {
        let channels = positions.len();
        let live = Normalizer::with_positions(mode, settings.clone(), rate, positions)
            .map_err(NormalizeError::Settings)?;
        let latency = live.latency().as_usize();
        Ok(Self::delayed(DelayedProcessor::Live(Box::new(live)), latency, channels))
    }

    fn delayed(worker: DelayedProcessor, latency: usize, channels: usize) -> Self {
        let early = latency * channels;
        Self::Delayed(Box::new(DelayedStage {
            worker,
            channels,
            samples_to_skip: early,
            frames_inside: latency,
            reduction: Db::ZERO,
        }))
    }

    pub(super) fn process(
        &mut self,
        samples: &mut [f32],
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        match self {
            Self::Gain(plan) => {
                plan.apply(samples);
                put(samples)
            }
            Self::Delayed(late) => late.process(samples, put),
        }
    }

    pub(super) fn drain(
        &mut self,
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        match self {
            Self::Gain(_) => Ok(()),
            Self::Delayed(late) => late.drain(put),
        }
    }

    /// The greatest gain reduction of the limiter; zero or negative.
    pub(super) fn reduction(&self) -> Db {
        match self {
            Self::Gain(_) => Db::ZERO,
            Self::Delayed(late) => late.reduction,
        }
    }
}

impl DelayedStage {
    fn process(
        &mut self,
        samples: &mut [f32],
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        let reduction = match &mut self.worker {
            DelayedProcessor::Limiter(plan, limiter) => {
                plan.apply(samples);
                limiter.process(samples);
                limiter.reduction()
            }
            DelayedProcessor::Live(live) => {
                live.process(samples);
                live.reduction()
            }
        };
        if reduction < self.reduction {
            self.reduction = reduction;
        }
        let left_out = samples.len().min(self.samples_to_skip);
        self.samples_to_skip -= left_out;
        if left_out < samples.len() { put(&samples[left_out..]) } else { Ok(()) }
    }

    /// Feeds silence of the delay's length, so that all audio comes out.
    fn drain(
        &mut self,
        put: &mut impl FnMut(&[f32]) -> Result<(), NormalizeError>,
    ) -> Result<(), NormalizeError> {
        let mut block = vec![0.0; BLOCK_SAMPLES / self.channels * self.channels];
        while self.frames_inside > 0 {
            let frames = self.frames_inside.min(block.len() / self.channels);
            self.frames_inside -= frames;
            let part = &mut block[..frames * self.channels];
            part.fill(0.0);
            self.process(part, put)?;
        }
        Ok(())
    }
}

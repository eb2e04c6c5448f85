//! Normalizes a source where it arrives, so that a fallback source is as loud as the source that it
//! replaces.
//!
//! The look-ahead is filled before the first frame can be read, and emptied when the sender ends or
//! falls silent. A source with a normalizer therefore buffers more than one without, and loses
//! nothing.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Frames, SampleRate, Span};
use aulos_dsp::normalize::{Normalizer, NormalizerError};

use crate::loudness_processor::NormalizerConfig;
use crate::source::BLOCK_SAMPLES;

/// A normalizer in front of an input's buffer.
#[derive(Debug)]
pub(super) struct InputNormalizer {
    config: NormalizerConfig,
    layout: ChannelLayout,
    /// `None` at a sample rate that the normalizer does not support.
    normalizer: Option<Normalizer>,
    /// Frames that come out before the first input frame.
    skip: usize,
    /// Frames taken in since the refill began.
    taken_in: usize,
    scratch: Box<[f32]>,
}

impl InputNormalizer {
    pub(super) fn new(
        config: NormalizerConfig,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, NormalizerError> {
        let normalizer = Normalizer::new(config.mode, config.settings.clone(), rate, layout)?;
        let mut new = Self {
            config,
            layout,
            normalizer: Some(normalizer),
            skip: 0,
            taken_in: 0,
            scratch: vec![0.0; BLOCK_SAMPLES * layout.channels()].into(),
        };
        new.skip = new.latency();
        Ok(new)
    }

    /// Continues at another rate with the current gain; allocates. The look-ahead must be empty.
    pub(super) fn set_rate(&mut self, rate: SampleRate) {
        let new = match &self.normalizer {
            Some(old) => old.successor(rate, self.layout),
            None => {
                Normalizer::new(self.config.mode, self.config.settings.clone(), rate, self.layout)
            }
        };
        self.normalizer = new.ok();
        self.skip = self.latency();
    }

    /// Processes frames and appends the output to `staged`.
    ///
    /// # Real-time
    /// Does not allocate where `staged` has room.
    pub(super) fn push(&mut self, samples: &[f32], staged: &mut VecDeque<f32>) {
        let Some(normalizer) = &mut self.normalizer else { return staged.extend(samples) };
        let channels = self.layout.channels();
        let block = &mut self.scratch[..samples.len()];
        block.copy_from_slice(samples);
        normalizer.process(block);
        let frames = block.len() / channels;
        let early = self.skip.min(frames);
        self.skip -= early;
        self.taken_in += frames;
        staged.extend(&block[early * channels..]);
    }

    /// Appends the whole look-ahead to `staged`, because no audio follows for now.
    ///
    /// # Real-time
    /// As [`InputNormalizer::push`].
    pub(super) fn drain(&mut self, staged: &mut VecDeque<f32>) {
        let latency = self.latency();
        let Some(normalizer) = &mut self.normalizer else { return };
        let channels = self.layout.channels();
        loop {
            let frames = normalizer.drain(&mut self.scratch).as_usize();
            if frames == 0 {
                break;
            }
            let early = self.skip.min(frames);
            self.skip -= early;
            staged.extend(&self.scratch[early * channels..frames * channels]);
        }
        self.skip = latency;
    }

    /// Discards the look-ahead.
    pub(super) fn interrupt(&mut self) {
        if let Some(normalizer) = &mut self.normalizer {
            normalizer.interrupt();
        }
        self.skip = self.latency();
    }

    /// A refill begins: the work of this quantum is counted from here.
    pub(super) const fn begin_refill(&mut self) {
        self.taken_in = 0;
    }

    /// Whether the look-ahead is being filled and has used up its share of this quantum.
    pub(super) fn is_busy(&self, rate: SampleRate) -> bool {
        self.skip > 0 && Frames::from(self.taken_in) >= rate.frames(MAX_FILL_PER_QUANTUM)
    }

    /// Frames to take in until the next one comes out.
    pub(super) const fn frames_until_output(&self) -> usize {
        self.skip
    }

    /// Frames of look-ahead while audio flows.
    pub(super) fn latency(&self) -> usize {
        self.normalizer.as_ref().map_or(0, |normalizer| normalizer.latency().as_usize())
    }
}

/// Audio that is taken in per quantum while the look-ahead fills: about a millisecond of work.
const MAX_FILL_PER_QUANTUM: Span = Span::from_millis(200);

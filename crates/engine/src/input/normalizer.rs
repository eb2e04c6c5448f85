//! Brings a source to one loudness where it comes in, so that what stands in for another source is as
//! loud as that.
//!
//! The look-ahead is filled before the first frame can be read and handed out when the sender ends
//! or falls silent: a source with a normaliser has more in store than one without, and loses nothing.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Frames, SampleRate, Span};
use aulos_dsp::normalize::{CannotNormalise, Normaliser};

use crate::loudness_processor::NormalizerConfig;
use crate::source::BLOCK_SAMPLES;

/// A normaliser in front of what waits in an input.
#[derive(Debug)]
pub(super) struct InputNormalizer {
    wish: NormalizerConfig,
    layout: ChannelLayout,
    /// None at a rate at which nothing can be normalised.
    normalizer: Option<Normaliser>,
    /// Frames that come out before the first that went in.
    skip: usize,
    /// Frames that have come in since the input looked.
    taken_in: usize,
    scratch: Box<[f32]>,
}

impl InputNormalizer {
    pub(super) fn new(
        wish: NormalizerConfig,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, CannotNormalise> {
        let normaliser = Normaliser::new(wish.mode, wish.settings.clone(), rate, layout)?;
        let mut new = Self {
            wish,
            layout,
            normalizer: Some(normaliser),
            skip: 0,
            taken_in: 0,
            scratch: vec![0.0; BLOCK_SAMPLES * layout.channels()].into(),
        };
        new.skip = new.latency();
        Ok(new)
    }

    /// Goes on at another rate, with the gain as it is; allocates. Nothing is inside.
    pub(super) fn set_rate(&mut self, rate: SampleRate) {
        let new = match &self.normalizer {
            Some(old) => old.successor(rate, self.layout),
            None => Normaliser::new(self.wish.mode, self.wish.settings.clone(), rate, self.layout),
        };
        self.normalizer = new.ok();
        self.skip = self.latency();
    }

    /// Takes frames in, and puts behind `staged` what comes out.
    ///
    /// # Real-time
    /// Does not allocate where `staged` has room.
    pub(super) fn push(&mut self, samples: &[f32], staged: &mut VecDeque<f32>) {
        let Some(normaliser) = &mut self.normalizer else { return staged.extend(samples) };
        let channels = self.layout.channels();
        let block = &mut self.scratch[..samples.len()];
        block.copy_from_slice(samples);
        normaliser.process(block);
        let frames = block.len() / channels;
        let early = self.skip.min(frames);
        self.skip -= early;
        self.taken_in += frames;
        staged.extend(&block[early * channels..]);
    }

    /// Puts behind `staged` all that is inside: nothing comes for now.
    ///
    /// # Real-time
    /// As [`Arrival::push`].
    pub(super) fn drain(&mut self, staged: &mut VecDeque<f32>) {
        let latency = self.latency();
        let Some(normaliser) = &mut self.normalizer else { return };
        let channels = self.layout.channels();
        loop {
            let frames = normaliser.drain(&mut self.scratch).as_usize();
            if frames == 0 {
                break;
            }
            let early = self.skip.min(frames);
            self.skip -= early;
            staged.extend(&self.scratch[early * channels..frames * channels]);
        }
        self.skip = latency;
    }

    /// Throws away what is inside.
    pub(super) fn interrupt(&mut self) {
        if let Some(normaliser) = &mut self.normalizer {
            normaliser.interrupt();
        }
        self.skip = self.latency();
    }

    /// The input looks: work is counted from here.
    pub(super) const fn begin_refill(&mut self) {
        self.taken_in = 0;
    }

    /// Whether the look-ahead is being filled and has cost enough for one quantum.
    pub(super) fn is_busy(&self, rate: SampleRate) -> bool {
        self.skip > 0 && Frames::from(self.taken_in) >= rate.frames(MAX_FILL_PER_QUANTUM)
    }

    /// Frames that have to come in until the next one comes out.
    pub(super) const fn frames_until_output(&self) -> usize {
        self.skip
    }

    /// Frames that are inside while sound comes.
    pub(super) fn latency(&self) -> usize {
        self.normalizer.as_ref().map_or(0, |normaliser| normaliser.latency().as_usize())
    }
}

/// What is taken in within one quantum while the look-ahead fills: a millisecond's work.
const MAX_FILL_PER_QUANTUM: Span = Span::from_millis(200);

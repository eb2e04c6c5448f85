//! Brings a source to one loudness where it comes in, so that what stands in for another source is as
//! loud as that.
//!
//! The look-ahead is filled before the first frame can be read and handed out when the sender ends
//! or falls silent: a source with a normaliser has more in store than one without, and loses nothing.

use std::collections::VecDeque;

use aulos_core::{ChannelLayout, Frames, SampleRate, Span};
use aulos_dsp::normalize::{CannotNormalise, Normaliser};

use crate::source::BLOCK_SAMPLES;
use crate::steady::Normalise;

/// A normaliser in front of what waits in an input.
#[derive(Debug)]
pub(super) struct Arrival {
    wish: Normalise,
    layout: ChannelLayout,
    /// None at a rate at which nothing can be normalised.
    normaliser: Option<Normaliser>,
    /// Frames that come out before the first that went in.
    skip: usize,
    /// Frames that have come in since the input looked.
    taken: usize,
    scratch: Box<[f32]>,
}

impl Arrival {
    pub(super) fn new(
        wish: Normalise,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, CannotNormalise> {
        let normaliser = Normaliser::new(wish.mode, wish.settings.clone(), rate, layout)?;
        let mut new = Self {
            wish,
            layout,
            normaliser: Some(normaliser),
            skip: 0,
            taken: 0,
            scratch: vec![0.0; BLOCK_SAMPLES * layout.channels()].into(),
        };
        new.skip = new.latency();
        Ok(new)
    }

    /// Goes on at another rate, with the gain as it is; allocates. Nothing is inside.
    pub(super) fn change(&mut self, rate: SampleRate) {
        let new = match &self.normaliser {
            Some(old) => old.successor(rate, self.layout),
            None => Normaliser::new(self.wish.mode, self.wish.settings.clone(), rate, self.layout),
        };
        self.normaliser = new.ok();
        self.skip = self.latency();
    }

    /// Takes frames in, and puts behind `staged` what comes out.
    ///
    /// # Real-time
    /// Does not allocate where `staged` has room.
    pub(super) fn push(&mut self, samples: &[f32], staged: &mut VecDeque<f32>) {
        let Some(normaliser) = &mut self.normaliser else { return staged.extend(samples) };
        let channels = self.layout.channels();
        let block = &mut self.scratch[..samples.len()];
        block.copy_from_slice(samples);
        normaliser.process(block);
        let frames = block.len() / channels;
        let early = self.skip.min(frames);
        self.skip -= early;
        self.taken += frames;
        staged.extend(&block[early * channels..]);
    }

    /// Puts behind `staged` all that is inside: nothing comes for now.
    ///
    /// # Real-time
    /// As [`Arrival::push`].
    pub(super) fn drain(&mut self, staged: &mut VecDeque<f32>) {
        let latency = self.latency();
        let Some(normaliser) = &mut self.normaliser else { return };
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
        if let Some(normaliser) = &mut self.normaliser {
            normaliser.interrupt();
        }
        self.skip = self.latency();
    }

    /// The input looks: work is counted from here.
    pub(super) const fn begin(&mut self) {
        self.taken = 0;
    }

    /// Whether the look-ahead is being filled and has cost enough for one quantum.
    pub(super) fn is_busy(&self, rate: SampleRate) -> bool {
        self.skip > 0 && Frames::from(self.taken) >= rate.frames(AT_ONCE)
    }

    /// Frames that have to come in until the next one comes out.
    pub(super) const fn missing(&self) -> usize {
        self.skip
    }

    /// Frames that are inside while sound comes.
    pub(super) fn latency(&self) -> usize {
        self.normaliser.as_ref().map_or(0, |normaliser| normaliser.latency().as_usize())
    }
}

/// What is taken in within one quantum while the look-ahead fills: a millisecond's work.
const AT_ONCE: Span = Span::from_millis(200);

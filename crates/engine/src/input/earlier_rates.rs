//! The front of an input's buffer after its source has changed the sample rate.
//!
//! A web radio station that inserts an advertisement changes its rate without a pause. What arrived
//! before the change is played by its own resampler, while what follows is taken in already:
//! waiting for the older audio would stop the arrivals, so that the source would count as late.

use std::collections::VecDeque;

use aulos_core::{Frames, SampleRate};
use aulos_dsp::Resampler;

/// Audio of one earlier rate.
pub(super) struct EarlierRate {
    pub(super) rate: SampleRate,
    /// Its frames at the front of the buffer, behind those of the rates before it.
    pub(super) frames: usize,
    pub(super) resampler: Resampler,
}

/// The earlier rates of the buffered audio, oldest first.
pub(super) struct EarlierRates(VecDeque<EarlierRate>);

impl EarlierRates {
    /// No earlier rate.
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MAX_EARLIER_RATES))
    }

    /// Whether the next change must wait until the oldest audio is played.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() == MAX_EARLIER_RATES
    }

    /// The rate changes behind this audio.
    pub(super) fn push(&mut self, earlier: EarlierRate) {
        self.0.push_back(earlier);
    }

    /// The audio that is played next, if it has an earlier rate.
    pub(super) fn front(&mut self) -> Option<&mut EarlierRate> {
        self.0.front_mut()
    }

    /// Removes the oldest rate once its audio is played; false if it is not.
    pub(super) fn pop_played(&mut self) -> bool {
        let played = self.0.front().is_some_and(|earlier| earlier.frames == 0);
        if played {
            self.0.pop_front();
        }
        played
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &EarlierRate> {
        self.0.iter()
    }

    /// Frames in the buffer that have an earlier rate.
    pub(super) fn frames(&self) -> usize {
        self.0.iter().map(|earlier| earlier.frames).sum()
    }

    /// Takes up to `wanted` frames of `rate` from the front, as far as they have an earlier rate.
    /// Returns how many frames the buffer loses for that, and how many of `wanted` are left.
    pub(super) fn discard(&mut self, mut wanted: Frames, rate: SampleRate) -> (usize, Frames) {
        let mut lost = 0;
        while let Some(front) = self.0.front_mut() {
            let all = rate.frames(front.rate.span(front.frames.into()));
            if wanted < all {
                let part = front.rate.frames(rate.span(wanted)).as_usize().min(front.frames);
                front.frames -= part;
                return (lost + part, Frames::ZERO);
            }
            wanted -= all;
            lost += front.frames;
            self.0.pop_front();
        }
        (lost, wanted)
    }
}

/// Changes of the rate within a buffer. More in so short a time are no programme, and each takes a
/// resampler of up to a megabyte.
const MAX_EARLIER_RATES: usize = 4;

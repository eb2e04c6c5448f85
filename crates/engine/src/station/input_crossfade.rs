//! Click-free cross-fades between the inputs of a station.
//!
//! A change may come while the last fade is still running, because fades can be long and sources
//! fail at any time. All audible inputs then fade out together, each from its current gain.

use aulos_core::Frames;
use aulos_dsp::Crossfade;

/// The input that fills a station's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActiveInput {
    /// None: silence.
    Silence,
    /// The sound for when no input has audio.
    LastResort,
    /// An input.
    Input(usize),
}

/// A fade from the previous inputs to the current one.
#[derive(Clone, Debug)]
pub(super) struct InputCrossfade {
    /// The outgoing inputs and their gains; the weakest of too many is dropped.
    outgoing: [(ActiveInput, f32); MAX_OUTGOING],
    /// The frame of the current block at which it begins.
    pub(super) start: usize,
    pub(super) curve: Crossfade,
}

impl InputCrossfade {
    /// A fade from one input, starting at frame `start` of the current block.
    pub(super) fn new(from: ActiveInput, start: usize, length: Frames) -> Self {
        let mut outgoing = [(ActiveInput::Silence, 0.0); MAX_OUTGOING];
        outgoing[0] = (from, 1.0);
        Self { outgoing, start, curve: Crossfade::constant_power(length) }
    }

    /// A fade from an input that was itself still fading in by `last`, to one that may still be
    /// fading out. It has a start and a length.
    pub(super) fn after(
        last: &Self,
        from: ActiveInput,
        to: ActiveInput,
        (start, length): (usize, Frames),
    ) -> Self {
        let (going, coming) = last.curve.current_gains();
        let mut old = last.outgoing.map(|(active, gain)| (active, gain * going));
        let present = old.iter().find(|(active, _)| *active == to).map_or(0.0, |(_, gain)| *gain);
        let mut next = Self::new(from, start, length);
        next.curve = next.curve.from_gain(present);
        // The curve is entered partway, where the outgoing signal is already attenuated.
        let lost = next.curve.current_gains().0.max(f32::MIN_POSITIVE);
        old.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        let old =
            old.into_iter().filter(|(active, _)| *active != to && *active != ActiveInput::Silence);
        let all = core::iter::once((from, coming)).chain(old);
        for (slot, (active, gain)) in next.outgoing.iter_mut().zip(all) {
            *slot = (active, gain / lost);
        }
        next
    }

    /// The outgoing inputs and their gains.
    pub(super) fn outgoing(&self) -> impl Iterator<Item = (ActiveInput, f32)> + use<> {
        self.outgoing.into_iter().filter(|(active, _)| *active != ActiveInput::Silence)
    }

    /// The main outgoing input, if it is one.
    pub(super) fn from(&self) -> Option<usize> {
        match self.outgoing[0].0 {
            ActiveInput::Input(input) => Some(input),
            _ => None,
        }
    }

    /// Whether `input` is still audible.
    pub(super) fn contains(&self, input: usize) -> bool {
        self.outgoing().any(|(active, _)| active == ActiveInput::Input(input))
    }
}

/// The two of the running fade, and the one before.
const MAX_OUTGOING: usize = 3;

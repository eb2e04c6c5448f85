//! How one voice of a station follows another without a click.
//!
//! A change may come while the last one is still fading: cross-fades can be long, and sources die
//! when they like. What is heard then goes out together, each voice from the gain that it has.

use aulos_core::Frames;
use aulos_dsp::Crossfade;

/// Who fills a station's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActiveInput {
    /// Nobody: silence.
    Silence,
    /// The sound for when no input has any.
    LastResort,
    /// An input.
    Input(usize),
}

/// A fade from what was heard to what is heard now.
#[derive(Clone, Debug)]
pub(super) struct InputCrossfade {
    /// Who goes out, and how loud he was; the weakest of too many is not missed.
    outgoing: [(ActiveInput, f32); MAX_OUTGOING],
    /// The frame of the present block at which it begins.
    pub(super) start: usize,
    pub(super) curve: Crossfade,
}

impl InputCrossfade {
    /// From one voice, beginning at frame `start` of the present block.
    pub(super) fn new(from: ActiveInput, start: usize, length: Frames) -> Self {
        let mut outgoing = [(ActiveInput::Silence, 0.0); MAX_OUTGOING];
        outgoing[0] = (from, 1.0);
        Self { outgoing, start, curve: Crossfade::constant_power(length) }
    }

    /// From one voice that itself was still coming in by `last`, to one that may still be going out.
    pub(super) fn after(last: &Self, from: ActiveInput, to: ActiveInput, length: Frames) -> Self {
        let (going, coming) = last.curve.current_gains();
        let mut old = last.outgoing.map(|(voice, gain)| (voice, gain * going));
        let present = old.iter().find(|(voice, _)| *voice == to).map_or(0.0, |(_, gain)| *gain);
        let mut next = Self::new(from, 0, length);
        next.curve = next.curve.from_gain(present);
        // The curve is entered on its way, where what goes out has lost something already.
        let lost = next.curve.current_gains().0.max(f32::MIN_POSITIVE);
        old.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        let old =
            old.into_iter().filter(|(voice, _)| *voice != to && *voice != ActiveInput::Silence);
        let all = core::iter::once((from, coming)).chain(old);
        for (slot, (voice, gain)) in next.outgoing.iter_mut().zip(all) {
            *slot = (voice, gain / lost);
        }
        next
    }

    /// Who goes out.
    pub(super) fn outgoing(&self) -> impl Iterator<Item = (ActiveInput, f32)> + use<> {
        self.outgoing.into_iter().filter(|(voice, _)| *voice != ActiveInput::Silence)
    }

    /// The input that goes out, if it is one.
    pub(super) fn from(&self) -> Option<usize> {
        match self.outgoing[0].0 {
            ActiveInput::Input(input) => Some(input),
            _ => None,
        }
    }

    /// Whether `input` is still heard.
    pub(super) fn contains(&self, input: usize) -> bool {
        self.outgoing().any(|(voice, _)| voice == ActiveInput::Input(input))
    }
}

/// Two that were fading, and the one before.
const MAX_OUTGOING: usize = 3;

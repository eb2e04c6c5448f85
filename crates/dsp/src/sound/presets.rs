//! Chains that fit many rooms, by name.

use aulos_core::Db;

use super::SoundChain;
use crate::equalizer::{EqualizerBand, FilterType};

/// A chain that fits many rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SoundPreset {
    /// No processing.
    Flat,
    /// More bass.
    Bass,
    /// More treble.
    Treble,
    /// Speech: less bass, more presence.
    Voice,
    /// A small loudspeaker: no bass that it cannot play.
    SmallSpeaker,
    /// Listening at low volume: bass and treble raised, which the ear then hears less.
    Quiet,
}

impl SoundPreset {
    /// All presets.
    pub const ALL: [Self; 6] =
        [Self::Flat, Self::Bass, Self::Treble, Self::Voice, Self::SmallSpeaker, Self::Quiet];

    /// Their names in the API.
    pub const NAMES: [&'static str; 6] =
        ["flat", "bass", "treble", "voice", "small-speaker", "quiet"];

    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Its chain; `None` for [`Self::Flat`].
    #[must_use]
    pub fn chain(self) -> Option<SoundChain> {
        let shape =
            |filter_type, hz, gain, q| EqualizerBand { filter_type, hz, gain: Db::new(gain), q };
        let low = |hz, gain| shape(FilterType::LowShelf, hz, gain, SHELF_Q);
        let high = |hz, gain| shape(FilterType::HighShelf, hz, gain, SHELF_Q);
        let bands = match self {
            Self::Flat => return None,
            Self::Bass => vec![low(110.0, 5.0)],
            Self::Treble => vec![high(6_000.0, 4.0)],
            Self::Voice => vec![low(200.0, -6.0), shape(FilterType::Peaking, 2_500.0, 3.0, 0.8)],
            Self::SmallSpeaker => {
                vec![shape(FilterType::HighPass, 120.0, 0.0, SHELF_Q), low(250.0, 3.0)]
            }
            Self::Quiet => vec![low(100.0, 7.0), high(8_000.0, 3.0)],
        };
        Some(SoundChain::of_bands(bands))
    }
}

/// The steepest slope without a resonance.
const SHELF_Q: f64 = 0.707;

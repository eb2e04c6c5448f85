//! The choice among the variants of a programme.

use core::fmt;
use core::str::FromStr;

use aulos_proto::m3u8::{MultivariantPlaylist, Variant};

/// Which variant is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what a configuration can ask for")]
pub enum VariantChoice {
    /// That of the highest bit rate.
    #[default]
    Best,
    /// That of the lowest bit rate.
    Lowest,
    /// The highest up to so many bits per second, otherwise the lowest.
    UpTo(u64),
}

impl VariantChoice {
    /// The chosen variant among those with sound that can be decoded; those of nothing but sound
    /// come first.
    pub(super) fn choose(self, playlist: &MultivariantPlaylist) -> Option<&Variant> {
        let playable = || playlist.variants.iter().filter(|variant| variant.has_known_sound());
        let has_audio_only = playable().any(Variant::is_audio_only);
        let all = || playable().filter(|variant| !has_audio_only || variant.is_audio_only());
        let bandwidth = |variant: &&Variant| variant.bandwidth;
        let most = match self {
            Self::Best => u64::MAX,
            Self::Lowest => 0,
            Self::UpTo(most) => most,
        };
        // Of equal ones the first, which is the server's preference.
        let fits = all().rev().filter(|variant| variant.bandwidth <= most);
        fits.max_by_key(bandwidth).or_else(|| all().min_by_key(bandwidth))
    }
}

/// A text that is no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "nothing more is known")]
pub struct InvalidVariantChoice;

impl fmt::Display for InvalidVariantChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected `best`, `lowest` or the most kilobits per second, as in `128k`")
    }
}

impl core::error::Error for InvalidVariantChoice {}

impl FromStr for VariantChoice {
    type Err = InvalidVariantChoice;

    fn from_str(text: &str) -> Result<Self, InvalidVariantChoice> {
        match text {
            "best" => Ok(Self::Best),
            "lowest" => Ok(Self::Lowest),
            text => {
                let kilobits: u32 = text
                    .strip_suffix('k')
                    .and_then(|number| number.parse().ok())
                    .filter(|number| *number > 0)
                    .ok_or(InvalidVariantChoice)?;
                Ok(Self::UpTo(u64::from(kilobits) * 1_000))
            }
        }
    }
}

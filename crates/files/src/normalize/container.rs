//! Output formats and their limits.

use std::path::Path;

use aulos_core::{SampleFormat, SampleRate};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputContainer {
    /// WAVE; RF64 beyond 4 GiB.
    Wave,
    /// FLAC.
    Flac,
    /// Opus in Ogg.
    Opus,
}

impl OutputContainer {
    /// By the extension of a name; `None` if it is not supported.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "wav" | "wave" | "bwf" | "rf64" => Some(Self::Wave),
            "flac" => Some(Self::Flac),
            "opus" => Some(Self::Opus),
            _ => None,
        }
    }

    /// The usual extension.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Wave => "wav",
            Self::Flac => "flac",
            Self::Opus => "opus",
        }
    }

    /// The sample format closest to that of the input.
    pub(super) fn format(self, codec: &str, bits: Option<u32>) -> SampleFormat {
        let float = codec.contains("f32") || codec.contains("f64");
        match (self, bits) {
            (Self::Opus, _) => SampleFormat::F32,
            (Self::Wave, _) if float => SampleFormat::F32,
            (Self::Wave, Some(25..=32)) => SampleFormat::S32Le,
            (_, Some(1..=16)) => SampleFormat::S16Le,
            // Lossy codecs have no bit depth; 24 bits are sufficient.
            _ => SampleFormat::S24Le,
        }
    }

    /// The output rate for input of this rate.
    pub(super) const fn rate(self, rate: SampleRate) -> SampleRate {
        match self {
            Self::Opus => SampleRate::HZ_48000,
            _ => rate,
        }
    }
}

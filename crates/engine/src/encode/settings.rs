//! What the settings of all codecs have in common, and their errors.

use core::fmt;

use aulos_core::{Codec, Frames, SampleSpec};

use super::encoder::{Encoder, UnsupportedFormat};

/// Settings of one codec, in the module of its encoder. They print as they are parsed.
pub trait CodecSettings: Copy + Default + PartialEq + fmt::Display {
    /// The codec.
    const CODEC: Codec;

    /// Parses settings; what `options` leaves out is as in `self`.
    ///
    /// # Errors
    /// [`CodecConfigError`].
    fn with_options(self, options: &str) -> Result<Self, CodecConfigError>;

    /// Bits per second of sound of this spec, where they do not depend on the content.
    fn bitrate(self, spec: SampleSpec) -> Option<u32>;

    /// An encoder of blocks of exactly `block` frames.
    ///
    /// # Errors
    /// [`UnsupportedFormat`] names what the codec does not support.
    fn make_encoder(
        self,
        spec: SampleSpec,
        block: Frames,
    ) -> Result<Box<dyn Encoder>, UnsupportedFormat>;
}

/// Why a text is not a codec with settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecConfigError {
    /// Unknown codec name.
    UnknownCodec,
    /// Settings of a codec that has none.
    NoSettings,
    /// Not a setting of the codec.
    Setting(SettingError),
}

/// A setting that a codec does not have; the module of each codec has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingError {
    /// What is wrong.
    pub message: &'static str,
    /// The correction to suggest.
    pub remedy: &'static str,
}

impl CodecConfigError {
    pub(super) const fn setting(message: &'static str, remedy: &'static str) -> Self {
        Self::Setting(SettingError { message, remedy })
    }

    /// The correction to suggest.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::UnknownCodec => "use the name of a codec, as in flac",
            Self::NoSettings => "write `pcm` alone",
            Self::Setting(error) => error.remedy,
        }
    }
}

impl fmt::Display for CodecConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownCodec => "unknown codec",
            Self::NoSettings => "pcm has no settings",
            Self::Setting(error) => error.message,
        })
    }
}

impl core::error::Error for CodecConfigError {}

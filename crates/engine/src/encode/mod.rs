//! Encoders of audio blocks.
//!
//! ```text
//!  Block (f32) -> the encoder of a codec -> payload of one chunk
//! ```
//!
//! A codec is a module with its settings and its encoder, a row of [`CodecConfig`] here, and a row
//! of facts in `aulos_core::CODECS`. The codec libraries stay behind [`Encoder`]: no other module
//! names them, so that one can be exchanged without changes elsewhere.
//!
//! A codec with its settings in the notation of the configuration file:
//!
//! ```text
//!  pcm    flac    flac:8    opus    opus:128k    opus:96k,cbr    opus:128k,complexity=5
//!  mp3    mp3:128k    mp3:192k,lame    aac    aac:96k
//!  opus:BITRATE:128000,COMPLEXITY:10                              as snapserver writes it
//! ```

mod aac;
mod aac_config;
mod encoder;
mod flac;
mod mp3;
mod mp3_config;
mod none;
mod opus;
mod opus_config;
mod pcm;
mod rtp_payload;
mod settings;
mod shared_buffer;

use core::fmt;
use core::str::FromStr;

use aulos_core::{Codec, Frames, SampleSpec};

pub use aac::{ADTS_HEADER_BYTES, AacEncoder, AacFormat, AacFrameEncoder, AacGridEncoder};
pub use aac_config::{AAC_BITRATES, AacConfig};
pub use encoder::{Effort, EncodeError, Encoder, UnsupportedFormat};
pub use flac::{FlacConfig, FlacEncoder};
pub use mp3::{Mp3Encoder, Mp3FrameEncoder, Mp3FrameShape};
pub use mp3_config::{MP3_KBPS, Mp3Config, Mp3Library};
pub use none::NoEncoder;
pub use opus::OpusPacketEncoder;
pub use opus_config::{OpusConfig, RateControl};
pub use pcm::{PcmConfig, PcmEncoder};
pub use rtp_payload::{RtpPayloadCodec, RtpPayloadEncoder};
pub use settings::{CodecConfigError, CodecSettings, SettingError};

/// A row is the meaning, and the name of a codec with its settings.
macro_rules! codecs {
    ($($(#[doc = $doc:literal])+ $codec:ident($settings:ty);)*) => {
        /// A codec and its encoder settings. Parses and prints as `flac:5` or `opus:128k,cbr`;
        /// default settings are not printed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::exhaustive_enums, reason = "one variant for each codec")]
        pub enum CodecConfig {
            $($(#[doc = $doc])+ $codec($settings),)*
        }

        impl CodecConfig {
            /// The codec without its settings.
            #[must_use]
            pub const fn codec(self) -> Codec {
                match self {
                    $(Self::$codec(_) => Codec::$codec,)*
                }
            }

            /// Bits per second of sound of this spec, where they do not depend on the content.
            #[must_use]
            pub fn bitrate(self, spec: SampleSpec) -> Option<u32> {
                match self {
                    $(Self::$codec(settings) => settings.bitrate(spec),)*
                }
            }

            /// The same codec with these settings; what `options` leaves out is as in `self`.
            ///
            /// # Errors
            /// [`CodecConfigError`].
            pub fn with_options(self, options: &str) -> Result<Self, CodecConfigError> {
                Ok(match self {
                    $(Self::$codec(settings) => Self::$codec(settings.with_options(options)?),)*
                })
            }

            /// Its settings as text; none if they are the default ones.
            fn options(self) -> Option<String> {
                match self {
                    $(Self::$codec(settings) => {
                        (settings != <$settings>::default()).then(|| settings.to_string())
                    })*
                }
            }
        }

        impl From<Codec> for CodecConfig {
            /// The codec with its default settings.
            fn from(codec: Codec) -> Self {
                match codec {
                    $(Codec::$codec => Self::$codec(<$settings>::default()),)*
                }
            }
        }

        $(impl From<$settings> for CodecConfig {
            fn from(settings: $settings) -> Self {
                Self::$codec(settings)
            }
        })*

        /// Creates the encoder of a codec, with the settings of a [`CodecConfig`] or the defaults
        /// of a [`Codec`].
        ///
        /// # Errors
        /// [`UnsupportedFormat`] names what the codec does not support. This crate loads no
        /// library: the encoder of MP3 by LAME is made by `aulos_io::encoder`.
        pub fn make_encoder(
            config: impl Into<CodecConfig>,
            spec: SampleSpec,
            block: Frames,
        ) -> Result<Box<dyn Encoder>, UnsupportedFormat> {
            match config.into() {
                $(CodecConfig::$codec(settings) => settings.make_encoder(spec, block),)*
            }
        }
    };
}

codecs! {
    /// Uncompressed samples.
    Pcm(PcmConfig);
    /// Lossless compression.
    Flac(FlacConfig);
    /// Lossy compression.
    Opus(OpusConfig);
    /// Lossy compression that every player knows; not for a station's clients.
    Mp3(Mp3Config);
    /// Lossy compression that phones and cars know; not for a station's clients.
    Aac(AacConfig);
}

impl CodecConfig {
    /// `self` if it configures `codec`, otherwise that codec with default settings.
    #[must_use]
    pub fn or_default_of(self, codec: Codec) -> Self {
        if self.codec() == codec { self } else { codec.into() }
    }
}

impl fmt::Display for CodecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.codec().name())?;
        self.options().map_or(Ok(()), |options| write!(f, ":{options}"))
    }
}

impl FromStr for CodecConfig {
    type Err = CodecConfigError;

    fn from_str(text: &str) -> Result<Self, CodecConfigError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let codec: Codec = name.parse().map_err(|_| CodecConfigError::UnknownCodec)?;
        let config = Self::from(codec);
        if options.is_empty() { Ok(config) } else { config.with_options(options) }
    }
}

#[cfg(test)]
mod tests;

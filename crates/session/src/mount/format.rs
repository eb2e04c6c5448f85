//! What a mount sends, and which frames it can pass.

use core::fmt;
use core::str::FromStr;

use aulos_core::{ChannelLayout, Codec, SampleRate};
use aulos_proto::packets::PacketFormat;

/// The format of a mount, which all of its sources must have to be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a player must know")]
pub struct MountFormat {
    /// The codec, and so the container.
    pub codec: MountCodec,
    /// The sample rate of the decoded audio.
    pub rate: SampleRate,
    /// Its channels.
    pub layout: ChannelLayout,
}

/// The codec of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "each needs a writer")]
pub enum MountCodec {
    /// MPEG audio layer III frames.
    Mp3,
    /// AAC in ADTS.
    Aac,
    /// Opus in Ogg.
    Opus,
    /// Vorbis in Ogg.
    Vorbis,
    /// FLAC in Ogg.
    Flac,
}

/// The format of the frames of a source.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what the splitter and the decoder say")]
pub struct FrameFormat {
    /// As its container says.
    pub packets: PacketFormat,
    /// The sample rate of the decoded audio: HE-AAC has twice that of its frames.
    pub rate: SampleRate,
    /// The decoded channels.
    pub layout: ChannelLayout,
}

/// Why the frames of a source cannot be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what players cannot follow")]
pub enum PassObstacle {
    /// It has another codec.
    Codec {
        /// What it has.
        theirs: &'static str,
        /// That of the mount.
        own: MountCodec,
    },
    /// It has another sample rate.
    Rate {
        /// What it has.
        theirs: SampleRate,
        /// That of the mount.
        own: SampleRate,
    },
    /// It has other channels.
    Channels {
        /// What it has.
        theirs: ChannelLayout,
        /// Those of the mount.
        own: ChannelLayout,
    },
}

impl MountFormat {
    /// Whether frames of this format can be passed.
    ///
    /// # Errors
    /// What keeps them from it.
    pub fn accepts(&self, frames: &FrameFormat) -> Result<(), PassObstacle> {
        if MountCodec::of(&frames.packets) != Some(self.codec) {
            let theirs = codec_name(&frames.packets);
            return Err(PassObstacle::Codec { theirs, own: self.codec });
        }
        if frames.rate != self.rate {
            return Err(PassObstacle::Rate { theirs: frames.rate, own: self.rate });
        }
        if frames.layout != self.layout {
            return Err(PassObstacle::Channels { theirs: frames.layout, own: self.layout });
        }
        Ok(())
    }
}

impl MountCodec {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Mp3, Self::Aac, Self::Opus, Self::Vorbis, Self::Flac];

    /// That of packets of this format.
    #[must_use]
    pub const fn of(format: &PacketFormat) -> Option<Self> {
        match format {
            PacketFormat::Mpeg { layer: 3, .. } => Some(Self::Mp3),
            PacketFormat::Aac { .. } => Some(Self::Aac),
            PacketFormat::Opus { .. } => Some(Self::Opus),
            PacketFormat::Vorbis { .. } => Some(Self::Vorbis),
            PacketFormat::Flac { .. } => Some(Self::Flac),
            _ => None,
        }
    }

    /// Its name in configuration and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mp3 => "mp3",
            Self::Aac => "aac",
            Self::Opus => "opus",
            Self::Vorbis => "vorbis",
            Self::Flac => "flac",
        }
    }

    /// The media type of its stream.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Mp3 => Codec::Mp3.info().media_type,
            // There is no encoder with a row in the table of codecs.
            Self::Aac => "audio/aac",
            // That of the container.
            Self::Opus | Self::Vorbis | Self::Flac => Codec::Opus.info().media_type,
        }
    }

    /// Whether its stream is in Ogg, which carries titles itself.
    #[must_use]
    pub const fn is_ogg(self) -> bool {
        matches!(self, Self::Opus | Self::Vorbis | Self::Flac)
    }

    /// The codec of the encoder for audio that is not passed, if there is one.
    #[must_use]
    pub const fn encoder(self) -> Option<Codec> {
        match self {
            Self::Mp3 => Some(Codec::Mp3),
            Self::Opus => Some(Codec::Opus),
            Self::Flac => Some(Codec::Flac),
            Self::Aac => Some(Codec::Aac),
            Self::Vorbis => None,
        }
    }
}

impl FromStr for MountCodec {
    type Err = UnknownMountCodec;

    fn from_str(text: &str) -> Result<Self, UnknownMountCodec> {
        Self::ALL.into_iter().find(|codec| codec.name() == text).ok_or(UnknownMountCodec)
    }
}

impl fmt::Display for MountCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a codec of mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMountCodec;

impl fmt::Display for UnknownMountCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mount has one of the codecs mp3, aac, opus, vorbis and flac")
    }
}

impl core::error::Error for UnknownMountCodec {}

const fn codec_name(format: &PacketFormat) -> &'static str {
    match format {
        PacketFormat::Mpeg { layer: 1, .. } => "mp1",
        PacketFormat::Mpeg { layer: 2, .. } => "mp2",
        PacketFormat::Pcm { .. } => "pcm",
        other => match MountCodec::of(other) {
            Some(codec) => codec.name(),
            None => "an unknown codec",
        },
    }
}

impl fmt::Display for PassObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec { theirs, own } => write!(f, "it sends {theirs}, the mount {own}"),
            Self::Rate { theirs, own } => {
                write!(f, "it sends {} Hz, the mount {} Hz", theirs.hz(), own.hz())
            }
            Self::Channels { theirs, own } => {
                write!(f, "it sends {} channel(s), the mount {}", theirs.channels(), own.channels())
            }
        }
    }
}

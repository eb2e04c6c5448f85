//! Sound on its way to clients.

use core::fmt;
use core::str::FromStr;

use crate::{Frames, MediaTime};

/// Bytes that an encoder leaves free in front of its payload, so that a wire header can be written
/// there and the payload never moves. Snapcast needs 38, WebSocket at most 10 more.
pub const HEADROOM: usize = 64;

/// How a chunk is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Interleaved little-endian samples.
    Pcm,
    /// Whole FLAC frames (RFC 9639).
    Flac,
    /// One Opus packet (RFC 6716).
    Opus,
}

impl Codec {
    /// The name in configuration files and on Snapcast's wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcm => "pcm",
            Self::Flac => "flac",
            Self::Opus => "opus",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = UnknownCodec;

    fn from_str(text: &str) -> Result<Self, UnknownCodec> {
        Ok(match text {
            "pcm" => Self::Pcm,
            "flac" => Self::Flac,
            "opus" => Self::Opus,
            _ => return Err(UnknownCodec),
        })
    }
}

/// A name that is not one of the codecs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCodec;

impl fmt::Display for UnknownCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown codec: use pcm, flac or opus")
    }
}

impl core::error::Error for UnknownCodec {}

/// An encoded, frozen run of frames: the same bytes for every client.
///
/// `B` is whatever owns the bytes, usually a counted reference into a pool. The first
/// [`HEADROOM`] bytes belong to the wire header, of which the last `header` are in use.
#[derive(Clone, Debug)]
pub struct Chunk<B> {
    /// The media time of the first frame on the station's clock.
    pub pts: MediaTime,
    /// How many frames the payload decodes to.
    pub duration: Frames,
    /// How the payload is encoded.
    pub codec: Codec,
    /// How many bytes in front of the payload are the wire header; at most [`HEADROOM`].
    pub header: usize,
    /// Headroom and payload.
    pub bytes: B,
}

impl<B: AsRef<[u8]>> Chunk<B> {
    /// The encoded sound alone.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.as_ref().get(HEADROOM..).unwrap_or_default()
    }

    /// The wire header and the encoded sound, as they go to a client.
    #[must_use]
    pub fn framed(&self) -> &[u8] {
        self.bytes.as_ref().get(HEADROOM.saturating_sub(self.header)..).unwrap_or_default()
    }

    /// The media time of the first frame after this chunk.
    #[must_use]
    pub fn end(&self) -> MediaTime {
        self.pts + self.duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_and_header_lie_back_to_back() {
        let mut bytes = vec![0; HEADROOM];
        bytes[HEADROOM - 2..].copy_from_slice(b"hd");
        bytes.extend_from_slice(b"sound");
        let chunk =
            Chunk { pts: MediaTime(10), duration: Frames(5), codec: Codec::Pcm, header: 2, bytes };
        assert_eq!(chunk.payload(), b"sound");
        assert_eq!(chunk.framed(), b"hdsound");
        assert_eq!(chunk.end(), MediaTime(15));
    }

    #[test]
    fn codec_names_read_back() {
        for codec in [Codec::Pcm, Codec::Flac, Codec::Opus] {
            assert_eq!(codec.name().parse(), Ok(codec));
        }
        assert_eq!("vorbis".parse::<Codec>(), Err(UnknownCodec));
    }
}

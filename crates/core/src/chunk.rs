//! Encoded audio.

use core::fmt;
use core::str::FromStr;

use crate::{Frames, MediaTime};

/// Bytes that an encoder leaves free in front of its payload, so that a wire header can be written
/// there without moving the payload. Snapcast needs 38, WebSocket at most 10 more.
pub const HEADROOM: usize = 64;

/// Encoding of a chunk.
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
    /// Name in configuration files and in the Snapcast protocol.
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

/// Error: the text names no known codec.
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
/// `B` owns the bytes, usually as a counted reference into a pool. The first [`HEADROOM`] bytes are
/// reserved for the wire header, of which the last `header` are in use.
#[derive(Clone, Debug)]
pub struct Chunk<B> {
    /// The media time of the first frame on the station's clock.
    pub pts: MediaTime,
    /// Number of frames that the payload decodes to.
    pub duration: Frames,
    /// Encoding of the payload.
    pub codec: Codec,
    /// Length of the wire header in front of the payload, in bytes; at most [`HEADROOM`].
    pub header: usize,
    /// Headroom and payload.
    pub bytes: B,
}

impl<B: AsRef<[u8]>> Chunk<B> {
    /// The encoded audio without the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes.as_ref().get(HEADROOM..).unwrap_or_default()
    }

    /// The wire header and the payload, as sent to a client.
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

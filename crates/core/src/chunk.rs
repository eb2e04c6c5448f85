//! Encoded audio.

use crate::{Codec, Frames, MediaTime};

/// Bytes that an encoder leaves free in front of its payload, so that a wire header can be written
/// there without moving the payload. Snapcast needs 38, WebSocket at most 10 more.
pub const HEADROOM: usize = 64;

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
}

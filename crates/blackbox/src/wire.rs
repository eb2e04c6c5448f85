//! The part of Snapcast's stream protocol that a client needs, and the duration of a chunk.
//!
//! Layout: message header of 26 bytes, little endian: type u16, id u16, refers-to u16, sent (i32 s,
//! i32 us), received (the same), payload size u32. Written from the protocol's documentation,
//! independent of the server's parser: see the crate's documentation.

/// Size of a message header in bytes.
pub const HEADER: usize = 26;
/// Maximum payload of both sides.
pub const MAX_PAYLOAD: u32 = 1_000_000;

/// Message types.
pub mod kind {
    /// Server to client: codec of the chunks.
    pub const CODEC_HEADER: u16 = 1;
    /// Server to client: audio.
    pub const WIRE_CHUNK: u16 = 2;
    /// Server to client: volume, buffer.
    pub const SERVER_SETTINGS: u16 = 3;
    /// Both directions: time synchronization.
    pub const TIME: u16 = 4;
    /// Client to server: identification of the client.
    pub const HELLO: u16 = 5;
    /// The highest message type.
    pub const MAX: u16 = 8;
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// One of [`kind`].
    pub kind: u16,
    /// Chosen by the requester.
    pub id: u16,
    /// In a response, the id of the request.
    pub refers_to: u16,
    /// The sender's clock, microseconds.
    pub sent: i64,
    /// The receiver's clock, microseconds.
    pub received: i64,
    /// Payload bytes that follow.
    pub size: u32,
}

impl MessageHeader {
    /// Parses a header from the first [`HEADER`] bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u16_at(bytes, 0)?,
            id: u16_at(bytes, 2)?,
            refers_to: u16_at(bytes, 4)?,
            sent: time_at(bytes, 6)?,
            received: time_at(bytes, 14)?,
            size: u32_at(bytes, 22)?,
        })
    }

    /// Serializes a message with this header and payload; `size` is set to the payload's.
    #[must_use]
    pub fn message(mut self, payload: &[u8]) -> Vec<u8> {
        self.size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(HEADER + payload.len());
        for word in [self.kind, self.id, self.refers_to] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for time in [self.sent, self.received] {
            out.extend_from_slice(&time_bytes(time));
        }
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(payload);
        out
    }
}

/// Serializes microseconds as seconds and microseconds, the latter never negative.
#[must_use]
pub fn time_bytes(us: i64) -> [u8; 8] {
    let mut out = [0; 8];
    let seconds = i32::try_from(us.div_euclid(1_000_000)).unwrap_or(i32::MAX);
    let rest = i32::try_from(us.rem_euclid(1_000_000)).unwrap_or(0);
    out[..4].copy_from_slice(&seconds.to_le_bytes());
    out[4..].copy_from_slice(&rest.to_le_bytes());
    out
}

/// Parses what [`time_bytes`] writes; in microseconds.
#[must_use]
pub fn time_at(bytes: &[u8], at: usize) -> Option<i64> {
    let signed = |at| Some(i64::from(u32_at(bytes, at)?.cast_signed()));
    Some(signed(at)? * 1_000_000 + signed(at + 4)?)
}

/// A Hello with a distinct id for each client.
#[must_use]
pub fn hello(client: usize) -> Vec<u8> {
    let mac =
        format!("02:00:00:{:02x}:{:02x}:{:02x}", client >> 16, client >> 8 & 255, client & 255);
    let body = serde_json::json!({
        "MAC": mac, "ID": mac, "HostName": format!("load{client}"), "Version": "0.26.0",
        "ClientName": "aulos-load", "OS": "Linux", "Arch": "x86_64", "Instance": 1,
        "SnapStreamProtocolVersion": 2,
    })
    .to_string();
    let mut payload = u32::try_from(body.len()).unwrap_or(0).to_le_bytes().to_vec();
    payload.extend_from_slice(body.as_bytes());
    let header =
        MessageHeader { kind: kind::HELLO, id: 2, refers_to: 0, sent: 0, received: 0, size: 0 };
    header.message(&payload)
}

/// Codec of a station's chunks, as far as it determines their duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkCodec {
    /// PCM frames.
    Pcm {
        /// Frames per second.
        rate: u32,
        /// Bytes per frame on the wire.
        frame: u32,
    },
    /// One whole FLAC frame; with several, the first one's length counts.
    Flac {
        /// Frames per second.
        rate: u32,
    },
    /// One Opus packet.
    Opus {
        /// Frames per second.
        rate: u32,
    },
}

impl ChunkCodec {
    /// Parses the payload of a codec header; `None` for other codecs.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let name_len = u32_at(payload, 0)? as usize;
        let name = payload.get(4..4 + name_len)?;
        let header = payload.get(8 + name_len..)?;
        match name {
            b"pcm" => {
                let (channels, bits) = (u16_at(header, 22)?, u16_at(header, 34)?);
                // 24 bits are sent in 4 bytes, whatever the header contains.
                let width = if bits == 24 { 4 } else { u32::from(bits / 8) };
                let rate = u32_at(header, 24)?;
                Some(Self::Pcm { rate, frame: u32::from(channels) * width })
            }
            // STREAMINFO (RFC 9639, 8.2) follows "fLaC" and a block header; rate: 20 bits at 10.
            b"flac" => {
                let at = |i: usize| header.get(8 + i).copied().map(u32::from);
                Some(Self::Flac { rate: at(10)? << 12 | at(11)? << 4 | at(12)? >> 4 })
            }
            b"opus" => Some(Self::Opus { rate: u32_at(header, 4)? }),
            _ => None,
        }
    }

    /// Name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcm { .. } => "pcm",
            Self::Flac { .. } => "flac",
            Self::Opus { .. } => "opus",
        }
    }

    /// Frames per second.
    #[must_use]
    pub const fn rate(self) -> u32 {
        match self {
            Self::Pcm { rate, .. } | Self::Flac { rate } | Self::Opus { rate } => rate,
        }
    }

    /// Number of frames in a chunk of `len` encoded bytes that begins with `start`.
    #[must_use]
    pub fn frames(self, start: &[u8], len: u32) -> Option<u32> {
        match self {
            Self::Pcm { frame, .. } => len.checked_div(frame),
            Self::Flac { .. } => flac_frames(start),
            Self::Opus { rate } => opus_frames(start, rate),
        }
    }
}

/// Block size of the FLAC frame at the start of `b` (RFC 9639, 9.1).
fn flac_frames(b: &[u8]) -> Option<u32> {
    if b.first()? != &0xFF || b.get(1)? & 0xFC != 0xF8 {
        return None;
    }
    let number_len = match b.get(4)?.leading_ones() {
        0 => 1,
        n => n as usize,
    };
    let after = |i: usize| b.get(4 + number_len + i).copied().map(u32::from);
    Some(match b.get(2)? >> 4 {
        1 => 192,
        n @ 2..=5 => 576 << (n - 2),
        6 => after(0)? + 1,
        7 => (after(0)? << 8 | after(1)?) + 1,
        n @ 8..=15 => 256 << (n - 8),
        _ => return None,
    })
}

/// Frames of an Opus packet at a rate (RFC 6716, 3.1 and 3.2).
fn opus_frames(b: &[u8], rate: u32) -> Option<u32> {
    let toc = *b.first()?;
    let tenths_of_ms = match toc >> 3 {
        config @ 0..=11 => [100, 200, 400, 600][usize::from(config % 4)],
        config @ 12..=15 => [100, 200][usize::from(config % 2)],
        config => [25, 50, 100, 200][usize::from(config % 4)],
    };
    let count = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u32::from(b.get(1)? & 63),
    };
    Some(rate * tenths_of_ms / 10_000 * count)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_zero_keep_their_microseconds_positive() {
        for us in [0, 1, -1, 999_999, -1_000_000, 1_234_567, -1_234_567] {
            assert_eq!(time_at(&time_bytes(us), 0), Some(us));
        }
        assert_eq!(time_bytes(-1)[4..], 999_999_i32.to_le_bytes());
    }

    #[test]
    fn chunks_know_how_long_they_last() {
        assert_eq!(ChunkCodec::Pcm { rate: 48_000, frame: 4 }.frames(&[], 3840), Some(960));
        // 1152 frames (code 3), 48 kHz, frame number 5.
        assert_eq!(flac_frames(&[0xFF, 0xF8, 0x3A, 0x18, 5]), Some(1152));
        // 960 frames: a 16-bit size after a frame number of two bytes.
        assert_eq!(flac_frames(&[0xFF, 0xF8, 0x7A, 0x18, 0xC3, 0x80, 0x03, 0xBF]), Some(960));
        assert_eq!(flac_frames(&[0; 8]), None);
        // CELT full band, 20 ms, stereo, one frame.
        assert_eq!(opus_frames(&[0xFC], 48_000), Some(960));
        assert_eq!(opus_frames(&[0xE3 | 0x1C, 3], 48_000), Some(2880));
    }
}

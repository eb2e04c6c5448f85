//! What a stream is, and what a player can play.

use aulos_core::Codec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::flac::StreamInfo;

/// The format of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AudioFormat {
    /// The format, as players list it.
    pub format: SupportedFormat,
    /// `fLaC` and STREAMINFO, for FLAC.
    header: Option<[u8; FLAC_HEADER_LEN]>,
    /// Whether PCM has four bytes for 24 bits, as Snapcast sends it; players get three.
    pub is_padded: bool,
}

/// A format that a player can play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a format of the protocol")]
pub struct SupportedFormat {
    /// FLAC, Opus or PCM.
    pub codec: Codec,
    /// Channels.
    pub channels: u16,
    /// Frames per second.
    pub hz: u32,
    /// Bits of a sample.
    pub bits: u16,
}

impl SupportedFormat {
    /// One entry of `supported_formats`; `None` if it is not understood.
    pub(super) fn parse(entry: &Value) -> Option<Self> {
        let number = |key| entry.get(key)?.as_u64();
        let codec = match entry.get("codec")?.as_str()? {
            "flac" => Codec::Flac,
            "opus" => Codec::Opus,
            "pcm" => Codec::Pcm,
            _ => return None,
        };
        Some(Self {
            codec,
            channels: u16::try_from(number("channels")?).ok()?,
            hz: u32::try_from(number("sample_rate")?).ok()?,
            bits: u16::try_from(number("bit_depth").unwrap_or(16)).ok()?,
        })
    }

    /// An entry of `supported_formats`.
    #[cfg(feature = "noise")]
    pub(super) fn to_json(self) -> Value {
        let Self { codec, channels, hz, bits } = self;
        serde_json::json!({
            "codec": codec.name(),
            "channels": channels,
            "sample_rate": hz,
            "bit_depth": bits,
        })
    }

    /// Whether it is the same; Opus has no bits.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.codec == other.codec
            && self.channels == other.channels
            && self.hz == other.hz
            && (self.codec == Codec::Opus || self.bits == other.bits)
    }
}

impl core::fmt::Display for SupportedFormat {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {}:{}:{}", self.codec, self.hz, self.bits, self.channels)
    }
}

impl AudioFormat {
    /// The format of a station's chunks, from the payload of its Snapcast codec header: chunks are
    /// the same bytes for the clients of both protocols. `None` if it is another codec or malformed.
    #[must_use]
    pub fn from_codec_header(payload: &[u8]) -> Option<Self> {
        let (codec, rest) = blob(payload)?;
        let (header, _) = blob(rest)?;
        match codec {
            b"pcm" => pcm(header),
            b"flac" => flac(header),
            b"opus" => opus(header),
            _ => None,
        }
    }

    /// The object `player` of `stream/start`.
    pub(super) fn to_json(&self) -> Value {
        let SupportedFormat { codec, channels, hz, bits } = self.format;
        let mut json = Map::new();
        for (key, value) in [
            ("codec", codec.name().into()),
            ("sample_rate", hz.into()),
            ("channels", channels.into()),
            ("bit_depth", bits.into()),
            ("codec_header", self.header.map(|header| STANDARD.encode(header)).into()),
        ] {
            json.insert(key.to_owned(), value);
        }
        json.retain(|_, value: &mut Value| !value.is_null());
        Value::Object(json)
    }

    /// Appends a chunk of the station as players get it.
    pub(super) fn write_payload(&self, chunk: &[u8], out: &mut Vec<u8>) {
        if self.is_padded {
            out.extend(chunk.as_chunks::<4>().0.iter().flat_map(|[a, b, c, _]| [*a, *b, *c]));
        } else {
            out.extend_from_slice(chunk);
        }
    }

    /// Bytes of a chunk as players get it.
    pub(super) const fn payload_len(&self, chunk: usize) -> usize {
        if self.is_padded { chunk / 4 * 3 } else { chunk }
    }
}

/// A length of four bytes, little-endian, and what it counts.
fn blob(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// The fields of a RIFF/WAVE header of 44 bytes.
fn pcm(header: &[u8]) -> Option<AudioFormat> {
    let (_, fields) = header.split_first_chunk::<22>()?;
    let [c0, c1, h0, h1, h2, h3, _, _, _, _, _, _, b0, b1, ..] = fields.first_chunk::<22>()?;
    let channels = u16::from_le_bytes([*c0, *c1]);
    let hz = u32::from_le_bytes([*h0, *h1, *h2, *h3]);
    let bits = u16::from_le_bytes([*b0, *b1]);
    let format = SupportedFormat { codec: Codec::Pcm, channels, hz, bits };
    Some(AudioFormat { format, header: None, is_padded: bits == 24 })
}

/// `fLaC`, and STREAMINFO as the first block of metadata; blocks behind it are left out.
fn flac(header: &[u8]) -> Option<AudioFormat> {
    let info = StreamInfo::parse(header.strip_prefix(b"fLaC")?.get(4..)?)?;
    let channels = u16::try_from(info.channels()).ok()?;
    let bits = u16::from(info.bits());
    let format = SupportedFormat { codec: Codec::Flac, channels, hz: info.hz(), bits };
    // The last block of metadata, STREAMINFO, of 34 bytes.
    let mut own = [0; FLAC_HEADER_LEN];
    let front = b"fLaC\x80\x00\x00\x22".iter();
    for (place, byte) in own.iter_mut().zip(front.chain(info.bytes())) {
        *place = *byte;
    }
    Some(AudioFormat { format, header: Some(own), is_padded: false })
}

/// `SUPO`, rate, bits, channels.
fn opus(header: &[u8]) -> Option<AudioFormat> {
    let [_, _, _, _, a, b, c, d, _, _, e, f] = *header.first_chunk::<12>()?;
    let (hz, channels) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
    let format = SupportedFormat { codec: Codec::Opus, channels, hz, bits: 16 };
    Some(AudioFormat { format, header: None, is_padded: false })
}

/// `fLaC`, a block header and STREAMINFO.
const FLAC_HEADER_LEN: usize = 4 + 4 + 34;

#[cfg(test)]
mod tests {
    use aulos_core::{ChannelLayout, SampleFormat, SampleRate, SampleSpec};

    use super::*;
    use crate::snap::wire::codec_header;

    fn spec(format: SampleFormat) -> SampleSpec {
        SampleSpec { rate: SampleRate::new(48_000).unwrap(), format, layout: ChannelLayout::STEREO }
    }

    #[test]
    fn formats_of_a_station_become_those_of_a_player() {
        let format = |codec, sample, stream: &[u8]| {
            let header = codec_header(codec, spec(sample), stream).unwrap();
            AudioFormat::from_codec_header(&header).unwrap()
        };
        let pcm = format(Codec::Pcm, SampleFormat::S24In32Le, &[]);
        assert_eq!(pcm.format.to_string(), "pcm 48000:24:2");
        assert_eq!(pcm.to_json()["codec_header"], Value::Null);
        let mut out = Vec::new();
        pcm.write_payload(&[1, 2, 3, 0, 4, 5, 6, 255], &mut out);
        assert_eq!((out.len(), pcm.payload_len(8)), (6, 6));
        assert_eq!(out, [1, 2, 3, 4, 5, 6]);
        let opus = format(Codec::Opus, SampleFormat::S16Le, &[]);
        assert_eq!(opus.format.to_string(), "opus 48000:16:2");
        let mut stream = b"fLaC\x00\x00\x00\x22".to_vec();
        stream.extend([0x10, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x0b, 0xb8, 0x02, 0xf0]);
        stream.extend([0; 20]);
        stream.extend([0x84, 0, 0, 2, 0, 0]);
        let flac = format(Codec::Flac, SampleFormat::S16Le, &stream);
        assert_eq!(flac.format.to_string(), "flac 48000:16:2");
        let json = flac.to_json();
        let header = STANDARD.decode(json["codec_header"].as_str().unwrap()).unwrap();
        assert_eq!((header.len(), header[4]), (42, 0x80));
        assert_eq!(header[8..42], stream[8..42]);
    }

    #[test]
    fn a_header_that_is_cut_is_none() {
        let header = codec_header(Codec::Pcm, spec(SampleFormat::S16Le), &[]).unwrap();
        for length in 0..header.len() {
            assert_eq!(AudioFormat::from_codec_header(&header[..length]), None);
        }
    }
}

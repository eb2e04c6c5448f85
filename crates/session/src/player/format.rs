//! Streams, as their codec headers describe them.

use core::fmt;

use aulos_core::{ChannelLayout, Codec, SampleFormat, SampleRate, SampleSpec};
use aulos_proto::flac::StreamInfo;

/// Codec and sample spec of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamFormat {
    /// Encoding of the chunks.
    pub codec: Codec,
    /// What they decode to.
    pub spec: SampleSpec,
}

/// Why a stream cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedStream {
    /// There is no decoder for this codec.
    Codec(String),
    /// The header of this codec cannot be understood.
    Header(Codec),
}

impl fmt::Display for UnsupportedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(name) => {
                write!(
                    f,
                    "the server sends `{name}`, which is not supported: choose flac, opus or pcm"
                )
            }
            Self::Header(codec) => {
                write!(f, "the server's header of its {codec} stream is malformed")
            }
        }
    }
}

impl core::error::Error for UnsupportedStream {}

impl StreamFormat {
    /// Parses a codec header of Snapcast's stream protocol.
    ///
    /// # Errors
    /// [`UnsupportedStream`].
    pub fn parse(codec: &[u8], header: &[u8]) -> Result<Self, UnsupportedStream> {
        let name = String::from_utf8_lossy(codec);
        let codec: Codec =
            name.parse().map_err(|_| UnsupportedStream::Codec(name.chars().take(32).collect()))?;
        let spec = match codec {
            Codec::Pcm => pcm_spec(header),
            Codec::Flac => flac_spec(header),
            Codec::Opus => opus_spec(header),
            _ => return Err(UnsupportedStream::Codec(codec.name().to_owned())),
        };
        let spec = spec.filter(|spec| codec.info().supports(*spec) || codec == Codec::Pcm);
        spec.map(|spec| Self { codec, spec }).ok_or(UnsupportedStream::Header(codec))
    }
}

/// A RIFF/WAVE header of 44 bytes.
fn pcm_spec(header: &[u8]) -> Option<SampleSpec> {
    let fields: &[u8; 44] = header.first_chunk()?;
    let short = |at: usize| u16::from_le_bytes([fields[at], fields[at + 1]]);
    let hz = u32::from_le_bytes([fields[24], fields[25], fields[26], fields[27]]);
    let format = match short(34) {
        8 => SampleFormat::S8,
        16 => SampleFormat::S16Le,
        24 => SampleFormat::S24In32Le,
        32 => SampleFormat::S32Le,
        _ => return None,
    };
    (fields.starts_with(b"RIFF")).then(|| spec(hz, format, short(22).into()))?
}

/// `fLaC` and the STREAMINFO block.
fn flac_spec(header: &[u8]) -> Option<SampleSpec> {
    let info = StreamInfo::parse(header.strip_prefix(b"fLaC")?.get(4..)?)?;
    let format = match info.bits() {
        16 => SampleFormat::S16Le,
        24 => SampleFormat::S24In32Le,
        _ => return None,
    };
    spec(info.hz(), format, info.channels())
}

/// A magic number, rate, bits and channels.
fn opus_spec(header: &[u8]) -> Option<SampleSpec> {
    let &[b'S', b'U', b'P', b'O', a, b, c, d, _, _, e, f] = header.first_chunk()? else {
        return None;
    };
    let channels = u16::from_le_bytes([e, f]);
    spec(u32::from_le_bytes([a, b, c, d]), SampleFormat::S16Le, channels.into())
}

fn spec(hz: u32, format: SampleFormat, channels: usize) -> Option<SampleSpec> {
    let layout = ChannelLayout::new(channels).ok()?;
    Some(SampleSpec { rate: SampleRate::new(hz).ok()?, format, layout })
}

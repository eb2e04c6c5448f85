//! Parses the header of a WAVE file up to its samples.

use core::fmt;

use aulos_core::{ChannelLayout, SampleFormat, SampleRate};

use super::{SUB_FORMAT_TAIL, TAG_EXTENSIBLE, TAG_FLOAT, TAG_PCM};
use crate::bytes::Reader;

/// Maximum bytes before the samples. Broadcast files have some kilobytes of metadata in front;
/// cover art can have hundreds.
pub const MAX_PREAMBLE: usize = 4 * 1024 * 1024;

/// Parsed header of a WAVE file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaveInfo {
    /// Frames per second.
    pub rate: SampleRate,
    /// Number of channels.
    pub layout: ChannelLayout,
    /// Sample format.
    pub sample_format: WavSampleFormat,
    /// Loudspeaker of each channel, one bit each in the order of WAVE; `None` if the file does not
    /// state it, or states it for another number of channels.
    pub channel_mask: Option<u32>,
    /// Offset of the samples from the start of the file, in bytes.
    pub data_offset: usize,
    /// Bytes of samples; `None` if not declared, as in endless streams and in files whose writer
    /// was killed. The file may end before.
    pub data_bytes: Option<u64>,
}

impl WaveInfo {
    /// Bytes of one frame.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        self.sample_format.bytes() * self.layout.channels()
    }
}

/// Format of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "all other formats of WAVE are compressed")]
pub enum WavSampleFormat {
    /// A format that [`SampleFormat`] has. Samples with fewer bits than their container are
    /// left-aligned, so that they need no case of their own.
    Native(SampleFormat),
    /// 64-bit floats.
    F64,
}

impl WavSampleFormat {
    /// Bytes of one sample.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Native(format) => format.bytes(),
            Self::F64 => 8,
        }
    }
}

/// Result of parsing the bytes available so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "errors are in `WavError`")]
pub enum ParseOutcome {
    /// So many bytes from the start of the file are needed to continue; at most [`MAX_PREAMBLE`].
    Incomplete {
        /// Bytes from the start of the file.
        needed: usize,
    },
    /// The header is complete.
    Complete(WaveInfo),
}

/// Parses a RIFF, RF64 or BW64 file up to its samples.
///
/// # Errors
/// [`WavError`].
pub fn parse(bytes: &[u8]) -> Result<ParseOutcome, WavError> {
    let mut reader = Reader::new(bytes);
    let Some(start) = reader.array::<12>() else {
        return Ok(ParseOutcome::Incomplete { needed: 12 });
    };
    let [a, b, c, d, s0, s1, s2, s3, wave @ ..] = start;
    let is_rf64 = match &[a, b, c, d] {
        b"RIFF" => false,
        b"RF64" | b"BW64" => true,
        _ => return Err(WavError::NotWave),
    };
    if &wave != b"WAVE" {
        return Err(WavError::NotWave);
    }
    let riff_size = if is_rf64 { u32::MAX } else { u32::from_le_bytes([s0, s1, s2, s3]) };
    parse_chunks(bytes, reader, is_rf64, riff_size)
}

/// `riff_size` is the declared length of the file without its first eight bytes.
fn parse_chunks(
    bytes: &[u8],
    mut reader: Reader<'_>,
    is_rf64: bool,
    riff_size: u32,
) -> Result<ParseOutcome, WavError> {
    let (mut format, mut ds64_bytes) = (None, None);
    loop {
        let at = bytes.len() - reader.rest().len();
        let (Some(name), Some(size)) = (reader.array::<4>(), reader.u32()) else {
            return incomplete(at + 8);
        };
        if &name == b"data" {
            let data_bytes = match (size, is_rf64) {
                (u32::MAX, true) => ds64_bytes,
                (u32::MAX, false) => None,
                // The writer ended without patching the sizes.
                (0, false) if riff_size as usize <= at => None,
                (size, _) => Some(u64::from(size)),
            };
            let format: FormatChunk = format.ok_or(WavError::NoFormat)?;
            let FormatChunk { rate, layout, sample_format, channel_mask } = format;
            return Ok(ParseOutcome::Complete(WaveInfo {
                rate,
                layout,
                sample_format,
                channel_mask,
                data_offset: at + 8,
                data_bytes,
            }));
        }
        let padded = (size as usize).saturating_add(size as usize % 2);
        let Some(body) = reader.take(padded) else {
            return incomplete((at + 8).saturating_add(padded));
        };
        match &name {
            b"fmt " => format = Some(parse_format_chunk(body)?),
            b"ds64" => ds64_bytes = ds64_data_bytes(body),
            _ => {}
        }
    }
}

const fn incomplete(needed: usize) -> Result<ParseOutcome, WavError> {
    if needed > MAX_PREAMBLE {
        return Err(WavError::PreambleTooLong);
    }
    Ok(ParseOutcome::Incomplete { needed })
}

/// EBU Tech 3306: the size of the file, then that of the samples. Streams write zero or all ones.
fn ds64_data_bytes(body: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(body);
    reader.take(8)?;
    let length = reader.array().map(u64::from_le_bytes)?;
    (length != 0 && length != u64::MAX).then_some(length)
}

struct FormatChunk {
    rate: SampleRate,
    layout: ChannelLayout,
    sample_format: WavSampleFormat,
    channel_mask: Option<u32>,
}

fn parse_format_chunk(body: &[u8]) -> Result<FormatChunk, WavError> {
    let fields = RawFormatChunk::parse(body).ok_or(WavError::BadFormat)?;
    let layout =
        ChannelLayout::new(usize::from(fields.channels)).map_err(|_| WavError::BadFormat)?;
    let rate = SampleRate::new(fields.rate).map_err(|_| WavError::BadFormat)?;
    let unsupported = WavError::Unsupported { tag: fields.tag, bits: fields.bits };
    if fields.block_align % fields.channels != 0 {
        return Err(WavError::BadFormat);
    }
    let bytes = fields.block_align / fields.channels;
    if fields.bits == 0 || fields.bits > bytes.saturating_mul(8) {
        return Err(WavError::BadFormat);
    }
    let sample_format = match (fields.tag, bytes) {
        (TAG_PCM, 1) => WavSampleFormat::Native(SampleFormat::U8),
        (TAG_PCM, 2) => WavSampleFormat::Native(SampleFormat::S16Le),
        (TAG_PCM, 3) => WavSampleFormat::Native(SampleFormat::S24Le),
        (TAG_PCM, 4) => WavSampleFormat::Native(SampleFormat::S32Le),
        (TAG_FLOAT, 4) => WavSampleFormat::Native(SampleFormat::F32),
        (TAG_FLOAT, 8) => WavSampleFormat::F64,
        _ => return Err(unsupported),
    };
    let channel_mask = Some(fields.channel_mask);
    let channel_mask = channel_mask.filter(|mask| mask.count_ones() == u32::from(fields.channels));
    Ok(FormatChunk { rate, layout, sample_format, channel_mask })
}

struct RawFormatChunk {
    tag: u16,
    channels: u16,
    rate: u32,
    block_align: u16,
    bits: u16,
    channel_mask: u32,
}

impl RawFormatChunk {
    fn parse(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let tag = reader.u16()?;
        let channels = reader.u16()?;
        let rate = reader.u32()?;
        reader.u32()?;
        let block_align = reader.u16()?;
        let bits = reader.u16()?;
        let (channel_mask, tag) =
            if tag == TAG_EXTENSIBLE { parse_extension(reader)? } else { (0, tag) };
        Some(Self { tag, channels, rate, block_align, bits, channel_mask })
    }
}

/// `WAVEFORMATEXTENSIBLE`: size, valid bits, channel mask, and a GUID of a tag and a fixed tail.
fn parse_extension(mut reader: Reader<'_>) -> Option<(u32, u16)> {
    reader.take(2 + 2)?;
    let (channel_mask, tag) = (reader.u32()?, reader.u16()?);
    (reader.take(SUB_FORMAT_TAIL.len())? == SUB_FORMAT_TAIL).then_some((channel_mask, tag))
}

/// Why bytes are not a supported WAVE file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WavError {
    /// The signature is missing.
    NotWave,
    /// The samples come before the format chunk.
    NoFormat,
    /// The fields of the format contradict each other.
    BadFormat,
    /// A compressed format, or samples of an unusual size.
    Unsupported {
        /// Format tag.
        tag: u16,
        /// Bits per sample.
        bits: u16,
    },
    /// The samples begin behind [`MAX_PREAMBLE`].
    PreambleTooLong,
}

impl fmt::Display for WavError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWave => f.write_str("not a WAVE file"),
            Self::NoFormat => f.write_str("invalid WAVE file: `data` chunk before `fmt ` chunk"),
            Self::BadFormat => f.write_str("invalid WAVE file: inconsistent `fmt ` chunk"),
            Self::Unsupported { tag, bits } => {
                write!(f, "unsupported WAVE file: format tag {tag} with {bits} bits")
            }
            Self::PreambleTooLong => write!(f, "no `data` chunk in the first {MAX_PREAMBLE} bytes"),
        }
    }
}

impl core::error::Error for WavError {}

#[cfg(test)]
mod tests {
    use aulos_core::SampleSpec;
    use proptest::prelude::*;

    use super::super::{DataLength, HEADER_LEN, header};
    use super::*;

    fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len()).unwrap();
        let mut bytes = [&name[..], &size.to_le_bytes(), body].concat();
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        bytes
    }

    fn fmt(tag: u16, channels: u16, block_align: u16, bits: u16, more: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for field in [tag, channels, 0xbb80, 0, 0, 0, block_align, bits] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        body.extend_from_slice(more);
        chunk(b"fmt ", &body)
    }

    fn file(start: &[u8; 4], chunks: &[&[u8]]) -> Vec<u8> {
        [&start[..], &[0xff; 4], b"WAVE", &chunks.concat(), b"data\xff\xff\xff\xff"].concat()
    }

    fn extensible(tag: u16, valid: u16) -> Vec<u8> {
        let mut more = [22_u16, valid, 3, 0, tag].map(u16::to_le_bytes).concat();
        more.extend_from_slice(&SUB_FORMAT_TAIL);
        more
    }

    #[test]
    fn a_written_header_parses_to_the_same_format() {
        for text in ["48000:16:2", "8000:u8:1", "96000:s24:6", "44100:32:2", "192000:f32:8"] {
            let spec: SampleSpec = text.parse().unwrap();
            let bytes = header(spec, DataLength::Bytes(1_000)).unwrap();
            let wave = WaveInfo {
                rate: spec.rate,
                layout: spec.layout,
                sample_format: WavSampleFormat::Native(spec.format),
                channel_mask: None,
                data_offset: HEADER_LEN,
                data_bytes: Some(1_000),
            };
            assert_eq!(wave.frame_bytes(), spec.frame_bytes());
            assert_eq!(parse(&bytes), Ok(ParseOutcome::Complete(wave)));
            let endless = header(spec, DataLength::Endless).unwrap();
            assert_eq!(
                parse(&endless),
                Ok(ParseOutcome::Complete(WaveInfo { data_bytes: None, ..wave }))
            );
        }
    }

    #[test]
    fn extensible_formats_and_odd_chunks_are_parsed() {
        let once = fmt(TAG_EXTENSIBLE, 2, 8, 32, &extensible(TAG_PCM, 24));
        let bytes = file(b"RIFF", &[&chunk(b"bext", b"odd"), &once]);
        let Ok(ParseOutcome::Complete(wave)) = parse(&bytes) else { panic!("{:?}", parse(&bytes)) };
        assert_eq!(
            (wave.sample_format, wave.channel_mask),
            (WavSampleFormat::Native(SampleFormat::S32Le), Some(3))
        );
        assert_eq!((wave.data_offset, wave.data_bytes), (bytes.len(), None));
        assert_eq!(wave.frame_bytes(), 8);
        // A mask with two bits for one channel is ignored.
        let twice = fmt(TAG_EXTENSIBLE, 1, 8, 64, &extensible(TAG_FLOAT, 64));
        let Ok(ParseOutcome::Complete(wave)) = parse(&file(b"RIFF", &[&twice])) else { panic!() };
        assert_eq!((wave.sample_format, wave.channel_mask), (WavSampleFormat::F64, None));
    }

    #[test]
    fn a_length_that_was_never_patched_is_none() {
        let fmt = fmt(1, 2, 4, 16, &[]);
        let lengths = |riff: u32, data: u32| {
            let mut bytes = file(b"RIFF", &[&fmt]);
            bytes[4..8].copy_from_slice(&riff.to_le_bytes());
            let at = bytes.len() - 4;
            bytes[at..].copy_from_slice(&data.to_le_bytes());
            let Ok(ParseOutcome::Complete(wave)) = parse(&bytes) else { panic!() };
            wave.data_bytes
        };
        assert_eq!(lengths(0, 0), None);
        assert_eq!(lengths(36, 0), None);
        assert_eq!(lengths(u32::MAX, u32::MAX), None);
        // Empty, and followed by another chunk.
        assert_eq!(lengths(100, 0), Some(0));
    }

    #[test]
    fn the_length_of_an_rf64_file_comes_from_ds64() {
        let mut sizes = [0; 28];
        sizes[8..16].copy_from_slice(&5_000_000_000_u64.to_le_bytes());
        let fmt = fmt(TAG_FLOAT, 2, 8, 32, &[]);
        let bytes = file(b"RF64", &[&chunk(b"ds64", &sizes), &fmt]);
        let Ok(ParseOutcome::Complete(wave)) = parse(&bytes) else { panic!("{:?}", parse(&bytes)) };
        assert_eq!(wave.data_bytes, Some(5_000_000_000));
    }

    #[test]
    fn each_invalid_header_has_its_own_error() {
        let cases = [
            (file(b"RIFX", &[]), WavError::NotWave),
            (file(b"RIFF", &[]), WavError::NoFormat),
            (file(b"RIFF", &[&fmt(1, 0, 4, 16, &[])]), WavError::BadFormat),
            (file(b"RIFF", &[&fmt(1, 2, 3, 16, &[])]), WavError::BadFormat),
            (file(b"RIFF", &[&fmt(1, 2, 4, 17, &[])]), WavError::BadFormat),
            (file(b"RIFF", &[&fmt(TAG_EXTENSIBLE, 2, 4, 16, &[0; 24])]), WavError::BadFormat),
            (file(b"RIFF", &[&chunk(b"fmt ", &[1, 0])]), WavError::BadFormat),
            (
                file(b"RIFF", &[&fmt(85, 2, 4, 16, &[])]),
                WavError::Unsupported { tag: 85, bits: 16 },
            ),
            (b"RIFF....WAVEjunk\xff\xff\xff\xff".to_vec(), WavError::PreambleTooLong),
        ];
        for (bytes, error) in cases {
            assert_eq!(parse(&bytes), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_and_incomplete_input_asks_for_more(tail: Vec<u8>, riff: bool) {
            let bytes = if riff { [b"RIFF....WAVE", &tail[..]].concat() } else { tail };
            match parse(&bytes) {
                Ok(ParseOutcome::Incomplete { needed }) => prop_assert!(needed > bytes.len()),
                Ok(ParseOutcome::Complete(wave)) => prop_assert!(wave.data_offset <= bytes.len()),
                Err(_) => {}
            }
        }

        #[test]
        fn a_header_that_arrives_in_pieces_is_parsed(junk in prop::collection::vec(any::<u8>(), 0..99)) {
            let bytes = file(b"RIFF", &[&chunk(b"JUNK", &junk), &fmt(1, 2, 4, 16, &[0, 0])]);
            for length in 0..bytes.len() {
                let Ok(ParseOutcome::Incomplete { needed }) = parse(&bytes[..length]) else {
                    panic!("known too early")
                };
                prop_assert!(needed > length && needed <= bytes.len());
            }
            prop_assert!(matches!(parse(&bytes), Ok(ParseOutcome::Complete(_))));
        }
    }
}

//! Where the sound of a WAVE file begins, and what it is.

use core::fmt;

use aulos_core::{ChannelLayout, SampleFormat, SampleRate};

use super::{SUB_FORMAT_TAIL, TAG_EXTENSIBLE, TAG_FLOAT, TAG_PCM};
use crate::bytes::Reader;

/// How far into a file the sound may begin. Broadcast files have some kilobytes of metadata in
/// front, and cover art can have hundreds.
pub const MAX_PREAMBLE: usize = 4 * 1024 * 1024;

/// What a WAVE file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Frames per second.
    pub rate: SampleRate,
    /// How many channels.
    pub layout: ChannelLayout,
    /// How a sample is written.
    pub samples: Samples,
    /// Where the channels stand, a bit for each loudspeaker in the order of WAVE; none where the
    /// file does not say it, or says it for another number of channels.
    pub speakers: Option<u32>,
    /// Where the sound begins, in bytes from the start of the file.
    pub start: usize,
    /// Bytes of sound; none when the file does not say, as endless streams do not, and files whose
    /// writer was killed. The file may end before.
    pub length: Option<u64>,
}

impl Wave {
    /// Bytes of one frame.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        self.samples.bytes() * self.layout.channels()
    }
}

/// How a sample is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what WAVE has besides is compressed")]
pub enum Samples {
    /// As the house has it. Samples of fewer bits than their bytes have room for lie in the high
    /// bits, so they need no case of their own.
    House(SampleFormat),
    /// Floats of 64 bits.
    F64,
}

impl Samples {
    /// Bytes of one sample.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::House(format) => format.bytes(),
            Self::F64 => 8,
        }
    }
}

/// What the bytes so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third answer")]
pub enum Parsed {
    /// So many bytes from the start of the file are needed to know more; at most [`MAX_PREAMBLE`].
    Incomplete {
        /// Bytes from the start of the file.
        needed: usize,
    },
    /// The sound begins.
    Wave(Wave),
}

/// Reads the front of a RIFF, RF64 or BW64 file up to the beginning of its sound.
///
/// # Errors
/// [`WavError`].
pub fn parse(bytes: &[u8]) -> Result<Parsed, WavError> {
    let mut reader = Reader::new(bytes);
    let Some(start) = reader.array::<12>() else {
        return Ok(Parsed::Incomplete { needed: 12 });
    };
    let [a, b, c, d, s0, s1, s2, s3, wave @ ..] = start;
    let long = match &[a, b, c, d] {
        b"RIFF" => false,
        b"RF64" | b"BW64" => true,
        _ => return Err(WavError::NotWave),
    };
    if &wave != b"WAVE" {
        return Err(WavError::NotWave);
    }
    let whole = if long { u32::MAX } else { u32::from_le_bytes([s0, s1, s2, s3]) };
    walk(bytes, reader, long, whole)
}

/// `whole` is how long the file says it is, without its first eight bytes.
fn walk(bytes: &[u8], mut reader: Reader<'_>, long: bool, whole: u32) -> Result<Parsed, WavError> {
    let (mut format, mut long_length) = (None, None);
    loop {
        let at = bytes.len() - reader.rest().len();
        let (Some(name), Some(size)) = (reader.array::<4>(), reader.u32()) else {
            return incomplete(at + 8);
        };
        if &name == b"data" {
            let length = match (size, long) {
                (u32::MAX, true) => long_length,
                (u32::MAX, false) => None,
                // Whoever began it never came back to say how long it is.
                (0, false) if whole as usize <= at => None,
                (size, _) => Some(u64::from(size)),
            };
            let format: Format = format.ok_or(WavError::NoFormat)?;
            let Format { rate, layout, samples, speakers } = format;
            return Ok(Parsed::Wave(Wave {
                rate,
                layout,
                samples,
                speakers,
                start: at + 8,
                length,
            }));
        }
        let padded = (size as usize).saturating_add(size as usize % 2);
        let Some(body) = reader.take(padded) else {
            return incomplete((at + 8).saturating_add(padded));
        };
        match &name {
            b"fmt " => format = Some(read_format(body)?),
            b"ds64" => long_length = ds64_length(body),
            _ => {}
        }
    }
}

const fn incomplete(needed: usize) -> Result<Parsed, WavError> {
    if needed > MAX_PREAMBLE {
        return Err(WavError::TooFar);
    }
    Ok(Parsed::Incomplete { needed })
}

/// EBU Tech 3306: the size of the file, then that of the sound; nothing or everything is what
/// streams write there.
fn ds64_length(body: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(body);
    reader.take(8)?;
    let length = reader.array().map(u64::from_le_bytes)?;
    (length != 0 && length != u64::MAX).then_some(length)
}

struct Format {
    rate: SampleRate,
    layout: ChannelLayout,
    samples: Samples,
    speakers: Option<u32>,
}

fn read_format(body: &[u8]) -> Result<Format, WavError> {
    let fields = Fields::read(body).ok_or(WavError::BadFormat)?;
    let layout =
        ChannelLayout::new(usize::from(fields.channels)).map_err(|_| WavError::BadFormat)?;
    let rate = SampleRate::new(fields.rate).map_err(|_| WavError::BadFormat)?;
    let unsupported = WavError::Unsupported { tag: fields.tag, bits: fields.bits };
    if fields.align % fields.channels != 0 {
        return Err(WavError::BadFormat);
    }
    let bytes = fields.align / fields.channels;
    if fields.bits == 0 || fields.bits > bytes.saturating_mul(8) {
        return Err(WavError::BadFormat);
    }
    let samples = match (fields.tag, bytes) {
        (TAG_PCM, 1) => Samples::House(SampleFormat::U8),
        (TAG_PCM, 2) => Samples::House(SampleFormat::S16Le),
        (TAG_PCM, 3) => Samples::House(SampleFormat::S24Le),
        (TAG_PCM, 4) => Samples::House(SampleFormat::S32Le),
        (TAG_FLOAT, 4) => Samples::House(SampleFormat::F32),
        (TAG_FLOAT, 8) => Samples::F64,
        _ => return Err(unsupported),
    };
    let speakers = Some(fields.speakers);
    let speakers = speakers.filter(|mask| mask.count_ones() == u32::from(fields.channels));
    Ok(Format { rate, layout, samples, speakers })
}

struct Fields {
    tag: u16,
    channels: u16,
    rate: u32,
    align: u16,
    bits: u16,
    speakers: u32,
}

impl Fields {
    fn read(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let tag = reader.u16()?;
        let channels = reader.u16()?;
        let rate = reader.u32()?;
        reader.u32()?;
        let align = reader.u16()?;
        let bits = reader.u16()?;
        let (speakers, tag) = if tag == TAG_EXTENSIBLE { extension(reader)? } else { (0, tag) };
        Some(Self { tag, channels, rate, align, bits, speakers })
    }
}

/// `WAVEFORMATEXTENSIBLE`: size, valid bits, speakers, and a GUID which is a tag and a fixed tail.
fn extension(mut reader: Reader<'_>) -> Option<(u32, u16)> {
    reader.take(2 + 2)?;
    let (speakers, tag) = (reader.u32()?, reader.u16()?);
    (reader.take(SUB_FORMAT_TAIL.len())? == SUB_FORMAT_TAIL).then_some((speakers, tag))
}

/// Why bytes are not a WAVE file that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WavError {
    /// It does not begin as one.
    NotWave,
    /// The sound comes before its format.
    NoFormat,
    /// The fields of the format contradict each other.
    BadFormat,
    /// A compressed format, or samples of an unusual size.
    Unsupported {
        /// What it calls itself.
        tag: u16,
        /// Bits of a sample.
        bits: u16,
    },
    /// The sound begins behind [`MAX_PREAMBLE`].
    TooFar,
}

impl fmt::Display for WavError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWave => f.write_str("not a WAVE file"),
            Self::NoFormat => f.write_str("a WAVE file whose sound comes before its format"),
            Self::BadFormat => f.write_str("a WAVE file whose format contradicts itself"),
            Self::Unsupported { tag, bits } => {
                write!(f, "a WAVE file of format {tag} with {bits} bits is not supported")
            }
            Self::TooFar => write!(f, "no sound in the first {MAX_PREAMBLE} bytes"),
        }
    }
}

impl core::error::Error for WavError {}

#[cfg(test)]
mod tests {
    use aulos_core::SampleSpec;
    use proptest::prelude::*;

    use super::super::{HEADER_LEN, Length, header};
    use super::*;

    fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len()).unwrap();
        let mut bytes = [&name[..], &size.to_le_bytes(), body].concat();
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        bytes
    }

    fn fmt(tag: u16, channels: u16, align: u16, bits: u16, more: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for field in [tag, channels, 0xbb80, 0, 0, 0, align, bits] {
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
    fn what_we_write_we_read() {
        for text in ["48000:16:2", "8000:u8:1", "96000:s24:6", "44100:32:2", "192000:f32:8"] {
            let spec: SampleSpec = text.parse().unwrap();
            let bytes = header(spec, Length::Bytes(1_000)).unwrap();
            let wave = Wave {
                rate: spec.rate,
                layout: spec.layout,
                samples: Samples::House(spec.format),
                speakers: None,
                start: HEADER_LEN,
                length: Some(1_000),
            };
            assert_eq!(wave.frame_bytes(), spec.frame_bytes());
            assert_eq!(parse(&bytes), Ok(Parsed::Wave(wave)));
            let endless = header(spec, Length::Endless).unwrap();
            assert_eq!(parse(&endless), Ok(Parsed::Wave(Wave { length: None, ..wave })));
        }
    }

    #[test]
    fn extensible_files_and_odd_chunks() {
        let once = fmt(TAG_EXTENSIBLE, 2, 8, 32, &extensible(TAG_PCM, 24));
        let bytes = file(b"RIFF", &[&chunk(b"bext", b"odd"), &once]);
        let Ok(Parsed::Wave(wave)) = parse(&bytes) else { panic!("{:?}", parse(&bytes)) };
        assert_eq!((wave.samples, wave.speakers), (Samples::House(SampleFormat::S32Le), Some(3)));
        assert_eq!((wave.start, wave.length), (bytes.len(), None));
        assert_eq!(wave.frame_bytes(), 8);
        // Two places for one channel are no places.
        let twice = fmt(TAG_EXTENSIBLE, 1, 8, 64, &extensible(TAG_FLOAT, 64));
        let Ok(Parsed::Wave(wave)) = parse(&file(b"RIFF", &[&twice])) else { panic!() };
        assert_eq!((wave.samples, wave.speakers), (Samples::F64, None));
    }

    #[test]
    fn a_length_that_was_never_filled_in_is_none() {
        let fmt = fmt(1, 2, 4, 16, &[]);
        let lengths = |riff: u32, data: u32| {
            let mut bytes = file(b"RIFF", &[&fmt]);
            bytes[4..8].copy_from_slice(&riff.to_le_bytes());
            let at = bytes.len() - 4;
            bytes[at..].copy_from_slice(&data.to_le_bytes());
            let Ok(Parsed::Wave(wave)) = parse(&bytes) else { panic!() };
            wave.length
        };
        assert_eq!(lengths(0, 0), None);
        assert_eq!(lengths(36, 0), None);
        assert_eq!(lengths(u32::MAX, u32::MAX), None);
        // Empty, and followed by something else.
        assert_eq!(lengths(100, 0), Some(0));
    }

    #[test]
    fn files_beyond_four_gigabytes() {
        let mut sizes = [0; 28];
        sizes[8..16].copy_from_slice(&5_000_000_000_u64.to_le_bytes());
        let fmt = fmt(TAG_FLOAT, 2, 8, 32, &[]);
        let bytes = file(b"RF64", &[&chunk(b"ds64", &sizes), &fmt]);
        let Ok(Parsed::Wave(wave)) = parse(&bytes) else { panic!("{:?}", parse(&bytes)) };
        assert_eq!(wave.length, Some(5_000_000_000));
    }

    #[test]
    fn lies_are_told_apart() {
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
            (b"RIFF....WAVEjunk\xff\xff\xff\xff".to_vec(), WavError::TooFar),
        ];
        for (bytes, error) in cases {
            assert_eq!(parse(&bytes), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer_and_waiting_makes_progress(tail: Vec<u8>, riff: bool) {
            let bytes = if riff { [b"RIFF....WAVE", &tail[..]].concat() } else { tail };
            match parse(&bytes) {
                Ok(Parsed::Incomplete { needed }) => prop_assert!(needed > bytes.len()),
                Ok(Parsed::Wave(wave)) => prop_assert!(wave.start <= bytes.len()),
                Err(_) => {}
            }
        }

        #[test]
        fn a_file_that_arrives_slowly_is_the_same_file(junk in prop::collection::vec(any::<u8>(), 0..99)) {
            let bytes = file(b"RIFF", &[&chunk(b"JUNK", &junk), &fmt(1, 2, 4, 16, &[0, 0])]);
            for length in 0..bytes.len() {
                let Ok(Parsed::Incomplete { needed }) = parse(&bytes[..length]) else {
                    panic!("known too early")
                };
                prop_assert!(needed > length && needed <= bytes.len());
            }
            prop_assert!(matches!(parse(&bytes), Ok(Parsed::Wave(_))));
        }
    }
}

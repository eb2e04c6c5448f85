//! Recognizes encoded audio where raw samples are expected.
//!
//! A file that is written into a FIFO would be played as noise at full scale. Its first bytes tell
//! it from samples: a signature counts with the fields behind it, so that it has at least 40 fixed
//! bits, and frames without a signature count four in a row. Samples that agree with one of them by
//! chance would occur once in some 2^40 beginnings.

use core::fmt;

use aulos_core::SampleSpec;

use super::{adts, mpeg};
use crate::wav::{self, ParseOutcome, WavSampleFormat};

/// An encoded format, as its first bytes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodedFormat {
    /// MPEG audio, with or without an `ID3v2` tag.
    Mpeg,
    /// AAC in ADTS frames.
    Aac,
    /// Ogg.
    Ogg,
    /// FLAC.
    Flac,
    /// RIFF/WAVE of another format than the samples have, or compressed.
    Wave,
    /// AIFF.
    Aiff,
    /// MP4.
    Mp4,
    /// Matroska or `WebM`.
    Matroska,
}

impl fmt::Display for EncodedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpeg => "MP3",
            Self::Aac => "AAC",
            Self::Ogg => "Ogg",
            Self::Flac => "FLAC",
            Self::Wave => "WAVE of another format",
            Self::Aiff => "AIFF",
            Self::Mp4 => "MP4",
            Self::Matroska => "Matroska",
        })
    }
}

/// What the first bytes of a sender of raw samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "samples, or not")]
pub enum RawOpening {
    /// Samples, which begin after this many bytes: 0, or those of a WAVE header that agrees with
    /// the expected samples.
    Samples(usize),
    /// No samples.
    Encoded(EncodedFormat),
    /// More bytes are needed; at most [`MAX_RAW_OPENING`] in all.
    Undecided,
}

/// Classifies the first bytes of a sender that should send samples in `spec`; `ended` when no more
/// follow.
#[must_use]
pub fn classify_raw_opening(bytes: &[u8], spec: SampleSpec, ended: bool) -> RawOpening {
    let ended = ended || bytes.len() >= MAX_RAW_OPENING;
    match probe(bytes, spec) {
        RawOpening::Undecided if ended => RawOpening::Samples(0),
        opening => opening,
    }
}

fn probe(bytes: &[u8], spec: SampleSpec) -> RawOpening {
    match bytes.first() {
        None => RawOpening::Undecided,
        Some(b'R') => wave(bytes, spec),
        Some(0xff) => frames(bytes),
        Some(_) => {
            let matches =
                SIGNATURES.iter().map(|(format, pattern)| (format, compare(bytes, pattern)));
            let mut opening = RawOpening::Samples(0);
            for (format, comparison) in matches {
                match comparison {
                    Comparison::Equal => return RawOpening::Encoded(*format),
                    Comparison::Prefix => opening = RawOpening::Undecided,
                    Comparison::Different => {}
                }
            }
            opening
        }
    }
}

/// One byte of a signature.
#[derive(Clone, Copy)]
enum Pattern {
    Is(u8),
    Below(u8),
    Any,
}

use Pattern::{Any, Below, Is};

/// The signatures; MPEG and AAC frames have none, and WAVE is parsed.
const SIGNATURES: [(EncodedFormat, &[Pattern]); 6] = [
    // id3.org, ID3v2.4.0 main structure, 3.1: version, flags, four times seven bits of size; the
    // identifier of the first frame begins with a capital letter.
    (
        EncodedFormat::Mpeg,
        &[
            Is(b'I'),
            Is(b'D'),
            Is(b'3'),
            Below(5),
            Is(0),
            Below(1),
            Below(0x10),
            Below(0x80),
            Below(0x80),
            Below(0x80),
            Below(b'Z' + 1),
        ],
    ),
    // RFC 3533, 6: version, first page, no position, first number of a page.
    (EncodedFormat::Ogg, &[Is(b'O'), Is(b'g'), Is(b'g'), Is(b'S'), Is(0), Below(8)]),
    // RFC 9639, 8.1 and 8.2: STREAMINFO is the first block and has 34 bytes.
    (EncodedFormat::Flac, &[Is(b'f'), Is(b'L'), Is(b'a'), Is(b'C'), Any, Is(0), Is(0), Is(34)]),
    (
        EncodedFormat::Aiff,
        &[Is(b'F'), Is(b'O'), Is(b'R'), Is(b'M'), Any, Any, Any, Any, Is(b'A'), Is(b'I'), Is(b'F')],
    ),
    // ISO/IEC 14496-12, 4.3: a box of fewer than 256 bytes.
    (EncodedFormat::Mp4, &[Is(0), Is(0), Is(0), Any, Is(b'f'), Is(b't'), Is(b'y'), Is(b'p')]),
    // RFC 8794, 11.2.1, and the length of the header in one byte or in eight.
    (EncodedFormat::Matroska, &[Is(0x1a), Is(0x45), Is(0xdf), Is(0xa3), Any, Is(0x42)]),
];

enum Comparison {
    Equal,
    /// The bytes agree, but are fewer.
    Prefix,
    Different,
}

fn compare(bytes: &[u8], pattern: &[Pattern]) -> Comparison {
    let agrees = bytes.iter().zip(pattern).all(|(byte, pattern)| match pattern {
        Is(wanted) => byte == wanted,
        Below(limit) => byte < limit,
        Any => true,
    });
    match agrees {
        false => Comparison::Different,
        true if bytes.len() < pattern.len() => Comparison::Prefix,
        true => Comparison::Equal,
    }
}

/// RIFF/WAVE (or RF64), whose header is skipped where it announces the expected samples.
fn wave(bytes: &[u8], spec: SampleSpec) -> RawOpening {
    let kind = bytes.get(..4).unwrap_or(bytes);
    let form = bytes.get(8..).unwrap_or_default();
    let form = form.get(..4).unwrap_or(form);
    if !(b"RIFF".starts_with(kind) || b"RF64".starts_with(kind)) || !b"WAVE".starts_with(form) {
        return RawOpening::Samples(0);
    }
    if form.len() < 4 {
        return RawOpening::Undecided;
    }
    match wav::parse(bytes) {
        Ok(ParseOutcome::Complete(wave)) => {
            let same = wave.sample_format == WavSampleFormat::Native(spec.format)
                && wave.rate == spec.rate
                && wave.layout == spec.layout;
            match same {
                true => RawOpening::Samples(wave.data_offset),
                false => RawOpening::Encoded(EncodedFormat::Wave),
            }
        }
        Ok(ParseOutcome::Incomplete { needed }) if needed < MAX_RAW_OPENING => {
            match bytes.len() < MAX_RAW_OPENING {
                true => RawOpening::Undecided,
                false => RawOpening::Encoded(EncodedFormat::Wave),
            }
        }
        Ok(ParseOutcome::Incomplete { .. }) | Err(_) => RawOpening::Encoded(EncodedFormat::Wave),
    }
}

/// Frames of MPEG audio or ADTS: four headers in a row at the distances that they announce.
fn frames(bytes: &[u8]) -> RawOpening {
    let mpeg = |at: &[u8]| at.first_chunk().map(|word| mpeg::Header::parse(*word));
    let adts = |at: &[u8]| at.first_chunk().map(|head| adts::Header::parse(*head));
    let found = [
        (EncodedFormat::Mpeg, row(bytes, mpeg, mpeg::Header::bytes, mpeg::Header::is_like)),
        (EncodedFormat::Aac, row(bytes, adts, adts::Header::bytes, adts::Header::is_like)),
    ];
    let mut opening = RawOpening::Samples(0);
    for (format, comparison) in found {
        match comparison {
            Comparison::Equal => return RawOpening::Encoded(format),
            Comparison::Prefix => opening = RawOpening::Undecided,
            Comparison::Different => {}
        }
    }
    opening
}

/// Whether the bytes begin with [`FRAMES_IN_A_ROW`] frames of one stream.
fn row<H: Copy>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Option<Option<H>>,
    length: impl Fn(&H) -> usize,
    is_like: impl Fn(&H, &H) -> bool,
) -> Comparison {
    let (mut at, mut first) = (0, None);
    for _ in 0..FRAMES_IN_A_ROW {
        let Some(parsed) = bytes.get(at..).and_then(&parse) else { return Comparison::Prefix };
        let Some(header) = parsed else { return Comparison::Different };
        if !is_like(first.get_or_insert(header), &header) {
            return Comparison::Different;
        }
        at += length(&header);
    }
    // A constant sample value repeats every few bytes, and so at every distance that is a multiple
    // of its length; a frame does not begin with its header twice.
    let repeats = (1..=MAX_REPEATED).any(|step| bytes.get(step..step + 4) == bytes.get(..4));
    if repeats { Comparison::Different } else { Comparison::Equal }
}

/// Headers of frames that must follow one another. One has some 17 fixed bits, given the first.
const FRAMES_IN_A_ROW: usize = 4;

/// The length of a frame of stereo in 32 bits.
const MAX_REPEATED: usize = 8;

/// The most bytes that are needed to classify an opening: three of the longest MPEG frames (layer
/// II, 1,728 bytes) and a header; a WAVE header with more before its samples is refused.
pub const MAX_RAW_OPENING: usize = 6 * 1_024;

#[cfg(test)]
mod tests {
    use aulos_core::Rng;
    use proptest::prelude::*;

    use super::*;

    const SPEC: SampleSpec = SampleSpec::DEFAULT;

    fn whole(bytes: &[u8]) -> RawOpening {
        classify_raw_opening(bytes, SPEC, true)
    }

    /// Frames of 128 kbit/s at 44.1 kHz with random contents.
    fn mp3(frames: usize) -> Vec<u8> {
        let mut rng = Rng::new(1);
        let mut bytes = Vec::new();
        for _ in 0..frames {
            bytes.extend([0xff, 0xfb, 0x90, 0x64]);
            bytes.extend((0..413).map(|_| rng.next_u64().to_le_bytes()[0]));
        }
        bytes
    }

    fn wave_header(rate: u32, channels: u16, bits: u16, format: u16) -> Vec<u8> {
        let align = channels * bits / 8;
        let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0".to_vec();
        bytes.extend(format.to_le_bytes());
        bytes.extend(channels.to_le_bytes());
        bytes.extend(rate.to_le_bytes());
        bytes.extend((rate * u32::from(align)).to_le_bytes());
        bytes.extend(align.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(b"LIST\x04\0\0\0INFOdata\xff\xff\xff\xff");
        bytes
    }

    #[test]
    fn each_format_is_recognized_by_its_first_bytes() {
        let openings: [(EncodedFormat, &[u8]); 6] = [
            (EncodedFormat::Mpeg, b"ID3\x04\0\0\0\0\x02\x01TSSE\0\0\0\x0e"),
            (EncodedFormat::Ogg, b"OggS\0\x02\0\0\0\0\0\0\0\0"),
            (EncodedFormat::Flac, b"fLaC\0\0\0\x22\x12\0\x12\0"),
            (EncodedFormat::Aiff, b"FORM\0\x01\0\0AIFCFVER"),
            (EncodedFormat::Mp4, b"\0\0\0\x20ftypM4A \0\0\x02\0"),
            (EncodedFormat::Matroska, b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01"),
        ];
        for (format, bytes) in openings {
            assert_eq!(whole(bytes), RawOpening::Encoded(format));
            // Nothing is played before the decision.
            for length in 0..4 {
                let opening = classify_raw_opening(&bytes[..length], SPEC, false);
                assert_eq!(opening, RawOpening::Undecided, "{format} {length}");
            }
        }
        assert_eq!(whole(&mp3(5)), RawOpening::Encoded(EncodedFormat::Mpeg));
        assert_eq!(classify_raw_opening(&mp3(3), SPEC, false), RawOpening::Undecided);
        let frame = [[0xff, 0xf1, 0x50, 0x80, 0x06, 0x1f, 0xfc].as_slice(), &[9; 41]].concat();
        assert_eq!(whole(&frame.repeat(5)), RawOpening::Encoded(EncodedFormat::Aac));
    }

    #[test]
    fn a_wave_header_is_skipped_where_it_announces_the_expected_samples() {
        let header = wave_header(48_000, 2, 16, 1);
        let samples = [&header[..], &[1, 2, 3, 4]].concat();
        assert_eq!(whole(&samples), RawOpening::Samples(header.len()));
        for length in 0..header.len() {
            let opening = classify_raw_opening(&samples[..length], SPEC, false);
            assert_eq!(opening, RawOpening::Undecided, "{length}");
        }
        let others =
            [(44_100, 2, 16, 1), (48_000, 1, 16, 1), (48_000, 2, 24, 1), (48_000, 2, 16, 85)];
        for (rate, channels, bits, format) in others {
            let header = wave_header(rate, channels, bits, format);
            assert_eq!(whole(&header), RawOpening::Encoded(EncodedFormat::Wave));
        }
    }

    #[test]
    fn samples_that_begin_like_a_format_are_samples() {
        // Silence, full scale, constant values, and the letters of signatures in samples.
        let constant = |frame: [u8; 4]| frame.repeat(2_000);
        for bytes in [
            constant([0; 4]),
            constant([0xff; 4]),
            constant([0xff, 0x7f, 0xff, 0x7f]),
            constant([0xff, 0xfb, 0x94, 0x64]),
            constant([0xff, 0xf1, 0x50, 0x80]),
            constant(*b"ID3\x04"),
            constant(*b"OggS"),
            constant(*b"fLaC"),
            constant(*b"RIFF"),
            b"RIFF".to_vec(),
            b"ID".to_vec(),
            mp3(3),
        ] {
            assert_eq!(whole(&bytes), RawOpening::Samples(0), "{:?}", &bytes[..2]);
        }
    }

    #[test]
    fn no_opening_of_synthetic_programmes_is_taken_for_a_format() {
        // Each of three million positions of loud and of quiet noise: a rule with fewer than some
        // 20 fixed bits would be found. That the rules have 40 or more follows from their tables.
        let mut rng = Rng::new(5);
        let mut noise = vec![0; 1_000_000];
        noise.iter_mut().for_each(|byte| *byte = rng.next_u64().to_le_bytes()[3]);
        let quiet: Vec<u8> =
            noise.iter().flat_map(|byte| [*byte, if *byte > 127 { 0xff } else { 0 }]).collect();
        for bytes in [&noise, &quiet] {
            for at in 0..bytes.len() - MAX_RAW_OPENING {
                let opening = classify_raw_opening(&bytes[at..at + MAX_RAW_OPENING], SPEC, true);
                assert_eq!(opening, RawOpening::Samples(0), "{:?}", &bytes[at..at + 16]);
            }
        }
    }

    proptest! {
        #[test]
        fn the_decision_does_not_depend_on_the_pieces(
            bytes in proptest::collection::vec(
                prop_oneof![Just(0xff), Just(0xfb), any::<u8>()],
                0..64,
            ),
        ) {
            let decided = (0..=bytes.len())
                .map(|length| classify_raw_opening(&bytes[..length], SPEC, false))
                .find(|opening| *opening != RawOpening::Undecided);
            if let Some(decided) = decided {
                prop_assert_eq!(whole(&bytes), decided);
            }
        }
    }
}

//! The `bext` chunk of Broadcast Wave (EBU Tech 3285, version 2): origin and loudness of a
//! recording.

use aulos_core::{Db, Lufs, Utc};

use crate::Patch;

/// Origin of a recording, as the chunk stores it. All texts are ASCII and are truncated to the size
/// of their fields; other characters become question marks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct BroadcastExtension<'a> {
    /// Description of the recording, 256 characters.
    pub description: &'a str,
    /// Name of the originator, 32 characters.
    pub originator: &'a str,
    /// Reference assigned by the originator, 32 characters.
    pub originator_reference: &'a str,
    /// Date and time of the first sample.
    pub origination: Utc,
    /// Position of the first sample of the file, in frames since midnight.
    pub time_reference: u64,
    /// Coding history, one line for each step (EBU R 98), without the end of the last line.
    pub coding_history: &'a str,
}

impl BroadcastExtension<'_> {
    /// Appends the chunk. If it starts at a multiple of four bytes, so does the data after it.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let coding_history = self.coding_history.len() + LINE_END.len();
        // 602 bytes are fixed; the chunk header in front has eight.
        let padded = (coding_history + 2).next_multiple_of(4) - 2;
        let size = u32::try_from(FIXED_BYTES + padded).unwrap_or(u32::MAX);
        out.extend_from_slice(b"bext");
        out.extend_from_slice(&size.to_le_bytes());
        let start = out.len();
        emit_text(self.description, 256, out);
        emit_text(self.originator, 32, out);
        emit_text(self.originator_reference, 32, out);
        let Utc { year, month, day, hour, minute, second } = self.origination;
        emit_text(&format!("{year:04}-{month:02}-{day:02}"), 10, out);
        emit_text(&format!("{hour:02}:{minute:02}:{second:02}"), 8, out);
        out.extend_from_slice(&self.time_reference.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 64]);
        // The loudness is not known before the recording ends; it is patched then.
        out.extend_from_slice(&BroadcastLoudness::default().bytes());
        out.resize(start + FIXED_BYTES, 0);
        emit_text(self.coding_history, self.coding_history.len(), out);
        out.extend_from_slice(LINE_END);
        out.resize(start + FIXED_BYTES + padded, 0);
    }
}

/// Loudness of a programme as the chunk stores it (EBU Tech 3285, version 2, section 2.4; measured
/// according to EBU R 128). A value that is unknown, or beyond 99.99, is written as "not measured".
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "the fields of the standard")]
pub struct BroadcastLoudness {
    /// Integrated loudness.
    pub integrated: Option<Lufs>,
    /// Loudness range.
    pub range: Option<Db>,
    /// Maximum true peak, in dBTP.
    pub true_peak: Option<Db>,
    /// Maximum momentary loudness.
    pub max_momentary: Option<Lufs>,
    /// Maximum short-term loudness.
    pub max_short_term: Option<Lufs>,
}

impl BroadcastLoudness {
    /// A patch of the five fields, for a file whose `bext` chunk begins at the byte `chunk_offset`.
    #[must_use]
    pub fn patch(&self, chunk_offset: u64) -> Patch {
        Patch::new(chunk_offset + CHUNK_HEADER_BYTES + LOUDNESS_OFFSET, &self.bytes())
    }

    fn bytes(&self) -> [u8; 10] {
        let Self { integrated, range, true_peak, max_momentary, max_short_term } = *self;
        let fields = [
            integrated.map(Lufs::get),
            range.map(Db::get),
            true_peak.map(Db::get),
            max_momentary.map(Lufs::get),
            max_short_term.map(Lufs::get),
        ];
        let mut bytes = [0; 10];
        let words = fields.map(|field| field.map_or(NOT_MEASURED, to_hundredths).to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(words.as_flattened()) {
            *to = *from;
        }
        bytes
    }
}

/// The value in hundredths, rounded.
fn to_hundredths(value: f64) -> i16 {
    let rounded = (value * 100.0).round();
    #[allow(clippy::cast_possible_truncation, reason = "it is at most 9,999")]
    if rounded.abs() <= MAX_HUNDREDTHS { rounded as i16 } else { NOT_MEASURED }
}

/// Appends `length` bytes: the text, padded with zeros.
fn emit_text(text: &str, length: usize, out: &mut Vec<u8>) {
    let end = out.len() + length;
    let ascii = |char: char| u8::try_from(char).ok().filter(u8::is_ascii);
    out.extend(text.chars().take(length).map(|char| ascii(char).unwrap_or(b'?')));
    out.resize(end, 0);
}

/// Bytes of the chunk without the coding history.
const FIXED_BYTES: usize = 602;
const VERSION: u16 = 2;
const NOT_MEASURED: i16 = 0x7fff;
/// The standard allows -99.99 to 99.99.
const MAX_HUNDREDTHS: f64 = 9_999.0;
/// Name and size in front of a chunk's data.
const CHUNK_HEADER_BYTES: u64 = 8;
/// Offset of the loudness fields in the chunk's data.
const LOUDNESS_OFFSET: u64 = 412;
const LINE_END: &[u8; 2] = b"\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_at_the_offsets_of_the_standard() {
        for coding_history in ["", "A=PCM,F=48000,W=16,M=stereo,T=aulos", "A=PCM"] {
            let mut out = b"before  ".to_vec();
            let broadcast = BroadcastExtension {
                description: "Hall \u{fc}ber alles",
                originator: "aulos",
                originator_reference: "a reference that is longer than thirty-two characters",
                origination: Utc::from_unix(1_795_342_563),
                time_reference: 0x1_2345_6789,
                coding_history,
            };
            broadcast.emit(&mut out);
            let size = u32::from_le_bytes(out[12..16].try_into().unwrap()) as usize;
            assert_eq!((out.len() - 16, out.len() % 4), (size, 0), "{coding_history}");
            let body = &out[16..];
            assert!(body.starts_with(b"Hall ?ber alles\0"));
            assert_eq!(&body[256..262], b"aulos\0");
            assert_eq!(&body[288..338], b"a reference that is longer than 2026-11-2210:16:03");
            assert_eq!(body[338..348], [0x89, 0x67, 0x45, 0x23, 1, 0, 0, 0, 2, 0]);
            assert_eq!(body[412..422], [0xff, 0x7f].repeat(5));
            let loudness = BroadcastLoudness {
                integrated: Some(Lufs::new(-22.996)),
                range: Some(Db::new(7.125)),
                true_peak: Some(Db::new(0.5)),
                max_momentary: Some(Lufs::new(-150.0)),
                max_short_term: None,
            };
            let patch = loudness.patch(8);
            assert_eq!(patch.at(), 8 + 8 + 412);
            let field = |at: usize| {
                i16::from_le_bytes(patch.bytes()[2 * at..2 * at + 2].try_into().unwrap())
            };
            assert_eq!([0, 1, 2, 3, 4].map(field), [-2_300, 713, 50, 0x7fff, 0x7fff]);
            assert!(body[602..].starts_with(format!("{coding_history}\r\n").as_bytes()));
        }
    }
}

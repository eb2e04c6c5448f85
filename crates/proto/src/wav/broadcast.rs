//! The `bext` chunk of Broadcast Wave (EBU Tech 3285, version 2): where and when sound was recorded,
//! and how loud it is.

use aulos_core::{Db, Lufs, Utc};

use crate::Patch;

/// What a broadcast file says of its origin. All texts are ASCII, and are cut where the chunk has no
/// more room; other characters become question marks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the standard has")]
pub struct Broadcast<'a> {
    /// What it is, 256 characters.
    pub description: &'a str,
    /// Who made it, 32 characters.
    pub originator: &'a str,
    /// The maker's own number for it, 32 characters.
    pub reference: &'a str,
    /// When it was begun.
    pub begun: Utc,
    /// The first sample of the file, in frames since midnight.
    pub time_reference: u64,
    /// How it was coded, a line for each step (EBU R 98), without the last line's end.
    pub history: &'a str,
}

impl Broadcast<'_> {
    /// Appends the chunk. Its length leaves what follows at a multiple of four bytes, where the
    /// chunk begins at one.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let history = self.history.len() + LINE_END.len();
        // 602 bytes are fixed; eight stand in front of them.
        let padded = (history + 2).next_multiple_of(4) - 2;
        let size = u32::try_from(FIXED + padded).unwrap_or(u32::MAX);
        out.extend_from_slice(b"bext");
        out.extend_from_slice(&size.to_le_bytes());
        let start = out.len();
        text(self.description, 256, out);
        text(self.originator, 32, out);
        text(self.reference, 32, out);
        let Utc { year, month, day, hour, minute, second } = self.begun;
        text(&format!("{year:04}-{month:02}-{day:02}"), 10, out);
        text(&format!("{hour:02}:{minute:02}:{second:02}"), 8, out);
        out.extend_from_slice(&self.time_reference.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 64]);
        // It is known when the sound has ended.
        out.extend_from_slice(&BroadcastLoudness::default().bytes());
        out.resize(start + FIXED, 0);
        text(self.history, self.history.len(), out);
        out.extend_from_slice(LINE_END);
        out.resize(start + FIXED + padded, 0);
    }
}

/// How loud a programme is, as the chunk has it (EBU Tech 3285, version 2, section 2.4; measured after
/// EBU R 128). What is not known, or is beyond 99.99, says that it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what the standard has")]
pub struct BroadcastLoudness {
    /// Integrated loudness.
    pub integrated: Option<Lufs>,
    /// Loudness range.
    pub range: Option<Db>,
    /// The greatest true peak, in dBTP.
    pub true_peak: Option<Db>,
    /// The greatest momentary loudness.
    pub max_momentary: Option<Lufs>,
    /// The greatest short-term loudness.
    pub max_short_term: Option<Lufs>,
}

impl BroadcastLoudness {
    /// The five fields, for a file whose `bext` chunk begins so many bytes after its start.
    #[must_use]
    pub fn patch(&self, chunk: u64) -> Patch {
        Patch::new(chunk + CHUNK_HEAD + LOUDNESS, &self.bytes())
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
        let words = fields.map(|field| field.map_or(NOT_MEASURED, hundredths).to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(words.as_flattened()) {
            *to = *from;
        }
        bytes
    }
}

/// A hundred times the value, rounded.
fn hundredths(value: f64) -> i16 {
    let rounded = (value * 100.0).round();
    #[allow(clippy::cast_possible_truncation, reason = "it is at most 9,999")]
    if rounded.abs() <= MOST_HUNDREDTHS { rounded as i16 } else { NOT_MEASURED }
}

/// Appends `length` bytes: the text, then zeros.
fn text(text: &str, length: usize, out: &mut Vec<u8>) {
    let end = out.len() + length;
    let ascii = |char: char| u8::try_from(char).ok().filter(u8::is_ascii);
    out.extend(text.chars().take(length).map(|char| ascii(char).unwrap_or(b'?')));
    out.resize(end, 0);
}

/// Everything but the history.
const FIXED: usize = 602;
const VERSION: u16 = 2;
const NOT_MEASURED: i16 = 0x7fff;
/// What the standard allows, -99.99 to 99.99.
const MOST_HUNDREDTHS: f64 = 9_999.0;
/// The name and the size in front of a chunk.
const CHUNK_HEAD: u64 = 8;
/// Where loudness stands behind that.
const LOUDNESS: u64 = 412;
const LINE_END: &[u8; 2] = b"\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_stand_where_the_standard_has_them() {
        for history in ["", "A=PCM,F=48000,W=16,M=stereo,T=aulos", "A=PCM"] {
            let mut out = b"before  ".to_vec();
            let broadcast = Broadcast {
                description: "Hall \u{fc}ber alles",
                originator: "aulos",
                reference: "a reference that is longer than thirty-two characters",
                begun: Utc::from_unix(1_795_342_563),
                time_reference: 0x1_2345_6789,
                history,
            };
            broadcast.emit(&mut out);
            let size = u32::from_le_bytes(out[12..16].try_into().unwrap()) as usize;
            assert_eq!((out.len() - 16, out.len() % 4), (size, 0), "{history}");
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
            assert!(body[602..].starts_with(format!("{history}\r\n").as_bytes()));
        }
    }
}

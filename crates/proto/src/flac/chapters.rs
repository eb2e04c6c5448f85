//! Chapters of a FLAC file: Vorbis comments `CHAPTER000=00:00:01.500` and `CHAPTER000NAME=...`,
//! which take the place of padding behind the comments that are there.

use super::file::{COMMENTS, LAST, MAGIC, MAX_HEAD, PADDING};
use crate::FileMarker;
use crate::bytes::{Reader, put_blob};

/// Bytes that replace others in the head of a file, so that it has chapters.
///
/// To be written in this order. The bytes of `hidden` fall into padding, where no reader looks;
/// those of `head` make them comments, and are so few that they lie in the first page of the file.
/// So a writer that is killed leaves all chapters or none, and a head that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chapters {
    /// Where the first piece goes, in bytes from the start of the file, and what it is.
    pub hidden: (u64, Vec<u8>),
    /// The same of the second.
    pub head: (u64, Vec<u8>),
}

impl Chapters {
    /// What makes chapters of `markers` in a file that begins with `front`; `hz` is its rate. Those
    /// that have no room at the end of `markers` are left out. `Err` says how many bytes of `front`
    /// are needed; `None`, that there is no room for any, that the file has chapters already, or
    /// that it is not one of ours.
    #[must_use]
    pub fn parse(front: &[u8], markers: &[FileMarker<'_>], hz: u32) -> Option<Result<Self, usize>> {
        if !front.starts_with(MAGIC) {
            return if front.len() < MAGIC.len() { Some(Err(MAGIC.len())) } else { None };
        }
        let mut at = MAGIC.len();
        while at <= MAX_HEAD {
            let Some(&[kind, a, b, c]) = front.get(at..).and_then(<[u8]>::first_chunk) else {
                return Some(Err(at + 4));
            };
            let size = u32::from_be_bytes([0, a, b, c]) as usize;
            let end = at + 4 + size;
            if kind & LAST != 0 {
                return None;
            }
            if kind == COMMENTS {
                let Some(&[next, a, b, c]) = front.get(end..).and_then(<[u8]>::first_chunk) else {
                    return Some(Err(end + 4));
                };
                let room = u32::from_be_bytes([0, a, b, c]) as usize;
                let body = front.get(at + 4..end)?;
                let is_padding = next & !LAST == PADDING && end <= FIRST_PAGE;
                return if is_padding {
                    Self::grow((at, body), (next, room), markers, hz).map(Ok)
                } else {
                    None
                };
            }
            at = end;
        }
        None
    }

    /// `body` are the comments whose block begins at `at`, `room` the bytes of the padding behind
    /// it.
    fn grow(
        (at, body): (usize, &[u8]),
        (next, room): (u8, usize),
        markers: &[FileMarker<'_>],
        hz: u32,
    ) -> Option<Self> {
        let mut reader = Reader::new(body);
        let vendor = reader.blob()?;
        let count = reader.u32()?;
        let old = reader.rest();
        for _ in 0..count {
            if reader.blob()?.starts_with(b"CHAPTER") {
                return None;
            }
        }
        let mut chapters = Vec::with_capacity(room);
        let mut more = 0_u32;
        for (number, marker) in markers.iter().enumerate() {
            let complete = chapters.len();
            let time = time(marker.position, hz);
            put_blob(&mut chapters, format!("CHAPTER{number:03}={time}").as_bytes());
            put_blob(&mut chapters, format!("CHAPTER{number:03}NAME={}", marker.label).as_bytes());
            if chapters.len() > room {
                chapters.truncate(complete);
                break;
            }
            more = more.checked_add(2)?;
        }
        if more == 0 {
            return None;
        }
        let mut new = Vec::with_capacity(body.len() + chapters.len());
        put_blob(&mut new, vendor);
        new.extend_from_slice(&count.checked_add(more)?.to_le_bytes());
        new.extend_from_slice(old);
        new.append(&mut chapters);
        // The block of padding stays, if it is an empty one.
        let left = (body.len() + room).checked_sub(new.len())?;
        let mut bytes = Vec::with_capacity(8 + body.len() + room);
        let [.., a, b, c] = new.len().to_be_bytes();
        bytes.extend_from_slice(&[COMMENTS, a, b, c]);
        bytes.append(&mut new);
        let [.., a, b, c] = left.to_be_bytes();
        bytes.extend_from_slice(&[next, a, b, c]);
        bytes.resize(bytes.len() + left, 0);
        let hidden = bytes.split_off(8 + body.len());
        Some(Self { hidden: ((at + bytes.len()) as u64, hidden), head: (at as u64, bytes) })
    }
}

/// `00:00:01.500`; what begins within a millisecond is rounded down.
fn time(position: u64, hz: u32) -> String {
    let millis = u128::from(position) * 1_000 / u128::from(hz.max(1));
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{millis:03}", seconds % 60)
}

/// What is written at once or not at all when a process is killed.
const FIRST_PAGE: usize = 4_096 - 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{FlacFileHeader, StreamInfo};
    use super::*;

    fn begun(room: usize) -> Vec<u8> {
        let mut info = [0; 34];
        info[..4].copy_from_slice(&[0x10, 0, 0x10, 0]);
        info[10..14].copy_from_slice(&[0x0b, 0xb8, 0x02, 0xf0]);
        let mut file = Vec::new();
        let comments = [("TITLE", "Hall"), ("DATE", "2026")];
        FlacFileHeader::begin(
            StreamInfo::parse(&info).unwrap(),
            comments.into_iter(),
            room,
            &mut file,
        );
        file.extend_from_slice(b"the sound");
        file
    }

    fn put(file: &mut [u8], (at, bytes): &(u64, Vec<u8>), length: usize) {
        let at = usize::try_from(*at).unwrap();
        file[at..at + length].copy_from_slice(&bytes[..length]);
    }

    fn sound(file: &[u8]) -> &[u8] {
        let Some(Ok(head)) = FlacFileHeader::parse(file) else { panic!("no head") };
        &file[usize::try_from(head.audio_offset).unwrap()..]
    }

    fn comments(file: &[u8]) -> Vec<String> {
        let size = u32::from_be_bytes([0, file[43], file[44], file[45]]) as usize;
        let mut reader = Reader::new(&file[46..46 + size]);
        reader.blob().unwrap();
        let count = reader.u32().unwrap();
        let blobs: Vec<_> = (0..count).map(|_| reader.blob().unwrap().to_vec()).collect();
        assert!(reader.rest().is_empty());
        blobs.into_iter().map(|blob| String::from_utf8(blob).unwrap()).collect()
    }

    #[test]
    fn a_writer_that_is_killed_leaves_all_chapters_or_none() {
        let markers = [
            FileMarker { position: 72_000, label: "one" },
            FileMarker { position: 48_000 * 360_000 + 47, label: "\u{fc}ber hundert Stunden" },
        ];
        let file = begun(500);
        let old = comments(&file);
        let Some(Ok(chapters)) = Chapters::parse(&file, &markers, 48_000) else { panic!() };
        for length in 0..=chapters.hidden.1.len() {
            let mut torn = file.clone();
            put(&mut torn, &chapters.hidden, length);
            assert_eq!((sound(&torn), comments(&torn)), (&b"the sound"[..], old.clone()));
        }
        let mut whole = file.clone();
        put(&mut whole, &chapters.hidden, chapters.hidden.1.len());
        put(&mut whole, &chapters.head, chapters.head.1.len());
        assert_eq!((sound(&whole), whole.len()), (&b"the sound"[..], file.len()));
        let wanted = [
            "TITLE=Hall",
            "DATE=2026",
            "CHAPTER000=00:00:01.500",
            "CHAPTER000NAME=one",
            "CHAPTER001=100:00:00.000",
            "CHAPTER001NAME=\u{fc}ber hundert Stunden",
        ];
        assert_eq!(comments(&whole), wanted);
        assert_eq!(Chapters::parse(&whole, &markers, 48_000), None, "it has chapters already");
    }

    #[test]
    fn room_is_used_to_the_last_byte_and_no_further() {
        let markers = [FileMarker { position: 0, label: "label" }];
        let needed = "CHAPTER000=00:00:00.000CHAPTER000NAME=label".len() + 8;
        let file = begun(needed);
        assert!(matches!(Chapters::parse(&file, &markers, 48_000), Some(Ok(_))));
        assert_eq!(Chapters::parse(&begun(needed - 1), &markers, 48_000), None);
        // What has no room behind the first is left out.
        let two = [markers[0], FileMarker { position: 48_000, label: "another" }];
        let (first, both) = (
            Chapters::parse(&file, &markers, 48_000),
            Chapters::parse(&begun(needed + 10), &two, 48_000),
        );
        let heads = [first, both].map(|found| found.unwrap().unwrap().hidden.1.len());
        assert_eq!(heads[1], heads[0] + 10);
        assert_eq!(Chapters::parse(&begun(0), &markers, 48_000), None);
        assert_eq!(Chapters::parse(b"OggS", &markers, 48_000), None);
        for length in 0..file.len() - needed - 13 {
            let found = Chapters::parse(&file[..length], &markers, 48_000);
            assert!(matches!(found, Some(Err(more)) if more > length), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, magic: bool) {
            let bytes = if magic { [&MAGIC[..], &bytes].concat() } else { bytes };
            drop(Chapters::parse(&bytes, &[FileMarker { position: 1, label: "a" }], 48_000));
        }
    }
}

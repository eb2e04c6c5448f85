//! Sizes in the headers of containers, compared with the bytes that are there.
//!
//! A recorder that was killed, an interrupted download and a stream that was saved leave sizes that
//! are zero, all ones, too small or too large. The container library believes them: it refuses the
//! file, or ends before its end. So each size that the file contradicts is replaced on the way to
//! the library ([`CorrectedFile`]). Readers of our own for
//! each container were rejected: a few bytes are wrong, and the library reads all others.
//!
//! Sources: EA IFF 85 (chunks), RIFF 1.0, AIFF 1.3, Apple Core Audio Format 1.0, ISO/IEC 14496-12,
//! RFC 8794 (EBML), RFC 9559 (Matroska).

mod corrected_file;
mod trailing_tags;

use std::fs::File;
use std::io;

pub(super) use corrected_file::CorrectedFile;
pub(super) use trailing_tags::{bytes_at, tags_start};

/// What the library is to see instead of the file's own sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Corrections {
    /// The end of the file for the library; tags behind it are no audio.
    pub(super) end: u64,
    /// Bytes that replace those at an offset, in no order.
    pub(super) patches: Vec<(u64, Vec<u8>)>,
    /// The bytes of audio that the header declares, and those that are there.
    pub(super) declared: Option<DeclaredBytes>,
}

/// A size in a header, and its real value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeclaredBytes {
    pub(super) stated: u64,
    pub(super) actual: u64,
}

impl DeclaredBytes {
    /// Whether the file ends before its header says.
    pub(super) const fn is_cut(self) -> bool {
        self.stated > self.actual
    }
}

/// The order of bytes in the sizes of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// RIFF: 32 bits, little endian, padded to even lengths.
    Riff,
    /// IFF: 32 bits, big endian, padded to even lengths.
    Iff,
    /// CAF: 64 bits, big endian, not padded.
    Caf,
}

/// Compares the sizes in the file with its length.
pub(super) fn find_corrections(file: &File) -> io::Result<Corrections> {
    let length = file.metadata()?.len();
    let mut found = Corrections { end: length, ..Corrections::default() };
    let Some(front) = bytes_at::<12>(file, 0)? else { return Ok(found) };
    let [a, b, c, d, e, f, g, h, form @ ..] = front;
    match (&[a, b, c, d], &[e, f, g, h], &form) {
        (b"RIFF", _, b"WAVE") => correct_chunks(file, ChunkKind::Riff, &mut found)?,
        (b"FORM", _, b"AIFF" | b"AIFC") => correct_chunks(file, ChunkKind::Iff, &mut found)?,
        (b"caff", ..) => correct_chunks(file, ChunkKind::Caf, &mut found)?,
        (_, b"ftyp", _) => correct_boxes(file, &mut found)?,
        (b"\x1a\x45\xdf\xa3", ..) => correct_segment(file, &mut found)?,
        (b"fLaC", ..) => found.end = tags_start(file, 0, length)?,
        ([b'I', b'D', b'3', _], ..) if is_flac_behind_id3(file)? => {
            found.end = tags_start(file, 0, length)?;
        }
        _ => {}
    }
    Ok(found)
}

/// Whether a size in the header of a file is wrong.
pub(crate) fn has_wrong_sizes(file: &File) -> bool {
    find_corrections(file).is_ok_and(|found| !found.patches.is_empty())
}

/// Where audio that begins at `start` really ends: where its header says, or else at the end of the
/// file, without tags.
///
/// `stated` is the size in the header. It is right when chunks follow that end where the file does,
/// or hardly anything.
pub(super) fn audio_end(file: &File, kind: ChunkKind, start: u64, stated: u64) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let Some(end) = start.checked_add(stated).filter(|end| *end <= length) else {
        return tags_start(file, start, length);
    };
    let limit = tags_start(file, end, length)?;
    let is_padding = limit - end <= MAX_PADDING_BYTES && stated > limit - end;
    Ok(if is_padding || are_chunks(file, kind, end, limit)? { end } else { limit })
}

/// Whether the bytes from `at` to `end` are chunks, one after the other.
fn are_chunks(file: &File, kind: ChunkKind, at: u64, end: u64) -> io::Result<bool> {
    let mut chunks = ChunkWalker { file, kind, at, end, left: MAX_CHUNKS };
    if kind != ChunkKind::Caf && at % 2 == 1 {
        // Some writers leave out the padding byte.
        let mut padded = ChunkWalker { at: at + 1, ..chunks };
        if padded.reaches_end()? {
            return Ok(true);
        }
    }
    chunks.reaches_end()
}

#[derive(Clone, Copy)]
struct ChunkWalker<'a> {
    file: &'a File,
    kind: ChunkKind,
    at: u64,
    end: u64,
    left: u32,
}

struct Chunk {
    name: [u8; 4],
    /// Where its size is, and where its data begins.
    size_at: u64,
    body: u64,
    size: u64,
}

impl ChunkWalker<'_> {
    /// The next chunk; `None` at the end, and where no chunk can be.
    fn next(&mut self) -> io::Result<Option<Chunk>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let Some([a, b, c, d, short @ ..]) = bytes_at::<8>(self.file, self.at)? else {
            return Ok(None);
        };
        let name = [a, b, c, d];
        if !name.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            return Ok(None);
        }
        let (header, size) = match self.kind {
            ChunkKind::Riff => (8, u64::from(u32::from_le_bytes(short))),
            ChunkKind::Iff => (8, u64::from(u32::from_be_bytes(short))),
            ChunkKind::Caf => match bytes_at(self.file, self.at + 4)? {
                Some(long) => (12, u64::from_be_bytes(long)),
                None => return Ok(None),
            },
        };
        let chunk = Chunk { name, size_at: self.at + 4, body: self.at + header, size };
        let padding = u64::from(self.kind != ChunkKind::Caf && size % 2 == 1);
        self.at = chunk.body.saturating_add(size).saturating_add(padding);
        Ok(Some(chunk))
    }

    fn reaches_end(&mut self) -> io::Result<bool> {
        let first = self.at;
        while self.at < self.end {
            if self.next()?.is_none() {
                return Ok(false);
            }
        }
        // The padding byte of the last chunk may be missing.
        Ok(self.at > first && self.at <= self.end + 1)
    }
}

fn correct_chunks(file: &File, kind: ChunkKind, found: &mut Corrections) -> io::Result<()> {
    let first = if kind == ChunkKind::Caf { 8 } else { 12 };
    let end = found.end;
    let mut chunks = ChunkWalker { file, kind, at: first, end, left: MAX_CHUNKS };
    let name: &[u8; 4] = if kind == ChunkKind::Iff { b"SSND" } else { b"data" };
    let mut last = first;
    while let Some(chunk) = chunks.next()? {
        if &chunk.name != name {
            last = chunks.at;
            continue;
        }
        // Fields in front of the samples: offset and block size, or the number of edits.
        let fields = match kind {
            ChunkKind::Riff => 0,
            ChunkKind::Iff => 8,
            ChunkKind::Caf => 4,
        };
        let start = chunk.body + fields;
        if start > end {
            return Ok(());
        }
        let unknown = if kind == ChunkKind::Caf { u64::MAX } else { u64::from(u32::MAX) };
        let stated = chunk.size.saturating_sub(fields);
        let real = if chunk.size == unknown {
            tags_start(file, start, end)?
        } else {
            audio_end(file, kind, start, stated)?
        };
        let actual = real - start;
        if actual != stated {
            found.patches.push((chunk.size_at, size_bytes(kind, actual + fields)));
            let declared = DeclaredBytes { stated, actual };
            found.declared = Some(declared).filter(|_| chunk.size != unknown);
            found.end = if declared.is_cut() { end } else { real };
        }
        chunks.at = real + u64::from(kind != ChunkKind::Caf && real % 2 == 1);
        last = chunks.at;
        while chunks.next()?.is_some() && chunks.at <= end + 1 {
            last = chunks.at;
        }
        break;
    }
    if kind != ChunkKind::Caf {
        // All chunks lie in one.
        let size = size_bytes(kind, last.min(found.end).saturating_sub(8));
        if bytes_at::<4>(file, 4)?.is_none_or(|stated| stated[..] != size) {
            found.patches.push((4, size));
        }
    }
    Ok(())
}

fn size_bytes(kind: ChunkKind, size: u64) -> Vec<u8> {
    let short = u32::try_from(size).unwrap_or(u32::MAX);
    match kind {
        ChunkKind::Riff => short.to_le_bytes().to_vec(),
        ChunkKind::Iff => short.to_be_bytes().to_vec(),
        ChunkKind::Caf => size.to_be_bytes().to_vec(),
    }
}

/// The last box of an MP4 file ends with the file, also when the file was cut off.
fn correct_boxes(file: &File, found: &mut Corrections) -> io::Result<()> {
    let mut at = 0;
    for _ in 0..MAX_BOXES {
        let Some([a, b, c, d, _, _, _, _]) = bytes_at::<8>(file, at)? else { return Ok(()) };
        let left = found.end - at;
        let size = match u32::from_be_bytes([a, b, c, d]) {
            // To the end of the file.
            0 => return Ok(()),
            1 => match bytes_at::<8>(file, at + 8)? {
                Some(long) => u64::from_be_bytes(long),
                None => return Ok(()),
            },
            short => u64::from(short),
        };
        if size < 8 {
            return Ok(());
        }
        if size > left {
            let is_long = [a, b, c, d] == [0, 0, 0, 1];
            let patch = if is_long {
                (at + 8, left.to_be_bytes().to_vec())
            } else {
                (at, u32::try_from(left).unwrap_or(0).to_be_bytes().to_vec())
            };
            found.patches.push(patch);
            return Ok(());
        }
        at += size;
    }
    Ok(())
}

/// The segment of a Matroska file gets an unknown size where the size is wrong.
fn correct_segment(file: &File, found: &mut Corrections) -> io::Result<()> {
    let Some(header) = ebml_size(file, 4)? else { return Ok(()) };
    let at = header.body.saturating_add(header.size);
    if bytes_at::<4>(file, at)? != Some(SEGMENT) {
        return Ok(());
    }
    let Some(segment) = ebml_size(file, at + 4)? else { return Ok(()) };
    if segment.body.checked_add(segment.size).is_none_or(|end| end != found.end) {
        let mut unknown = vec![0xff; segment.width];
        unknown[0] = 0xff >> (segment.width - 1);
        found.patches.push((at + 4, unknown));
    }
    Ok(())
}

/// A size of EBML: the bytes that it takes, the offset behind it, and its value.
pub(super) struct EbmlSize {
    pub(super) width: usize,
    pub(super) body: u64,
    pub(super) size: u64,
}

/// A size of EBML: the number of leading zero bits of its first byte is that of the bytes that
/// follow (RFC 8794, 4).
pub(super) fn ebml_size(file: &File, at: u64) -> io::Result<Option<EbmlSize>> {
    let Some([first]) = bytes_at::<1>(file, at)? else { return Ok(None) };
    let width = first.leading_zeros() as usize + 1;
    if width > 8 {
        return Ok(None);
    }
    let mut size = u64::from(first & (0x7f >> (width - 1)));
    for offset in 1..width as u64 {
        let Some([byte]) = bytes_at::<1>(file, at + offset)? else { return Ok(None) };
        size = size << 8 | u64::from(byte);
    }
    Ok(Some(EbmlSize { width, body: at + width as u64, size }))
}

/// Whether a file that begins with ID3 is FLAC.
fn is_flac_behind_id3(file: &File) -> io::Result<bool> {
    let Some([_, _, _, _, _, flags, a, b, c, d]) = bytes_at::<10>(file, 0)? else {
        return Ok(false);
    };
    let size = [a, b, c, d].iter().fold(0, |all, byte| all << 7 | u64::from(byte & 0x7f));
    // ID3v2.4, 3.1: a footer of ten bytes.
    let footer = if flags & 0x10 == 0 { 0 } else { 10 };
    Ok(bytes_at::<4>(file, 10 + size + footer)? == Some(*b"fLaC"))
}

/// The identifier of a Matroska segment.
const SEGMENT: [u8; 4] = [0x18, 0x53, 0x80, 0x67];

/// Bytes behind the audio that are no chunk and are not played: some writers fill the last sector
/// of a disk.
const MAX_PADDING_BYTES: u64 = 4_096;

/// The most chunks to visit: usual files have a dozen, and each costs a system call.
const MAX_CHUNKS: u32 = 1_024;

/// The most boxes to visit: a fragmented file has two for each fragment, of half a second or more,
/// and each costs a system call.
const MAX_BOXES: u32 = 65_536;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        use std::io::Write;
        let folder = aulos_blackbox::scratch::ScratchDir::new("sizes").unwrap();
        let path = folder.join("file");
        let mut file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn wave(size: u32, data: &[u8], behind: &[u8]) -> Vec<u8> {
        let front =
            b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\x02\0\x10\0data";
        [&front[..], &size.to_le_bytes(), data, behind].concat()
    }

    #[test]
    fn a_size_is_believed_where_chunks_follow_and_replaced_where_none_do() {
        let data = [0x11; 20_000];
        let list = b"LIST\x04\0\0\0INFO";
        let tag = [&b"TAG"[..], &[b' '; 125]].concat();
        for (size, behind, stated_and_actual) in [
            (20_000, &b""[..], None),
            (20_000, list, None),
            (20_000, &tag, None),
            (20_000, &[0; 500], None),
            (0, b"", Some((0, 20_000))),
            (6_000, b"", Some((6_000, 20_000))),
            (6_000, &tag, Some((6_000, 20_000))),
            (30_000, b"", Some((30_000, 20_000))),
            (0xffff_0000, b"", Some((0xffff_0000, 20_000))),
        ] {
            let found = find_corrections(&file_of(&wave(size, &data, behind))).unwrap();
            let declared = found.declared.map(|it| (it.stated, it.actual));
            assert_eq!(declared, stated_and_actual, "{size} {}", behind.len());
            let is_patched = found.patches.iter().any(|(at, _)| *at == 40);
            assert_eq!(is_patched, declared.is_some());
        }
        // All ones means that the size is not known: the size is replaced, and nothing was lied.
        let found = find_corrections(&file_of(&wave(u32::MAX, &data, b""))).unwrap();
        assert_eq!((found.declared, found.patches.len()), (None, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            kind in 0..6usize,
            rest in proptest::collection::vec(any::<u8>(), 0..200),
            edits in proptest::collection::vec((0..60usize, any::<u8>()), 0..4),
        ) {
            let mut bytes = match kind {
                0 => wave(7, &rest, b""),
                1 => [b"FORM\0\0\0\0AIFFSSND", &rest[..]].concat(),
                2 => [b"caff\0\x01\0\0data", &rest[..]].concat(),
                3 => [b"\0\0\0\x0cftypM4A \0\0\0\x01mdat", &rest[..]].concat(),
                4 => [b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67", &rest[..]].concat(),
                _ => [b"ID3\x04\0\x10\0\0\0\0fLaC", &rest[..]].concat(),
            };
            let length = bytes.len();
            for (at, value) in edits {
                bytes[at % length] = value;
            }
            let found = find_corrections(&file_of(&bytes)).unwrap();
            assert!(found.end <= length as u64);
        }
    }
}

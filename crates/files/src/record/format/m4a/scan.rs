//! Repair of a file whose writer was killed: the index is made from its whole fragments.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use aulos_core::SampleRate;
use mp4_atom::{Codec, Decode as _, Moof, Moov};

use super::boxes::{FREE, M4aIndex, M4aTrack};
use crate::record::format::repair::{RepairError, RepairReport};

/// Repairs a file of ours. Reads its heads and skips the sound. Writes the index at the end and
/// then the head, so that it can be killed at any time.
pub(in crate::record::format) fn repair_m4a(file: &File) -> Result<RepairReport, RepairError> {
    let length = file.metadata()?.len();
    let mut index = read_head(file, length)?;
    let mut damaged_bytes = 0;
    while let Some(fragment) = find_fragment(file, index.end(), length)? {
        damaged_bytes += fragment.skipped;
        index.add_fragment(&fragment.lengths, fragment.last, fragment.skipped + fragment.head);
    }
    if index.unit_count() == 0 {
        return Err(RepairError::Empty);
    }
    let (moov, head) = match index.is_indexed() {
        true => (index.moov(false), index.data_head()),
        false => (Vec::new(), FREE),
    };
    let end = index.end() + moov.len() as u64;
    let (mut found, mut found_head) = (vec![0; moov.len()], FREE);
    let is_indexed = read(file, &mut found, index.end())? && found == moov;
    let has_head = read(file, &mut found_head, index.head())? && found_head == head;
    if !is_indexed {
        file.set_len(index.end())?;
        file.write_all_at(&moov, index.end())?;
    } else if length > end {
        file.set_len(end)?;
    }
    if !has_head {
        file.write_all_at(&head, index.head())?;
    }
    let track = index.track();
    let kept = if is_indexed { end } else { index.end() };
    Ok(RepairReport {
        frames: index.frames(),
        rate: SampleRate::new(track.hz).map_err(|_| RepairError::UnknownFormat)?,
        channels: track.channels,
        truncated_bytes: length - kept,
        damaged_bytes,
        changed: !is_indexed || !has_head || length > end,
    })
}

/// A fragment in a file.
struct Fragment {
    /// Damaged bytes before it.
    skipped: u64,
    /// Bytes before its first unit.
    head: u64,
    /// The length of each unit.
    lengths: Vec<u16>,
    /// The frames of the last unit.
    last: u64,
}

/// The next whole fragment from `at` on. A damaged one costs itself and not those behind it.
fn find_fragment(file: &File, at: u64, length: u64) -> Result<Option<Fragment>, RepairError> {
    if let Some(fragment) = read_fragment(file, at, length)? {
        return Ok(Some(fragment));
    }
    if read_box_head(file, at, length)?.is_some_and(|(kind, _)| kind == *b"moov") {
        return Ok(None);
    }
    let mut window = vec![0; usize::try_from(MAX_DAMAGE.min(length - at)).unwrap_or(0)];
    if !read(file, &mut window, at)? {
        return Ok(None);
    }
    for (skipped, kind) in (0..).zip(window.windows(4).skip(4)) {
        let skipped: u64 = skipped;
        if kind == b"moof"
            && let Some(fragment) = read_fragment(file, at + skipped, length)?
        {
            return Ok(Some(Fragment { skipped, ..fragment }));
        }
    }
    Ok(None)
}

/// Reads what is before the first fragment.
fn read_head(file: &File, length: u64) -> Result<M4aIndex, RepairError> {
    let empty = |whole| if whole { Ok(()) } else { Err(RepairError::Empty) };
    let (kind, ftyp) = read_box_head(file, 0, length)?.ok_or(RepairError::Empty)?;
    let mut head = FREE;
    empty(kind == *b"ftyp" && ftyp < MAX_HEAD && read(file, &mut head, ftyp)?)?;
    if head[4..8] != FREE[4..8] && head[4..8] != *b"mdat" {
        return Err(RepairError::UnknownFormat);
    }
    let at = ftyp + FREE.len() as u64;
    let (kind, bytes) = read_box_head(file, at, length)?.ok_or(RepairError::Empty)?;
    if kind != *b"moov" || bytes > MAX_HEAD {
        return Err(RepairError::UnknownFormat);
    }
    let mut moov = vec![0; usize::try_from(bytes).unwrap_or(0)];
    empty(read(file, &mut moov, at)?)?;
    let (track, tags) = parse_moov(&moov).ok_or(RepairError::UnknownFormat)?;
    Ok(M4aIndex::new(track, tags, ftyp, at + bytes))
}

/// The track of a `moov`, and its tags, which are its last box.
fn parse_moov(bytes: &[u8]) -> Option<(M4aTrack, Vec<u8>)> {
    let mut at = 8;
    let tags = loop {
        let rest = bytes.get(at..)?;
        let length = usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?;
        match rest.get(4..8)? {
            b"udta" if length == rest.len() => break rest.to_vec(),
            _ if length < 8 => return None,
            _ => at += length,
        }
    };
    let moov = Moov::decode(&mut &*bytes).ok()?;
    let stsd = &moov.trak.first()?.mdia.minf.stbl.stsd;
    let [Codec::Mp4a(mp4a)] = &stsd.codecs[..] else { return None };
    let decoder = &mp4a.esds.es_desc.dec_config;
    let track = M4aTrack {
        hz: moov.mvhd.timescale,
        channels: mp4a.audio.channel_count.into(),
        config: *decoder.dec_specific.as_ref()?.raw.first_chunk()?,
        bitrate: decoder.avg_bitrate,
    };
    Some((track, tags))
}

/// The whole fragment at `at`.
fn read_fragment(file: &File, at: u64, length: u64) -> Result<Option<Fragment>, RepairError> {
    let Some((kind, bytes)) = read_box_head(file, at, length)? else { return Ok(None) };
    if kind != *b"moof" || bytes > MAX_MOOF {
        return Ok(None);
    }
    let mut moof = vec![0; usize::try_from(bytes).unwrap_or(0)];
    if !read(file, &mut moof, at)? {
        return Ok(None);
    }
    let Some((lengths, last)) = parse_moof(&moof) else { return Ok(None) };
    let sum = lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
    let data = read_box_head(file, at + bytes, length)?;
    let is_whole = data == Some((*b"mdat", sum + 8)) && at + bytes + 8 + sum <= length;
    Ok(is_whole.then_some(Fragment { skipped: 0, head: bytes + 8, lengths, last }))
}

fn parse_moof(bytes: &[u8]) -> Option<(Vec<u16>, u64)> {
    let moof = Moof::decode(&mut &*bytes).ok()?;
    let [traf] = &moof.traf[..] else { return None };
    let [trun] = &traf.trun[..] else { return None };
    let length = |size: Option<u32>| u16::try_from(size?).ok().filter(|length| *length > 0);
    let lengths: Option<Vec<u16>> = trun.samples.iter().map(|unit| length(unit.size)).collect();
    let last = u64::from(trun.samples.iter().last()?.duration?);
    lengths.filter(|_| (1..=1_024).contains(&last)).map(|lengths| (lengths, last))
}

/// Kind and length of the box at `at`; `None` where there is none, or none with a plain length.
fn read_box_head(file: &File, at: u64, length: u64) -> io::Result<Option<([u8; 4], u64)>> {
    let mut head = [0; 8];
    if at.saturating_add(8) > length || !read(file, &mut head, at)? {
        return Ok(None);
    }
    let [a, b, c, d, kind @ ..] = head;
    let bytes = u64::from(u32::from_be_bytes([a, b, c, d]));
    Ok((bytes >= 8).then_some((kind, bytes)))
}

/// Whether the file has all bytes.
fn read(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ours have less than 1 kB and a title.
const MAX_HEAD: u64 = 1 << 20;

/// A fragment has some 10 units, of 8 bytes each.
const MAX_MOOF: u64 = 1 << 16;

/// A fragment of ours has some 10 kB.
const MAX_DAMAGE: u64 = 1 << 20;

//! Makes a file that was left behind whole again.
//!
//! A process that is killed leaves a file that ends somewhere and says too little of itself; a
//! machine that loses power may leave one that says too much, or that ends in zeros. What can be
//! heard is kept, what is torn at the end is cut off, and the sizes are told anew. Nothing in the
//! middle is taken away. A file that agrees with itself is not touched.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aulos_core::{Frames, SampleRate};
use aulos_proto::wav::{self, Sizes, TooLong, Wave};
use aulos_proto::{Patch, flac, ogg};

use crate::decode::{HeaderParse, read_header};

/// What a file is after its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// How long it is.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// How many channels.
    pub channels: usize,
    /// Bytes that were cut off at its end.
    pub cut: u64,
    /// Bytes in the middle that are damaged; they are still there.
    pub damaged: u64,
    /// Whether anything had to be done.
    pub changed: bool,
}

/// Makes the recording in `file` whole again: WAVE, FLAC or Ogg Opus, by its first bytes. The file
/// has to be open for reading and writing.
///
/// Reads FLAC and Opus from end to end, in pieces; of WAVE only the head. Killed meanwhile, it can be
/// called again. Syncs nothing.
///
/// # Errors
/// [`RepairError`]; the file is as it was, unless the disk failed in the middle.
pub fn repair(file: &File) -> Result<Repaired, RepairError> {
    let mut magic = [0; 4];
    match file.read_exact_at(&mut magic, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(RepairError::Empty);
        }
        Err(error) => return Err(error.into()),
    }
    match &magic {
        b"RIFF" | b"RF64" | b"BW64" => repair_wave(file),
        b"fLaC" => repair_flac(file),
        b"OggS" => repair_opus(file),
        _ => Err(RepairError::Unknown),
    }
}

fn repair_wave(file: &File) -> Result<Repaired, RepairError> {
    let read = read_header(file, |bytes| match wav::parse(bytes) {
        Ok(wav::Parsed::Wave(wave)) => Some(Ok(wave)),
        Ok(wav::Parsed::Incomplete { needed }) => Some(Err(needed)),
        Err(_) => None,
    })?;
    let (head, wave) = match read {
        HeaderParse::Parsed(head, wave) => (head, wave),
        HeaderParse::Truncated => return Err(RepairError::Empty),
        HeaderParse::Unrecognized => return Err(RepairError::Unknown),
    };
    let sizes = Sizes::of(&head, &wave);
    let length = file.metadata()?.len();
    let there = length.saturating_sub(sizes.start());
    let agrees = Sizes::said(&head) == Some(length) && length.is_multiple_of(2);
    let complete = torn_markers(file, &head, &sizes, &wave)?;
    let (data, whole) = match (wave.length, complete) {
        (Some(said), _) if agrees && chunks_to_the_end(file, sizes.end_of(said), length)? => {
            (said.min(there), true)
        }
        // The sizes count chunks behind the sound, which is what they are told when it is complete,
        // and before the chunks are written: what is there of these is torn.
        (Some(_), Some(data)) => (data.min(there), false),
        // While it is written, ours has nothing behind its sound, and room for sizes; others may have
        // more chunks.
        (Some(said), None) if said < there && !sizes.has_room() => (said, true),
        (Some(_), None) => (there, false),
        (None, _) => (there, agrees),
    };
    let data = data / sizes.frame() * sizes.frame();
    let done = |cut, changed| repaired(&wave, data / sizes.frame(), cut, changed);
    if whole {
        return Ok(done(0, false));
    }
    let odd = data % 2;
    let patches = sizes.patches(data, odd)?;
    if data + odd != there || odd == 1 {
        file.set_len(sizes.start() + data)?;
        file.set_len(sizes.start() + data + odd)?;
    }
    put(file, &patches)?;
    Ok(done(there.saturating_sub(data), true))
}

/// Whether `file` has whole chunks and nothing else from `at` on, where its sound ends, to its `end`.
fn chunks_to_the_end(file: &File, mut at: u64, end: u64) -> io::Result<bool> {
    for _ in 0..MAX_CHUNKS {
        if at >= end {
            break;
        }
        let mut head = [0; 8];
        if end - at < 8 {
            return Ok(false);
        }
        file.read_exact_at(&mut head, at)?;
        let [name @ .., a, b, c, d] = head;
        if !name.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Ok(false);
        }
        let size = u64::from(u32::from_le_bytes([a, b, c, d]));
        at += 8 + size + size % 2;
    }
    Ok(at == end)
}

/// The bytes of sound of a file of ours whose head counts markers behind them, if what stands there is
/// a beginning of such, or zeros, which a loss of power leaves.
fn torn_markers(file: &File, head: &[u8], sizes: &Sizes, wave: &Wave) -> io::Result<Option<u64>> {
    let Some(data) = sizes.declared(head, wave).filter(|_| sizes.has_room()) else {
        return Ok(None);
    };
    let (end, length) = (sizes.end_of(data), file.metadata()?.len());
    let mut name = [0; 4];
    let there = usize::try_from(length.saturating_sub(end)).unwrap_or(4).min(4);
    file.read_exact_at(&mut name[..there], end)?;
    let begins =
        |chunk: &[u8; 4]| chunk.iter().zip(name).all(|(wanted, byte)| byte == *wanted || byte == 0);
    Ok(MARKER_CHUNKS.iter().any(|chunk| begins(chunk)).then_some(data))
}

const fn repaired(wave: &Wave, frames: u64, cut: u64, changed: bool) -> Repaired {
    let (rate, channels) = (wave.rate, wave.layout.channels());
    Repaired { frames: Frames(frames), rate, channels, cut, damaged: 0, changed }
}

fn repair_flac(file: &File) -> Result<Repaired, RepairError> {
    let (mut head, old) = match read_header(file, flac::FlacFileHeader::parse)? {
        HeaderParse::Parsed(bytes, head) => (head, bytes),
        HeaderParse::Truncated => return Err(RepairError::Empty),
        HeaderParse::Unrecognized => return Err(RepairError::Unknown),
    };
    let length = file.metadata()?.len();
    if length < head.audio_offset {
        return Err(RepairError::Empty);
    }
    let mut walk = flac::FlacScanner::new(head.info.clone());
    pieces(file, head.audio_offset, |bytes| walk.push(bytes))?;
    let whole = walk.finish();
    if whole.aborted {
        return Err(RepairError::Damaged);
    }
    let rate = SampleRate::new(head.info.hz()).map_err(|_| RepairError::Unknown)?;
    let cut = length - head.audio_offset - whole.end;
    if cut > 0 || whole.damaged > 0 || head.info.frames() != whole.frames.0 {
        // The sum was of something else.
        head.info.set_md5([0; 16]);
    }
    head.info.set_totals(whole.frames.0, whole.smallest, whole.largest);
    let patch = head.stream_info_patch();
    let changed = cut > 0 || !patch.is_applied_to(&old);
    if changed {
        file.set_len(head.audio_offset + whole.end)?;
        put(file, &[patch])?;
    }
    let (frames, channels, damaged) = (whole.frames, head.info.channels(), whole.damaged);
    Ok(Repaired { frames, rate, channels, cut, damaged, changed })
}

fn repair_opus(file: &File) -> Result<Repaired, RepairError> {
    let mut walk = ogg::OggScanner::default();
    pieces(file, 0, |bytes| walk.push(bytes))?;
    let whole = walk.finish();
    if whole.channels == 0 {
        return Err(if whole.last.is_none() { RepairError::Empty } else { RepairError::Unknown });
    }
    if whole.aborted || whole.has_other_streams {
        return Err(RepairError::Damaged);
    }
    let last = whole.last.ok_or(RepairError::Empty)?;
    let end = last.at + last.length as u64;
    let cut = file.metadata()?.len().saturating_sub(end);
    let changed = cut > 0 || !last.ends;
    if changed {
        let mut page = vec![0; last.length];
        file.read_exact_at(&mut page, last.at)?;
        let patch = ogg::mark_last_page(&page, last.at).ok_or(RepairError::Damaged)?;
        file.set_len(end)?;
        put(file, &[patch])?;
    }
    let (frames, channels) = (whole.frames(), usize::from(whole.channels));
    let (rate, damaged) = (SampleRate::HZ_48000, whole.damaged);
    Ok(Repaired { frames, rate, channels, cut, damaged, changed })
}

pub(super) fn put(file: &File, patches: &[Patch]) -> io::Result<()> {
    patches.iter().try_for_each(|patch| file.write_all_at(patch.bytes(), patch.at()))
}

/// Hands over all bytes from `at` on.
fn pieces(file: &File, mut at: u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    rustix::fs::fadvise(file, at, None, rustix::fs::Advice::Sequential).ok();
    let mut bytes = vec![0; PIECE];
    loop {
        match file.read_at(&mut bytes, at) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                take(&bytes[..count]);
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Why a file could not be made whole.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepairError {
    /// It ends before its sound begins: nothing was recorded.
    Empty,
    /// It is no WAVE, FLAC or Ogg Opus file.
    Unknown,
    /// It was begun as one, but most of it is something else, or a second stream is in it.
    Damaged,
    /// A WAVE file of others beyond 4 GiB, without room for its length.
    TooLong,
    /// It could not be read or written.
    Io(io::Error),
}

impl From<io::Error> for RepairError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TooLong> for RepairError {
    fn from(TooLong: TooLong) -> Self {
        Self::TooLong
    }
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing was recorded: it ends before its sound begins",
            Self::Unknown => "it is no WAVE, FLAC or Ogg Opus file",
            Self::Damaged => {
                "too little of it is a recording: it is left as it is, try ffmpeg to save its sound"
            }
            Self::TooLong => {
                "it is longer than the 4 GiB that its head can tell: make it anew with ffmpeg -rf64 auto"
            }
            Self::Io(error) => return write!(f, "it cannot be repaired: {error}"),
        })
    }
}

impl core::error::Error for RepairError {}

/// The chunks of which one comes first behind the sound of ours.
const MARKER_CHUNKS: [&[u8; 4]; 2] = [b"cue ", b"iXML"];

/// Chunks behind the sound that are looked at.
const MAX_CHUNKS: usize = 1_000;

/// Read at a time.
const PIECE: usize = 256 * 1024;

//! Repairs files that were left behind by a crash.
//!
//! A killed process leaves a file that is truncated and whose header states too little; a power
//! failure may leave one that states too much, or that ends in zeros. Decodable sound is kept, a
//! damaged end is removed, and the sizes are rewritten. Nothing in the middle is removed. A
//! consistent file is not changed.

use core::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aulos_core::{Frames, SampleRate};
use aulos_proto::wav::{self, FileTooLong, SizeFields, WaveInfo};
use aulos_proto::{Patch, flac, mp3, ogg};

use crate::decode::{HeaderParse, read_header};

/// Result of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// Length of the file.
    pub frames: Frames,
    /// Frames per second.
    pub rate: SampleRate,
    /// Number of channels.
    pub channels: usize,
    /// Bytes removed from its end.
    pub truncated_bytes: u64,
    /// Damaged bytes in the middle, which are still in the file.
    pub damaged_bytes: u64,
    /// Whether the file was changed.
    pub changed: bool,
}

pub(super) fn repair_wave(file: &File) -> Result<RepairReport, RepairError> {
    let read = read_header(file, |bytes| match wav::parse(bytes) {
        Ok(wav::ParseOutcome::Complete(wave)) => Some(Ok(wave)),
        Ok(wav::ParseOutcome::Incomplete { needed }) => Some(Err(needed)),
        Err(_) => None,
    })?;
    let (header, wave) = match read {
        HeaderParse::Parsed(header, wave) => (header, wave),
        HeaderParse::Truncated => return Err(RepairError::Empty),
        HeaderParse::Unrecognized => return Err(RepairError::UnknownFormat),
    };
    let sizes = SizeFields::from_header(&header, &wave);
    let length = file.metadata()?.len();
    let available_bytes = length.saturating_sub(sizes.data_offset());
    let sizes_agree =
        SizeFields::declared_file_bytes(&header) == Some(length) && length.is_multiple_of(2);
    let complete = data_bytes_before_torn_markers(file, &header, &sizes, &wave)?;
    let (data, is_consistent) = match (wave.data_bytes, complete) {
        (Some(declared), _)
            if sizes_agree && has_only_chunks(file, sizes.data_end(declared), length)? =>
        {
            (declared.min(available_bytes), true)
        }
        // The sizes count chunks behind the samples: they are written when the samples are complete
        // and before the chunks, so the existing part of the chunks may be damaged.
        (Some(_), Some(data)) => (data.min(available_bytes), false),
        // While it is written, a file of ours has nothing behind its samples, and space for 64-bit
        // sizes; files of other programs may have more chunks.
        (Some(declared), None) if declared < available_bytes && !sizes.has_ds64_space() => {
            (declared, true)
        }
        (Some(_), None) => (available_bytes, false),
        (None, _) => (available_bytes, sizes_agree),
    };
    let data = data / sizes.frame_bytes() * sizes.frame_bytes();
    let done = |truncated_bytes, changed| {
        wave_report(&wave, data / sizes.frame_bytes(), truncated_bytes, changed)
    };
    if is_consistent {
        return Ok(done(0, false));
    }
    let odd = data % 2;
    let patches = sizes.patches(data, odd)?;
    if data + odd != available_bytes || odd == 1 {
        file.set_len(sizes.data_offset() + data)?;
        file.set_len(sizes.data_offset() + data + odd)?;
    }
    apply_patches(file, &patches)?;
    Ok(done(available_bytes.saturating_sub(data), true))
}

/// Whether `file` has only whole chunks from `at` on, the end of the samples, to `end`.
fn has_only_chunks(file: &File, mut at: u64, end: u64) -> io::Result<bool> {
    for _ in 0..MAX_CHUNKS {
        if at >= end {
            break;
        }
        let mut header = [0; 8];
        if end - at < 8 {
            return Ok(false);
        }
        file.read_exact_at(&mut header, at)?;
        let [name @ .., a, b, c, d] = header;
        if !name.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Ok(false);
        }
        let size = u64::from(u32::from_le_bytes([a, b, c, d]));
        at += 8 + size + size % 2;
    }
    Ok(at == end)
}

/// Bytes of samples in a file of ours whose header counts markers behind them, if the bytes there
/// are the start of such chunks, or zeros, which a power failure leaves.
fn data_bytes_before_torn_markers(
    file: &File,
    header: &[u8],
    sizes: &SizeFields,
    wave: &WaveInfo,
) -> io::Result<Option<u64>> {
    let Some(data) = sizes.declared_data_bytes(header, wave).filter(|_| sizes.has_ds64_space())
    else {
        return Ok(None);
    };
    let (end, length) = (sizes.data_end(data), file.metadata()?.len());
    let mut name = [0; 4];
    let available_bytes = usize::try_from(length.saturating_sub(end)).unwrap_or(4).min(4);
    file.read_exact_at(&mut name[..available_bytes], end)?;
    let begins_with =
        |chunk: &[u8; 4]| chunk.iter().zip(name).all(|(wanted, byte)| byte == *wanted || byte == 0);
    Ok(MARKER_CHUNKS.iter().any(|chunk| begins_with(chunk)).then_some(data))
}

const fn wave_report(
    wave: &WaveInfo,
    frames: u64,
    truncated_bytes: u64,
    changed: bool,
) -> RepairReport {
    let (rate, channels) = (wave.rate, wave.layout.channels());
    RepairReport {
        frames: Frames(frames),
        rate,
        channels,
        truncated_bytes,
        damaged_bytes: 0,
        changed,
    }
}

pub(super) fn repair_flac(file: &File) -> Result<RepairReport, RepairError> {
    let (mut header, old) = match read_header(file, flac::FlacFileHeader::parse)? {
        HeaderParse::Parsed(bytes, header) => (header, bytes),
        HeaderParse::Truncated => return Err(RepairError::Empty),
        HeaderParse::Unrecognized => return Err(RepairError::UnknownFormat),
    };
    let length = file.metadata()?.len();
    if length < header.audio_offset {
        return Err(RepairError::Empty);
    }
    let mut scanner = flac::FlacScanner::new(header.info.clone());
    for_each_piece(file, header.audio_offset, |bytes| scanner.push(bytes))?;
    let scan = scanner.finish();
    if scan.aborted {
        return Err(RepairError::Damaged);
    }
    let rate = SampleRate::new(header.info.hz()).map_err(|_| RepairError::UnknownFormat)?;
    let truncated_bytes = length - header.audio_offset - scan.end;
    if truncated_bytes > 0 || scan.damaged > 0 || header.info.frames() != scan.frames.0 {
        // The MD5 sum is that of other samples.
        header.info.set_md5([0; 16]);
    }
    header.info.set_totals(scan.frames.0, scan.smallest, scan.largest);
    let patch = header.stream_info_patch();
    let changed = truncated_bytes > 0 || !patch.is_applied_to(&old);
    if changed {
        file.set_len(header.audio_offset + scan.end)?;
        apply_patches(file, &[patch])?;
    }
    let (frames, channels, damaged_bytes) = (scan.frames, header.info.channels(), scan.damaged);
    Ok(RepairReport { frames, rate, channels, truncated_bytes, damaged_bytes, changed })
}

pub(super) fn repair_opus(file: &File) -> Result<RepairReport, RepairError> {
    let mut scanner = ogg::OggScanner::default();
    for_each_piece(file, 0, |bytes| scanner.push(bytes))?;
    let scan = scanner.finish();
    if scan.channels == 0 {
        return Err(if scan.last.is_none() {
            RepairError::Empty
        } else {
            RepairError::UnknownFormat
        });
    }
    if scan.aborted || scan.has_other_streams {
        return Err(RepairError::Damaged);
    }
    let last = scan.last.ok_or(RepairError::Empty)?;
    let end = last.at + last.length as u64;
    let truncated_bytes = file.metadata()?.len().saturating_sub(end);
    let changed = truncated_bytes > 0 || !last.ends;
    if changed {
        let mut page = vec![0; last.length];
        file.read_exact_at(&mut page, last.at)?;
        let patch = ogg::mark_last_page(&page, last.at).ok_or(RepairError::Damaged)?;
        file.set_len(end)?;
        apply_patches(file, &[patch])?;
    }
    let (frames, channels) = (scan.frames(), usize::from(scan.channels));
    let (rate, damaged_bytes) = (SampleRate::HZ_48000, scan.damaged);
    Ok(RepairReport { frames, rate, channels, truncated_bytes, damaged_bytes, changed })
}

pub(super) fn repair_mp3(file: &File) -> Result<RepairReport, RepairError> {
    let mut scanner = mp3::Mp3Scanner::default();
    for_each_piece(file, 0, |bytes| scanner.push(bytes))?;
    let scan = scanner.finish().map_err(|error| match error {
        mp3::Mp3ScanError::Empty => RepairError::Empty,
        _ => RepairError::UnknownFormat,
    })?;
    if scan.aborted {
        return Err(RepairError::Damaged);
    }
    let rate = SampleRate::new(scan.hz).map_err(|_| RepairError::UnknownFormat)?;
    let truncated_bytes = file.metadata()?.len().saturating_sub(scan.end);
    let changed = truncated_bytes > 0 || scan.patches.is_some();
    if changed {
        file.set_len(scan.end)?;
        apply_patches(file, scan.patches.as_ref().map_or(&[], |patches| patches))?;
    }
    let (frames, channels, damaged_bytes) = (scan.frames, scan.channels, scan.damaged);
    Ok(RepairReport { frames, rate, channels, truncated_bytes, damaged_bytes, changed })
}

pub(super) fn apply_patches(file: &File, patches: &[Patch]) -> io::Result<()> {
    patches.iter().try_for_each(|patch| file.write_all_at(patch.bytes(), patch.at()))
}

/// Passes all bytes from `at` on to `take`.
fn for_each_piece(file: &File, mut at: u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    rustix::fs::fadvise(file, at, None, rustix::fs::Advice::Sequential).ok();
    let mut bytes = vec![0; PIECE_BYTES];
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

/// Why a file cannot be repaired.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepairError {
    /// It ends before its samples: nothing was recorded.
    Empty,
    /// It is not a WAVE, FLAC, Ogg Opus, MP3 or M4A file.
    UnknownFormat,
    /// It begins as one, but most of it is damaged, or it has a second stream.
    Damaged,
    /// A WAVE file of another program beyond 4 GiB, without space for its length.
    TooLong,
    /// It could not be read or written.
    Io(io::Error),
}

impl From<io::Error> for RepairError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<FileTooLong> for RepairError {
    fn from(FileTooLong: FileTooLong) -> Self {
        Self::TooLong
    }
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing was recorded: the file ends before its sound",
            Self::UnknownFormat => "not a WAVE, FLAC, Ogg Opus, MP3 or M4A file",
            Self::Damaged => {
                "too damaged to repair, left unchanged; try ffmpeg to recover its sound"
            }
            Self::TooLong => {
                "longer than the 4 GiB that its header can state; rewrite it with `ffmpeg -rf64 auto`"
            }
            Self::Io(error) => return write!(f, "cannot repair the file: {error}"),
        })
    }
}

impl core::error::Error for RepairError {}

/// The first chunk behind the samples of a file of ours is one of these.
const MARKER_CHUNKS: [&[u8; 4]; 2] = [b"cue ", b"iXML"];

/// Maximum number of chunks behind the samples that are checked.
const MAX_CHUNKS: usize = 1_000;

/// Bytes per read.
const PIECE_BYTES: usize = 256 * 1024;

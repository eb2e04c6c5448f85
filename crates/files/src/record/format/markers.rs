//! Writes markers into a complete file: chunks behind the samples of WAVE, chapters of FLAC.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aulos_proto::flac::Chapters;
use aulos_proto::wav::{self, SizeFields, marker_chunks};
use aulos_proto::{FileMarker, flac};

use super::repair::apply_patches;
use crate::decode::{HeaderParse, read_header};

/// Writes `markers`, sorted by position, into a complete recording. The file must be open for
/// reading and writing. Opus, MP3 and M4A have their tags in front of the sound, without space for later
/// additions: such a file is not changed, and neither are files of other programs.
///
/// WAVE: the sizes in the header are written first, then the chunks that they count. So if the
/// process is killed meanwhile, the header states the complete length of the sound, and
/// [`repair`](super::repair) does not take the bytes behind it for sound; then this can be called
/// again. With `durable`, each step is synced before the next one.
///
/// # Errors
/// The disk's errors; the sound is never changed.
pub fn write_markers(file: &File, markers: &[FileMarker<'_>], durable: bool) -> io::Result<()> {
    let mut magic = [0; 4];
    if markers.is_empty() {
        return Ok(());
    }
    file.read_exact_at(&mut magic, 0)?;
    match &magic {
        b"RIFF" | b"RF64" => write_wave_markers(file, markers, durable),
        b"fLaC" => write_flac_markers(file, markers, durable),
        _ => Ok(()),
    }
}

fn write_wave_markers(file: &File, markers: &[FileMarker<'_>], durable: bool) -> io::Result<()> {
    let read = read_header(file, |bytes| match wav::parse(bytes) {
        Ok(wav::ParseOutcome::Complete(wave)) => Some(Ok(wave)),
        Ok(wav::ParseOutcome::Incomplete { needed }) => Some(Err(needed)),
        Err(_) => None,
    })?;
    let HeaderParse::Parsed(head, wave) = read else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let sizes = SizeFields::from_header(&head, &wave);
    let available_bytes = file.metadata()?.len().saturating_sub(sizes.data_offset());
    // A complete file states its length; none means that it is empty.
    let data = wave.data_bytes.unwrap_or(0);
    if !sizes.has_ds64_space()
        || data > available_bytes
        || wave.data_bytes.is_none() && available_bytes > 0
    {
        return Ok(());
    }
    let odd = data % 2;
    let end = sizes.data_offset() + data + odd;
    let mut chunks = Vec::new();
    marker_chunks(markers, &mut chunks);
    let patches = sizes.patches(data, odd + chunks.len() as u64).map_err(io::Error::other)?;
    // Removes what a killed writer has left there.
    file.set_len(end)?;
    apply_patches(file, &patches)?;
    sync(file, durable)?;
    file.write_all_at(&chunks, end)?;
    sync(file, durable)
}

fn write_flac_markers(file: &File, markers: &[FileMarker<'_>], durable: bool) -> io::Result<()> {
    let HeaderParse::Parsed(_, head) = read_header(file, flac::FlacFileHeader::parse)? else {
        return Ok(());
    };
    let read = read_header(file, |bytes| Chapters::parse(bytes, markers, head.info.hz()))?;
    let HeaderParse::Parsed(_, Chapters { hidden, head, .. }) = read else { return Ok(()) };
    file.write_all_at(&hidden.1, hidden.0)?;
    sync(file, durable)?;
    file.write_all_at(&head.1, head.0)?;
    sync(file, durable)
}

fn sync(file: &File, durable: bool) -> io::Result<()> {
    if durable { file.sync_data() } else { Ok(()) }
}

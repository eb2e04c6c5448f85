//! Puts markers into a file that is complete: behind the sound of WAVE, as chapters of FLAC.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use aulos_proto::flac::Chapters;
use aulos_proto::wav::{self, Sizes, marker_chunks};
use aulos_proto::{Marker, flac};

use super::repair::put;
use crate::decode::{HeaderParse, read_header};

/// Puts `markers`, in the order of their positions, into a recording that is complete. The file has to
/// be open for reading and writing. Opus has its tags in front of the sound, where there is no room for
/// what is known later: such a file stays as it is, as does a file of others.
///
/// WAVE: the head tells the sizes first, and what it counts follows. So a file whose writer is killed
/// meanwhile says that its sound is complete and how long it is, and [`repair`](super::repair) takes
/// nothing behind it for sound; then this can be called again. With `durable` each step survives a loss
/// of power before the next one is taken.
///
/// # Errors
/// As the disk gives them; the sound is never touched.
pub fn write_markers(file: &File, markers: &[Marker<'_>], durable: bool) -> io::Result<()> {
    let mut magic = [0; 4];
    if markers.is_empty() {
        return Ok(());
    }
    file.read_exact_at(&mut magic, 0)?;
    match &magic {
        b"RIFF" | b"RF64" => mark_wave(file, markers, durable),
        b"fLaC" => mark_flac(file, markers, durable),
        _ => Ok(()),
    }
}

fn mark_wave(file: &File, markers: &[Marker<'_>], durable: bool) -> io::Result<()> {
    let read = read_header(file, |bytes| match wav::parse(bytes) {
        Ok(wav::Parsed::Wave(wave)) => Some(Ok(wave)),
        Ok(wav::Parsed::Incomplete { needed }) => Some(Err(needed)),
        Err(_) => None,
    })?;
    let HeaderParse::Parsed(head, wave) = read else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let sizes = Sizes::of(&head, &wave);
    let there = file.metadata()?.len().saturating_sub(sizes.start());
    // The length is told exactly in a file that is complete; none is that of an empty one.
    let data = wave.length.unwrap_or(0);
    if !sizes.has_room() || data > there || wave.length.is_none() && there > 0 {
        return Ok(());
    }
    let odd = data % 2;
    let end = sizes.start() + data + odd;
    let mut chunks = Vec::new();
    marker_chunks(markers, &mut chunks);
    let patches = sizes.patches(data, odd + chunks.len() as u64).map_err(io::Error::other)?;
    // What a writer that was killed has left there.
    file.set_len(end)?;
    put(file, &patches)?;
    sync(file, durable)?;
    file.write_all_at(&chunks, end)?;
    sync(file, durable)
}

fn mark_flac(file: &File, markers: &[Marker<'_>], durable: bool) -> io::Result<()> {
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

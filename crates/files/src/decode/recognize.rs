//! Files that are not decoded, by the signatures of their formats, so that an error can name them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::error::OpenError;

/// Refuses what is known and not supported. In some of it the library would find false frames.
pub(super) fn refuse_known_kinds(file: &File) -> Result<(), OpenError> {
    let front = front_of(file)?;
    if front.is_empty() {
        return Err(OpenError::Empty);
    }
    if let Some((_, kind)) = SIGNATURES.iter().find(|(start, _)| front.starts_with(start)) {
        return Err(OpenError::UnsupportedKind(kind));
    }
    if is_transport_stream(&front) {
        return Err(OpenError::UnsupportedKind("MPEG-TS"));
    }
    if let Some(kind) = compressed_wave(&front) {
        return Err(OpenError::UnsupportedKind(kind));
    }
    match ARCHIVES.iter().find(|(start, _)| front.starts_with(start)) {
        Some((_, kind)) => Err(OpenError::NotSound(kind)),
        None => Ok(()),
    }
}

/// A better reason for what the library has refused.
pub(super) fn explain_refusal(file: &File, why: OpenError) -> OpenError {
    let front = front_of(file).unwrap_or_default();
    if !matches!(why, OpenError::NotAudio | OpenError::Torn) {
        return why;
    }
    if front.get(4..8) == Some(b"ftyp") && !has_index(file) {
        return OpenError::NoIndex;
    }
    if front.starts_with(b"FORM") && front.get(8..12) == Some(b"AIFC") && why == OpenError::NotAudio
    {
        return OpenError::UnsupportedCodec;
    }
    // Not before: there are files with an error page of a web server in front of their first frame.
    text_kind(&front).map_or(why, OpenError::NotSound)
}

fn front_of(file: &File) -> Result<Vec<u8>, OpenError> {
    let mut front = vec![0; FRONT_BYTES];
    let mut known = 0;
    while known < front.len() {
        match file.read_at(&mut front[known..], known as u64) {
            Ok(0) => break,
            Ok(count) => known += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    front.truncate(known);
    Ok(front)
}

/// Packets of 188 bytes that begin with 0x47 (ISO/IEC 13818-1, 2.4.3.2).
fn is_transport_stream(front: &[u8]) -> bool {
    [0, 188, 376, 564].iter().all(|at| front.get(*at) == Some(&0x47))
}

/// The name of a codec in WAVE that is not supported (RFC 2361).
fn compressed_wave(front: &[u8]) -> Option<&'static str> {
    if !front.starts_with(b"RIFF") || front.get(8..12) != Some(b"WAVE") {
        return None;
    }
    let at = front.windows(4).position(|name| name == b"fmt ")?;
    let tag = u16::from_le_bytes(*front.get(at + 8..)?.first_chunk()?);
    WAVE_CODECS.iter().find(|(known, _)| *known == tag).map(|(_, name)| *name)
}

/// Lists of files or addresses, and pages.
fn text_kind(front: &[u8]) -> Option<&'static str> {
    let text = front.strip_prefix(b"\xef\xbb\xbf").unwrap_or(front).trim_ascii_start();
    let begins =
        |with: &[u8]| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    let contains = |part: &[u8]| text.windows(part.len()).any(|it| it.eq_ignore_ascii_case(part));
    if let Some((_, kind)) = TEXTS.iter().find(|(start, _)| begins(start)) {
        return Some(kind);
    }
    if begins(b"<?xml") && contains(b"xspf.org") {
        return Some("a playlist (XSPF); give the files or addresses in it");
    }
    let is_cue = contains(b"FILE \"") && contains(b"TRACK 01 AUDIO");
    is_cue.then_some("a cue sheet; give the file in it")
}

/// Whether a box of type `moov` is at the top of an MP4 file.
fn has_index(file: &File) -> bool {
    let length = file.metadata().map_or(0, |it| it.len());
    let mut at = 0u64;
    for _ in 0..MAX_BOXES {
        let mut header = [0; 16];
        let count = file.read_at(&mut header, at).unwrap_or(0);
        if count < 8 || at >= length {
            return false;
        }
        let [a, b, c, d, kind @ .., _, _, _, _, _, _, _, _] = header;
        if &kind == b"moov" {
            return true;
        }
        let size = match u32::from_be_bytes([a, b, c, d]) {
            1 => header.last_chunk().map_or(0, |long| u64::from_be_bytes(*long)),
            short => u64::from(short),
        };
        if size < 8 {
            return false;
        }
        at = at.saturating_add(size);
    }
    false
}

/// The first bytes of formats, and their names.
const SIGNATURES: [(&[u8], &str); 21] = [
    (b"wvpk", "WavPack"),
    (b"MAC ", "Monkey's Audio"),
    (b"MPCK", "Musepack"),
    (b"MP+", "Musepack"),
    (b"TTA1", "True Audio (TTA)"),
    (b"TTA2", "True Audio (TTA)"),
    (b"OFR ", "OptimFROG"),
    (b"ajkg", "Shorten"),
    (b"LA04", "Lossless Audio"),
    (b"DSD ", "DSD (DSF)"),
    (b"FRM8", "DSD (DSDIFF)"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media (ASF, WMA)"),
    (b".RMF", "RealMedia"),
    (b".ra\xfd", "RealAudio"),
    (b".snd", "Sun audio (AU)"),
    (b"riff\x2e\x91\xcf\x11", "Wave64 (W64)"),
    (b"\x0b\x77", "AC-3"),
    (b"\x7f\xfe\x80\x01", "DTS"),
    (b"#!AMR", "AMR"),
    (b"MThd", "MIDI"),
    (b"FLV\x01", "Flash Video"),
];

const ARCHIVES: [(&[u8], &str); 5] = [
    (b"\x1f\x8b\x08", "a gzip archive; extract it first"),
    (b"PK\x03\x04", "a ZIP archive; extract it first"),
    (b"Rar!\x1a\x07", "a RAR archive; extract it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; extract it first"),
    (b"%PDF-", "a PDF document"),
];

/// The first letters of texts, in any case.
const TEXTS: [(&[u8], &str); 5] = [
    (b"#EXTM3U", "a playlist (M3U); give the files or addresses in it"),
    (b"[playlist]", "a playlist (PLS); give the files or addresses in it"),
    (b"<asx", "a playlist (ASX); give the files or addresses in it"),
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
];

/// Format tags of WAVE.
const WAVE_CODECS: [(u16, &str); 6] = [
    (0x50, "MPEG audio in WAVE"),
    (0x55, "MP3 in WAVE"),
    (0x92, "AC-3 in WAVE"),
    (0xff, "AAC in WAVE"),
    (0x161, "Windows Media in WAVE"),
    (0x2000, "AC-3 in WAVE"),
];

/// Enough for the signatures, four packets of MPEG-TS, and the metadata in front of a `fmt ` chunk.
const FRONT_BYTES: usize = 2_048;

/// The index is the first, second or last of a few boxes; a fragmented file has it in front.
const MAX_BOXES: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// As for a file that the library refuses.
    fn refusal(bytes: &[u8]) -> Option<OpenError> {
        let folder = aulos_blackbox::scratch::ScratchDir::new("recognize").unwrap();
        let path = folder.join("file");
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(path).unwrap();
        let refused = refuse_known_kinds(&file).err();
        Some(refused.unwrap_or_else(|| explain_refusal(&file, OpenError::NotAudio)))
    }

    #[test]
    fn files_without_sound_are_named() {
        let packets = [b"\x47", &[0; 187][..]].concat().repeat(5);
        for (bytes, kind) in [
            (&b"wvpk\0\0\0\0"[..], "WavPack"),
            (&packets, "MPEG-TS"),
            (b"RIFF\0\0\0\0WAVEfmt \x1e\0\0\0\x55\0\x02\0", "MP3 in WAVE"),
        ] {
            assert_eq!(refusal(bytes), Some(OpenError::UnsupportedKind(kind)), "{kind}");
        }
        for (bytes, kind) in [
            (&b"\xef\xbb\xbf#EXTM3U\n"[..], "a playlist (M3U);"),
            (b"[playlist]\nFile1=a.mp3\n", "a playlist (PLS);"),
            (b"<ASX version=\"3\">", "a playlist (ASX);"),
            (b"<?xml?><playlist xmlns=\"http://xspf.org/ns/0/\">", "a playlist (XSPF);"),
            (b"FILE \"a.flac\" WAVE\n  TRACK 01 AUDIO\n", "a cue sheet;"),
            (b"\x1f\x8b\x08\0\0", "a gzip archive;"),
            (b"<!DOCTYPE HTML><title>Not Found</title>", "an HTML page"),
        ] {
            let refused = refusal(bytes);
            let is_named =
                matches!(refused, Some(OpenError::NotSound(text)) if text.starts_with(kind));
            assert!(is_named, "{kind}: {refused:?}");
        }
        assert_eq!(refusal(b""), Some(OpenError::Empty));
        for bytes in [&b"fLaC"[..], b"OggS", b"ID3\x03", b"\xff\xfb\x90\0", b"\x47\0", b"<tt>"] {
            assert_eq!(refusal(bytes), Some(OpenError::NotAudio));
        }
    }
}

//! Format detection by content.

use super::{StreamFormatError, adts, mpeg};
use crate::flac::{FrameHeader, ParsedFrameHeader};
use crate::mpegts::{TS_PACKET, is_sync};

/// Formats that are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Mpeg,
    Adts,
    /// FLAC from its beginning.
    Flac,
    /// FLAC joined in the middle.
    FlacFrames,
    Ogg,
    Wave,
    Transport,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SniffResult {
    /// No known format, or not enough bytes to decide.
    Nothing,
    /// A tag of this length.
    Tag(u64),
    Start(StreamKind),
}

/// Parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sniffer {
    /// The input has ended.
    pub(super) ended: bool,
    /// Bare FLAC frames are accepted; they are easily confused with other data.
    pub(super) is_flac: bool,
    /// Only frames of MPEG audio and ADTS are, because a container around them is known.
    pub(super) is_elementary: bool,
}

enum ProbeResult {
    No,
    Maybe,
    Yes(SniffResult),
}

impl Sniffer {
    /// Offset of the first match or possible match, and the result there.
    pub(super) fn find_start(self, bytes: &[u8], fresh: bool) -> (usize, SniffResult) {
        for at in 0..bytes.len() {
            match self.probe(bytes.get(at..).unwrap_or_default(), fresh && at == 0) {
                ProbeResult::No => {}
                ProbeResult::Maybe => return (at, SniffResult::Nothing),
                ProbeResult::Yes(found) => return (at, found),
            }
        }
        (bytes.len(), SniffResult::Nothing)
    }

    fn probe(self, bytes: &[u8], fresh: bool) -> ProbeResult {
        match bytes.first() {
            Some(first) if self.is_elementary && *first != 0xff => ProbeResult::No,
            Some(b'G') if fresh => self.transport(bytes),
            Some(b'O') => self.magic(bytes, b"OggS\0", StreamKind::Ogg),
            Some(b'f') => self.magic(bytes, b"fLaC", StreamKind::Flac),
            Some(b'R') if fresh => match bytes.get(..4) {
                Some(b"RIFF" | b"RF64") => self.accept(StreamKind::Wave),
                Some(_) => ProbeResult::No,
                None => self.undecided(),
            },
            Some(b'I') => self.tag(bytes),
            Some(0xff) => self.frame(bytes),
            _ => ProbeResult::No,
        }
    }

    /// Three packets of a transport stream, one after the other.
    fn transport(self, bytes: &[u8]) -> ProbeResult {
        let syncs = [0, TS_PACKET, 2 * TS_PACKET].map(|at| bytes.get(at).copied());
        if syncs.into_iter().flatten().any(|byte| !is_sync(byte)) {
            ProbeResult::No
        } else if syncs.contains(&None) {
            self.undecided()
        } else {
            self.accept(StreamKind::Transport)
        }
    }

    fn magic(self, bytes: &[u8], magic: &[u8], kind: StreamKind) -> ProbeResult {
        if bytes.starts_with(magic) {
            self.accept(kind)
        } else if magic.starts_with(bytes) {
            self.undecided()
        } else {
            ProbeResult::No
        }
    }

    /// `ID3v2` (id3.org, ID3v2.4.0 main structure, 3.1); its size is encoded with 7 bits per byte.
    fn tag(self, bytes: &[u8]) -> ProbeResult {
        if !bytes.iter().zip(b"ID3").all(|(here, wanted)| here == wanted) {
            return ProbeResult::No;
        }
        let Some([_, _, _, major, minor, flags, size @ ..]) = bytes.first_chunk::<10>() else {
            return self.undecided();
        };
        if *major == 0xff || *minor == 0xff || size.iter().any(|byte| *byte > 0x7f) {
            return ProbeResult::No;
        }
        let size = size.iter().fold(0, |sum, byte| sum << 7 | u64::from(*byte));
        let footer = if flags & 0x10 != 0 { 10 } else { 0 };
        let whole = size + 10 + footer;
        if whole > super::MAX_TAG {
            ProbeResult::No
        } else {
            ProbeResult::Yes(SniffResult::Tag(whole))
        }
    }

    /// A frame must be followed by another one of its stream, or be the last one.
    fn frame(self, bytes: &[u8]) -> ProbeResult {
        if self.is_flac {
            match FrameHeader::parse(bytes) {
                ParsedFrameHeader::Header(_) => return self.accept(StreamKind::FlacFrames),
                ParsedFrameHeader::Incomplete if !self.ended => return ProbeResult::Maybe,
                _ => {}
            }
        }
        let Some(word) = bytes.first_chunk::<4>() else {
            return match bytes.get(1) {
                Some(second) if second & 0xe0 != 0xe0 => ProbeResult::No,
                _ => self.undecided(),
            };
        };
        if let Some(header) = mpeg::Header::parse(*word) {
            return self.confirm_next_frame(bytes, header.bytes(), StreamKind::Mpeg, |next| {
                next.first_chunk().map(|next| {
                    mpeg::Header::parse(*next).is_some_and(|next| next.is_like(&header))
                })
            });
        }
        if !adts::Header::is_sync(*word) {
            return ProbeResult::No;
        }
        let Some(header) = bytes.first_chunk() else { return self.undecided() };
        let Some(header) = adts::Header::parse(*header) else { return ProbeResult::No };
        self.confirm_next_frame(bytes, header.bytes(), StreamKind::Adts, |next| {
            next.first_chunk()
                .map(|next| adts::Header::parse(*next).is_some_and(|next| next.is_like(&header)))
        })
    }

    fn confirm_next_frame(
        self,
        bytes: &[u8],
        length: usize,
        kind: StreamKind,
        is_like: impl Fn(&[u8]) -> Option<bool>,
    ) -> ProbeResult {
        match bytes.get(length..).map(is_like) {
            Some(Some(true)) => self.accept(kind),
            Some(Some(false)) => ProbeResult::No,
            // The last frame is not followed by another one.
            Some(None) if self.ended => self.accept(kind),
            _ => self.undecided(),
        }
    }

    #[allow(clippy::unused_self, reason = "beside its two siblings")]
    const fn accept(self, kind: StreamKind) -> ProbeResult {
        ProbeResult::Yes(SniffResult::Start(kind))
    }

    const fn undecided(self) -> ProbeResult {
        if self.ended { ProbeResult::No } else { ProbeResult::Maybe }
    }
}

/// Recognizes unsupported formats by their first bytes.
pub(super) fn detect_unsupported_format(bytes: &[u8]) -> Option<StreamFormatError> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let begins =
        |with: &[u8]| text.get(..with.len()).is_some_and(|front| front.eq_ignore_ascii_case(with));
    if begins(b"<!doctype html") || begins(b"<html") || begins(b"<head") {
        return Some(StreamFormatError::WebPage);
    }
    if begins(b"#extm3u") || begins(b"[playlist]") || begins(b"<?xml") || begins(b"<playlist") {
        return Some(StreamFormatError::Playlist);
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some(StreamFormatError::Mp4);
    }
    if bytes.starts_with(&[0x1a, 0x45, 0xdf, 0xa3]) {
        return Some(StreamFormatError::Matroska);
    }
    None
}

/// Whether a segment of fragmented MP4 begins with these bytes; `None` when they are too few.
pub(super) fn begins_fragments(bytes: &[u8]) -> Option<bool> {
    let kind = bytes.get(4..8)?;
    Some(matches!(kind, b"ftyp" | b"styp" | b"moov" | b"moof" | b"sidx" | b"emsg" | b"prft"))
}

/// Whether the first byte may begin a supported format.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| matches!(first, b'O' | b'f' | b'R' | b'I' | b'G' | 0xff))
}

/// Whether the bytes begin with an MPEG frame of free format.
pub(super) fn is_free_format(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|word| mpeg::Header::is_free_format(*word))
}

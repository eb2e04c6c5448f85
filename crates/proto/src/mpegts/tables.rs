//! The two tables that lead to the sound: the programmes of the stream, and the elementary streams
//! of a programme (ISO/IEC 13818-1, 2.4.4.3 and 2.4.4.8).

use core::fmt;

/// A codec of sound that is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TsCodec {
    /// AAC in ADTS frames.
    Adts,
    /// AAC in LATM, with LOAS in front.
    Latm,
    /// MPEG audio; its frames contain the layer.
    Mpeg,
    /// Opus of so many channels, 1 or 2.
    Opus(u8),
}

/// A codec of sound that is recognized and cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnsupportedTsCodec {
    /// AC-3.
    Ac3,
    /// E-AC-3.
    EAc3,
    /// PCM by SMPTE 302M.
    Smpte302m,
    /// Opus of more than two channels.
    OpusChannels,
}

impl fmt::Display for UnsupportedTsCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ac3 => "AC-3",
            Self::EAc3 => "E-AC-3",
            Self::Smpte302m => "SMPTE 302M",
            Self::OpusChannels => "Opus of more than two channels",
        })
    }
}

/// What an elementary stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamContent {
    Sound(TsCodec),
    Unsupported(UnsupportedTsCodec),
    /// Timed ID3 tags.
    Metadata,
    Other,
}

/// The PIDs of the programmes' tables.
pub(super) fn programmes(table: &[u8]) -> Option<impl Iterator<Item = u16>> {
    let (entries, _) = current(table, PAT)?.get(PAT_HEADER..)?.as_chunks::<4>();
    let entry = |[a, b, c, d]: &[u8; 4]| (u16::from_be_bytes([*a, *b]), pid(*c, *d));
    // Programme 0 is the network's table.
    Some(entries.iter().map(entry).filter(|(programme, _)| *programme != 0).map(|(_, pid)| pid))
}

/// The elementary streams of a programme, with their PIDs.
pub(super) fn elementary_streams(
    table: &[u8],
) -> Option<impl Iterator<Item = (u16, StreamContent)>> {
    let table = current(table, PMT)?;
    let [high, low] = table.get(PMT_HEADER - 2..PMT_HEADER)?.try_into().ok()?;
    let mut rest = table.get(PMT_HEADER + length(high, low)..)?;
    Some(core::iter::from_fn(move || {
        let [kind, pid_high, pid_low, high, low] = *rest.first_chunk()?;
        let (descriptors, behind) = rest.get(5..)?.split_at_checked(length(high, low))?;
        rest = behind;
        Some((pid(pid_high, pid_low), content(kind, descriptors)))
    }))
}

/// The table, if it has this type and is in force.
fn current(table: &[u8], kind: u8) -> Option<&[u8]> {
    let is_current = table.get(5).is_some_and(|flags| flags & 1 != 0);
    (table.first() == Some(&kind) && is_current).then_some(table)
}

fn content(kind: u8, descriptors: &[u8]) -> StreamContent {
    use UnsupportedTsCodec::{Ac3, EAc3, OpusChannels, Smpte302m};
    let find = |tag: u8| {
        let mut rest = descriptors;
        let all = core::iter::from_fn(move || {
            let [tag, length] = *rest.first_chunk()?;
            let (body, behind) = rest.get(2..)?.split_at_checked(usize::from(length))?;
            rest = behind;
            Some((tag, body))
        });
        let mut of_tag = all.filter(move |(found, _)| *found == tag);
        of_tag.next().map(|(_, body)| body)
    };
    match kind {
        0x03 | 0x04 => StreamContent::Sound(TsCodec::Mpeg),
        0x0f => StreamContent::Sound(TsCodec::Adts),
        0x11 => StreamContent::Sound(TsCodec::Latm),
        0x15 => StreamContent::Metadata,
        0x81 => StreamContent::Unsupported(Ac3),
        0x87 => StreamContent::Unsupported(EAc3),
        0x06 => match find(REGISTRATION).and_then(|body| body.get(..4)) {
            Some(b"Opus") => match find(EXTENSION) {
                // 0 is two channels that are independent of each other.
                Some([OPUS, 0 | 2, ..]) => StreamContent::Sound(TsCodec::Opus(2)),
                Some([OPUS, 1, ..]) => StreamContent::Sound(TsCodec::Opus(1)),
                _ => StreamContent::Unsupported(OpusChannels),
            },
            Some(b"BSSD") => StreamContent::Unsupported(Smpte302m),
            Some(b"AC-3") => StreamContent::Unsupported(Ac3),
            Some(b"EAC3") => StreamContent::Unsupported(EAc3),
            _ if find(0x6a).is_some() => StreamContent::Unsupported(Ac3),
            _ if find(0x7a).is_some() => StreamContent::Unsupported(EAc3),
            _ => StreamContent::Other,
        },
        _ => StreamContent::Other,
    }
}

fn pid(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low]) & 0x1fff
}

fn length(high: u8, low: u8) -> usize {
    usize::from(u16::from_be_bytes([high, low]) & 0x0fff)
}

/// Types of the tables, and bytes before their first entry; in that of a programme, the last two
/// are the length of its descriptors.
const PAT: u8 = 0;
const PAT_HEADER: usize = 8;
const PMT: u8 = 2;
const PMT_HEADER: usize = 12;

/// Tags of descriptors: who has defined the codec, and what DVB has added; in the latter the
/// channels of Opus.
const REGISTRATION: u8 = 0x05;
const EXTENSION: u8 = 0x7f;
const OPUS: u8 = 0x80;

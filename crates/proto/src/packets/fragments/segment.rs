//! What a fragment says: where its frames are and when they play, and titles beside it.

use std::collections::VecDeque;

use aulos_core::Span;

use super::boxes::{Fields, boxes, find};
use super::movie::Track;
use crate::id3::Id3Tag;
use crate::titles::TrackMetadata;

/// A frame of the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Position in the input.
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) time: Span,
}

/// Defaults and position of the runs of one track fragment.
struct TrackFragment {
    duration: u32,
    bytes: u32,
    /// Position of the next frame, and its time in units of the track.
    at: u64,
    time: u64,
}

/// Appends the frames of a `moof` that begins at `start`, in the order of their positions.
pub(super) fn samples(content: &[u8], track: &Track, start: u64, into: &mut VecDeque<Sample>) {
    // A fragment without a position begins behind the header of the media data.
    let end = start + 8 + content.len() as u64 + 8;
    for (_, fragment) in boxes(content).filter(|(kind, _)| kind == b"traf") {
        let Some(mut defaults) = header(fragment, track) else { continue };
        defaults.at = end;
        for (_, run) in boxes(fragment).filter(|(kind, _)| kind == b"trun") {
            defaults.read_run(run, track.timescale, start, into);
        }
    }
    into.make_contiguous().sort_by_key(|sample| sample.at);
}

/// The header of a track fragment; `None` for that of another track.
fn header(fragment: &[u8], track: &Track) -> Option<TrackFragment> {
    let mut fields = Fields(find(fragment, b"tfhd")?);
    let (_, flags) = fields.version()?;
    if fields.u32()? != track.id {
        return None;
    }
    if flags & 0x1 != 0 {
        fields.u64()?;
    }
    if flags & 0x2 != 0 {
        fields.u32()?;
    }
    let duration = if flags & 0x8 != 0 { fields.u32()? } else { track.default_duration };
    let bytes = if flags & 0x10 != 0 { fields.u32()? } else { track.default_bytes };
    let mut time = Fields(find(fragment, b"tfdt")?);
    let (version, _) = time.version()?;
    Some(TrackFragment { duration, bytes, at: 0, time: time.sized(version)? })
}

impl TrackFragment {
    fn read_run(
        &mut self,
        run: &[u8],
        timescale: u32,
        start: u64,
        into: &mut VecDeque<Sample>,
    ) -> Option<()> {
        let mut fields = Fields(run);
        let (_, flags) = fields.version()?;
        let count = fields.u32()?;
        if flags & 0x1 != 0 {
            let offset = i64::from(fields.u32()?.cast_signed());
            self.at = start.checked_add_signed(offset)?;
        }
        if flags & 0x4 != 0 {
            fields.u32()?;
        }
        for _ in 0..count {
            let duration = if flags & 0x100 != 0 { fields.u32()? } else { self.duration };
            let bytes = if flags & 0x200 != 0 { fields.u32()? } else { self.bytes };
            for flag in [0x400, 0x800] {
                if flags & flag != 0 {
                    fields.u32()?;
                }
            }
            if into.len() >= MAX_SAMPLES {
                return None;
            }
            let bytes = u64::from(bytes);
            into.push_back(Sample { at: self.at, bytes, time: span(self.time, timescale) });
            self.at = self.at.checked_add(bytes)?;
            self.time = self.time.checked_add(u64::from(duration))?;
        }
        Some(())
    }
}

/// A time of the track; it saturates after 292 years.
fn span(time: u64, timescale: u32) -> Span {
    let scale = u128::from(timescale);
    let nanos = (u128::from(time) * 1_000_000_000 + scale / 2) / scale;
    Span::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

/// The title in an `emsg` with an ID3 tag (AOM, "Carriage of ID3 Timed Metadata").
pub(super) fn title(content: &[u8]) -> Option<TrackMetadata> {
    let mut fields = Fields(content);
    let (version, _) = fields.version()?;
    // Version 0 has its times behind the texts.
    let times = if version == 0 { 16 } else { 20 };
    if version != 0 {
        fields.take(times)?;
    }
    let (scheme, _) = (fields.text()?, fields.text()?);
    if version == 0 {
        fields.take(times)?;
    }
    (scheme == ID3_SCHEME).then(|| Id3Tag::parse(fields.0).title())?
}

const ID3_SCHEME: &[u8] = b"https://aomedia.org/emsg/ID3";

/// Frames in a fragment; 100 seconds of Opus in packets of 2.5 ms have fewer.
const MAX_SAMPLES: usize = 65_536;

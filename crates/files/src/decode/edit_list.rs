//! The edit list of an MP4 file: which part of the first audio track to play.
//!
//! AAC begins with one or two frames that only prime the decoder, and ends with padding; the edit
//! list of MP4 says how much (ISO/IEC 14496-12:2015, 8.6.6). The container library skips it, so the
//! few boxes on the path to it are walked here, header by header, without reading any table.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Frames to skip at the start, and frames to keep after that, counted at `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EditRange {
    pub(super) rate: u32,
    pub(super) skip: u64,
    pub(super) keep: u64,
}

/// Finds the edit of the first audio track whose time scale is `rate`, or its half or double as in
/// files of HE-AAC.
///
/// `None` when there is no edit list, or it has more than one piece: then the whole track is
/// played.
pub(super) fn find_edit(file: &mut (impl Read + Seek), rate: u32) -> Option<EditRange> {
    let end = file.seek(SeekFrom::End(0)).ok()?;
    file.rewind().ok()?;
    let mut walk = BoxWalker {
        file,
        boxes_left: MAX_BOXES,
        movie_scale: 0,
        rate,
        track: TrackState::default(),
    };
    walk.walk_boxes(0, end, 0).ok()?
}

/// Whether the audio of an MP4 file is encrypted: the type of a sample entry is then `drms` or
/// `enca` (ISO/IEC 14496-12:2015, 8.12). Headers are at the beginning or at the end.
pub(super) fn is_protected(file: &File) -> bool {
    let size = file.metadata().map_or(0, |it| it.len());
    let mut part = vec![0; ENCRYPTION_PROBE_BYTES];
    [0, size.saturating_sub(ENCRYPTION_PROBE_BYTES as u64)].into_iter().any(|at| {
        let count = file.read_at(&mut part, at).unwrap_or(0);
        // The name of the box, version and flags, a count, the size of the entry, its type.
        part[..count]
            .windows(20)
            .any(|box_| box_.starts_with(b"stsd") && matches!(&box_[16..], b"drms" | b"enca"))
    })
}

struct BoxWalker<'a, F> {
    file: &'a mut F,
    /// Boxes that may still be visited.
    boxes_left: u32,
    movie_scale: u32,
    rate: u32,
    track: TrackState,
}

#[derive(Default)]
struct TrackState {
    is_sound: bool,
    scale: u32,
    duration: u64,
    /// Segment duration in the movie's time scale, and media time.
    edit: Option<(u64, u64)>,
}

impl<F: Read + Seek> BoxWalker<'_, F> {
    /// Walks the boxes from `at` to `end`. Stops at the first track with a result.
    fn walk_boxes(&mut self, mut at: u64, end: u64, depth: u32) -> io::Result<Option<EditRange>> {
        while at.saturating_add(8) <= end && self.boxes_left > 0 {
            self.boxes_left -= 1;
            self.file.seek(SeekFrom::Start(at))?;
            let (size, kind) = (u64::from(self.u32()?), self.u32()?.to_be_bytes());
            let (header, size) = match size {
                0 => (8, end - at),
                1 => (16, self.u64()?),
                _ => (8, size),
            };
            let next = at.saturating_add(size).min(end);
            if size < header {
                return Ok(None);
            }
            match &kind {
                b"moov" | b"trak" | b"mdia" | b"edts" if depth < 4 => {
                    if &kind == b"trak" {
                        self.track = TrackState::default();
                    }
                    if let Some(edit) = self.walk_boxes(at + header, next, depth + 1)? {
                        return Ok(Some(edit));
                    }
                    if &kind == b"trak"
                        && let Some(edit) = self.edit_range()
                    {
                        return Ok(Some(edit));
                    }
                }
                b"mvhd" => self.movie_scale = self.scale_and_duration()?.0,
                b"mdhd" => (self.track.scale, self.track.duration) = self.scale_and_duration()?,
                b"hdlr" => {
                    self.file.seek(SeekFrom::Current(8))?;
                    self.track.is_sound = self.u32()?.to_be_bytes() == *b"soun";
                }
                b"elst" => self.track.edit = self.edit_list()?,
                _ => {}
            }
            at = next;
        }
        Ok(None)
    }

    /// For `mvhd` and `mdhd`, which begin alike (8.2.2, 8.4.2).
    fn scale_and_duration(&mut self) -> io::Result<(u32, u64)> {
        let long = self.u32()? >> 24 == 1;
        self.file.seek(SeekFrom::Current(if long { 16 } else { 8 }))?;
        let scale = self.u32()?;
        Ok((scale, if long { self.u64()? } else { u64::from(self.u32()?) }))
    }

    /// The only entry of the list, as (segment duration, media time).
    fn edit_list(&mut self) -> io::Result<Option<(u64, u64)>> {
        let long = self.u32()? >> 24 == 1;
        if self.u32()? != 1 {
            return Ok(None);
        }
        let (duration, time) = if long {
            (self.u64()?, self.u64()?)
        } else {
            (u64::from(self.u32()?), u64::from(self.u32()?))
        };
        // -1 is an empty edit: silence, which does not apply to file playback.
        let empty = if long { u64::MAX } else { u64::from(u32::MAX) };
        Ok((time != empty).then_some((duration, time)))
    }

    fn edit_range(&self) -> Option<EditRange> {
        let TrackState { is_sound, scale, duration, edit } = self.track;
        let (segment, skip) = edit?;
        let rates = [Some(self.rate), self.rate.checked_mul(2), Some(self.rate / 2)];
        if !is_sound || !rates.contains(&Some(scale)) || self.movie_scale == 0 {
            return None;
        }
        let (rate, scale, movie) = (scale, u128::from(scale), u128::from(self.movie_scale));
        let by_segment = (u128::from(segment) * scale + movie / 2) / movie;
        // The segment is counted in the movie's scale, often milliseconds. If the track's duration
        // agrees within that precision, it is the exact value.
        let by_track = u128::from(duration.saturating_sub(skip));
        let tick = scale.div_ceil(movie);
        let keep = if by_segment.abs_diff(by_track) <= tick { by_track } else { by_segment };
        Some(EditRange { rate, skip, keep: u64::try_from(keep).ok()? }).filter(|edit| edit.keep > 0)
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }
}

/// The most boxes to visit: a usual file has twenty on the path; a fragmented one has many more
/// after them.
const MAX_BOXES: u32 = 4_096;

/// How much of either end is searched for the sign of encryption.
const ENCRYPTION_PROBE_BYTES: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(body.len() + 8).unwrap();
        [&size.to_be_bytes()[..], kind, body].concat()
    }

    fn numbers(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_be_bytes()).collect()
    }

    fn movie(duration: u32, segment: u32) -> Vec<u8> {
        let soun = u32::from_be_bytes(*b"soun");
        let elst = boxed(b"elst", &numbers(&[0, 1, segment, 1_024, 0x1_0000]));
        let mdhd = boxed(b"mdhd", &numbers(&[0, 0, 0, 48_000, duration]));
        let hdlr = boxed(b"hdlr", &numbers(&[0, 0, soun]));
        let trak = [boxed(b"edts", &elst), boxed(b"mdia", &[mdhd, hdlr].concat())].concat();
        let mvhd = boxed(b"mvhd", &numbers(&[0, 0, 0, 1_000, segment]));
        let moov = boxed(b"moov", &[mvhd, boxed(b"trak", &trak)].concat());
        [boxed(b"ftyp", b"M4A "), boxed(b"mdat", &[0; 100]), moov].concat()
    }

    #[test]
    fn the_exact_duration_wins_over_the_one_in_milliseconds() {
        let found = find_edit(&mut Cursor::new(movie(1_024 + 48_017, 1_000)), 48_000);
        assert_eq!(found, Some(EditRange { rate: 48_000, skip: 1_024, keep: 48_017 }));
        let found = find_edit(&mut Cursor::new(movie(1_024 + 96_000, 1_000)), 48_000);
        assert_eq!(found, Some(EditRange { rate: 48_000, skip: 1_024, keep: 48_000 }));
        assert_eq!(find_edit(&mut Cursor::new(movie(1_024 + 96_000, 1_000)), 44_100), None);
        let found = find_edit(&mut Cursor::new(movie(1_024 + 96_000, 1_000)), 24_000);
        assert_eq!(found, Some(EditRange { rate: 48_000, skip: 1_024, keep: 48_000 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            at in 0..200usize, with in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let mut bytes = movie(49_024, 1_000);
            for (byte, new) in bytes.iter_mut().skip(at).zip(with) {
                *byte = new;
            }
            find_edit(&mut Cursor::new(bytes), 48_000);
        }
    }
}

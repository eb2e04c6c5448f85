//! What feeds a segmenter: the chunks of another server, or the output of the own station.

use aulos_core::{Codec, Frames, Instant, MediaTime, SampleSpec};
use aulos_engine::fanout::OriginTime;
use aulos_engine::recorder::FrameRun;

use super::MAX_FILL;
use super::origin::OriginGrid;
use super::segmenter::{SampleKind, Segmenter};
use crate::player::decoder::ChunkDecoder;

/// Feeds a segmenter from the chunks of a station that passes those of another server.
///
/// Chunks of the other server are decoded to its samples and placed by its clock. What the station
/// encodes itself meanwhile continues them, as filled.
pub struct ChunkFeed {
    decoder: ChunkDecoder,
    grid: OriginGrid,
    samples: Vec<f32>,
    /// What has come before the first chunk of the origin.
    waited: Frames,
}

impl ChunkFeed {
    /// A feed from chunks of a codec without loss; `None` for any other.
    #[must_use]
    pub fn new(codec: Codec, spec: SampleSpec) -> Option<Self> {
        if !matches!(codec, Codec::Pcm | Codec::Flac) {
            return None;
        }
        let decoder = ChunkDecoder::new(codec, spec)?;
        let grid = OriginGrid::new(spec.rate);
        Some(Self { decoder, grid, samples: Vec::new(), waited: Frames::ZERO })
    }

    /// Takes a chunk; `utc` is the date of its first sample in nanoseconds since the Unix epoch.
    /// Returns what is to be added to dates of the grid, in milliseconds, where that is known.
    pub fn push(
        &mut self,
        payload: &[u8],
        origin: Option<OriginTime>,
        utc: i64,
        segmenter: &mut Segmenter,
    ) -> Option<i64> {
        let frames = self.decoder.decode(payload, &mut self.samples);
        if frames == Frames::ZERO {
            // The gap is filled when the next chunk comes.
            return None;
        }
        match origin {
            Some(OriginTime { timestamp, .. }) => {
                let place = self.grid.place(timestamp, frames, utc);
                segmenter.push(place.at, &self.samples, SampleKind::Genuine);
                Some(place.date_offset_ms)
            }
            None => {
                // The first place is the origin's, if it comes soon: the station's own date would be
                // another one.
                self.waited += frames;
                let rate = self.decoder.rate();
                let own = || (self.waited > rate.frames(MAX_FILL)).then(|| place_of(utc, rate));
                let at = segmenter.position().or_else(own)?;
                segmenter.push(at, &self.samples, SampleKind::Filled);
                None
            }
        }
    }
}

impl core::fmt::Debug for ChunkFeed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChunkFeed").field("grid", &self.grid).finish_non_exhaustive()
    }
}

/// Places the output of a station: by the date once, and then by its media time, which has no gap.
/// A station that stood still leaves a gap as long as that.
#[derive(Debug, Default)]
pub struct OutputGrid {
    /// A media time, and its place.
    anchor: Option<(MediaTime, MediaTime)>,
}

impl OutputGrid {
    /// The place of a run whose first frame has the date `utc`, in nanoseconds since the Unix
    /// epoch. A wall clock that is wrong by [`MAX_CLOCK_ERROR`] was set: the grid begins anew.
    pub fn place(&mut self, run: &FrameRun, utc: i64) -> MediaTime {
        let rate = run.timeline.rate();
        let by_date = place_of(utc, rate);
        let continued =
            self.anchor.map(|(media, place)| place + run.pts.since(media) + rate.frames(run.stall));
        let most = rate.frames(MAX_CLOCK_ERROR).0;
        let place = continued.filter(|place| place.0.abs_diff(by_date.0) <= most);
        let place = place.unwrap_or(by_date);
        self.anchor = Some((run.pts, place));
        place
    }
}

/// The date of a moment, if `(local, utc)` is one reading of both clocks.
#[must_use]
pub fn utc_at(moment: Instant, (local, utc): (Instant, i64)) -> i64 {
    utc.saturating_add((moment - local).as_nanos())
}

/// The sample of this date.
fn place_of(utc: i64, rate: aulos_core::SampleRate) -> MediaTime {
    let samples = i128::from(utc.max(0)) * i128::from(rate.hz()) / NANOS_PER_SECOND;
    MediaTime(u64::try_from(samples).unwrap_or(0))
}

/// A clock that is set forward at the start of the machine, and no correction of a running one.
pub const MAX_CLOCK_ERROR: aulos_core::Span = aulos_core::Span::from_secs(60);

const NANOS_PER_SECOND: i128 = 1_000_000_000;

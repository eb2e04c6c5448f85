//! A rendition whose encoder is not for a real-time thread: it allocates, or is foreign code.
//!
//! ```text
//!  station -> RecordTap =ring=> TappedRendition (any thread) -> chunks -> ring per reactor
//! ```
//!
//! The station copies its output, as for a recorder, and another thread encodes it some ten times a
//! second. To encode on the station's thread after all would let an allocation delay every client.

use core::fmt;

use aulos_core::{Block, Frames, Instant, MediaTime, SampleSpec, Span};

use crate::recorder::{RecordTap, RecordTapReader, TapPoint, record_tap};
use crate::rendition::Rendition;
use crate::status::StationStatus;

/// Encodes what a station's tap collects.
pub struct TappedRendition {
    tap: RecordTapReader,
    rendition: Rendition,
    samples: Vec<f32>,
    block: Block,
    /// The end of the last run.
    next: Option<MediaTime>,
    /// Frames that did not fit the tap.
    missed: Frames,
    status: StationStatus,
}

impl TappedRendition {
    /// A rendition of blocks of `quantum` frames, and the tap for the station.
    #[must_use]
    pub fn new(rendition: Rendition, quantum: Frames) -> (Self, RecordTap) {
        let SampleSpec { rate, layout, .. } = rendition.spec();
        let (tap, reader) = record_tap(TapPoint::Output, rate, layout, CAPACITY);
        let samples = quantum.as_usize() * layout.channels();
        let rendition = Self {
            tap: reader,
            rendition,
            samples: Vec::with_capacity(samples),
            block: Block::with_capacity(rate, layout, samples),
            next: None,
            missed: Frames::ZERO,
            status: StationStatus::new(Instant::ZERO),
        };
        (rendition, tap)
    }

    /// Encodes what has been collected, as far as the reactors have room. False once the station
    /// has dropped its end.
    pub fn process(&mut self, now: Instant) -> bool {
        let is_over = self.tap.is_abandoned();
        while self.rendition.has_room() {
            self.samples.clear();
            let Some(run) = self.tap.read(&mut self.samples) else { break };
            let expected = self.next.replace(run.end()).unwrap_or(run.pts);
            self.missed += Frames(run.pts.0.saturating_sub(expected.0));
            self.block.reset(run.timeline.rate(), self.tap.layout());
            self.block.resize(run.frames);
            self.block.samples_mut().copy_from_slice(&self.samples);
            let times = (run.pts, run.timeline.local_at(run.pts));
            self.rendition.send(&self.block, now, times, &mut self.status);
        }
        !is_over
    }

    /// Chunks lost so far: what was not encoded in time, what the encoder refused, and what found
    /// no buffer.
    #[must_use]
    pub fn lost_chunks(&self) -> u64 {
        let StationStatus { pool_exhausted, encode_errors, fanout_full, .. } = self.status;
        let block = self.block.frames().0.max(1);
        self.missed.0.div_ceil(block) + pool_exhausted + encode_errors + fanout_full
    }
}

impl fmt::Debug for TappedRendition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TappedRendition")
            .field("rendition", &self.rendition)
            .finish_non_exhaustive()
    }
}

/// Twenty times the interval at which a pool visits its jobs.
const CAPACITY: Span = Span::from_secs(2);

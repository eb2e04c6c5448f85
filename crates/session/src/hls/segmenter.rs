//! From samples on the grid to segments of all renditions.

use std::collections::VecDeque;

use aulos_core::{Frames, MediaTime, SampleRate};
use aulos_engine::encode::Encoder;

use super::format::HlsFormat;
use super::rendition::{FrameEncoder, Rendition};
use super::titles::Titles;
use super::{MAX_FILL, WARM_UP};

/// Makes the encoder of a rendition; `None` when it cannot be made.
pub(super) type MakeEncoder = Box<dyn FnMut(&HlsFormat) -> Option<Box<dyn Encoder>> + Send>;

/// Where samples come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "either or")]
pub enum SampleKind {
    /// From the source, as every server has them.
    Genuine,
    /// Made up here, or of another source.
    Filled,
}

/// A segment of every rendition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a segment is")]
pub struct SegmentSet {
    /// Its number on the grid.
    pub number: u64,
    /// The bytes, in the order of the renditions.
    pub bodies: Vec<Vec<u8>>,
    /// It does not continue the segment that was given out before.
    pub is_discontinuous: bool,
    /// It has samples that were filled in, or an encoder has not forgotten them or its own start:
    /// the segment of another server may differ.
    pub is_filled: bool,
}

/// Counters of a segmenter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "all that is counted")]
pub struct SegmenterStats {
    /// Segments given out.
    pub segments: u64,
    /// Of these, segments with samples that were filled in.
    pub filled: u64,
    /// Runs that have begun; more than one means discontinuities.
    pub runs: u64,
    /// Samples that came twice.
    pub repeated: u64,
    /// Failures of encoders.
    pub failures: u64,
}

/// Cuts the sound of a station into segments.
///
/// A gap is filled with silence, so that the grid never moves; samples that come twice are dropped.
/// Only a jump of more than [`MAX_FILL`] begins a new run, with new encoders.
pub struct Segmenter {
    rate: SampleRate,
    channels: usize,
    segment: Frames,
    formats: Vec<HlsFormat>,
    renditions: Vec<Rendition>,
    make: MakeEncoder,
    /// The place of the next sample; `None` before the first.
    next: Option<MediaTime>,
    /// The first segment of the run that is given out.
    first: u64,
    is_new_run: bool,
    warm_up: Frames,
    /// From here on the encoders of the run have forgotten where they began.
    warm_from: MediaTime,
    /// Filled samples that a segment or an encoder still has, oldest first, apart from each other.
    filled: VecDeque<(MediaTime, MediaTime)>,
    silence: Vec<f32>,
    titles: Option<Titles>,
    outputs: VecDeque<SegmentSet>,
    stats: SegmenterStats,
}

impl Segmenter {
    /// A segmenter of these renditions, at least one, of one rate and layout. `make` makes their
    /// encoders but those of AAC; titles become timed metadata of the segments where `has_titles` says so.
    #[must_use]
    pub fn new(
        formats: Vec<HlsFormat>,
        segment: Frames,
        has_titles: bool,
        make: impl FnMut(&HlsFormat) -> Option<Box<dyn Encoder>> + Send + 'static,
    ) -> Option<Self> {
        let mut make: MakeEncoder = Box::new(make);
        let spec = formats.first()?.spec;
        let rendition = |format: &HlsFormat| {
            Some(Rendition::new(format.clone(), FrameEncoder::new(format, &mut make)?, segment))
        };
        let renditions = formats.iter().map(rendition).collect::<Option<Vec<_>>>()?;
        let has_memory = formats.iter().any(|format| format.has_memory);
        let warm_up = if has_memory { spec.rate.frames(WARM_UP) } else { Frames::ZERO };
        Some(Self {
            rate: spec.rate,
            channels: spec.layout.channels(),
            segment,
            formats,
            renditions,
            make,
            next: None,
            first: 0,
            is_new_run: false,
            warm_up,
            warm_from: MediaTime::ZERO,
            filled: VecDeque::new(),
            silence: Vec::new(),
            titles: has_titles.then(Titles::default),
            outputs: VecDeque::new(),
            stats: SegmenterStats::default(),
        })
    }

    /// Takes interleaved samples whose first has the place `at`.
    pub fn push(&mut self, at: MediaTime, samples: &[f32], kind: SampleKind) {
        let most = self.rate.frames(MAX_FILL);
        let next = match self.next {
            Some(next) if at.since(next) <= most && next.since(at) <= most => next,
            _ => {
                self.start(at);
                at
            }
        };
        let gap = at.since(next);
        if gap > Frames::ZERO {
            let mut silence = std::mem::take(&mut self.silence);
            silence.resize(gap.as_usize() * self.channels, 0.0);
            self.take(&silence, SampleKind::Filled);
            silence.clear();
            self.silence = silence;
        }
        let repeated = next.since(at);
        let count = Frames::from(samples.len() / self.channels);
        let dropped = repeated.min(count);
        if dropped > Frames::ZERO {
            // What was there first stays, and the other server may have the other.
            self.stats.repeated += dropped.0;
            self.add_filled(at, at + dropped);
        }
        let rest = samples.get(dropped.as_usize() * self.channels..).unwrap_or_default();
        self.take(rest, kind);
    }

    /// The place of the next sample, once there is one.
    #[must_use]
    pub const fn position(&self) -> Option<MediaTime> {
        self.next
    }

    /// Sets the title from `at` on; `id` is another one for each.
    pub fn set_title(&mut self, id: u32, at: MediaTime, title: &str) {
        if let Some(titles) = &mut self.titles {
            titles.add(id, at, title);
        }
    }

    /// The next segment.
    pub fn poll_output(&mut self) -> Option<SegmentSet> {
        self.outputs.pop_front()
    }

    /// What has happened so far.
    #[must_use]
    pub const fn stats(&self) -> SegmenterStats {
        self.stats
    }

    fn start(&mut self, at: MediaTime) {
        for (rendition, format) in self.renditions.iter_mut().zip(&self.formats) {
            // The first run has the encoders that have been made.
            let is_new = self.stats.runs > 0;
            let encoder = is_new.then(|| FrameEncoder::new(format, &mut self.make)).flatten();
            rendition.start(at, encoder);
        }
        self.is_new_run = self.stats.runs > 0;
        self.stats.runs += 1;
        self.first = at.0.div_ceil(self.segment.0);
        self.warm_from = at + self.warm_up;
        self.next = Some(at);
        self.filled.clear();
    }

    /// Takes samples at `next`.
    fn take(&mut self, samples: &[f32], kind: SampleKind) {
        let Some(next) = self.next else { return };
        let end = next + Frames::from(samples.len() / self.channels);
        if kind == SampleKind::Filled {
            self.add_filled(next, end);
        }
        self.next = Some(end);
        let first = self.first;
        for rendition in &mut self.renditions {
            if rendition.push(samples, first).is_err() {
                self.stats.failures += 1;
                // The next samples begin a new run.
                self.next = None;
                return;
            }
        }
        while self.emit() {}
    }

    /// Gives out the next segment if every rendition has it.
    fn emit(&mut self) -> bool {
        let Some(number) = self.renditions.first().and_then(|one| Some(one.front()?.number)) else {
            return false;
        };
        let is_complete = |one: &Rendition| one.front().is_some_and(|own| own.number == number);
        if !self.renditions.iter().all(is_complete) {
            return false;
        }
        let from = MediaTime(number * self.segment.0);
        let until = from + self.segment;
        let events = self.titles.as_mut().map(|titles| titles.events(from, until));
        let events = events.unwrap_or_default();
        let title = self.titles.as_mut().and_then(|titles| titles.title_at(from));
        let bodies = self.renditions.iter_mut().map(|rendition| {
            let segment = rendition.pop()?;
            rendition.write(&segment, &events, title)
        });
        let Some(bodies) = bodies.collect::<Option<Vec<_>>>() else {
            self.stats.failures += 1;
            return true;
        };
        let is_filled = self.is_filled(from, until);
        let is_discontinuous = std::mem::take(&mut self.is_new_run);
        self.stats.segments += 1;
        self.stats.filled += u64::from(is_filled);
        let is_filled = is_filled || from < self.warm_from;
        self.outputs.push_back(SegmentSet { number, bodies, is_discontinuous, is_filled });
        true
    }

    fn add_filled(&mut self, from: MediaTime, until: MediaTime) {
        match self.filled.back_mut() {
            Some((_, end)) if from <= *end + self.warm_up => *end = until.max(*end),
            _ => self.filled.push_back((from, until)),
        }
    }

    /// Whether a segment has filled samples, or is encoded too soon after them.
    fn is_filled(&mut self, from: MediaTime, until: MediaTime) -> bool {
        let warm_up = self.warm_up;
        while self.filled.front().is_some_and(|(_, end)| *end + warm_up <= from) {
            self.filled.pop_front();
        }
        // An encoder has looked ahead beyond the end.
        let delay = self.formats.iter().map(|format| format.delay).max().unwrap_or_default();
        self.filled.front().is_some_and(|(start, _)| *start < until + delay)
    }
}

impl core::fmt::Debug for Segmenter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Segmenter").field("next", &self.next).finish_non_exhaustive()
    }
}

//! Measures the loudness of a file before it is played.

use core::fmt;

use aulos_core::{Block, ChannelLayout, Frames, SampleRate, Span};
use aulos_dsp::meter::MeterHistory;
use aulos_dsp::remix;
use aulos_engine::loudness::{Loudness, LoudnessMeter};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::{Job, JobStatus, SourcePath};
use aulos_rt::{LatestPublisher, LatestReader};

use crate::decode::{FileDecodeOptions, FileDecodeStatus, FileDecoder};

/// A job of the codec pool: measures the beginning of a file in the channel layout of a station.
pub struct FileMeter {
    path: SourcePath,
    options: FileDecodeOptions,
    layout: ChannelLayout,
    dual_mono: bool,
    longest: Span,
    open: Option<Box<FileMeasurement>>,
    result: LatestPublisher<Option<Loudness>>,
}

struct FileMeasurement {
    decoder: FileDecoder,
    block: Block,
    remixed: Vec<f32>,
    meter: Option<LoudnessMeter>,
    shape: Option<SampleRate>,
    measured: Span,
}

impl FileMeter {
    /// The job, and a reader of its result; [`Loudness::NONE`] if the file cannot be opened. At
    /// most `longest` is measured. With `dual_mono` one channel counts as two equal ones.
    #[must_use]
    pub fn new(
        path: impl Into<SourcePath>,
        options: FileDecodeOptions,
        (layout, dual_mono): (ChannelLayout, bool),
        longest: Span,
    ) -> (Self, LatestReader<Option<Loudness>>) {
        let (result, seen) = aulos_rt::latest(None);
        let path = path.into();
        (Self { path, options, layout, dual_mono, longest, open: None, result }, seen)
    }
}

impl Job for FileMeter {
    fn step(&mut self) -> JobStatus {
        let open = self.open.take().or_else(|| {
            let decoder = FileDecoder::open_source(&self.path, self.options).ok()?;
            Some(Box::new(FileMeasurement::new(decoder)))
        });
        let Some(mut open) = open else {
            self.result.publish(Some(Loudness::NONE));
            return JobStatus::Done;
        };
        let until = open.measured + STEP_LENGTH;
        while open.measured < until {
            let over = open.measured >= self.longest || !open.decode(self.layout, self.dual_mono);
            if over {
                self.result.publish(Some(open.finish()));
                return JobStatus::Done;
            }
        }
        self.open = Some(open);
        JobStatus::Pending
    }
}

impl FileMeasurement {
    fn new(decoder: FileDecoder) -> Self {
        let block =
            Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let (remixed, measured) = (Vec::new(), Span::ZERO);
        Self { decoder, block, remixed, meter: None, shape: None, measured }
    }

    /// Measures the next block in the channels of `layout`; false at the end of the file.
    fn decode(&mut self, layout: ChannelLayout, dual_mono: bool) -> bool {
        if !matches!(self.decoder.next(&mut self.block), Ok(FileDecodeStatus::Block)) {
            return false;
        }
        let (rate, frames) = (self.block.rate(), self.block.frames());
        let make = if dual_mono { LoudnessMeter::dual_mono } else { LoudnessMeter::new };
        let gauge = self.meter.get_or_insert_with(|| make(rate, layout, MeterHistory::Histogram));
        if self.shape.replace(rate).is_some_and(|before| before != rate) {
            gauge.set_format(rate, layout);
        }
        let channels = layout.channels();
        self.remixed.resize(frames.as_usize() * channels, 0.0);
        let from = self.block.layout().channels();
        remix(self.block.samples(), from, &mut self.remixed, channels);
        gauge.push(&self.remixed);
        self.measured += rate.span(frames);
        frames > Frames::ZERO
    }

    fn finish(&mut self) -> Loudness {
        self.meter.as_mut().map_or(Loudness::NONE, LoudnessMeter::finish)
    }
}

impl fmt::Debug for FileMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileMeter").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Audio measured per step: a tenth of a second of CPU time at most. Other jobs of the thread fill
/// rings that hold a second.
const STEP_LENGTH: Span = Span::from_secs(10);

//! Measures the loudness of a file or of the beginning of a stream before it is played.

use core::fmt;

use aulos_core::{Block, ChannelLayout, Frames, SampleRate, Span};
use aulos_dsp::meter::MeterHistory;
use aulos_dsp::remix;
use aulos_engine::loudness::{Loudness, LoudnessMeter};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::feed::{BodyMark, StreamReader, StreamWriter, stream_channel};
use aulos_io::{Job, JobStatus, SourcePath};
use aulos_rt::{LatestPublisher, LatestReader};

use crate::decode::{
    FileDecodeOptions, FileDecodeStatus, FileDecoder, StreamDecodeStatus, StreamDecoder,
};

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
    blocks: BlockMeter,
}

/// Measures blocks in the channels of a station.
struct BlockMeter {
    block: Block,
    layout: ChannelLayout,
    dual_mono: bool,
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

impl FileMeter {
    /// The loudness of what has been measured so far, of a measurement that has begun and not
    /// ended; it ends here.
    pub(crate) fn take_partial(&mut self) -> Option<Loudness> {
        self.open.take().map(|mut open| open.blocks.finish())
    }
}

impl Job for FileMeter {
    fn step(&mut self) -> JobStatus {
        let open = self.open.take().or_else(|| {
            let decoder = FileDecoder::open_source(&self.path, self.options).ok()?;
            let blocks = BlockMeter::new(self.layout, self.dual_mono);
            Some(Box::new(FileMeasurement { decoder, blocks }))
        });
        let Some(mut open) = open else {
            self.result.publish(Some(Loudness::NONE));
            return JobStatus::Done;
        };
        let until = open.blocks.measured + STEP_LENGTH;
        while open.blocks.measured < until {
            let over = open.blocks.measured >= self.longest || !open.decode();
            if over {
                self.result.publish(Some(open.blocks.finish()));
                return JobStatus::Done;
            }
        }
        self.open = Some(open);
        JobStatus::Pending
    }
}

impl FileMeasurement {
    /// Measures the next block; false at the end of the file.
    fn decode(&mut self) -> bool {
        let block = self.decoder.next(&mut self.blocks.block);
        matches!(block, Ok(FileDecodeStatus::Block)) && self.blocks.measure()
    }
}

impl BlockMeter {
    fn new(layout: ChannelLayout, dual_mono: bool) -> Self {
        let block =
            Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES);
        let (remixed, measured) = (Vec::new(), Span::ZERO);
        Self { block, layout, dual_mono, remixed, meter: None, shape: None, measured }
    }

    /// Measures its block; false if that is empty.
    fn measure(&mut self) -> bool {
        let (rate, frames, layout) = (self.block.rate(), self.block.frames(), self.layout);
        let make = if self.dual_mono { LoudnessMeter::dual_mono } else { LoudnessMeter::new };
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

/// A job of the codec pool: measures a stream up to its end mark in the channel layout of a
/// station.
pub struct StreamMeter {
    input: StreamReader,
    decoder: Option<StreamDecoder>,
    blocks: BlockMeter,
    result: LatestPublisher<Option<Loudness>>,
}

impl StreamMeter {
    /// The writer of the stream, the job, and a reader of its result; [`Loudness::NONE`] if it
    /// cannot be decoded. `shape` is the channel layout, and whether one channel counts as two
    /// equal ones.
    #[must_use]
    pub fn new(
        shape: (ChannelLayout, bool),
    ) -> (StreamWriter, Self, LatestReader<Option<Loudness>>) {
        let (writer, input) = stream_channel();
        let (result, seen) = aulos_rt::latest(None);
        let blocks = BlockMeter::new(shape.0, shape.1);
        (writer, Self { input, decoder: None, blocks, result }, seen)
    }
}

impl Job for StreamMeter {
    fn step(&mut self) -> JobStatus {
        // Asked before its last bytes are read.
        let is_abandoned = self.input.is_abandoned();
        let until = self.blocks.measured + STEP_LENGTH;
        while self.blocks.measured < until {
            let Some(decoder) = &mut self.decoder else {
                match self.input.next_mark() {
                    Some(BodyMark::Begin(hint)) => self.decoder = Some(StreamDecoder::new(hint)),
                    // The sound has failed, or is not wanted any more.
                    _ if is_abandoned => return JobStatus::Done,
                    _ => return JobStatus::Pending,
                }
                continue;
            };
            match decoder.next(&mut self.blocks.block) {
                Ok(StreamDecodeStatus::Block) => {
                    self.blocks.measure();
                }
                Ok(StreamDecodeStatus::NeedsInput) => {
                    if self.input.read(|bytes| decoder.push(bytes)) == 0 {
                        match self.input.next_mark() {
                            None if !is_abandoned => return JobStatus::Pending,
                            _ => decoder.finish(),
                        }
                    }
                }
                Ok(StreamDecodeStatus::End) | Err(_) => {
                    self.result.publish(Some(self.blocks.finish()));
                    return JobStatus::Done;
                }
            }
        }
        JobStatus::Pending
    }
}

impl fmt::Debug for StreamMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamMeter").finish_non_exhaustive()
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

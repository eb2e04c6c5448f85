//! A file whose rate or channels change, in one format.

use core::convert::Infallible;
use std::path::Path;

use aulos_core::{Block, Frames};
use aulos_dsp::remix;
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::SourcePath;

use super::error::{FileDecodeError, OpenError};
use super::file::{FileDecodeOptions, FileDecodeStatus, FileDecoder, FileInfo, RateAndLayout};
use super::rate_converter::RateConverter;
use super::warning::FileWarning;

/// A [`FileDecoder`] that converts what follows a change of format to the rate and layout of the
/// first frames.
#[derive(Debug)]
pub struct UniformDecoder {
    decoder: FileDecoder,
    /// The format of what is returned; that of the first frames without one.
    format: Option<RateAndLayout>,
    converter: Option<(RateAndLayout, RateConverter)>,
    /// Converted samples; those before `taken` have been returned.
    pending: Vec<f32>,
    taken: usize,
    remixed: Vec<f32>,
    has_ended: bool,
}

impl UniformDecoder {
    /// As [`FileDecoder::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(path: &Path, options: FileDecodeOptions) -> Result<Self, OpenError> {
        Ok(Self::new(FileDecoder::open(path, options)?, None))
    }

    /// The same for a path that may be confined, with all frames in this rate and layout.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn open_to(
        path: &SourcePath,
        options: FileDecodeOptions,
        format: RateAndLayout,
    ) -> Result<Self, OpenError> {
        Ok(Self::new(FileDecoder::open_source(path, options)?, Some(format)))
    }

    fn new(decoder: FileDecoder, format: Option<RateAndLayout>) -> Self {
        let (pending, remixed) = (Vec::new(), Vec::new());
        Self { decoder, format, converter: None, pending, taken: 0, remixed, has_ended: false }
    }

    /// As [`FileDecoder::next`], always in one format: that of [`info`](Self::info), or the one
    /// that was asked for. Media time is not set.
    ///
    /// # Errors
    /// As there; and [`FileDecodeError::Unsupported`] for a rate that cannot be converted.
    pub fn next(&mut self, into: &mut Block) -> Result<FileDecodeStatus, FileDecodeError> {
        loop {
            if self.take_pending(into) {
                return Ok(FileDecodeStatus::Block);
            }
            if self.has_ended {
                return Ok(FileDecodeStatus::End);
            }
            if self.decoder.next(into)? == FileDecodeStatus::End {
                self.has_ended = true;
                self.end_conversion();
                continue;
            }
            let shape = (into.rate(), into.layout());
            if self.converter.as_ref().is_some_and(|(from, _)| *from != shape) {
                self.end_conversion();
            }
            if shape == self.format() && self.pending.is_empty() {
                return Ok(FileDecodeStatus::Block);
            }
            self.convert(into, shape)?;
        }
    }

    /// The format of the first frames.
    #[must_use]
    pub const fn info(&self) -> &FileInfo {
        self.decoder.info()
    }

    /// As [`FileDecoder::speakers`].
    #[must_use]
    pub fn speakers(&self) -> Option<u32> {
        self.decoder.speakers()
    }

    /// As [`FileDecoder::rejected`].
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.decoder.rejected()
    }

    /// As [`FileDecoder::damaged`].
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.decoder.damaged()
    }

    /// As [`FileDecoder::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<FileWarning> {
        self.decoder.warnings()
    }

    const fn format(&self) -> RateAndLayout {
        match self.format {
            Some(format) => format,
            None => (self.decoder.info().rate, self.decoder.info().layout),
        }
    }

    /// Moves converted frames into the block. False when there are none.
    fn take_pending(&mut self, into: &mut Block) -> bool {
        if self.taken == self.pending.len() {
            self.pending.clear();
            self.taken = 0;
            return false;
        }
        let (rate, layout) = self.format();
        into.reset(rate, layout);
        let channels = layout.channels();
        let room = into.capacity().as_usize().min(BLOCK_SAMPLES / channels);
        let frames = room.min((self.pending.len() - self.taken) / channels);
        into.resize(Frames::from(frames));
        let end = self.taken + frames * channels;
        into.samples_mut().copy_from_slice(&self.pending[self.taken..end]);
        self.taken = end;
        true
    }

    fn convert(&mut self, block: &Block, shape: RateAndLayout) -> Result<(), FileDecodeError> {
        let (rate, layout) = self.format();
        let channels = layout.channels();
        self.remixed.resize(block.frames().as_usize() * channels, 0.0);
        remix(block.samples(), shape.1.channels(), &mut self.remixed, channels);
        if shape.0 == rate {
            self.pending.extend_from_slice(&self.remixed);
            return Ok(());
        }
        if [shape.0, rate].iter().any(|rate| !CONVERTIBLE_HZ.contains(&rate.hz())) {
            return Err(FileDecodeError::Unsupported);
        }
        let pending = &mut self.pending;
        let converter = &mut self
            .converter
            .get_or_insert_with(|| (shape, RateConverter::new(channels, shape.0, rate)))
            .1;
        let Ok(()) = converter.process(&self.remixed, &mut |part: &mut [f32]| {
            pending.extend_from_slice(part);
            Ok::<(), Infallible>(())
        });
        Ok(())
    }

    /// Takes the last frames out of the converter.
    fn end_conversion(&mut self) {
        let pending = &mut self.pending;
        let Some((_, mut converter)) = self.converter.take() else { return };
        let Ok(()) = converter.drain(&mut |part: &mut [f32]| {
            pending.extend_from_slice(part);
            Ok::<(), Infallible>(())
        });
    }
}

/// The rates that the resampler converts.
pub(crate) const CONVERTIBLE_HZ: core::ops::RangeInclusive<u32> = 8_000..=384_000;

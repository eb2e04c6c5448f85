//! Reads frames for the meter without copying.

use std::path::Path;

use aulos_core::Frames;

use crate::decode::{
    FileDecodeError, FileDecodeOptions, FileDecoder, FileWarning, OpenError, RateAndLayout,
    SampleRun, WaveFile,
};

/// An open file; WAVE is read without a decoder.
pub(super) enum SoundReader {
    Wave(WaveFile),
    File(Box<FileDecoder>),
}

impl SoundReader {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(match WaveFile::open(path)? {
            Some(wave) if wave.frames() == Frames::ZERO && wave.is_cut() => {
                return Err(OpenError::Torn);
            }
            Some(wave) if wave.frames() == Frames::ZERO => return Err(OpenError::NoFrames),
            Some(wave) => Self::Wave(wave),
            None => Self::File(Box::new(FileDecoder::open(path, FileDecodeOptions::default())?)),
        })
    }

    /// Opens the same file again, at its beginning.
    pub(super) fn reopen(&self, path: &Path) -> Result<Self, OpenError> {
        match self {
            Self::Wave(wave) => Ok(Self::Wave(wave.clone())),
            Self::File(_) => Self::open(path),
        }
    }

    /// The next frames, at least one and at most `most`, with their rate and layout; `None` at the
    /// end.
    pub(super) fn next(
        &mut self,
        most: Frames,
    ) -> Result<Option<(RateAndLayout, SampleRun<'_>)>, FileDecodeError> {
        let shape = self.shape();
        match self {
            Self::Wave(wave) => Ok(wave.next(most)?.map(|run| (shape, run))),
            Self::File(file) => {
                Ok(file.next_run(most)?.map(|(shape, run)| (shape, SampleRun::F32(run))))
            }
        }
    }

    pub(super) fn seek(&mut self, frame: Frames) -> Result<(), FileDecodeError> {
        match self {
            Self::Wave(wave) => {
                wave.seek(frame);
                Ok(())
            }
            Self::File(file) => file.seek(frame),
        }
    }

    /// The rate and layout of the first frames.
    pub(super) const fn shape(&self) -> RateAndLayout {
        match self {
            Self::Wave(wave) => (wave.rate(), wave.layout()),
            Self::File(file) => (file.info().rate, file.info().layout),
        }
    }

    pub(super) fn speakers(&self) -> Option<u32> {
        match self {
            Self::Wave(wave) => wave.speakers(),
            Self::File(file) => file.speakers(),
        }
    }

    /// The length according to the file, if known.
    pub(super) fn frames(&self) -> Option<Frames> {
        match self {
            Self::Wave(wave) => Some(wave.frames()),
            Self::File(file) => file.info().frames,
        }
    }

    /// The length, if the file can be split: seeking must be sample exact.
    pub(super) fn splittable_frames(&self) -> Option<Frames> {
        match self {
            Self::Wave(wave) => Some(wave.frames()),
            Self::File(file) => file.info().frames.filter(|_| file.seeks_exactly()),
        }
    }

    /// What the file does otherwise than its header says; complete when it has been decoded.
    pub(super) fn warnings(&self) -> Vec<FileWarning> {
        match self {
            Self::Wave(wave) => {
                let seconds = |frames: Frames| wave.rate().span(frames).as_secs_f64();
                let found = seconds(wave.frames());
                let stated = wave.contradicted_frames().map(seconds);
                stated.map(|stated| FileWarning::Length { stated, found }).into_iter().collect()
            }
            Self::File(file) => file.warnings(),
        }
    }

    /// The number of damaged places; a truncated end is one.
    pub(super) fn damaged(&self) -> u64 {
        match self {
            Self::Wave(wave) => u64::from(wave.is_cut()),
            Self::File(file) => file.damaged(),
        }
    }
}

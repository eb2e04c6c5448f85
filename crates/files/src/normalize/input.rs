//! Reads the old file.

use std::path::Path;

use aulos_core::{Block, SampleRate};
use aulos_dsp::meter::ChannelPosition;
use aulos_dsp::normalize::silence_invalid;
use aulos_engine::source::BLOCK_SAMPLES;

use super::NormalizeError;
use crate::decode::{
    FileDecodeOptions, FileDecodeStatus, FileInfo, FileWarning, UniformDecoder, converted_frames,
};
use crate::scan::positions;

/// A file as blocks of one rate and layout, with finite samples only.
pub(super) struct InputFile {
    pub(super) decoder: UniformDecoder,
    pub(super) block: Block,
    pub(super) frames: u64,
    pub(super) rejected: u64,
}

impl InputFile {
    pub(super) fn open(path: &Path) -> Result<Self, NormalizeError> {
        let decoder = UniformDecoder::open(path, FileDecodeOptions::default())
            .map_err(NormalizeError::Open)?;
        let FileInfo { rate, layout, .. } = *decoder.info();
        let block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
        Ok(Self { decoder, block, frames: 0, rejected: 0 })
    }

    /// Reads the next frames into the block; false at the end.
    pub(super) fn next(&mut self) -> Result<bool, NormalizeError> {
        let silenced = self.decoder.rejected();
        let more = self.decoder.next(&mut self.block).map_err(NormalizeError::Decode)?;
        self.rejected += self.decoder.rejected() - silenced;
        if more == FileDecodeStatus::End {
            return Ok(false);
        }
        self.rejected += silence_invalid(self.block.samples_mut());
        self.frames += self.block.frames().0;
        Ok(true)
    }

    /// What the file does otherwise than its header says. Samples that are not finite are in
    /// `rejected`, with those that are too large.
    pub(super) fn warnings(&self) -> Vec<FileWarning> {
        let mut all = self.decoder.warnings();
        all.retain(|warning| !matches!(warning, FileWarning::NotFinite { .. }));
        all
    }

    pub(super) fn positions(&self) -> Vec<ChannelPosition> {
        positions(self.decoder.info().layout, self.decoder.speakers())
    }

    /// The length according to the file, converted to another rate.
    pub(super) fn expected(&self, rate: SampleRate) -> Option<u64> {
        let info = self.decoder.info();
        info.frames.map(|frames| converted_frames(frames.0, info.rate, rate))
    }
}

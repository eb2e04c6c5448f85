//! The properties of an output file, which each format writes in its own way.

use aulos_core::{SampleRate, SampleSpec};

use super::container::OutputContainer;
use super::tags::Tags;

/// The properties of an output file.
pub(super) struct OutputSpec<'a> {
    pub(super) container: OutputContainer,
    pub(super) spec: SampleSpec,
    /// The rate of the input, which Opus records.
    pub(super) from: SampleRate,
    /// The length, if known.
    pub(super) frames: Option<u64>,
    /// The loudspeaker of each channel as a WAVE channel mask.
    pub(super) speakers: Option<u32>,
    pub(super) bitrate: u32,
    pub(super) tags: &'a Tags,
}

//! What the outputs and recorders of a station need to know of it.

use aulos_core::SampleSpec;
use aulos_engine::encode::CodecConfig;

/// A station's name and sample format, as its outputs see them.
#[derive(Clone, Debug)]
pub(crate) struct StationOutput {
    pub(crate) name: String,
    pub(crate) codec: CodecConfig,
    /// Settings of codecs that are not for clients.
    pub(crate) codecs: Vec<CodecConfig>,
    pub(crate) spec: SampleSpec,
    pub(crate) chunk_ms: u32,
    /// The names of its sources.
    pub(crate) sources: Vec<String>,
}

//! Files, encoded or with raw samples: `file://`.

use std::path::PathBuf;

use aulos_core::SampleSpec;
use aulos_io::SourcePath;

use crate::keys::keys;
use crate::source::kind::{LocalPath, SourceKind};
use crate::source::query::{Parsed, Query};

/// A file.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedFile {
    /// The path.
    pub path: SourcePath,
    /// Whether it is played in a loop.
    pub repeat: bool,
    /// The spec of raw samples; none for a file with a header.
    pub spec: Option<SampleSpec>,
}

impl SourceKind for PlayedFile {
    fn scheme(&self) -> &'static str {
        "file"
    }

    fn spec(&self) -> Option<SampleSpec> {
        self.spec
    }

    fn is_on_demand(&self) -> bool {
        true
    }

    fn ends(&self) -> bool {
        !self.repeat
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn local_path(&self) -> Option<LocalPath<'_>> {
        Some(LocalPath::File(&self.path))
    }

    fn confine(&mut self, roots: &[PathBuf]) {
        self.path = self.path.clone().confined_to(roots);
    }
}

keys! {
    /// Parameters of `file:`.
    pub(crate) struct FileParams {
        /// Play the file in a loop.
        repeat: bool = false, key "loop";
        /// Sample spec of raw samples: `RATE:BITS:CHANNELS`.
        sampleformat: Option<SampleSpec>, default_doc "`48000:16:2` with the extension `raw` or `pcm`; else the file has a header";
    }
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<PlayedFile> {
    let FileParams { repeat, sampleformat, .. } = query.params();
    let path = query.path()?;
    let raw = path.extension().is_some_and(|end| end == "raw" || end == "pcm");
    let spec = sampleformat.or_else(|| raw.then_some(SampleSpec::DEFAULT));
    Some(vec![PlayedFile { path: path.into(), repeat, spec }])
}

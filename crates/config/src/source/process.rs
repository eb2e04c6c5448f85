//! Raw samples from the standard output of a program: `process://`.

use std::path::PathBuf;

use aulos_core::{SampleSpec, Span};

use crate::keys::keys;
use crate::source::data_timeout::DataTimeout;
use crate::source::kind::{LocalPath, SourceKind, TitleFifo};
use crate::source::query::{Parsed, Query};

/// Raw samples from the standard output of a child process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSource {
    /// The program.
    pub path: PathBuf,
    /// Its arguments in one string, as written.
    pub params: String,
    /// The incoming spec.
    pub spec: SampleSpec,
    /// Whether its standard error is logged.
    pub log_stderr: bool,
    /// Time without a sample after which it is started again.
    pub timeout: Option<Span>,
    /// The FIFO for its titles.
    pub titles: Option<TitleFifo>,
}

impl SourceKind for ProcessSource {
    fn scheme(&self) -> &'static str {
        "process"
    }

    fn spec(&self) -> Option<SampleSpec> {
        Some(self.spec)
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn local_path(&self) -> Option<LocalPath<'_>> {
        Some(LocalPath::Program(&self.path))
    }

    fn titles(&self) -> Option<&TitleFifo> {
        self.titles.as_ref()
    }

    fn titles_mut(&mut self) -> Option<&mut TitleFifo> {
        self.titles.as_mut()
    }
}

keys! {
    /// Parameters of `process:`.
    pub(crate) struct ProcessParams {
        /// Arguments of the program, separated by spaces.
        params: String;
        /// Log what the program writes to standard error.
        log_stderr: bool = false;
        /// Time without a sample after which the program is ended and started again; a number is
        /// seconds, `off` waits for ever.
        timeout: DataTimeout = DataTimeout::PROGRAM;
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }
}

pub(crate) fn parse(query: &Query<'_>) -> Parsed<ProcessSource> {
    let ProcessParams { params, log_stderr, timeout, sampleformat: spec, .. } = query.params();
    let (path, DataTimeout(timeout)) = (query.path()?, timeout);
    Some(vec![ProcessSource { path, params, spec, log_stderr, timeout, titles: None }])
}

//! The generators as values, so that nothing above knows them one by one.

use aulos_core::{Db, Frames, SampleSpec};

use super::{Demo, Tone};
use crate::source::Source;

/// What a generated source plays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Generator {
    /// The demo programme, in stereo.
    Demo,
    /// A sine tone.
    Tone {
        /// Frequency in Hz, below half the rate.
        hz: f64,
        /// Peak level.
        dbfs: Db,
    },
}

impl Generator {
    /// The scheme of its URI.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Tone { .. } => "tone",
        }
    }

    /// A source that plays it in this spec, in blocks of `quantum`.
    #[must_use]
    pub fn source(self, spec: SampleSpec, quantum: Frames) -> Box<dyn Source> {
        match self {
            Self::Demo => Box::new(Demo::new(spec.rate, quantum)),
            Self::Tone { hz, dbfs } => {
                Box::new(Tone::new(hz, dbfs, spec.rate, spec.layout, quantum))
            }
        }
    }
}

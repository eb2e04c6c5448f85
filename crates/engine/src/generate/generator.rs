//! The generators as values, so that nothing above knows them one by one.

use aulos_core::{Frames, SampleSpec};

use super::{Demo, Tone, ToneConfig};
use crate::source::Source;

/// What a generated source plays.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Generator {
    /// The demo programme, in stereo.
    Demo,
    /// One sine or two.
    Tone(ToneConfig),
}

impl Generator {
    /// The scheme of its URI.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Tone(_) => "tone",
        }
    }

    /// A source that plays it in this spec, in blocks of `quantum`.
    #[must_use]
    pub fn source(self, spec: SampleSpec, quantum: Frames) -> Box<dyn Source> {
        match self {
            Self::Demo => Box::new(Demo::new(spec.rate, quantum)),
            Self::Tone(config) => {
                Box::new(Tone::with_config(config, spec.rate, spec.layout, quantum))
            }
        }
    }
}

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
    /// Digital silence.
    Silence,
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
            Self::Silence => "silence",
            Self::Tone { .. } => "tone",
        }
    }

    /// A source that plays it in this spec, in blocks of `quantum`.
    #[must_use]
    pub fn source(self, spec: SampleSpec, quantum: Frames) -> Box<dyn Source> {
        match self {
            Self::Demo => Box::new(Demo::new(spec.rate, quantum)),
            Self::Silence => Box::new(Tone::new(1.0, Db::SILENCE, spec.rate, spec.layout, quantum)),
            Self::Tone { hz, dbfs } => {
                Box::new(Tone::new(hz, dbfs, spec.rate, spec.layout, quantum))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aulos_core::{Block, Instant};

    use super::*;

    #[test]
    fn silence_is_zero() {
        let spec = SampleSpec::DEFAULT;
        let mut source = Generator::Silence.source(spec, Frames(960));
        let mut block = Block::with_capacity(spec.rate, spec.layout, 2 * 960);
        let _ = source.pull(Instant::ZERO, &mut block);
        assert_eq!(block.frames(), Frames(960));
        assert!(block.samples().iter().all(|sample| *sample == 0.0));
    }
}

//! Generated sound: `demo://`, `tone://`.

use aulos_core::{Db, SampleSpec};
use aulos_engine::generate::Generator;

use crate::keys::keys;
use crate::limits::TONE_DBFS;
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query, SampleParams};

/// Generated sound: the demo programme, a tone.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedSource {
    /// The sound.
    pub generator: Generator,
    /// The generated spec.
    pub spec: SampleSpec,
}

impl SourceKind for GeneratedSource {
    fn scheme(&self) -> &'static str {
        self.generator.scheme()
    }

    fn spec(&self) -> Option<SampleSpec> {
        Some(self.spec)
    }

    fn is_on_demand(&self) -> bool {
        true
    }

    fn needs_server(&self) -> bool {
        false
    }
}

keys! {
    /// Parameters of `tone:`.
    pub(crate) struct ToneParams {
        /// Frequency in Hz, below half the sample rate.
        hz: f64 = 997.0;
        /// Peak level.
        dbfs: f64 = -20.0, range TONE_DBFS, "dBFS";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }
}

pub(crate) fn demo(query: &Query<'_>) -> Parsed<GeneratedSource> {
    let SampleParams { sampleformat: spec, .. } = query.params();
    Some(vec![GeneratedSource { generator: Generator::Demo, spec }])
}

pub(crate) fn tone(query: &Query<'_>) -> Parsed<GeneratedSource> {
    let ToneParams { hz, dbfs, sampleformat: spec, .. } = query.params();
    let top = f64::from(spec.rate.hz()) / 2.0;
    if !(hz > 0.0 && hz < top) {
        query
            .refuse::<()>(format!("`hz` is {hz}: it must be above 0 and below {top} Hz"), "hz=997");
    }
    let generator = Generator::Tone { hz, dbfs: Db::new(dbfs) };
    Some(vec![GeneratedSource { generator, spec }])
}

//! Generated sound: `demo://`, `tone://`.

use aulos_core::{Db, SampleSpec, Span};
use aulos_engine::generate::{Cadence, Generator, Sine, ToneConfig};

use crate::keys::values::{parsed, quoted};
use crate::keys::{ConfigRead, ReadContext, ValueKind, keys};
use crate::limits::{TONE_DBFS, TONE_ON_OFF};
use crate::source::kind::SourceKind;
use crate::source::query::{Parsed, Query, SampleParams};
use crate::tree::Node;
use crate::units::format_span;

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
        /// Frequency in Hz, below half the sample rate; two, as in `350,440`, are added.
        hz: OneOrTwo = OneOrTwo(997.0, None);
        /// Peak level in dBFS, -120 to 0; two are those of the two frequencies.
        dbfs: OneOrTwo = OneOrTwo(-20.0, None);
        /// How long it sounds before each silence of `off`; 10 ms to 1 h.
        on: Option<Span>, default_doc "always";
        /// How long it is silent after each `on`; 10 ms to 1 h.
        off: Option<Span>, default_doc "never";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }
}

pub(crate) fn demo(query: &Query<'_>) -> Parsed<GeneratedSource> {
    let SampleParams { sampleformat: spec, .. } = query.params();
    Some(vec![GeneratedSource { generator: Generator::Demo, spec }])
}

pub(crate) fn tone(query: &Query<'_>) -> Parsed<GeneratedSource> {
    let ToneParams { hz, dbfs, on, off, sampleformat: spec, .. } = query.params();
    let top = f64::from(spec.rate.hz()) / 2.0;
    for hz in [Some(hz.0), hz.1].into_iter().flatten().filter(|hz| !(*hz > 0.0 && *hz < top)) {
        query
            .refuse::<()>(format!("`hz` is {hz}: it must be above 0 and below {top} Hz"), "hz=997");
    }
    for dbfs in [Some(dbfs.0), dbfs.1].into_iter().flatten().filter(|it| !TONE_DBFS.contains(it)) {
        let (low, high) = (TONE_DBFS.start(), TONE_DBFS.end());
        let message = format!("`dbfs` is {dbfs}: it must be {low} to {high} dBFS");
        query.refuse::<()>(message, "dbfs=-20");
    }
    if dbfs.1.is_some() && hz.1.is_none() {
        query.refuse::<()>("`dbfs` has two levels for one frequency", "hz=350,440&dbfs=-20,-23");
    }
    let cadence = match (on, off) {
        (Some(on), Some(off)) => Some(Cadence { on, off }),
        (None, None) => None,
        _ => return query.refuse("`on` and `off` belong together", "on=1s&off=3s"),
    };
    let is_out_of_range = |span: Option<Span>| span.is_some_and(|it| !TONE_ON_OFF.contains(&it));
    if is_out_of_range(on) || is_out_of_range(off) {
        let (least, most) = (format_span(*TONE_ON_OFF.start()), format_span(*TONE_ON_OFF.end()));
        let message = format!("`on` and `off` must be from {least} to {most}");
        query.refuse::<()>(message, "on=1s&off=3s");
    }
    let sine = |hz, dbfs| Sine { hz, level: Db::new(dbfs) };
    let second = hz.1.map(|hz| sine(hz, dbfs.1.unwrap_or(dbfs.0)));
    let generator = Generator::Tone(ToneConfig { first: sine(hz.0, dbfs.0), second, cadence });
    Some(vec![GeneratedSource { generator, spec }])
}

/// One number, or two separated by a comma.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OneOrTwo(f64, Option<f64>);

impl ConfigRead for OneOrTwo {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let number = |text: &str| text.trim().parse().ok().filter(|it: &f64| it.is_finite());
            let numbers = match text.split_once(',') {
                None => number(text).map(|one| Self(one, None)),
                Some((one, two)) => number(one).zip(number(two)).map(|(a, b)| Self(a, Some(b))),
            };
            numbers.ok_or("a number, or two separated by a comma")
        })
    }

    fn toml(&self) -> Option<String> {
        let second = self.1.map(|two| format!(",{two}")).unwrap_or_default();
        Some(quoted(&format!("{}{second}", self.0)))
    }
}

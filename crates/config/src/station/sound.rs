//! Processing of a station's programme: `normalize` and `equalizer`.
//!
//! The configuration and the control API share this code, so that both accept the same values and
//! report the same problems.

use aulos_core::{Db, Lufs, SampleSpec};
use aulos_dsp::equalizer::{EqualizerBand, FilterType, MAX_BANDS};
use aulos_dsp::normalize::{LookAhead, Memory, NormalizerPreset, Settings};
use aulos_engine::loudness_processor::NormalizerConfig;
use serde_json::{Value as Json, json};

use crate::keys::values::{is_word, quoted};
use crate::keys::{ConfigRead, NamedEnum, ReadContext, ValueKind, keys, table_of};
use crate::limits::{
    BAND_GAIN_DB, BAND_Q, FALL_DB_S, GATE_LUFS, LRA, MAX_GAIN_DB, MEMORY_S, MIN_GAIN_DB, RISE_DB_S,
    TARGET_LUFS, TRUE_PEAK,
};
use crate::problem::{ConfigValue, Problems};
use crate::tree::{self, Node, Value};

/// Processing of a programme.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessingSettings {
    /// Loudness normalization; none is off.
    pub normalize: Option<NormalizerConfig>,
    /// Equalizer bands, in order of processing.
    pub equalizer: Vec<EqualizerBand>,
}

impl ProcessingSettings {
    /// The highest true peak that the programme should have, in dBTP: the normalizer's ceiling, or
    /// that of EBU R 128 without one.
    #[must_use]
    pub fn ceiling(&self) -> Db {
        let settings = self.normalize.as_ref().map(|normalize| &normalize.settings);
        settings.map_or_else(|| Settings::default().ceiling, |settings| settings.ceiling)
    }

    /// The JSON form for controllers and for the state file.
    #[must_use]
    pub fn json(&self) -> Json {
        json!({ "normalize": self.normalize_json(), "equalizer": self.equalizer_json() })
    }

    /// The keys of `normalize`; null when it is off.
    #[must_use]
    pub fn normalize_json(&self) -> Json {
        let Some(NormalizerConfig { mode, settings }) = &self.normalize else { return Json::Null };
        let named = LookAhead::values().into_iter().find(|(_, value)| value == mode);
        json!({
            "mode": named.map_or("", |(name, _)| name),
            "target": settings.target.get(),
            "true_peak": settings.ceiling.get(),
            "lra": settings.tolerance.get(),
            "min_gain_db": settings.min_gain.get(),
            "max_gain_db": settings.max_gain.get(),
            "rise_db_s": settings.max_rise.get(),
            "fall_db_s": settings.max_fall.get(),
            "gate_lufs": settings.gate.get(),
            "memory_s": match settings.memory {
                Memory::Sliding { seconds } => json!(seconds),
                _ => json!(ENDLESS),
            },
            "dual_mono": settings.dual_mono,
        })
    }

    /// The equalizer bands.
    #[must_use]
    pub fn equalizer_json(&self) -> Json {
        bands_json(&self.equalizer)
    }

    /// Applies a `normalize` value from a controller: true, false or null, a preset, or the keys to
    /// change.
    ///
    /// # Errors
    /// What is wrong with it, for display; nothing has changed then.
    pub fn set_normalize(&mut self, value: &Json, spec: SampleSpec) -> Result<(), String> {
        let problems = Problems::default();
        let base =
            self.normalize.clone().unwrap_or_else(|| default_normalizer_config(LookAhead::Full));
        let keys: ProcessingKeys = read_json("normalize", value, &problems);
        let new = resolve_normalize(keys.normalize.as_ref(), base, spec, &problems);
        self.normalize = into_result(problems, new)?;
        Ok(())
    }

    /// Applies an `equalizer` value from a controller: a list of bands.
    ///
    /// # Errors
    /// As [`ProcessingSettings::set_normalize`].
    pub fn set_equalizer(&mut self, value: &Json, spec: SampleSpec) -> Result<(), String> {
        let problems = Problems::default();
        let keys: ProcessingKeys = read_json("equalizer", value, &problems);
        let new = resolve_equalizer(&keys.equalizer, spec, &problems);
        self.equalizer = into_result(problems, new)?;
        Ok(())
    }

    /// Reads the form written by [`ProcessingSettings::json`].
    ///
    /// # Errors
    /// As [`ProcessingSettings::set_normalize`].
    pub fn from_json(json: &Json, spec: SampleSpec) -> Result<Self, String> {
        let mut sound = Self::default();
        sound.set_normalize(&json["normalize"], spec)?;
        sound.set_equalizer(&json["equalizer"], spec)?;
        Ok(sound)
    }
}

keys! {
    /// Processing of a programme, as controllers set it.
    struct ProcessingKeys {
        /// Loudness normalization.
        normalize: Option<ConfigValue<NormalizeConfig>>;
        /// Equalizer bands.
        equalizer: Vec<BandConfig>;
    }

    /// Loudness normalization after EBU R 128. `true` takes the defaults, `false` turns it off, a
    /// text is a preset.
    pub(crate) struct NormalizeKeys {
        /// Settings to start from.
        preset: Option<NormalizerPreset>, default_doc "`r128`";
        /// Latency against quality: 3 s, 400 ms, 5 ms, or the gain alone without a limiter.
        mode: Option<LookAhead>, default_doc "`full`; of a source `mid`";
        /// Integrated loudness of the output.
        target: Option<f64>, range TARGET_LUFS, "LUFS", default_doc "the preset's";
        /// Maximum true peak of the output.
        true_peak: Option<f64>, range TRUE_PEAK, "dBTP", default_doc "the preset's";
        /// Loudness range that a programme keeps.
        lra: Option<f64>, range LRA, "LU", default_doc "the preset's";
        /// Lowest gain.
        min_gain_db: Option<f64>, range MIN_GAIN_DB, "dB", default_doc "the preset's";
        /// Highest gain.
        max_gain_db: Option<f64>, range MAX_GAIN_DB, "dB", default_doc "the preset's";
        /// Fastest rise of the gain.
        rise_db_s: Option<f64>, range RISE_DB_S, "dB/s", default_doc "the preset's";
        /// Fastest fall of the gain.
        fall_db_s: Option<f64>, range FALL_DB_S, "dB/s", default_doc "the preset's";
        /// Momentary loudness below which the gain is held.
        gate_lufs: Option<f64>, range GATE_LUFS, "LUFS", default_doc "the preset's";
        /// Length of the programme that counts, in seconds (10 to 600), or `endless`.
        memory_s: Option<Memory>, default_doc "the preset's";
        /// Whether a mono programme is played by two loudspeakers and counts twice.
        dual_mono: Option<bool>, default_doc "`false`";
    }

    /// A band of the equalizer.
    pub(crate) struct BandConfig {
        /// Filter type.
        filter_type: Option<FilterType>, required "{ type = \"peaking\", hz = 100, gain_db = -3.0, q = 1.0 }", key "type";
        /// Center or corner frequency in Hz, from 10 to 0.45 times the sample rate.
        hz: Option<ConfigValue<f64>>, required "{ type = \"peaking\", hz = 100, gain_db = -3.0, q = 1.0 }";
        /// Gain of a peaking or shelving filter, which requires it.
        gain_db: Option<ConfigValue<Option<f64>>>, range BAND_GAIN_DB, "dB";
        /// Quality factor; higher is narrower.
        q: ConfigValue<f64> = core::f64::consts::FRAC_1_SQRT_2, range BAND_Q, "";
    }
}

/// Bands as controllers see them.
pub(crate) fn bands_json(bands: &[EqualizerBand]) -> Json {
    let band = |band: &EqualizerBand| {
        let mut json = json!({ "type": band.filter_type.name(), "hz": band.hz, "q": band.q });
        if band.filter_type.has_gain() {
            json["gain_db"] = json!(band.gain.get());
        }
        json
    };
    bands.iter().map(band).collect()
}

/// Reads one key from JSON; null leaves the default.
fn read_json(key: &str, value: &Json, problems: &Problems) -> ProcessingKeys {
    let json = if value.is_null() { json!({}) } else { json!({ key: value }) };
    table_of(&tree::from_json(&json), "", problems)
}

fn into_result<T>(problems: Problems, new: T) -> Result<T, String> {
    if problems.is_empty() { Ok(new) } else { Err(problems.errors_as_line()) }
}

/// `normalize` as written; none is off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NormalizeConfig(Option<NormalizeKeys>);

impl ConfigRead for NormalizeConfig {
    const KIND: &'static ValueKind =
        &ValueKind::AnyOf(&[&ValueKind::Flag, NormalizerPreset::KIND, NormalizeKeys::KIND]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let keys = match &node.value {
            Value::Flag(on) => on.then(NormalizeKeys::default),
            Value::Text(_) => {
                let preset = Some(NormalizerPreset::from_node(node, context)?);
                Some(NormalizeKeys { preset, ..NormalizeKeys::default() })
            }
            Value::Table(_) => Some(NormalizeKeys::from_node(node, context)?),
            _ => return context.wrong_kind(node, "true, false, a preset or a table"),
        };
        Some(Self(keys))
    }
}

/// The settings of `normalize = true`.
pub(crate) fn default_normalizer_config(mode: LookAhead) -> NormalizerConfig {
    NormalizerConfig { mode, settings: Settings::default() }
}

impl NormalizeKeys {
    /// Missing keys are as in `base`.
    fn apply_to(&self, base: NormalizerConfig) -> NormalizerConfig {
        let NormalizerConfig { mode, mut settings } = base;
        if let Some(preset) = self.preset {
            settings = preset.settings();
        }
        let db = |value: Option<f64>, field: &mut Db| *field = value.map_or(*field, Db::new);
        let lufs = |value: Option<f64>, field: &mut Lufs| *field = value.map_or(*field, Lufs::new);
        lufs(self.target, &mut settings.target);
        db(self.true_peak, &mut settings.ceiling);
        db(self.lra, &mut settings.tolerance);
        db(self.min_gain_db, &mut settings.min_gain);
        db(self.max_gain_db, &mut settings.max_gain);
        db(self.rise_db_s, &mut settings.max_rise);
        db(self.fall_db_s, &mut settings.max_fall);
        lufs(self.gate_lufs, &mut settings.gate);
        settings.memory = self.memory_s.unwrap_or(settings.memory);
        settings.dual_mono = self.dual_mono.unwrap_or(settings.dual_mono);
        NormalizerConfig { mode: self.mode.unwrap_or(mode), settings }
    }
}

impl ConfigRead for Memory {
    const KIND: &'static ValueKind =
        &ValueKind::AnyOf(&[&ValueKind::Integer, &ValueKind::Choice(|| vec![ENDLESS])]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        if is_word(node, ENDLESS) {
            return Some(Self::Endless);
        }
        let seconds = u32::from_node(node, context)?;
        if MEMORY_S.contains(&seconds) {
            return Some(Self::Sliding { seconds });
        }
        context.refuse(node, &seconds.to_string(), "10 to 600 seconds, or \"endless\"")
    }

    fn toml(&self) -> Option<String> {
        Some(match self {
            Self::Sliding { seconds } => seconds.to_string(),
            _ => quoted(ENDLESS),
        })
    }
}

impl NamedEnum for NormalizerPreset {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|preset| (preset.name(), preset)).to_vec()
    }
}

impl NamedEnum for FilterType {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|kind| (kind.name(), kind)).to_vec()
    }
}

impl NamedEnum for LookAhead {
    fn values() -> Vec<(&'static str, Self)> {
        let low = [("low", Self::Low), ("gain-only", Self::GainOnly)];
        [("full", Self::Full), ("mid", Self::Mid)].into_iter().chain(low).collect()
    }
}

const ENDLESS: &str = "endless";

/// Checks a normalizer against the station's spec; missing keys are as in `base`.
pub(crate) fn resolve_normalize(
    setting: Option<&ConfigValue<NormalizeConfig>>,
    base: NormalizerConfig,
    spec: SampleSpec,
    problems: &Problems,
) -> Option<NormalizerConfig> {
    let ConfigValue { value: NormalizeConfig(keys), at } = setting?;
    let normalizer = keys.as_ref()?.apply_to(base);
    // Single values have been checked already; what remains is `dual_mono` with several channels.
    if normalizer.settings.dual_mono && spec.layout.channels() > 1 {
        let message = format!("`dual_mono` requires one channel: {spec} has more");
        problems.add_with_hint(*at, message, "leave it out: two channels count as two");
    }
    Some(normalizer)
}

/// Computes the bands for this rate.
pub(crate) fn resolve_equalizer(
    bands: &[BandConfig],
    spec: SampleSpec,
    problems: &Problems,
) -> Vec<EqualizerBand> {
    if let Some(band) = bands.get(MAX_BANDS) {
        problems.add(band.at, format!("an equalizer has at most {MAX_BANDS} bands"));
    }
    bands.iter().filter_map(|band| resolve_band(band, spec, problems)).collect()
}

fn resolve_band(
    config: &BandConfig,
    spec: SampleSpec,
    problems: &Problems,
) -> Option<EqualizerBand> {
    let filter_type = config.filter_type?;
    match (&config.gain_db, filter_type.has_gain()) {
        (None, true) => {
            let message = format!("a {} filter requires `gain_db`", filter_type.name());
            problems.add_with_hint(config.at, message, "gain_db = -3.0");
        }
        (Some(gain), false) => {
            let message = format!("a {} filter has no `gain_db`", filter_type.name());
            problems.add_with_hint(gain.at, message, "leave it out");
        }
        _ => {}
    }
    let (hz, gain) = (config.hz?, config.gain_db.map_or(Some(0.0), |gain| gain.value)?);
    let band = EqualizerBand { filter_type, hz: hz.value, gain: Db::new(gain), q: config.q.value };
    // Gain and quality factor have been checked by the table; the highest frequency depends on the
    // rate.
    if let Err(wrong) = band.validate(spec.rate) {
        let (name, value, low, high) = (wrong.name, wrong.value, wrong.min, wrong.max);
        let message = format!("`{name}` is {value}: it must be {low} to {high} {}", wrong.unit);
        problems.add(hz.at, message);
    }
    Some(band)
}

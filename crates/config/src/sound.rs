//! Processing of a station's programme: `normalize` and `equalizer`.
//!
//! The configuration and the control API share this code, so that both accept the same values and
//! report the same problems.

use aulos_core::{Db, Lufs, SampleSpec};
use aulos_dsp::equalizer::{EqualizerBand, FilterType, MAX_BANDS};
use aulos_dsp::normalize::{Memory, Mode, Preset, Settings};
use aulos_engine::loudness_processor::NormalizerConfig;
use serde_json::{Value as Json, json};

use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean, quoted_list};
use super::read::{TableReader, report_missing};
use super::tree::{Node, TableEntry, Value};

/// Processing of a programme.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SoundSettings {
    /// Loudness normalization; none is off.
    pub normalize: Option<NormalizerConfig>,
    /// Equalizer bands, in order of processing.
    pub equalizer: Vec<EqualizerBand>,
}

impl SoundSettings {
    /// The JSON form for controllers and for the state file.
    #[must_use]
    pub fn json(&self) -> Json {
        json!({ "normalize": self.normalize_json(), "equalizer": self.equalizer_json() })
    }

    /// The keys of `normalize`; null when it is off.
    #[must_use]
    pub fn normalize_json(&self) -> Json {
        let Some(NormalizerConfig { mode, settings }) = &self.normalize else { return Json::Null };
        json!({
            "mode": mode_name(*mode),
            "target": settings.target.get(),
            "true_peak": settings.ceiling.get(),
            "lra": settings.range.get(),
            "min_gain_db": settings.min_gain.get(),
            "max_gain_db": settings.max_gain.get(),
            "rise_db_s": settings.rise.get(),
            "fall_db_s": settings.fall.get(),
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
        let band = |band: &EqualizerBand| {
            let mut json = json!({ "type": band.filter_type.name(), "hz": band.hz, "q": band.q });
            if band.filter_type.has_gain() {
                json["gain_db"] = json!(band.gain.get());
            }
            json
        };
        self.equalizer.iter().map(band).collect()
    }

    /// Applies a `normalize` value from a controller: true, false or null, a preset, or the keys to
    /// change.
    ///
    /// # Errors
    /// What is wrong with it, for display; nothing has changed then.
    pub fn set_normalize(&mut self, value: &Json, spec: SampleSpec) -> Result<(), String> {
        let problems = Problems::default();
        let node = node_from_json(value);
        let base = self.normalize.clone().unwrap_or_else(|| DEFAULT_NORMALIZE(Mode::Full));
        let read = match value {
            Json::Null => None,
            _ => read_normalize(&node, "the station", base, &problems),
        };
        let new = resolve_normalize(read.as_ref(), spec, &problems);
        self.normalize = into_result(problems, new)?;
        Ok(())
    }

    /// Applies an `equalizer` value from a controller: a list of bands.
    ///
    /// # Errors
    /// As [`SoundSettings::set_normalize`].
    pub fn set_equalizer(&mut self, value: &Json, spec: SampleSpec) -> Result<(), String> {
        let problems = Problems::default();
        let bands = match value {
            Json::Null => Vec::new(),
            _ => read_equalizer(&node_from_json(value), "the station", &problems),
        };
        let new = resolve_equalizer(&bands, spec, &problems);
        self.equalizer = into_result(problems, new)?;
        Ok(())
    }

    /// Reads the form written by [`SoundSettings::json`].
    ///
    /// # Errors
    /// As [`SoundSettings::set_normalize`].
    pub fn from_json(json: &Json, spec: SampleSpec) -> Result<Self, String> {
        let mut sound = Self::default();
        sound.set_normalize(&json["normalize"], spec)?;
        sound.set_equalizer(&json["equalizer"], spec)?;
        Ok(sound)
    }
}

fn into_result<T>(problems: Problems, new: T) -> Result<T, String> {
    if problems.is_empty() { Ok(new) } else { Err(super::stream::in_one_line(problems)) }
}

/// An equalizer band as written.
#[derive(Clone, Debug, PartialEq)]
pub struct BandConfig {
    /// The filter type.
    pub shape: FilterType,
    /// Frequency in Hz.
    pub hz: ConfigValue<f64>,
    /// Gain in dB.
    pub gain_db: ConfigValue<f64>,
    /// Quality factor.
    pub q: ConfigValue<f64>,
}

/// The settings of `normalize = true`.
pub(super) const DEFAULT_NORMALIZE: fn(Mode) -> NormalizerConfig =
    |mode| NormalizerConfig { mode, settings: Settings::default() };

/// Reads `normalize`; missing keys are as in `base`.
pub(super) fn read_normalize(
    node: &Node,
    of: &str,
    base: NormalizerConfig,
    problems: &Problems,
) -> Option<ConfigValue<NormalizerConfig>> {
    let at = node.at;
    match &node.value {
        Value::Flag(on) => return on.then_some(ConfigValue { value: base, at }),
        Value::Text(name) => {
            let settings = preset(name, at, problems);
            return Some(ConfigValue { value: NormalizerConfig { settings, ..base }, at });
        }
        Value::Table(_) => {}
        _ => {
            let message = format!("`normalize` of {of} is {}", node.kind());
            problems.add_with_hint(at, message, "normalize = \"r128\", or { target = -18.0 }");
            return None;
        }
    }
    let mut table = TableReader::new(node, format!("normalize of {of}"), problems);
    let NormalizerConfig { mut mode, mut settings } = base;
    if let Some(name) = table.text("preset") {
        settings = preset(&name.value, name.at, problems);
    }
    if let Some(name) = table.text("mode") {
        mode = parse_mode(&name, problems).unwrap_or(mode);
    }
    for (key, unit, put) in NUMBERS {
        if let Some(number) = table.real(key, unit, f64::NEG_INFINITY..=f64::INFINITY) {
            put(&mut settings, number.value);
            // Each value is checked alone, so that each problem is reported.
            let mut alone = Settings::default();
            put(&mut alone, number.value);
            if let Err(wrong) = alone.validate() {
                let (value, low, high) = (wrong.value, wrong.min, wrong.max);
                let message = format!("`{key}` is {value}: it must be {low} to {high} {unit}");
                problems.add(number.at, message);
            }
        }
    }
    if let Some(memory) = read_memory(&mut table, problems) {
        settings.memory = memory;
    }
    settings.dual_mono = table.flag("dual_mono").unwrap_or(settings.dual_mono);
    table.finish();
    Some(ConfigValue { value: NormalizerConfig { mode, settings }, at })
}

type SetNumber = fn(&mut Settings, f64);

/// The numeric keys.
const NUMBERS: [(&str, &str, SetNumber); 8] = [
    ("target", "LUFS", |settings, value| settings.target = Lufs::new(value)),
    ("true_peak", "dBTP", |settings, value| settings.ceiling = Db::new(value)),
    ("lra", "LU", |settings, value| settings.range = Db::new(value)),
    ("min_gain_db", "dB", |settings, value| settings.min_gain = Db::new(value)),
    ("max_gain_db", "dB", |settings, value| settings.max_gain = Db::new(value)),
    ("rise_db_s", "dB a second", |settings, value| settings.rise = Db::new(value)),
    ("fall_db_s", "dB a second", |settings, value| settings.fall = Db::new(value)),
    ("gate_lufs", "LUFS", |settings, value| settings.gate = Lufs::new(value)),
];

fn read_memory(table: &mut TableReader<'_>, problems: &Problems) -> Option<Memory> {
    let node = table.node("memory_s")?;
    let memory = match &node.value {
        Value::Text(text) if text == ENDLESS => Some(Memory::Endless),
        Value::Integer(seconds) => {
            u32::try_from(*seconds).ok().map(|seconds| Memory::Sliding { seconds })
        }
        _ => None,
    };
    let good =
        |memory: &Memory| Settings { memory: *memory, ..Settings::default() }.validate().is_ok();
    let memory = memory.filter(good);
    if memory.is_none() {
        let message = "`memory_s` is no such time".to_owned();
        problems.add_with_hint(node.at, message, "10 to 600 seconds, or \"endless\"");
    }
    memory
}

fn preset(name: &str, at: ConfigLocation, problems: &Problems) -> Settings {
    name.parse::<Preset>().map_or_else(
        |_| {
            let names = Preset::ALL.map(Preset::name);
            let hint = match did_you_mean(name, &names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there is {}", quoted_list(&names)),
            };
            problems.add_with_hint(at, format!("`{name}` is no preset of normalize"), hint);
            Settings::default()
        },
        Preset::settings,
    )
}

fn parse_mode(name: &ConfigValue<String>, problems: &Problems) -> Option<Mode> {
    let mode = MODES.iter().find(|(known, _)| *known == name.value);
    if mode.is_none() {
        let names = MODES.map(|(name, _)| name);
        let hint = match did_you_mean(&name.value, &names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there is {}", quoted_list(&names)),
        };
        problems.add_with_hint(name.at, format!("`{}` is no mode of normalize", name.value), hint);
    }
    mode.map(|(_, mode)| *mode)
}

fn mode_name(mode: Mode) -> &'static str {
    MODES.iter().find(|(_, known)| *known == mode).map_or("", |(name, _)| name)
}

const MODES: [(&str, Mode); 4] =
    [("full", Mode::Full), ("mid", Mode::Mid), ("low", Mode::Low), ("gain-only", Mode::GainOnly)];

const ENDLESS: &str = "endless";

/// Checks a normalizer against the station's spec.
pub(super) fn resolve_normalize(
    setting: Option<&ConfigValue<NormalizerConfig>>,
    spec: SampleSpec,
    problems: &Problems,
) -> Option<NormalizerConfig> {
    let ConfigValue { value, at } = setting?;
    // Single values have been checked already; what remains is `dual_mono` with several channels.
    if value.settings.dual_mono && spec.layout.channels() > 1 {
        let message = format!("`dual_mono` is for one channel, and {spec} has more");
        problems.add_with_hint(*at, message, "leave it out: two channels count as two");
    }
    Some(value.clone())
}

/// Reads `equalizer`.
pub(super) fn read_equalizer(node: &Node, of: &str, problems: &Problems) -> Vec<BandConfig> {
    let Value::List(items) = &node.value else {
        let message = format!("`equalizer` of {of} is {}: it must be a list", node.kind());
        problems.add_with_hint(node.at, message, EXAMPLE);
        return Vec::new();
    };
    if let Some(node) = items.get(MAX_BANDS) {
        problems.add(node.at, format!("an equalizer has at most {MAX_BANDS} bands"));
    }
    items.iter().filter_map(|node| read_band(node, of, problems)).collect()
}

fn read_band(node: &Node, of: &str, problems: &Problems) -> Option<BandConfig> {
    let name = format!("a band of {of}");
    let mut table = TableReader::new(node, name.as_str(), problems);
    let any = f64::NEG_INFINITY..=f64::INFINITY;
    let shape = table.text("type");
    let hz = table.real("hz", "Hz", any.clone());
    let gain = table.real("gain_db", "dB", any.clone());
    let q = table.real("q", "", any);
    table.finish();
    if !matches!(node.value, Value::Table(_)) {
        return None;
    }
    for key in ["type", "hz"] {
        if node.get(key).is_none() {
            report_missing(problems, node.at, key, &name, BAND);
        }
    }
    let shape = shape.and_then(|shape| {
        let found = FilterType::ALL.into_iter().find(|known| known.name() == shape.value);
        if found.is_none() {
            let names = FilterType::ALL.map(FilterType::name);
            let hint = match did_you_mean(&shape.value, &names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("there is {}", quoted_list(&names)),
            };
            problems.add_with_hint(shape.at, format!("`{}` is no type of band", shape.value), hint);
        }
        found
    })?;
    match &gain {
        None if shape.has_gain() && node.get("gain_db").is_none() => {
            report_missing(problems, node.at, "gain_db", &name, BAND);
        }
        Some(gain) if !shape.has_gain() => {
            let message = format!("`gain_db` says nothing in a band of the type {}", shape.name());
            problems.add_with_hint(gain.at, message, "leave it out");
        }
        _ => {}
    }
    let otherwise = |value| ConfigValue { value, at: node.at };
    Some(BandConfig {
        shape,
        hz: hz?,
        gain_db: gain.unwrap_or_else(|| otherwise(0.0)),
        q: q.unwrap_or_else(|| otherwise(BUTTERWORTH)),
    })
}

/// Computes the bands for this rate.
pub(super) fn resolve_equalizer(
    bands: &[BandConfig],
    spec: SampleSpec,
    problems: &Problems,
) -> Vec<EqualizerBand> {
    let band = |config: &BandConfig| {
        let BandConfig { shape, hz, gain_db, q } = config;
        let band = EqualizerBand {
            filter_type: *shape,
            hz: hz.value,
            gain: Db::new(gain_db.value),
            q: q.value,
        };
        if let Err(wrong) = band.validate(spec.rate) {
            let at = match wrong.name {
                "gain_db" => gain_db.at,
                "q" => q.at,
                _ => hz.at,
            };
            let (name, value, low, high) = (wrong.name, wrong.value, wrong.min, wrong.max);
            let unit =
                if wrong.unit.is_empty() { String::new() } else { format!(" {}", wrong.unit) };
            let message = format!("`{name}` is {value}: it must be {low} to {high}{unit}");
            problems.add(at, message);
        }
        band
    };
    bands.iter().map(band).collect()
}

/// Q without a resonance peak.
const BUTTERWORTH: f64 = core::f64::consts::FRAC_1_SQRT_2;
const BAND: &str = "{ type = \"peaking\", hz = 100, gain_db = -3.0, q = 1.0 }";
const EXAMPLE: &str = "equalizer = [{ type = \"peaking\", hz = 100, gain_db = -3.0, q = 1.0 }]";

/// Converts JSON from a controller to a configuration node.
pub(super) fn node_from_json(json: &Json) -> Node {
    let value = match json {
        Json::Null => Value::Other("null"),
        Json::Bool(flag) => Value::Flag(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Integer(integer),
            (None, Some(real)) => Value::Float(real),
            (None, None) => Value::Other("no number"),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(node_from_json).collect()),
        Json::Object(entries) => {
            let entry = |(key, value): (&String, &Json)| TableEntry {
                key: key.clone(),
                at: ConfigLocation::Default,
                node: node_from_json(value),
            };
            Value::Table(entries.iter().map(entry).collect())
        }
    };
    Node::new(value, ConfigLocation::Default)
}

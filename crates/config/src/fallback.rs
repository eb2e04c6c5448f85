//! Checks the keys for failover: switch, silence, input buffers and last resort.

use aulos_core::{Db, Span};
use aulos_engine::standby::Standby;
use aulos_engine::switch::FailbackMode;

use super::model::{SilenceConfig, SourceEntry, StationConfig, SwitchConfig};
use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean};
use super::resolve::{SilenceSettings, SwitchSettings};
use super::source::{self, SourceConfig};

pub(super) fn switch(config: &SwitchConfig, problems: &Problems) -> SwitchSettings {
    let kinds = [
        ("auto", FailbackMode::Auto),
        ("manual", FailbackMode::Manual),
        ("never", FailbackMode::Never),
    ];
    SwitchSettings {
        crossfade_ms: config.crossfade_ms,
        hold_in_s: config.hold_in_s,
        comeback: choice("comeback", &config.comeback, &kinds, problems),
        immediate: config.immediate,
    }
}

pub(super) fn silence(config: SilenceConfig) -> SilenceSettings {
    // In range: `SILENCE_S` ends at a day.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let span = |seconds: f64| Span::from_millis((seconds * 1e3) as i64);
    SilenceSettings {
        below: Db::new(config.below_dbfs),
        span: span(config.for_s),
        dc: config.dc,
        dead_channel: config.dead_channel_s.map(span),
    }
}

/// The input buffer of a source in milliseconds. An encoded stream gets more by default, unless
/// buffering is off.
pub(super) fn input_buffer_ms(
    entry: &SourceEntry,
    source: &SourceConfig,
    station: &StationConfig,
) -> u32 {
    let common = station.switch.input_buffer_ms;
    let least = match source {
        SourceConfig::Http { .. } | SourceConfig::Icecast(_) if common > 0 => STREAM_BUFFER_MS,
        _ => 0,
    };
    entry.input_buffer_ms.map_or_else(|| common.max(least), |own| own.value)
}

pub(super) fn standby(setting: Option<&ConfigValue<String>>, problems: &Problems) -> Standby {
    let kinds = [("hot", Standby::Hot), ("warm", Standby::Warm), ("cold", Standby::Cold)];
    setting.map_or(Standby::Hot, |setting| choice("standby", setting, &kinds, problems))
}

/// Parses the last resort: a generated sound, or a file that is decoded once and kept.
pub(super) fn last_resort(
    setting: &ConfigValue<String>,
    problems: &Problems,
) -> Option<SourceConfig> {
    if setting.value == "silence" {
        return None;
    }
    let refuse = |why: String| {
        let hint = "it can be \"silence\", \"file:///path\" (kept in memory and played in a loop), \
                    \"demo://\" or \"tone://\"";
        problems.add_with_hint(setting.at, why, hint);
        None
    };
    if !setting.value.contains(':') {
        return refuse(format!("`last_resort` is \"{}\"", setting.value));
    }
    let (mut sources, _) = source::parse(setting, problems)?;
    match sources.pop()? {
        SourceConfig::File { path, .. } if !path.is_file() => {
            let message = format!("`last_resort`: there is no file {}", path.display());
            problems.add_with_hint(
                setting.at,
                message,
                "it is read when the server starts, and has to be there",
            );
            None
        }
        sound @ (SourceConfig::File { .. }
        | SourceConfig::Demo { .. }
        | SourceConfig::Tone { .. }) => Some(sound),
        other => refuse(format!("`last_resort`: {}: may fail itself", other.scheme())),
    }
}

/// Checks that a failed source is given up before its buffer is empty; otherwise each failure
/// causes a gap.
pub(super) fn check_timeouts(config: &StationConfig, problems: &Problems) {
    let common = (config.switch.timeout_ms, config.switch.input_buffer_ms);
    let mut pairs: Vec<(ConfigValue<u32>, u32)> = Vec::new();
    for source in &config.sources {
        let buffer = source.input_buffer_ms.map_or(common.1, |own| own.value);
        let pair = (source.timeout_ms.unwrap_or(common.0), buffer);
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    // With a buffer of 0 low latency is preferred, and gaps are accepted.
    for (timeout, buffer) in
        pairs.into_iter().filter(|(timeout, buffer)| *buffer > 0 && timeout.value >= *buffer)
    {
        let message = format!(
            "`timeout_ms` is {}, and only {buffer} ms are buffered: a source that fails leaves a hole",
            timeout.value
        );
        let hint = format!(
            "timeout_ms = {}, or input_buffer_ms = {} (0 for no buffer at all)",
            (buffer / 4 * 3).max(20),
            timeout.value.saturating_add(100)
        );
        let at = if timeout.at == ConfigLocation::Default { config.at } else { timeout.at };
        problems.add_with_hint(at, message, hint);
    }
}

/// Least default buffer of an encoded stream: an Ogg page holds a second of audio, and the next one
/// comes a second later. Live source software buffers as much or more.
const STREAM_BUFFER_MS: u32 = 2_000;

fn choice<T: Copy>(
    key: &str,
    setting: &ConfigValue<String>,
    kinds: &[(&str, T)],
    problems: &Problems,
) -> T {
    let found = kinds.iter().find(|(name, _)| *name == setting.value);
    let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
    let (_, kind) = found.unwrap_or_else(|| {
        let hint = match did_you_mean(&setting.value, &names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("use {}", names.join(", ")),
        };
        problems.add_with_hint(setting.at, format!("`{key}` is \"{}\"", setting.value), hint);
        &kinds[0]
    });
    *kind
}

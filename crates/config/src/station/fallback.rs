//! Checks the keys for failover: switch, silence, input buffers and last resort.

use aulos_core::{Db, Span};
use aulos_dsp::silence;
use aulos_engine::input::InputConfig;
use aulos_engine::switch::{self, DEFAULT_STARTUP_WAIT};

use crate::model::{SilenceConfig, SourceEntry, StationConfig, SwitchConfig};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::source::{self, LocalPath, SourceConfig};

pub(crate) fn switch(config: &SwitchConfig) -> switch::SwitchConfig {
    switch::SwitchConfig {
        failback_delay: Span::from_secs(i64::from(config.failback_delay_s)),
        failback: config.failback,
        startup_wait: config.immediate.then_some(DEFAULT_STARTUP_WAIT),
    }
}

pub(crate) fn silence(config: &SilenceConfig) -> silence::SilenceConfig {
    // In range: `SILENCE_S` ends at a day.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let span = |seconds: f64| Span::from_millis((seconds * 1e3) as i64);
    silence::SilenceConfig {
        threshold: Db::new(config.below_dbfs),
        duration: span(config.for_s),
        dc: config.dc,
        dead_channel: config.dead_channel_s.map(span),
    }
}

/// The settings of the input that plays a source.
pub(crate) fn input(
    entry: &SourceEntry,
    source: &SourceConfig,
    station: &StationConfig,
) -> InputConfig {
    let timeout = entry.timeout_ms.unwrap_or(station.switch.timeout_ms).value;
    InputConfig {
        buffer: Span::from_millis(i64::from(input_buffer_ms(entry, source, station))),
        timeout: Span::from_millis(i64::from(timeout)),
        gain: Db::new(entry.gain_db),
        silence: silence(entry.silence.as_ref().unwrap_or(&station.silence)),
        standby: entry.standby,
    }
}

/// The input buffer of a source in milliseconds. An encoded stream gets more by default, unless
/// buffering is off.
fn input_buffer_ms(entry: &SourceEntry, source: &SourceConfig, station: &StationConfig) -> u32 {
    let common = station.switch.input_buffer_ms;
    let least = if source.comes_in_bursts() && common > 0 { STREAM_BUFFER_MS } else { 0 };
    entry.input_buffer_ms.unwrap_or_else(|| common.max(least))
}

/// Parses the last resort: a generated sound, or a file that is decoded once and kept.
pub(crate) fn last_resort(
    setting: &ConfigValue<String>,
    problems: &Problems,
) -> Option<SourceConfig> {
    if setting.value == "silence" {
        return None;
    }
    let refuse = |why: String| {
        let hint = "use \"silence\", \"file:///path\" (kept in memory and played in a loop), \
                    \"demo://\" or \"tone://\"";
        problems.add_with_hint(setting.at, why, hint);
        None
    };
    if !setting.value.contains(':') {
        return refuse(format!("`last_resort` is \"{}\"", setting.value));
    }
    let (mut sources, _) = source::parse(setting, problems)?;
    let source = sources.pop()?;
    if !source.is_on_demand() || source.needs_server() {
        let scheme = source.scheme();
        return refuse(format!("`last_resort` must not be a {scheme}: source, which can fail"));
    }
    if let Some(LocalPath::File(path)) = source.local_path()
        && !path.is_file()
    {
        let message = format!("`last_resort`: no such file: {}", path.display());
        let hint = "it is read when the server starts, and must exist";
        problems.add_with_hint(setting.at, message, hint);
        return None;
    }
    Some(source)
}

/// Checks that a failed source is given up before its buffer is empty; otherwise each failure
/// causes a gap.
pub(crate) fn check_timeouts(config: &StationConfig, problems: &Problems) {
    let common = (config.switch.timeout_ms, config.switch.input_buffer_ms);
    let mut pairs: Vec<(ConfigValue<u32>, u32)> = Vec::new();
    for source in &config.sources {
        let buffer = source.input_buffer_ms.unwrap_or(common.1);
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
            "`timeout_ms` is {} and `input_buffer_ms` {buffer}: a failing source would cause a gap",
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

//! `aulos.toml`: reads the whole configuration, validates it once, and reports all problems
//! together.
//!
//! ```text
//!  embedded default, file, --set  ->  tree  ->  Config (written)  ->  ResolvedConfig (valid)
//!                                       \___________\____________________\__ Problems
//! ```
//!
//! serde's derive stops at the first error (`docs/decisions/configuration.md`).

#![forbid(unsafe_code)]

pub mod client_sound;
mod cluster;
mod env;
mod hooks;
pub mod icecast_xml;
mod keys;
pub mod limits;
mod missing;
mod model;
mod mqtt;
mod names;
mod problem;
mod program;
mod relay;
mod resolve;
mod security;
mod sendspin;
mod settings;
pub mod snapserver;
pub mod source;
mod station;
#[cfg(test)]
mod tests;
mod tree;
pub mod units;

pub use cluster::{ClusterSettings, DEFAULT_SITE, NatsLogin, NatsServer};
pub use env::{Environment, Variables};
pub use hooks::{Hook, HookAction, HookEventKind, Webhook};
pub use keys::old_keys::{RenamedKeys, rename_old_keys};
pub use keys::reference::{json_schema, reference};
pub use mqtt::MqttSettings;
pub use names::Endpoint;
pub use problem::{ConfigError, ConfigFile, ConfigLocation, Problem, did_you_mean};
pub use relay::ports::PortRange;
pub use relay::{RelaySettings, relay_from_json, relay_from_keys};
pub use security::certificates::TlsSettings;
pub use security::secrets::RedactedDebug;
pub use security::{SecuritySettings, certificates, users};
pub use settings::{
    ClientSettings, HistorySettings, HttpSettings, ListenEndpoints, ListenerAuth, MdnsSettings,
    MetricsSettings, ResolvedConfig, SendspinSettings, StreamSettings, WrittenConfig,
};
pub use source::check::{OPEN_MOUNT_HINT, meta_loop};
pub use source::{Mount, SourceConfig, TitleFifo, TitleFormat};
pub use station::hls::HlsSettings;
pub use station::insert::InsertSettings;
pub use station::intro::{Intro, IntroChunk};
pub use station::mount::{MountSettings, OWN_PATHS};
pub use station::now_playing::{
    NowPlayingSettings, OutputCharset, TitleOutputSettings, TitleProtocol, TitleTarget,
};
pub use station::push::{PushSettings, PushTarget};
pub use station::record::{RecorderSettings, rotation_for};
pub use station::rtp::RtpOutputSettings;
pub use station::schedule::{ScheduleDays, ScheduleEntry, ScheduleSettings, ScheduleTime};
pub use station::sound::ProcessingSettings;
pub use station::storage::StorageTarget;
pub use station::stream::{AnnouncementUri, StreamUri, StreamUriError, parse_announcement};
pub use station::upload::UploadTarget;
pub use station::{Plugin, StationSettings, StationSource};

use problem::{ConfigTexts, ConfigValue, Problems};
use tree::{Node, TableEntry, Value};

/// Reads and validates a configuration. Without a file, or if it has no station, the station of
/// [`Environment::default_config`] is used.
///
/// # Errors
/// [`ConfigError`] with every problem, in the order of the file and then of `sets`.
pub fn load(
    file: Option<ConfigFile<'_>>,
    sets: &[String],
    env: &Environment,
) -> Result<ResolvedConfig, ConfigError> {
    load_and(file, sets, env, |_, _| {})
}

/// Like [`load`], with a warning for each folder, file and program that this machine does not have.
///
/// # Errors
/// As [`load`].
pub fn load_on_this_machine(
    file: Option<ConfigFile<'_>>,
    sets: &[String],
    env: &Environment,
) -> Result<ResolvedConfig, ConfigError> {
    load_and(file, sets, env, |config, problems| missing::check(config, env, problems))
}

fn load_and(
    file: Option<ConfigFile<'_>>,
    sets: &[String],
    env: &Environment,
    check: impl FnOnce(&model::Config, &Problems),
) -> Result<ResolvedConfig, ConfigError> {
    let problems = Problems::default();
    let ConfigFile { name, text } = file.unwrap_or(ConfigFile { name: "", text: "" });
    let mut root = tree::parse(text, &ConfigLocation::File, &problems);
    add_default_station(&mut root, env, &problems);
    for (index, set) in sets.iter().enumerate() {
        tree::set(&mut root, index, set, &problems);
    }
    let config = keys::table_of(&root, "", &problems);
    let mut resolved = resolve::resolve(&config, env, &problems);
    resolved.written =
        WrittenConfig(keys::redact::redacted(&root, <model::Config as keys::KeyTable>::TABLE));
    check(&config, &problems);
    let texts = ConfigTexts { name, text, sets };
    if !problems.is_empty() {
        return Err(ConfigError::new(problems, texts));
    }
    resolved.warnings = texts.warnings(&problems.into_parts().1);
    Ok(resolved)
}

/// Parses the URI of a source on the command line.
///
/// # Errors
/// All problems, at least one.
pub fn parse_source(uri: &str) -> Result<SourceConfig, Vec<Problem>> {
    let problems = Problems::default();
    let parsed = source::parse(&ConfigValue::default_value(uri.to_owned()), &problems);
    let first = parsed.as_ref().and_then(|(sources, _)| sources.first());
    if let Some(source) = first.filter(|source| source.needs_server()) {
        let hint = match source.station() {
            Some(_) => "use the source of that station",
            None => "let a station play it, and use http://HOST:1780/listen/STATION.wav",
        };
        let scheme = uri.split(':').next().unwrap_or_default();
        let message = format!("`{scheme}:` requires a running server");
        problems.add_with_hint(ConfigLocation::Default, message, hint);
    }
    match parsed.map(|(mut sources, _)| (sources.pop(), problems.is_empty())) {
        Some((Some(source), true)) => Ok(source),
        _ => Err(problems.into_errors()),
    }
}

fn add_default_station(root: &mut Node, env: &Environment, problems: &Problems) {
    if root.get("station").is_some() {
        return;
    }
    let default = tree::parse(&env.default_config(), &|_| ConfigLocation::Default, problems);
    if let (Value::Table(entries), Value::Table(theirs)) = (&mut root.value, default.value) {
        entries.extend(theirs.into_iter().filter(|TableEntry { key, .. }| key == "station"));
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

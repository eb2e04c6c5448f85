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

pub mod certificates;
mod codec;
mod env;
mod fallback;
mod hooks;
pub mod limits;
mod meta;
mod model;
mod mounts;
mod problem;
mod push;
mod read;
mod record;
mod relay;
mod resolve;
mod rtp;
mod security;
pub mod snapserver;
mod sound;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod tree;
pub mod units;
mod upload;
pub mod users;

pub use env::{Environment, Variables};
pub use hooks::{Hook, HookAction, HookConfig, HookEventKind, RedactedDebug, Webhook};
pub use meta::meta_loop;
pub use model::{
    ClientsConfig, Config, HttpConfig, ListenConfig, MdnsConfig, PluginConfig, SilenceConfig,
    SourceEntry, StationConfig, StreamsConfig, SwitchConfig,
};
pub use mounts::{Mount, OPEN_MOUNT_HINT};
pub use problem::{ConfigError, ConfigLocation, ConfigValue, Problem};
pub use push::{PushConfig, PushSettings};
pub use record::{FormatError, RecordConfig, RecorderSettings, file_format_by_name, rotation_for};
pub use relay::{PortRange, RelayConfig, RelaySettings, relay_from_json, resolve_relay};
pub use resolve::{
    ClientSettings, Endpoint, HttpSettings, ListenEndpoints, MdnsSettings, Plugin, ResolvedConfig,
    SilenceSettings, Station, StationSource, StreamSettings, SwitchSettings,
};
pub use rtp::{ReceptionSettings, RtpConfig, RtpOutputSettings, RtpSource};
pub use security::{
    SecretConfig, SecurityConfig, SecuritySettings, TlsConfig, TlsSettings, UserConfig,
};
pub use sound::{BandConfig, SoundSettings};
pub use source::{PipeMode, SourceConfig, TitleFifo, TitleFormat};
pub use stream::{AnnouncementUri, StreamUri, StreamUriError, parse_announcement};
pub use upload::{UploadConfig, UploadTarget};

use problem::Problems;
use tree::{Node, TableEntry, Value};

/// A configuration file that has been read.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile<'a> {
    /// The file name, as the user wrote it.
    pub name: &'a str,
    /// The contents.
    pub text: &'a str,
}

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
    let problems = Problems::default();
    let ConfigFile { name, text } = file.unwrap_or(ConfigFile { name: "", text: "" });
    let mut root = tree::parse(text, &ConfigLocation::File, &problems);
    add_default_station(&mut root, env, &problems);
    for (index, set) in sets.iter().enumerate() {
        tree::set(&mut root, index, set, &problems);
    }
    let config = model::read(&root, &problems);
    let resolved = resolve::resolve(&config, env, &problems);
    if problems.is_empty() {
        return Ok(resolved);
    }
    Err(ConfigError::new(problems.into_sorted(), name, text, sets))
}

/// Parses the URI of a source on the command line.
///
/// # Errors
/// All problems, at least one.
pub fn parse_source(uri: &str) -> Result<SourceConfig, Vec<Problem>> {
    let problems = Problems::default();
    let parsed = source::parse(&ConfigValue::default_value(uri.to_owned()), &problems);
    if let Some([SourceConfig::Station { .. }, ..]) = parsed.as_ref().map(|(all, _)| &all[..]) {
        let hint = "give the source of that station";
        problems.add_with_hint(
            ConfigLocation::Default,
            "`meta:` plays other stations of one server",
            hint,
        );
    }
    if let Some([SourceConfig::Icecast(_), ..]) = parsed.as_ref().map(|(all, _)| &all[..]) {
        let hint = "let a station of a server play it";
        problems.add_with_hint(
            ConfigLocation::Default,
            "`icecast:` is a place in a server that runs",
            hint,
        );
    }
    let packets =
        |source: &SourceConfig| matches!(source, SourceConfig::Rtp(_) | SourceConfig::Sdp { .. });
    if parsed.as_ref().is_some_and(|(all, _)| all.iter().any(packets)) {
        let hint =
            "let a station of a server play it, and give http://HOST:1780/listen/STATION.wav";
        problems.add_with_hint(
            ConfigLocation::Default,
            "packets of RTP are received by a server that runs",
            hint,
        );
    }
    match parsed.map(|(mut sources, _)| (sources.pop(), problems.is_empty())) {
        Some((Some(source), true)) => Ok(source),
        _ => Err(problems.into_sorted()),
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

//! `push` of a station: Icecast servers to which its stream is sent.
//!
//! As for mounts, the password is a key of its own and not part of the URL.

use std::collections::HashMap;

use aulos_core::Codec;
use aulos_engine::encode::CodecConfig;
use aulos_proto::icecast::{IcecastUrl, IcecastUrlError};

use super::codec;
use super::env::Environment;
use super::hooks::RedactedDebug;
use super::limits::{MAX_PUSH_TEXT, MAX_PUSHES, MIN_PUSH_PASSWORD};
use super::model::Config;
use super::problem::{ConfigLocation, ConfigValue, Problems};
use super::read::{TableReader, report_missing};
use super::resolve::Station;
use super::security::{self, SecretConfig};
use super::tree::{Node, Value};

/// One entry of `push` as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// The URL; required.
    pub url: Option<ConfigValue<String>>,
    /// The password for the server.
    pub password: Option<SecretConfig>,
    /// The container, `ogg`, `flac` or `wav`, with encoder settings as in `ogg:128k`.
    pub format: Option<ConfigValue<String>>,
    /// Stream description: `name`, `description`, `genre`, `site`.
    pub descriptions: [Option<ConfigValue<String>>; 4],
    /// Whether the server may list it publicly.
    pub public: bool,
    /// Whether titles are sent.
    pub titles: Option<bool>,
}

/// A push of a station's stream to a server.
#[derive(Clone, Debug, PartialEq)]
pub struct PushSettings {
    /// The server and mount.
    pub target: IcecastUrl,
    /// The password for the server.
    pub password: RedactedDebug<Option<String>>,
    /// Codec and encoder settings: Opus in Ogg, FLAC, or PCM in WAVE.
    pub codec: CodecConfig,
    /// The name of the programme.
    pub name: Option<String>,
    /// A description of the programme.
    pub description: Option<String>,
    /// The genre of the programme.
    pub genre: Option<String>,
    /// The web site of the programme.
    pub site: Option<String>,
    /// Whether the server may list it publicly.
    pub public: bool,
    /// Whether titles are sent.
    pub titles: bool,
}

/// Reads `push` of a station.
pub(super) fn read(table: &mut TableReader<'_>, problems: &Problems) -> Vec<PushConfig> {
    let Some(items) = table.list("push") else { return Vec::new() };
    items.value.iter().filter_map(|node| read_one(node, problems)).collect()
}

fn read_one(node: &Node, problems: &Problems) -> Option<PushConfig> {
    if !matches!(node.value, Value::Table(_)) {
        let message = format!("an entry of `push` is {}: it must be a table", node.kind());
        problems.add_with_hint(node.at, message, EXAMPLE);
        return None;
    }
    let mut table = TableReader::new(node, "a push", problems);
    let keys = ["password", "password_file", "password_env"];
    let push = PushConfig {
        at: node.at,
        url: table.text("url"),
        password: security::read_secret(&mut table, keys, "push", problems),
        format: table.text("format"),
        descriptions: ["name", "description", "genre", "site"].map(|key| table.text(key)),
        public: table.flag("public").unwrap_or(false),
        titles: table.flag("titles"),
    };
    table.finish();
    if push.url.is_none() && node.get("url").is_none() {
        report_missing(problems, node.at, "url", "a push", EXAMPLE);
    }
    Some(push)
}

/// Validates the pushes of every station.
pub(super) fn complete(
    config: &Config,
    all: &mut [Station],
    env: &Environment,
    problems: &Problems,
) {
    let mut seen: HashMap<String, String> = HashMap::new();
    for (config, station) in config.stations.iter().zip(all) {
        if let Some(push) = config.push.get(MAX_PUSHES) {
            problems.add(push.at, format!("a station has at most {MAX_PUSHES} entries of `push`"));
        }
        for entry in &config.push {
            let Some(push) = resolve(entry, station, env, problems) else { continue };
            let place = push.target.to_string();
            if let Some(other) = seen.insert(place.clone(), station.name.clone()) {
                let message = format!("{place} is pushed to twice");
                let hint = format!("station `{other}` does so already: a mount takes one stream");
                problems.add_with_hint(entry.at, message, hint);
            }
            station.pushes.push(push);
        }
    }
}

fn resolve(
    config: &PushConfig,
    station: &Station,
    env: &Environment,
    problems: &Problems,
) -> Option<PushSettings> {
    let url = config.url.as_ref()?;
    let target = match url.value.parse::<IcecastUrl>() {
        Ok(target) => target,
        Err(error) => {
            // The text may contain a password, so it is not printed.
            let hint = if error == IcecastUrlError::Password { SECRET_HINT } else { EXAMPLE };
            problems.add_with_hint(url.at, format!("`url` {error}"), hint);
            return None;
        }
    };
    let password = config.password.as_ref();
    let password =
        password.and_then(|secret| security::secret_text(secret, MIN_PUSH_PASSWORD, env, problems));
    for text in config.descriptions.iter().flatten().filter(|text| text.value.len() > MAX_PUSH_TEXT)
    {
        problems.add(text.at, format!("this is told in at most {MAX_PUSH_TEXT} bytes"));
    }
    let [name, description, genre, site] =
        config.descriptions.clone().map(|text| text.map(|text| text.value));
    Some(PushSettings {
        target,
        password: RedactedDebug(password),
        codec: codec(config, station, problems),
        name,
        description,
        genre,
        site,
        public: config.public,
        titles: config.titles.unwrap_or(true),
    })
}

fn codec(config: &PushConfig, station: &Station, problems: &Problems) -> CodecConfig {
    let (container, at) = match &config.format {
        Some(format) => (format.value.as_str(), format.at),
        None => ("ogg", config.at),
    };
    let codec =
        codec::resolve_container(container, station.codec).unwrap_or_else(|(message, hint)| {
            problems.add_with_hint(at, message, hint);
            Codec::Opus.into()
        });
    let (rate, channels) = (station.spec.rate.hz(), station.spec.layout.channels());
    if codec.codec() == Codec::Opus && (rate != 48_000 || channels > 2) {
        let message = format!("Opus in Ogg cannot carry {}", station.spec);
        let hint = "format = \"flac\", or a station of 48000 Hz with one or two channels";
        problems.add_with_hint(at, message, hint);
    }
    codec
}

const EXAMPLE: &str =
    "push = [{ url = \"icecast://radio.example:8000/live.ogg\", password_file = \"FILE\" }]";

const SECRET_HINT: &str = "write { url = \"icecast://HOST:8000/MOUNT\", password_file = \"FILE\" }";

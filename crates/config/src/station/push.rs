//! `push` of a station: Icecast servers and receivers of SRT to which its stream is sent.
//!
//! As for mounts, the password is a key of its own and not part of the URL.

use core::fmt;
use std::collections::HashMap;

use aulos_core::Codec;
use aulos_engine::encode::CodecConfig;
use aulos_proto::icecast::{IcecastUrl, IcecastUrlError};
use aulos_proto::uri::Uri;

use crate::env::Environment;
use crate::keys::keys;
use crate::limits::{MAX_PUSH_TEXT, MAX_PUSHES, MIN_PUSH_PASSWORD};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::security::secrets::{RedactedDebug, SecretConfig};
use crate::source::query::Query;
use crate::source::{self, SrtSource};
use crate::station::codec;
use crate::station::output::StationOutput;

keys! {
    /// A push of a station's programme to an Icecast server, or over SRT.
    pub(crate) struct PushConfig {
        /// Server and mount: `icecast://HOST:PORT/MOUNT`, or `icecasts://` with TLS; or
        /// `srt://HOST:PORT` with the parameters of a source.
        url: Option<ConfigValue<String>>, required "push = [{ url = \"icecast://radio.example:8000/live.ogg\", password_file = \"FILE\" }]";
        /// Password for the server, or passphrase of SRT.
        password: Option<SecretConfig>;
        /// Container, `ogg`, `flac`, `wav`, `mp3` or `aac`, with encoder settings as in `ogg:128k`
        /// or `mp3:192k`. Over SRT `aac` (the default there), `mp3` or `opus`.
        format: ConfigValue<String> = "ogg";
        /// Name of the programme.
        name: Option<ConfigValue<String>>, default_doc "the station's";
        /// Description of the programme.
        description: Option<ConfigValue<String>>;
        /// Genre of the programme.
        genre: Option<ConfigValue<String>>;
        /// Web site of the programme.
        site: Option<ConfigValue<String>>;
        /// Whether the server may list it publicly.
        public: bool = false;
        /// Whether titles are sent.
        titles: bool = true;
    }
}

/// A push of a station's stream to a server.
#[derive(Clone, Debug, PartialEq)]
pub struct PushSettings {
    /// Where it goes.
    pub target: PushTarget,
    /// The password for the server.
    pub password: RedactedDebug<Option<String>>,
    /// Codec and encoder settings: Opus in Ogg, FLAC, PCM in WAVE, MP3, or AAC.
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

/// Where a push goes.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "what starts pushes handles each of them")]
pub enum PushTarget {
    /// A mount of an Icecast server.
    Icecast(IcecastUrl),
    /// A receiver of SRT, which is called, or calls.
    Srt(SrtSource),
}

/// Without passwords.
impl fmt::Display for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Icecast(url) => write!(f, "{url}"),
            Self::Srt(target) => f.write_str(&target.shown),
        }
    }
}

/// Validates the pushes of a station. `seen` has the targets of all stations so far, with their
/// stations.
pub(crate) fn resolve(
    configs: &[PushConfig],
    station: &StationOutput,
    seen: &mut HashMap<String, String>,
    env: &Environment,
    problems: &Problems,
) -> Vec<PushSettings> {
    if let Some(push) = configs.get(MAX_PUSHES) {
        problems.add(push.at, format!("a station has at most {MAX_PUSHES} entries of `push`"));
    }
    let mut all = Vec::new();
    for config in configs {
        let Some(push) = resolve_one(config, station, env, problems) else { continue };
        let target = push.target.to_string();
        if let Some(other) = seen.insert(target.clone(), station.name.clone()) {
            let message = format!("duplicate push to {target}");
            let hint = format!("station `{other}` pushes there: a mount takes one stream");
            problems.add_with_hint(config.at, message, hint);
        }
        all.push(push);
    }
    all
}

fn resolve_one(
    config: &PushConfig,
    station: &StationOutput,
    env: &Environment,
    problems: &Problems,
) -> Option<PushSettings> {
    let url = config.url.as_ref()?;
    let password = config.password.as_ref();
    let password = password.and_then(|secret| secret.text(MIN_PUSH_PASSWORD, env, problems));
    let target = if url.value.starts_with("srt:") {
        srt_target(url, password.clone(), problems)?
    } else {
        match url.value.parse::<IcecastUrl>() {
            Ok(target) => PushTarget::Icecast(target),
            Err(error) => {
                // The text may contain a password, so it is not printed.
                let hint = if error == IcecastUrlError::Password { SECRET_HINT } else { EXAMPLE };
                problems.add_with_hint(url.at, format!("`url` {error}"), hint);
                return None;
            }
        }
    };
    let text = |text: &Option<ConfigValue<String>>| {
        let ConfigValue { value, at } = text.as_ref()?;
        if value.len() > MAX_PUSH_TEXT {
            problems.add(*at, format!("a description has at most {MAX_PUSH_TEXT} bytes"));
        }
        Some(value.clone())
    };
    Some(PushSettings {
        password: RedactedDebug(password),
        codec: codec(config, &target, station, problems),
        target,
        name: text(&config.name),
        description: text(&config.description),
        genre: text(&config.genre),
        site: text(&config.site),
        public: config.public,
        titles: config.titles,
    })
}

/// A receiver of SRT; `password` is its passphrase.
fn srt_target(
    url: &ConfigValue<String>,
    password: Option<String>,
    problems: &Problems,
) -> Option<PushTarget> {
    let Ok(uri) = url.value.parse::<Uri>() else {
        problems.add_with_hint(url.at, "`url` is no URI", "as in srt://receiver.example:9000");
        return None;
    };
    let query = Query { uri: &uri, at: url.at, problems };
    let mut target = source::srt::parse(&query)?.pop()?;
    source::srt::set_passphrase(&mut target.settings.passphrase, password, url.at, problems);
    Some(PushTarget::Srt(target))
}

fn codec(
    config: &PushConfig,
    target: &PushTarget,
    station: &StationOutput,
    problems: &Problems,
) -> CodecConfig {
    let is_srt = matches!(target, PushTarget::Srt(_));
    let format = match config.format.at {
        ConfigLocation::Default if is_srt => "aac",
        _ => config.format.value.as_str(),
    };
    let container = codec::resolve_container(format, station.codec, &station.codecs);
    let container = container.and_then(|codec| match codec.codec() {
        Codec::Flac | Codec::Pcm if is_srt => {
            let message = format!("`format` is \"{format}\", which a transport stream has not got");
            Err((message, "aac, mp3 or opus".to_owned()))
        }
        _ => Ok(codec),
    });
    let codec = container.unwrap_or_else(|(message, hint)| {
        problems.add_with_hint(config.format.at, message, hint);
        Codec::Opus.into()
    });
    // The station's own settings are checked there.
    if codec != station.codec && !station.codecs.contains(&codec) {
        codec::check_library(codec, config.format.at, problems);
    }
    let info = codec.codec().info();
    if !info.can_encode(station.spec) {
        let message =
            format!("{} requires {}: `spec` is {}", info.name, info.requires, station.spec);
        let hint = "format = \"flac\", or a station of 48000 Hz with one or two channels";
        let at = match config.format.at {
            ConfigLocation::Default => config.at,
            given => given,
        };
        problems.add_with_hint(at, message, hint);
    }
    codec
}

const EXAMPLE: &str = "as in icecast://radio.example:8000/live.ogg";

const SECRET_HINT: &str = "write { url = \"icecast://HOST:8000/MOUNT\", password_file = \"FILE\" }";

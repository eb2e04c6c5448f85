//! Mounts: streams whose frames are passed from their sources to web listeners.
//!
//! To everything else a mount is a station: its inputs, switch, status and hooks are those of one.
//! So `[[mount]]` is read into the keys of a station, and what only a mount has stands beside them.

use aulos_core::{Codec, SampleRate, SampleSpec, Span};
use aulos_engine::encode::CodecConfig;
use aulos_session::mount::{MountCodec, MountFormat};

use crate::keys::NamedEnum;
use crate::model::{MountConfig, SourceEntry, StationConfig};
use crate::names::absolute_path;
use crate::problem::{ConfigValue, Problems};
use crate::station::intro::{Intro, IntroError};

/// What a mount has besides a station.
#[derive(Clone, Debug, PartialEq)]
pub struct MountSettings {
    /// What it sends.
    pub format: MountFormat,
    /// The encoder for what cannot be passed; none where the codec has none.
    pub encoder: Option<CodecConfig>,
    /// What each listener gets before the stream.
    pub intro: Option<Intro>,
    /// Bytes that a listener gets at once.
    pub burst: u32,
    /// Listeners at once.
    pub max_listeners: Option<u32>,
    /// After which a listener is disconnected.
    pub max_duration: Option<Span>,
    /// Whether public lists leave it out.
    pub hidden: bool,
}

impl NamedEnum for MountCodec {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.into_iter().map(|codec| (codec.name(), codec)).collect()
    }
}

/// The keys of a mount as those of a station. Its sample spec is that of the decoded audio.
pub(crate) fn as_station(config: &MountConfig) -> StationConfig {
    let mut sources = config.sources.clone();
    if let Some(station) = &config.station {
        let uri = format!("meta:///{}", station.value);
        let uri = ConfigValue { value: uri, at: station.at };
        sources.push(SourceEntry { at: station.at, uri, ..SourceEntry::default() });
    }
    StationConfig {
        at: config.at,
        name: config.name.clone(),
        // A mount has no clients; what its listeners get is in `MountSettings`.
        codec: ConfigValue::default_value(Codec::Pcm.into()),
        spec: spec(config),
        sources,
        switch: config.switch.clone(),
        schedule: config.schedule.clone(),
        timezone: config.timezone.clone(),
        silence: config.silence.clone(),
        now_playing: config.now_playing.clone(),
        icy: config.icy.clone(),
        ..StationConfig::default()
    }
}

/// Checks what a mount has besides its station.
pub(crate) fn resolve(config: &MountConfig, problems: &Problems) -> MountSettings {
    let codec = codec(config);
    check_name(config, problems);
    if config.sources.is_empty() && config.station.is_none() && problems.is_empty() {
        let hint = "sources = [\"http://127.0.0.1:8000/live\"], or station = \"default\"";
        problems.add_with_hint(config.at, "the mount has neither `sources` nor `station`", hint);
    }
    let spec = spec(config).value;
    let format = MountFormat { codec, rate: spec.rate, layout: spec.layout };
    MountSettings {
        format,
        encoder: encoder(config, (codec, spec), problems),
        intro: config.intro.as_ref().and_then(|path| intro(path, format, problems)),
        burst: config.burst_kb * 1_024,
        max_listeners: config.max_listeners,
        max_duration: config.max_duration_s.map(|seconds| Span::from_secs(i64::from(seconds))),
        hidden: config.hidden,
    }
}

fn intro(path: &ConfigValue<String>, format: MountFormat, problems: &Problems) -> Option<Intro> {
    let file = absolute_path("intro", path, problems);
    let loaded = Intro::load(&file, format);
    let refused = |error: &IntroError| {
        let message = format!("`intro` cannot be sent: {}: {error}", file.display());
        let hint = "the codec, sample rate and channels of an intro are those of the mount";
        problems.add_with_hint(path.at, message, hint);
    };
    loaded.inspect_err(refused).ok()
}

/// The encoder for what cannot be passed.
fn encoder(
    config: &MountConfig,
    (codec, spec): (MountCodec, SampleSpec),
    problems: &Problems,
) -> Option<CodecConfig> {
    let known = codec.encoder();
    let Some(ConfigValue { value: written, at }) = config.encoder else {
        let default = known.map(CodecConfig::from)?;
        let info = default.codec().info();
        // A source of such a format can be passed all the same.
        return info.supports(spec).then_some(default);
    };
    super::codec::check_library(written, at, problems);
    if known != Some(written.codec()) {
        let message = format!("`encoder` is \"{written}\": the mount has {codec}");
        let hint = match known {
            Some(known) => format!("encoder = \"{known}\", with settings if necessary"),
            None => format!("leave it out: there is no encoder for {codec}"),
        };
        problems.add_with_hint(at, message, hint);
    } else if !written.codec().info().supports(spec) {
        let info = written.codec().info();
        let message = format!("{} requires {}: `spec` is {}", info.name, info.requires, spec);
        problems.add_with_hint(at, message, "leave `encoder` out to pass frames only");
    }
    Some(written)
}

/// A mount is served at its name, beside the pages of the HTTP port.
fn check_name(config: &MountConfig, problems: &Problems) {
    let Some(ConfigValue { value: name, at }) = &config.name else { return };
    if OWN_PATHS.contains(&name.as_str()) {
        let message = format!("`/{name}` is a page of the server");
        problems.add_with_hint(*at, message, format!("name = \"{name}.mp3\""));
    } else if !is_mount_name(name) {
        let message = format!("`{name}` cannot be the path of a mount");
        problems.add_with_hint(*at, message, "use letters, digits, `.`, `-`, `_` and `~`");
    }
}

/// Whether a mount can have this name.
pub(crate) fn is_mount_name(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c));
    !name.is_empty() && is_plain && !OWN_PATHS.contains(&name)
}

fn codec(config: &MountConfig) -> MountCodec {
    let ending = config.name.as_ref().and_then(|name| name.value.rsplit_once('.'));
    config.codec.unwrap_or_else(|| match ending.map(|(_, ending)| ending) {
        Some("aac") => MountCodec::Aac,
        Some("ogg" | "opus" | "oga") => MountCodec::Opus,
        Some("flac") => MountCodec::Flac,
        _ => MountCodec::Mp3,
    })
}

fn spec(config: &MountConfig) -> ConfigValue<SampleSpec> {
    let default = match codec(config) {
        MountCodec::Opus => SampleSpec::DEFAULT,
        _ => SampleSpec { rate: SampleRate::HZ_44100, ..SampleSpec::DEFAULT },
    };
    config.spec.unwrap_or_else(|| ConfigValue::default_value(default))
}

/// The first parts of the paths that the HTTP port serves itself. A test of the server compares
/// them with its routes.
pub const OWN_PATHS: &[&str] = &[
    "admin",
    "api",
    "aulos",
    "healthz",
    "hls",
    "jsonrpc",
    "listen",
    "log",
    "login",
    "meter",
    "metrics",
    "nowplaying",
    "openrpc.json",
    "readyz",
    "rtp",
    "status-json.xsl",
    "stream",
    "__image_cache",
];

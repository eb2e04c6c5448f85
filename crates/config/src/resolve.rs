//! Validates a configuration and turns it into [`ResolvedConfig`].

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use aulos_core::{Codec, Db, Frames, SampleFormat, SampleSpec, Span};
use aulos_engine::encode::CodecConfig;
use aulos_engine::loudness_processor::NormalizerConfig;
use aulos_engine::standby::Standby;
use aulos_engine::switch::FailbackMode;

use super::env::Environment;
use super::hooks::{self, Hook};
use super::limits::{
    MAX_NAME, MAX_SERVICE_NAME, MAX_SOURCES, MAX_STATION_CHANNELS, MAX_STATIONS, OPUS_CHUNK_MS,
    STATION_RATE,
};
use super::model::{
    Config, HttpConfig, ListenConfig, MdnsConfig, SourceEntry, StationConfig, StreamsConfig,
};
use super::mounts;
use super::problem::{ConfigLocation, ConfigValue, Problems};
use super::push::{self, PushSettings};
use super::record::{self, RecorderSettings};
use super::relay::{self, RelaySettings};
use super::rtp::{self, RtpOutputSettings};
use super::security::{self, SecuritySettings};
use super::sound::{self, SoundSettings};
use super::source::{self, SourceConfig};
use super::{codec, fallback, meta};

/// A validated configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedConfig {
    /// The state directory.
    pub state_dir: PathBuf,
    /// Ports to listen on.
    pub listen: ListenEndpoints,
    /// HTTP settings.
    pub http: HttpSettings,
    /// Limits for streams that controllers add.
    pub streams: StreamSettings,
    /// Volumes of clients.
    pub clients: ClientSettings,
    /// mDNS announcements.
    pub mdns: MdnsSettings,
    /// TLS, users, permissions and limits.
    pub security: SecuritySettings,
    /// Stations; at least one.
    pub stations: Vec<Station>,
    /// Hooks for station events.
    pub hooks: Vec<Hook>,
    /// Relays.
    pub relays: Vec<RelaySettings>,
}

/// Ports to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenEndpoints {
    /// Snapcast's stream port.
    pub stream: Endpoint,
    /// Snapcast's control port.
    pub control: Endpoint,
    /// The page and the API.
    pub http: Endpoint,
}

/// HTTP settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// A folder whose files are served at `/`.
    pub doc_root: Option<PathBuf>,
    /// Accepted host names, in lower case.
    pub names: Vec<String>,
}

/// Volumes of clients, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The volume of a new client.
    pub initial_volume: u8,
    /// Upper limit of all volumes.
    pub volume_cap: u8,
}

/// mDNS announcements. Ports that other machines cannot reach are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdnsSettings {
    /// The service name.
    pub name: String,
    /// Whether the stream port is announced.
    pub stream: bool,
    /// Whether the control port is announced.
    pub control: bool,
    /// Whether the HTTP port is announced.
    pub http: bool,
    /// Whether the HTTP port is also announced for TLS.
    pub https: bool,
}

/// Limits for streams that controllers add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Allowed schemes.
    pub schemes: Vec<String>,
    /// Folders for `pipe:` and `file:`.
    pub roots: Vec<PathBuf>,
    /// The folder of control scripts.
    pub plugin_dir: PathBuf,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            schemes: REMOTE_SCHEMES.iter().map(|&scheme| scheme.to_owned()).collect(),
            roots: Vec::new(),
            plugin_dir: PathBuf::from(PLUGIN_DIR),
        }
    }
}

/// A host and a port; with port 0 the system chooses one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An IP address without brackets, or a name.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A station.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Unique; also the id of the Snapcast stream.
    pub name: String,
    /// Codec and encoder settings.
    pub codec: CodecConfig,
    /// Sample spec of the output.
    pub spec: SampleSpec,
    /// Milliseconds per chunk.
    pub chunk_ms: u32,
    /// Milliseconds from capture to play-out.
    pub buffer_ms: u32,
    /// In order of priority; at least one, with unique names.
    pub sources: Vec<StationSource>,
    /// Failover between sources.
    pub switch: SwitchSettings,
    /// Silence detection.
    pub silence: SilenceSettings,
    /// Normalizer and equalizer.
    pub sound: SoundSettings,
    /// What plays when no source has sound; none is silence.
    pub last_resort: Option<SourceConfig>,
    /// The control script.
    pub plugin: Option<Plugin>,
    /// Pushes to other servers.
    pub pushes: Vec<PushSettings>,
    /// RTP outputs.
    pub rtp: Vec<RtpOutputSettings>,
    /// Recorders.
    pub records: Vec<RecorderSettings>,
}

/// A control script: a program that speaks JSON-RPC on standard input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The program; relative to `plugin_dir` unless it is absolute.
    pub script: PathBuf,
    /// Its arguments in one string, as written.
    pub params: String,
}

/// A source of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct StationSource {
    /// The URI as written.
    pub uri: String,
    /// Unique in its station.
    pub name: String,
    /// The parsed URI.
    pub config: SourceConfig,
    /// Gain.
    pub gain: Db,
    /// Loudness normalization before the gain; none is off.
    pub normalize: Option<NormalizerConfig>,
    /// Milliseconds without data after which it has failed.
    pub timeout_ms: u32,
    /// Input buffer in milliseconds.
    pub input_buffer_ms: u32,
    /// Silence detection.
    pub silence: SilenceSettings,
    /// How ready it is kept while it is not needed.
    pub standby: Standby,
}

/// Failover between sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchSettings {
    /// Cross-fade in milliseconds; 0 cuts.
    pub crossfade_ms: u32,
    /// Seconds that a source with higher priority has to be healthy before it takes over.
    pub hold_in_s: u32,
    /// Whether a source that had failed takes over again.
    pub comeback: FailbackMode,
    /// Whether the station may start with another source than the first.
    pub immediate: bool,
}

/// Silence detection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SilenceSettings {
    /// Threshold, relative to full scale.
    pub below: Db,
    /// Time below the threshold.
    pub span: Span,
    /// Whether a constant value counts as silence.
    pub dc: bool,
    /// How long one channel may be silent while another one is not.
    pub dead_channel: Option<Span>,
}

/// Validates the whole configuration. The result is valid only if no problems were added.
pub(super) fn resolve(config: &Config, env: &Environment, problems: &Problems) -> ResolvedConfig {
    let state_dir = match &config.state_dir {
        Some(dir) if dir.value.is_empty() => {
            problems.add_with_hint(dir.at, "`state_dir` is empty", "leave it out for the default");
            PathBuf::new()
        }
        Some(dir) => PathBuf::from(&dir.value),
        None => env.state_dir(),
    };
    if let Some(station) = config.stations.get(MAX_STATIONS) {
        let message = format!("there are more than {MAX_STATIONS} stations");
        problems.add(station.at, message);
    }
    if config.stations.is_empty() && problems.is_empty() {
        let hint = "leave `station` out for the built-in one";
        problems.add_with_hint(ConfigLocation::Default, "there is no station", hint);
    }
    check_unique_names(&config.stations, problems);
    check_single_stdin(&config.stations, problems);
    ResolvedConfig {
        listen: listen(&config.listen, problems),
        http: http(&config.http, problems),
        streams: streams(&config.streams, problems),
        clients: ClientSettings {
            initial_volume: u8::try_from(config.clients.initial_volume).unwrap_or(100),
            volume_cap: u8::try_from(config.clients.volume_cap).unwrap_or(100),
        },
        mdns: mdns(&config.mdns, problems),
        security: security::resolve(&config.security, env, problems),
        stations: stations(config, &state_dir, env, problems),
        hooks: hooks::resolve(&config.hooks, &config.stations, env, problems),
        relays: relay::resolve(&config.relays, problems),
        state_dir,
    }
}

fn stations(
    config: &Config,
    state_dir: &Path,
    env: &Environment,
    problems: &Problems,
) -> Vec<Station> {
    let mut all: Vec<Station> =
        config.stations.iter().map(|config| station(config, problems)).collect();
    for station in &mut all {
        for source in &mut station.sources {
            if let SourceConfig::Process { titles: Some(titles), .. } = &mut source.config {
                // Station names have no slash, so the file lies in the state directory and is
                // unique.
                titles.fifo = state_dir.join(format!("titles.{}.{}", station.name, source.name));
            }
        }
    }
    meta::check(config, &all, problems);
    mounts::complete(config, &mut all, env, problems);
    push::complete(config, &mut all, env, problems);
    rtp::complete(config, &mut all, problems);
    record::complete(config, &mut all, env, problems);
    all
}

fn listen(config: &ListenConfig, problems: &Problems) -> ListenEndpoints {
    let address = &config.address.value;
    let host = address.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(address);
    if host.is_empty() || (host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err()) {
        let message = format!("`address` is \"{address}\": it must be a host without a port");
        problems.add_with_hint(
            config.address.at,
            message,
            "\"0.0.0.0\" is every network, \"::\" IPv6 too",
        );
    }
    let mut used: HashMap<Endpoint, &str> = HashMap::new();
    let [stream, control, http] =
        [("stream", &config.stream), ("control", &config.control), ("http", &config.http)].map(
            |(key, text)| {
                let Some(endpoint) = endpoint(&text.value, Some(host), None) else {
                    let message = format!("`{key}` is \"{}\", not an address", text.value);
                    problems.add_with_hint(
                        text.at,
                        message,
                        "\"HOST:PORT\", \":PORT\" or a port alone",
                    );
                    return Endpoint { host: host.to_owned(), port: 0 };
                };
                if endpoint.port != 0
                    && let Some(other) = used.insert(endpoint.clone(), key)
                {
                    let message = format!("`{key}` and `{other}` are both {endpoint}");
                    problems.add_with_hint(text.at, message, "give each a port of its own");
                }
                endpoint
            },
        );
    ListenEndpoints { stream, control, http }
}

fn http(config: &HttpConfig, problems: &Problems) -> HttpSettings {
    let names = config.names.iter().map(|name| {
        if name.value.is_empty() || name.value.contains([':', '/', ' ']) {
            let message = format!("\"{}\" is not a host's name", name.value);
            problems.add_with_hint(
                name.at,
                message,
                "names = [\"radio.example.org\"], without a port",
            );
        }
        name.value.to_ascii_lowercase()
    });
    HttpSettings {
        doc_root: config.doc_root.as_ref().map(|dir| absolute_path("doc_root", dir, problems)),
        names: names.collect(),
    }
}

fn mdns(config: &MdnsConfig, problems: &Problems) -> MdnsSettings {
    let name = &config.name.value;
    if name.is_empty() || name.len() > MAX_SERVICE_NAME || name.chars().any(char::is_control) {
        let message = format!("`{}` cannot be announced", name.escape_debug());
        let hint = format!("a name has 1 to {MAX_SERVICE_NAME} bytes on one line");
        problems.add_with_hint(config.name.at, message, hint);
    }
    let announced = |port| config.enabled && port;
    MdnsSettings {
        name: name.clone(),
        stream: announced(config.stream),
        control: announced(config.control),
        http: announced(config.http),
        https: announced(config.https),
    }
}

fn streams(config: &StreamsConfig, problems: &Problems) -> StreamSettings {
    let mut streams = StreamSettings::default();
    if let Some(schemes) = &config.schemes {
        for scheme in schemes.iter().filter(|scheme| NEVER_REMOTE.contains(&scheme.value.as_str()))
        {
            let message = format!("`{}` starts a program", scheme.value);
            let hint = "write such a source into a [[station]]: a remote call must not start one";
            problems.add_with_hint(scheme.at, message, hint);
        }
        streams.schemes = schemes.iter().map(|scheme| scheme.value.to_ascii_lowercase()).collect();
    }
    streams.roots = config.roots.iter().map(|dir| absolute_path("roots", dir, problems)).collect();
    if let Some(dir) = &config.plugin_dir {
        streams.plugin_dir = absolute_path("plugin_dir", dir, problems);
    }
    streams
}

pub(super) fn absolute_path(key: &str, dir: &ConfigValue<String>, problems: &Problems) -> PathBuf {
    let path = PathBuf::from(&dir.value);
    if !path.is_absolute() {
        let message = format!("`{key}` is \"{}\": it must be a whole path", dir.value);
        problems.add_with_hint(dir.at, message, "begin it with a slash");
    }
    path
}

/// Default schemes for added streams.
const REMOTE_SCHEMES: [&str; 6] = ["pipe", "file", "tcp", "http", "https", "meta"];
/// Schemes that a call can never add: in snapserver this was a remote code execution
/// (CVE-2023-36177).
const NEVER_REMOTE: [&str; 4] = ["process", "librespot", "spotify", "airplay"];
/// The folder of control scripts in snapserver's package.
const PLUGIN_DIR: &str = "/usr/share/snapserver/plug-ins";

/// Parses `HOST:PORT`, `:PORT`, `PORT` or `HOST`; the last three need a default for the missing
/// part.
pub(super) fn endpoint(text: &str, host: Option<&str>, port: Option<u16>) -> Option<Endpoint> {
    let text = text.trim();
    let (host_text, port_text) = match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (text, ""),
        Some((host, port)) if !port.contains(']') => (host, port),
        _ if host.is_some() && text.bytes().all(|byte| byte.is_ascii_digit()) => ("", text),
        _ => (text, ""),
    };
    let bare = host_text.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let name = if host_text.is_empty() { host? } else { bare.unwrap_or(host_text) };
    let port = if port_text.is_empty() { port? } else { port_text.parse().ok()? };
    let plain = |c: char| c.is_alphanumeric() || ".-_:%".contains(c);
    (name.chars().all(plain) && !name.is_empty()).then(|| Endpoint { host: name.to_owned(), port })
}

pub(super) fn station(config: &StationConfig, problems: &Problems) -> Station {
    let name = config.name.as_ref().map_or_else(String::new, |name| check_name(name, problems));
    let codec = codec::resolve(&config.codec, problems);
    let spec = config.spec.value.parse::<SampleSpec>().unwrap_or_else(|error| {
        problems.add_with_hint(
            config.spec.at,
            format!("`spec` is \"{}\"", config.spec.value),
            error.to_string(),
        );
        SampleSpec::DEFAULT
    });
    check_spec(config, codec.codec(), spec, problems);
    if config.buffer_ms.value < config.chunk_ms.value {
        let message = format!(
            "`buffer_ms` is {}, which is less than one chunk of {} ms",
            config.buffer_ms.value, config.chunk_ms.value
        );
        problems.add_with_hint(
            config.buffer_ms.at,
            message,
            "1000 is the default; 20 chunks are usual",
        );
    }
    Station {
        name,
        codec,
        spec,
        chunk_ms: config.chunk_ms.value,
        buffer_ms: config.buffer_ms.value,
        sources: sources(config, spec, problems),
        switch: fallback::switch(&config.switch, problems),
        silence: fallback::silence(config.silence),
        last_resort: fallback::last_resort(&config.switch.last_resort, problems),
        sound: SoundSettings {
            normalize: sound::resolve_normalize(config.normalize.as_ref(), spec, problems),
            equalizer: sound::resolve_equalizer(&config.equalizer, spec, problems),
        },
        plugin: config.plugin.as_ref().map(|plugin| {
            if plugin.script.value.is_empty() {
                let hint = "plugin = { script = \"meta_mpd.py\" }";
                problems.add_with_hint(plugin.script.at, "`plugin` has no `script`", hint);
            }
            Plugin { script: PathBuf::from(&plugin.script.value), params: plugin.params.clone() }
        }),
        pushes: Vec::new(),
        rtp: Vec::new(),
        records: Vec::new(),
    }
}

/// Checks that clients can play the spec with this codec.
fn check_spec(config: &StationConfig, codec: Codec, spec: SampleSpec, problems: &Problems) {
    let refuse =
        |message: String, hint: &str| problems.add_with_hint(config.spec.at, message, hint);
    let (rate, channels) = (spec.rate.hz(), spec.layout.channels());
    let format = spec.format;
    if codec == Codec::Opus {
        if rate != 48_000 || channels > 2 || format != SampleFormat::S16Le {
            refuse(
                format!("opus cannot carry {spec}: it takes 48000 Hz, 16 bit and 1 or 2 channels"),
                "spec = \"48000:16:2\", or codec = \"flac\"",
            );
        }
        if !OPUS_CHUNK_MS.contains(&config.chunk_ms.value) {
            let message = format!("opus has no packets of {} ms", config.chunk_ms.value);
            problems.add_with_hint(config.chunk_ms.at, message, "use 10, 20, 40 or 60");
        }
        return;
    }
    if !STATION_RATE.contains(&rate) {
        let (low, high) = (STATION_RATE.start(), STATION_RATE.end());
        refuse(format!("a station's rate is {low} to {high} Hz, not {rate}"), "48000 is usual");
    } else if spec.rate.frames(Span::from_millis(i64::from(config.chunk_ms.value))) == Frames(0) {
        refuse(format!("a chunk of {} ms holds no frame", config.chunk_ms.value), "48000 is usual");
    }
    if channels > MAX_STATION_CHANNELS {
        refuse(format!("a station has 1 to {MAX_STATION_CHANNELS} channels, not {channels}"), "2");
    }
    let wanted = match codec {
        Codec::Flac => matches!(format, SampleFormat::S16Le | SampleFormat::S24In32Le),
        _ => matches!(format, SampleFormat::S16Le | SampleFormat::S24In32Le | SampleFormat::S32Le),
    };
    if !wanted {
        let bits = if codec == Codec::Flac { "16 or 24" } else { "16, 24 or 32" };
        let message = format!("{codec} goes to clients with {bits} bits, not `{format}`");
        refuse(message, "the format of a source is its own: ?sampleformat=44100:f32:2");
    }
    let samples = rate as usize * config.chunk_ms.value as usize / 1_000 * channels;
    if samples > aulos_engine::source::BLOCK_SAMPLES {
        let message = format!(
            "a chunk of {} ms at {spec} has {samples} samples; {} is the most",
            config.chunk_ms.value,
            aulos_engine::source::BLOCK_SAMPLES
        );
        problems.add_with_hint(config.chunk_ms.at, message, "use a shorter chunk_ms");
    }
}

fn sources(config: &StationConfig, spec: SampleSpec, problems: &Problems) -> Vec<StationSource> {
    if let Some(source) = config.sources.get(MAX_SOURCES) {
        problems.add(source.uri.at, format!("a station has at most {MAX_SOURCES} sources"));
    }
    fallback::check_timeouts(config, problems);
    let mut names: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for entry in &config.sources {
        let Some((configs, from_uri)) = source::parse(&entry.uri, problems) else { continue };
        let several = configs.len() > 1;
        for config_of in configs {
            let name = match &config_of {
                // Several stations in one URI: each source is named after its station.
                SourceConfig::Station { name } if several => unique_name(
                    ConfigValue { value: name.clone(), at: entry.uri.at },
                    &names,
                    problems,
                ),
                _ => source_name(entry, from_uri.clone(), &config_of, &names, problems),
            };
            names.push(name.clone());
            let input_buffer_ms = fallback::input_buffer_ms(entry, &config_of, config);
            all.push(StationSource {
                uri: display_uri(&entry.uri.value, &config_of),
                name,
                config: config_of,
                gain: Db::new(entry.gain_db),
                normalize: sound::resolve_normalize(entry.normalize.as_ref(), spec, problems),
                timeout_ms: entry.timeout_ms.unwrap_or(config.switch.timeout_ms).value,
                input_buffer_ms,
                silence: fallback::silence(entry.silence.unwrap_or(config.silence)),
                standby: fallback::standby(entry.standby.as_ref(), problems),
            });
        }
    }
    if let (true, Some(last)) = (all.len() > MAX_SOURCES, config.sources.last())
        && config.sources.len() <= MAX_SOURCES
    {
        problems.add(last.uri.at, format!("a station has at most {MAX_SOURCES} sources"));
    }
    all
}

/// The URI for display: without the password of web radio.
fn display_uri(uri: &str, config: &SourceConfig) -> String {
    match config {
        SourceConfig::Http { url } if url.user.is_some() => url.to_string(),
        _ => uri.to_owned(),
    }
}

fn source_name(
    entry: &SourceEntry,
    from_uri: Option<String>,
    config: &SourceConfig,
    used: &[String],
    problems: &Problems,
) -> String {
    let given = entry
        .name
        .clone()
        .or_else(|| from_uri.map(|value| ConfigValue { value, at: entry.uri.at }));
    if let Some(given) = given {
        return unique_name(given, used, problems);
    }
    let own = match config {
        SourceConfig::Station { name } => name,
        other => other.scheme(),
    };
    let mut name = own.to_owned();
    let mut number = 1;
    while used.contains(&name) {
        number += 1;
        name = format!("{own}-{number}");
    }
    name
}

fn unique_name(given: ConfigValue<String>, used: &[String], problems: &Problems) -> String {
    let name = check_name(&given, problems);
    if used.contains(&name) {
        let message = format!("two sources of one station are called `{name}`");
        problems.add_with_hint(given.at, message, "give one of them another name");
    }
    name
}

pub(super) fn check_name(name: &ConfigValue<String>, problems: &Problems) -> String {
    let text = &name.value;
    let clean = !text.contains(['/', '\\']) && !text.chars().any(char::is_control);
    if text.is_empty() || text.len() > MAX_NAME || text.trim() != text || !clean {
        let message = format!("`{}` cannot be a name", text.escape_debug());
        let hint = format!(
            "1 to {MAX_NAME} bytes without slashes and line breaks, no space at either end"
        );
        problems.add_with_hint(name.at, message, hint);
    }
    text.clone()
}

fn check_unique_names(stations: &[StationConfig], problems: &Problems) {
    let mut seen: Vec<&str> = Vec::new();
    for name in stations.iter().filter_map(|station| station.name.as_ref()) {
        if seen.contains(&name.value.as_str()) {
            let message = format!("two stations are called `{}`", name.value);
            problems.add_with_hint(
                name.at,
                message,
                "the name is the station's address: give it another",
            );
        }
        seen.push(&name.value);
    }
}

fn check_single_stdin(stations: &[StationConfig], problems: &Problems) {
    let all = stations.iter().flat_map(|station| &station.sources);
    let stdin = |entry: &&SourceEntry| entry.uri.value.to_ascii_lowercase().starts_with("stdin:");
    let places: Vec<ConfigLocation> = all.filter(stdin).map(|entry| entry.uri.at).collect();
    for at in places.into_iter().skip(1) {
        problems.add_with_hint(
            at,
            "stdin: is used twice",
            "only one source can read it; use pipe://",
        );
    }
}

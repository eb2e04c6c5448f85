//! The configuration as written: plain structs whose `Default` has the documented defaults.
//!
//! Values are in range but not checked against each other; that is the task of [`super::resolve`].

use aulos_dsp::normalize::Mode;
use aulos_engine::loudness_processor::NormalizerConfig;

use super::hooks::{self, HookConfig};
use super::limits::{
    BUFFER_MS, CHUNK_MS, CROSSFADE_MS, GAIN_DB, HOLD_IN_S, INPUT_BUFFER_MS, SILENCE_DBFS,
    SILENCE_S, TIMEOUT_MS, VOLUME,
};
use super::problem::{ConfigLocation, ConfigValue, Problems};
use super::push::{self, PushConfig};
use super::read::{TableReader, report_missing};
use super::record::{self, RecordConfig};
use super::relay::{self, RelayConfig};
use super::rtp::{self, RtpConfig};
use super::security::{self, SecretConfig, SecurityConfig};
use super::sound::{self, BandConfig};
use super::tree::{Node, Value};

/// `aulos.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The state directory; by default from the environment.
    pub state_dir: Option<ConfigValue<String>>,
    /// `[listen]`.
    pub listen: ListenConfig,
    /// `[http]`.
    pub http: HttpConfig,
    /// `[streams]`.
    pub streams: StreamsConfig,
    /// `[clients]`.
    pub clients: ClientsConfig,
    /// `[mdns]`.
    pub mdns: MdnsConfig,
    /// `[tls]`, `[[user]]`, `[access]` and `[limits]`.
    pub security: SecurityConfig,
    /// `[[station]]`.
    pub stations: Vec<StationConfig>,
    /// `[[hook]]`.
    pub hooks: Vec<HookConfig>,
    /// `[[relay]]`.
    pub relays: Vec<RelayConfig>,
}

/// `[listen]`: each port is `HOST:PORT`, `:PORT` or a port.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenConfig {
    /// The host for values that have only a port.
    pub address: ConfigValue<String>,
    /// Snapcast's stream port.
    pub stream: ConfigValue<String>,
    /// Snapcast's control port.
    pub control: ConfigValue<String>,
    /// The page and the API.
    pub http: ConfigValue<String>,
}

impl Default for ListenConfig {
    fn default() -> Self {
        let text = |text: &str| ConfigValue::default_value(text.to_owned());
        Self {
            address: text("127.0.0.1"),
            stream: text("1704"),
            control: text("1705"),
            http: text("1780"),
        }
    }
}

/// `[http]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpConfig {
    /// A folder whose files are served at `/`, such as Snapweb; by default the built-in page.
    pub doc_root: Option<ConfigValue<String>>,
    /// Accepted host names, in addition to those of a local network.
    pub names: Vec<ConfigValue<String>>,
}

/// `[clients]`: volumes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientsConfig {
    /// The volume of a new client, 0 to 100.
    pub initial_volume: u32,
    /// Upper limit of all volumes.
    pub volume_cap: u32,
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self { initial_volume: 100, volume_cap: 100 }
    }
}

/// `[mdns]`: announcements.
#[derive(Clone, Debug, PartialEq)]
pub struct MdnsConfig {
    /// Whether anything is announced.
    pub enabled: bool,
    /// The service name.
    pub name: ConfigValue<String>,
    /// Whether the stream port is announced.
    pub stream: bool,
    /// Whether the control port is announced.
    pub control: bool,
    /// Whether the HTTP port is announced.
    pub http: bool,
    /// Whether the HTTP port is also announced for TLS.
    pub https: bool,
}

impl Default for MdnsConfig {
    fn default() -> Self {
        let name = ConfigValue::default_value("Snapcast".to_owned());
        Self { enabled: true, name, stream: true, control: true, http: true, https: true }
    }
}

/// `[streams]`: limits for streams that controllers add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamsConfig {
    /// Allowed schemes; by default those that start no program and read no local device.
    pub schemes: Option<Vec<ConfigValue<String>>>,
    /// Folders for `pipe:` and `file:` of added streams.
    pub roots: Vec<ConfigValue<String>>,
    /// The folder of control scripts.
    pub plugin_dir: Option<ConfigValue<String>>,
}

/// `[[station]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct StationConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// Required.
    pub name: Option<ConfigValue<String>>,
    /// `pcm`, `flac` or `opus`, with encoder settings as in `flac:8` or `opus:128k,cbr`.
    pub codec: ConfigValue<String>,
    /// `rate:format:channels`.
    pub spec: ConfigValue<String>,
    /// Milliseconds per chunk.
    pub chunk_ms: ConfigValue<u32>,
    /// Milliseconds from capture to play-out.
    pub buffer_ms: ConfigValue<u32>,
    /// In order of priority; required.
    pub sources: Vec<SourceEntry>,
    /// Failover between sources.
    pub switch: SwitchConfig,
    /// Silence detection.
    pub silence: SilenceConfig,
    /// Loudness normalization; by default off.
    pub normalize: Option<ConfigValue<NormalizerConfig>>,
    /// Equalizer bands.
    pub equalizer: Vec<BandConfig>,
    /// The control script.
    pub plugin: Option<PluginConfig>,
    /// Pushes to other servers.
    pub push: Vec<PushConfig>,
    /// RTP outputs.
    pub rtp: Vec<RtpConfig>,
    /// Recorders.
    pub record: Vec<RecordConfig>,
}

/// `plugin`.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConfig {
    /// The script.
    pub script: ConfigValue<String>,
    /// Its arguments in one string.
    pub params: String,
}

impl Default for StationConfig {
    fn default() -> Self {
        Self {
            at: ConfigLocation::Default,
            name: None,
            codec: ConfigValue::default_value("flac".to_owned()),
            spec: ConfigValue::default_value("48000:16:2".to_owned()),
            chunk_ms: ConfigValue::default_value(20),
            buffer_ms: ConfigValue::default_value(1_000),
            sources: Vec::new(),
            switch: SwitchConfig::default(),
            silence: SilenceConfig::default(),
            normalize: None,
            equalizer: Vec::new(),
            plugin: None,
            push: Vec::new(),
            rtp: Vec::new(),
            record: Vec::new(),
        }
    }
}

/// One entry of `sources`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceEntry {
    /// The URI.
    pub uri: ConfigValue<String>,
    /// The name; by default from the URI.
    pub name: Option<ConfigValue<String>>,
    /// Gain in decibels.
    pub gain_db: f64,
    /// Loudness normalization before the gain; by default off.
    pub normalize: Option<ConfigValue<NormalizerConfig>>,
    /// Milliseconds without data after which the source has failed; by default that of the switch.
    pub timeout_ms: Option<ConfigValue<u32>>,
    /// Input buffer in milliseconds; by default that of the switch, or more for an encoded stream.
    pub input_buffer_ms: Option<ConfigValue<u32>>,
    /// `hot`, `warm` or `cold`.
    pub standby: Option<ConfigValue<String>>,
    /// Silence detection; by default that of the station.
    pub silence: Option<SilenceConfig>,
    /// The password of a live source.
    pub password: Option<SecretConfig>,
}

/// `switch`.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// Milliseconds without data after which a source has failed.
    pub timeout_ms: ConfigValue<u32>,
    /// Input buffer in milliseconds.
    pub input_buffer_ms: u32,
    /// Cross-fade in milliseconds.
    pub crossfade_ms: u32,
    /// Seconds that a source with higher priority has to be healthy before it takes over.
    pub hold_in_s: u32,
    /// `auto`, `manual` or `never`: whether a source that had failed takes over again.
    pub comeback: ConfigValue<String>,
    /// Whether the station may start with another source than the first.
    pub immediate: bool,
    /// What plays when no source has sound.
    pub last_resort: ConfigValue<String>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            timeout_ms: ConfigValue::default_value(300),
            input_buffer_ms: 400,
            crossfade_ms: 20,
            hold_in_s: 5,
            comeback: ConfigValue::default_value("auto".to_owned()),
            immediate: true,
            last_resort: ConfigValue::default_value("silence".to_owned()),
        }
    }
}

/// `silence`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SilenceConfig {
    /// Threshold in dBFS.
    pub below_dbfs: f64,
    /// Seconds below the threshold.
    pub for_s: f64,
    /// Whether a constant value counts as silence.
    pub dc: bool,
    /// Seconds for which one channel may be silent while another one is not; by default without
    /// limit.
    pub dead_channel_s: Option<f64>,
}

impl Default for SilenceConfig {
    fn default() -> Self {
        Self { below_dbfs: -60.0, for_s: 10.0, dc: true, dead_channel_s: None }
    }
}

/// Reads the whole tree. A value that cannot be read is reported and keeps its default.
pub(super) fn read(root: &Node, problems: &Problems) -> Config {
    let mut table = TableReader::new(root, "the configuration", problems);
    let state_dir = table.text("state_dir");
    let listen = table.node("listen").map_or_else(ListenConfig::default, |node| {
        read_listen(TableReader::new(node, "[listen]", problems), problems)
    });
    let stations = match table.node("station") {
        Some(Node { value: Value::List(items), .. }) => {
            items.iter().enumerate().map(|(i, node)| read_station(i, node, problems)).collect()
        }
        Some(node) => {
            let message = format!("`station` is {}: it must be a list of tables", node.kind());
            problems.add_with_hint(node.at, message, "write [[station]] with two brackets");
            Vec::new()
        }
        None => Vec::new(),
    };
    let http = table.node("http").map_or_else(HttpConfig::default, |node| {
        let mut table = TableReader::new(node, "[http]", problems);
        let http = HttpConfig { doc_root: table.text("doc_root"), names: table.texts("names") };
        table.finish();
        http
    });
    let streams = table.node("streams").map_or_else(StreamsConfig::default, |node| {
        let mut table = TableReader::new(node, "[streams]", problems);
        let given = node.get("schemes").is_some();
        let schemes = table.texts("schemes");
        let streams = StreamsConfig {
            schemes: given.then_some(schemes),
            roots: table.texts("roots"),
            plugin_dir: table.text("plugin_dir"),
        };
        table.finish();
        streams
    });
    let mut clients = ClientsConfig::default();
    if let Some(node) = table.node("clients") {
        let mut table = TableReader::new(node, "[clients]", problems);
        let mut read = |key, slot: &mut u32| {
            if let Some(percent) = table.number(key, "percent", VOLUME) {
                *slot = percent.value;
            }
        };
        read("initial_volume", &mut clients.initial_volume);
        read("volume_cap", &mut clients.volume_cap);
        table.finish();
    }
    let mdns = table.node("mdns").map_or_else(MdnsConfig::default, |node| {
        read_mdns(TableReader::new(node, "[mdns]", problems))
    });
    let security = security::read(&mut table, problems);
    let hooks = hooks::read(&mut table, problems);
    let relays = relay::read(&mut table, problems);
    table.finish();
    Config { state_dir, listen, http, streams, clients, mdns, security, stations, hooks, relays }
}

fn read_mdns(mut table: TableReader<'_>) -> MdnsConfig {
    let mut mdns = MdnsConfig::default();
    for (key, slot) in [
        ("enabled", &mut mdns.enabled),
        ("stream", &mut mdns.stream),
        ("control", &mut mdns.control),
        ("http", &mut mdns.http),
        ("https", &mut mdns.https),
    ] {
        if let Some(flag) = table.flag(key) {
            *slot = flag;
        }
    }
    set_if_read(&mut mdns.name, table.text("name"));
    table.finish();
    mdns
}

fn read_listen(mut table: TableReader<'_>, problems: &Problems) -> ListenConfig {
    let mut listen = ListenConfig::default();
    if let Some(address) = table.text("address") {
        listen.address = address;
    }
    for (key, slot) in [
        ("stream", &mut listen.stream),
        ("control", &mut listen.control),
        ("http", &mut listen.http),
    ] {
        match table.node(key) {
            Some(Node { value: Value::Integer(port), at, .. }) => {
                *slot = ConfigValue { value: port.to_string(), at: *at };
            }
            Some(Node { value: Value::Text(text), at, .. }) => {
                *slot = ConfigValue { value: text.clone(), at: *at };
            }
            Some(node) => {
                let message = format!("`{key}` is {}, not an address", node.kind());
                problems.add_with_hint(
                    node.at,
                    message,
                    "\"HOST:PORT\", \":PORT\" or a port alone",
                );
            }
            None => {}
        }
    }
    table.reject_planned("https", "leave it out: `http` speaks TLS as well, on the same port");
    table.finish();
    listen
}

fn read_station(index: usize, node: &Node, problems: &Problems) -> StationConfig {
    let label = match node.get("name") {
        Some(Node { value: Value::Text(name), .. }) => format!("station `{name}`"),
        _ => format!("station number {index}"),
    };
    let mut table = TableReader::new(node, label.as_str(), problems);
    let mut station = StationConfig { at: node.at, name: table.text("name"), ..Default::default() };
    if station.name.is_none() && node.get("name").is_none() {
        report_missing(problems, node.at, "name", &label, "name = \"kitchen\"");
    }
    set_if_read(&mut station.codec, table.text("codec"));
    set_if_read(&mut station.spec, table.text("spec"));
    set_if_read(&mut station.chunk_ms, table.number("chunk_ms", "milliseconds", CHUNK_MS));
    set_if_read(&mut station.buffer_ms, table.number("buffer_ms", "milliseconds", BUFFER_MS));
    match table.list("sources") {
        Some(items) => {
            station.sources =
                items.value.iter().filter_map(|node| read_source(node, problems)).collect();
            if items.value.is_empty() {
                report_missing(problems, items.at, "sources", &label, EXAMPLE);
            }
        }
        None if node.get("sources").is_none() => {
            report_missing(problems, node.at, "sources", &label, EXAMPLE);
        }
        None => {}
    }
    if let Some(node) = table.node("switch") {
        station.switch =
            read_switch(TableReader::new(node, format!("switch of {label}"), problems));
    }
    if let Some(node) = table.node("silence") {
        station.silence = read_silence(node, &label, problems);
    }
    if let Some(node) = table.node("plugin") {
        let mut table = TableReader::new(node, format!("plugin of {label}"), problems);
        let nothing = ConfigValue { value: String::new(), at: node.at };
        station.plugin = Some(PluginConfig {
            script: table.text("script").unwrap_or(nothing),
            params: table.text("params").map_or_else(String::new, |params| params.value),
        });
        table.finish();
    }
    if let Some(node) = table.node("normalize") {
        let base = sound::DEFAULT_NORMALIZE(Mode::Full);
        station.normalize = sound::read_normalize(node, &label, base, problems);
    }
    if let Some(node) = table.node("equalizer") {
        station.equalizer = sound::read_equalizer(node, &label, problems);
    }
    station.push = push::read(&mut table, problems);
    station.rtp = rtp::read(&mut table, problems);
    station.record = record::read(&mut table, problems);
    table.finish();
    station
}

fn read_source(node: &Node, problems: &Problems) -> Option<SourceEntry> {
    let mut source = SourceEntry::default();
    if let Value::Text(uri) = &node.value {
        source.uri = ConfigValue { value: uri.clone(), at: node.at };
        return Some(source);
    }
    if !matches!(node.value, Value::Table(_)) {
        let message = format!("a source is {}: it must be a URI or a table", node.kind());
        problems.add_with_hint(node.at, message, EXAMPLE);
        return None;
    }
    let mut table = TableReader::new(node, "a source", problems);
    let uri = table.text("uri");
    if uri.is_none() && node.get("uri").is_none() {
        report_missing(problems, node.at, "uri", "a source", "{ uri = \"demo://\" }");
    }
    source.name = table.text("name");
    source.gain_db = table.real("gain_db", "dB", GAIN_DB).map_or(0.0, |gain| gain.value);
    source.timeout_ms = table.number("timeout_ms", "milliseconds", TIMEOUT_MS);
    source.input_buffer_ms = table.number("input_buffer_ms", "milliseconds", INPUT_BUFFER_MS);
    source.standby = table.text("standby");
    source.silence = table.node("silence").map(|node| read_silence(node, "a source", problems));
    let keys = ["password", "password_file", "password_env"];
    source.password = security::read_secret(&mut table, keys, "source", problems);
    source.normalize = table.node("normalize").and_then(|node| {
        // The look-ahead of a mode with high latency would delay this source against the others.
        sound::read_normalize(node, "a source", sound::DEFAULT_NORMALIZE(Mode::Mid), problems)
    });
    table.finish();
    source.uri = uri?;
    Some(source)
}

fn read_switch(mut table: TableReader<'_>) -> SwitchConfig {
    let mut switch = SwitchConfig::default();
    let mut read = |key, slot: &mut u32, range| {
        let unit = if key == "hold_in_s" { "seconds" } else { "milliseconds" };
        if let Some(number) = table.number(key, unit, range) {
            *slot = number.value;
        }
    };
    read("input_buffer_ms", &mut switch.input_buffer_ms, INPUT_BUFFER_MS);
    read("crossfade_ms", &mut switch.crossfade_ms, CROSSFADE_MS);
    read("hold_in_s", &mut switch.hold_in_s, HOLD_IN_S);
    set_if_read(&mut switch.timeout_ms, table.number("timeout_ms", "milliseconds", TIMEOUT_MS));
    set_if_read(&mut switch.comeback, table.text("comeback"));
    switch.immediate = table.flag("immediate").unwrap_or(switch.immediate);
    set_if_read(&mut switch.last_resort, table.text("last_resort"));
    table.finish();
    switch
}

fn read_silence(node: &Node, of: &str, problems: &Problems) -> SilenceConfig {
    let mut table = TableReader::new(node, format!("silence of {of}"), problems);
    let mut silence = SilenceConfig::default();
    if let Some(level) = table.real("below_dbfs", "dBFS", SILENCE_DBFS) {
        silence.below_dbfs = level.value;
    }
    if let Some(time) = table.real("for_s", "seconds", SILENCE_S) {
        silence.for_s = time.value;
    }
    silence.dc = table.flag("dc").unwrap_or(silence.dc);
    silence.dead_channel_s =
        table.real("dead_channel_s", "seconds", SILENCE_S).map(|time| time.value);
    table.finish();
    silence
}

fn set_if_read<T>(slot: &mut ConfigValue<T>, read: Option<ConfigValue<T>>) {
    if let Some(read) = read {
        *slot = read;
    }
}

const EXAMPLE: &str = "sources = [\"tcp://0.0.0.0:4953\", \"demo://\"]";

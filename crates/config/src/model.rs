//! The configuration as written: one table of keys for each table of the file.
//!
//! Values are in range but not checked against each other; that is the task of `resolve`.

use aulos_core::{Codec, SampleSpec};
use aulos_engine::encode::{AacConfig, CodecConfig, Mp3Config};
use aulos_engine::standby::Standby;
use aulos_engine::switch::FailbackMode;
use aulos_files::history::{DEFAULT_KEEP_DAYS, KEEP_DAYS};
use aulos_session::mount::MountCodec;

use crate::cluster::ClusterConfig;
use crate::hooks::HookConfig;
use crate::keys::values::{OneOrMore, TextOrNumber};
use crate::keys::{NamedEnum, keys};
use crate::limits::{
    BUFFER_MS, BURST_KB, CHUNK_MS, CLIENT_SERIES, CROSSFADE_MS, FAILBACK_DELAY_S, GAIN_DB,
    INPUT_BUFFER_MS, MAX_DURATION_S, MAX_LISTENERS, MAX_LOSS_S, MAX_SOUNDS, SILENCE_DBFS,
    SILENCE_S, TIMEOUT_MS, VOLUME,
};
use crate::mqtt::MqttConfig;
use crate::problem::ConfigValue;
use crate::relay::RelayConfig;
use crate::security::secrets::SecretConfig;
use crate::security::{AccessConfig, LimitsConfig, TlsConfig, UserConfig};
use crate::station::codec::CodecKey;
use crate::station::hls::HlsConfig;
use crate::station::icy::IcyConfig;
use crate::station::insert::InsertConfig;
use crate::station::logger::LoggerConfig;
use crate::station::now_playing::NowPlayingConfig;
use crate::station::push::PushConfig;
use crate::station::record::RecordConfig;
use crate::station::rtp::RtpConfig;
use crate::station::schedule::{ScheduleEntryConfig, ZoneConfig};
use crate::station::sound::{BandConfig, NormalizeConfig};

keys! {
    /// The configuration file.
    pub(crate) struct Config {
        /// Directory of groups, names, volumes and the server's certificate.
        state_dir: Option<ConfigValue<String>>, default_doc "`$XDG_STATE_HOME/aulos`, or `~/.local/state/aulos`";
        /// Ports to listen on.
        listen: ListenConfig;
        /// Stations.
        station: Vec<StationConfig>, default_doc "the station `default`";
        /// Mounts.
        mount: Vec<MountConfig>;
        /// The page and the API.
        http: HttpConfig;
        /// Metrics for Prometheus.
        metrics: MetricsConfig;
        /// History of loudness.
        history: HistoryConfig;
        /// Streams that controllers add.
        streams: StreamsConfig;
        /// Volumes of clients.
        clients: ClientsConfig;
        /// Announcements by mDNS.
        mdns: MdnsConfig;
        /// Sendspin players.
        sendspin: SendspinConfig;
        /// TLS.
        tls: TlsConfig;
        /// Users.
        user: Vec<UserConfig>;
        /// Access without a login.
        access: AccessConfig;
        /// Limits for each address.
        limits: LimitsConfig;
        /// Programs and webhooks for events.
        hook: Vec<HookConfig>;
        /// RTP relays.
        relay: Vec<RelayConfig>;
        /// NATS, through which servers in several places play each other's stations.
        cluster: Option<ClusterConfig>, default_doc "no NATS";
        /// MQTT, through which home automation sees the server and controls it.
        mqtt: Option<MqttConfig>, default_doc "no MQTT";
    }

    /// Ports to listen on. Each is a port, `:PORT` or `HOST:PORT`; TLS is accepted on the same
    /// ports.
    pub(crate) struct ListenConfig {
        /// Host for ports without a host: `0.0.0.0` is every IPv4 address, `::` IPv6 as well.
        address: ConfigValue<String> = "127.0.0.1";
        /// Port of Snapcast's stream protocol.
        stream: ConfigValue<TextOrNumber> = "1704";
        /// Port of Snapcast's control protocol.
        control: ConfigValue<TextOrNumber> = "1705";
        /// Port of the page and the API.
        http: ConfigValue<TextOrNumber> = "1780";
    }

    /// The page and the API.
    pub(crate) struct HttpConfig {
        /// Directory whose files are served at `/`, such as Snapweb.
        doc_root: Option<ConfigValue<String>>, default_doc "the built-in page";
        /// Host names under which the page may be requested, besides those of a local network.
        names: Vec<ConfigValue<String>>;
        /// Addresses and networks of reverse proxies, whose `X-Forwarded-For` and
        /// `X-Forwarded-Proto` count: `["127.0.0.1", "10.1.0.0/16"]`.
        trusted_proxies: Vec<ConfigValue<String>>;
        /// File that gets a line for each web listener that has left.
        access_log: Option<ConfigValue<String>>, default_doc "no access log";
        /// Addresses and networks whose web listeners are refused: `["192.0.2.0/24"]`.
        deny: Vec<ConfigValue<String>>;
        /// Programs of web listeners (`User-Agent`) that are refused, in any case; `*` stands for
        /// any characters: `["*bot*"]`.
        deny_agents: Vec<String>;
        /// Origin of pages whose players may read streams (`Access-Control-Allow-Origin`): one, `*`
        /// for all, or empty for none.
        allow_origin: ConfigValue<String> = "*";
        /// URL that is asked, as by Icecast, whether a web listener may listen.
        listener_add: Option<ConfigValue<String>>, default_doc "every web listener may";
        /// URL that is told when such a listener has left.
        listener_remove: Option<ConfigValue<String>>, default_doc "not told";
        /// URL that is asked, as by Icecast, whether a source client may use a mount whose password
        /// it does not have.
        stream_auth: Option<ConfigValue<String>>, default_doc "only passwords count";
    }

    /// Metrics for Prometheus.
    pub(crate) struct MetricsConfig {
        /// Number of connected clients up to which `/metrics` has series for each client. With more
        /// clients it has their distributions only.
        per_client_limit: u32 = 100, range CLIENT_SERIES, "clients";
    }

    /// History of every station's loudness, in `history` below the state directory.
    pub(crate) struct HistoryConfig {
        /// Keep a history.
        enabled: bool = true;
        /// Time for which quarters of an hour are kept. Finer steps are kept for a fixed time:
        /// seconds for 2 days, steps of 10 seconds for 7 days, minutes for 30 days.
        keep_days: u32 = DEFAULT_KEEP_DAYS, range KEEP_DAYS, "days";
        /// How much of the history a crash or a power failure may lose. Below 60, the last seconds
        /// are written at this interval besides the block of each minute.
        max_loss_s: u32 = 60, range MAX_LOSS_S, "seconds";
    }

    /// Limits for streams that controllers add.
    pub(crate) struct StreamsConfig {
        /// Schemes of source URIs that are permitted.
        schemes: Option<Vec<ConfigValue<String>>>, default_doc "those that controllers may add, see [source URIs](#source-uris)";
        /// Devices that an `alsa:` source may name besides `default`, `sysdefault`, and `hw:` and
        /// `plughw:` with a card. ALSA's library starts programs and writes files for some names:
        /// list only those whose meaning in ALSA's configuration is known.
        alsa_devices: Vec<String>;
        /// Directories for `pipe:` and `file:`. Files below them can be announced, as well as those
        /// that were uploaded into `sounds` below the state directory.
        roots: Vec<ConfigValue<String>>;
        /// Hosts whose `http:` and `https:` URLs may be announced: `lan` (the private networks of this
        /// machine's interfaces), host names, addresses, and networks such as `192.168.1.0/24`.
        /// Loopback and link-local addresses only as an address or a network.
        announce_hosts: Option<Vec<ConfigValue<String>>>, default_doc "`[\"lan\"]`";
        /// Directory of control scripts.
        plugin_dir: ConfigValue<String> = "/usr/share/snapserver/plug-ins";
        /// Whether calls from this machine may name a control script of `plugin_dir` in the URI of
        /// a stream that they add.
        plugins_by_rpc: bool = false;
    }

    /// Volumes and sounds of clients.
    pub(crate) struct ClientsConfig {
        /// Volume of a new client that does not report its own, as Sendspin players do.
        initial_volume: u8 = 100, range VOLUME, "percent";
        /// Upper limit of every volume.
        volume_cap: u8 = 100, range VOLUME, "percent";
        /// Different sounds of clients that are processed at the same time, on all stations.
        max_sounds: u16 = 16, range MAX_SOUNDS, "";
    }

    /// Announcements by mDNS. Ports that other machines cannot reach are never announced.
    pub(crate) struct MdnsConfig {
        /// Announce anything at all.
        enabled: bool = true;
        /// Service name, 1 to 56 bytes.
        name: ConfigValue<String> = "Snapcast";
        /// Announce the stream port.
        stream: bool = true;
        /// Announce the control port.
        control: bool = true;
        /// Announce the HTTP port.
        http: bool = true;
        /// Announce the HTTP port for HTTPS as well.
        https: bool = true;
    }

    /// Sendspin: players, as of Music Assistant, are clients of the stations, in one group with those
    /// of Snapcast.
    pub(crate) struct SendspinConfig {
        /// Serve Sendspin players.
        enabled: ConfigValue<bool> = false;
        /// Port for players that connect by themselves: a port, `:PORT` or `HOST:PORT`; without a
        /// host that of `listen.address`. The protocol has its own encryption and no TLS.
        listen: ConfigValue<TextOrNumber> = "8927";
        /// Find players that announce themselves, and connect to them.
        discover: bool = true;
        /// Players to connect to besides those that are found, as `HOST:PORT`.
        connect: Vec<ConfigValue<String>>;
        /// Ids of players that may speak without encryption, or `*` for all. Whoever can reach the
        /// port can then play under such an id.
        legacy: Vec<ConfigValue<String>>;
    }

    /// A station: a programme from one of its sources, sent to clients and other outputs.
    pub(crate) struct StationConfig {
        /// Unique name; also the id of the Snapcast stream.
        name: Option<ConfigValue<String>>, required "name = \"kitchen\"";
        /// Codec for clients: `pcm`, `flac` or `opus`, with encoder settings as in `flac:8` or
        /// `opus:128k,cbr`.
        codec: ConfigValue<CodecConfig> = CodecConfig::from(Codec::Flac);
        /// Sample spec of the programme: `RATE:BITS:CHANNELS`.
        spec: ConfigValue<SampleSpec> = SampleSpec::DEFAULT;
        /// MP3 at `/listen/NAME.mp3`, and by default of pushes and recorders: bit rate in bit/s,
        /// from `32k` to `320k`, and the encoder, as in `128k,lame`: `lame`, `builtin`, or LAME
        /// where the system has it.
        mp3: ConfigValue<CodecKey<Mp3Config>> = CodecKey(Mp3Config::default());
        /// AAC LC at `/listen/NAME.aac`, and by default of pushes and recorders: average bit rate
        /// in bit/s, from `32k` to `512k`.
        aac: ConfigValue<CodecKey<AacConfig>> = CodecKey(AacConfig::default());
        /// Duration of a chunk; with `opus` 10, 20, 40 or 60.
        chunk_ms: ConfigValue<u32> = 20, range CHUNK_MS, "milliseconds";
        /// Time from capture to playout, the same for all clients.
        buffer_ms: ConfigValue<u32> = 1_000, range BUFFER_MS, "milliseconds";
        /// Sources in order of priority: source URIs, or tables with one.
        sources: Vec<SourceEntry>, required "sources = [\"tcp://0.0.0.0:4953\", \"demo://\"]";
        /// Failover between sources.
        switch: SwitchConfig;
        /// Sources that have precedence at their times, such as the news.
        schedule: Vec<ScheduleEntryConfig>;
        /// Time zone of `schedule`, by its name in the zone database, as in `Europe/Vienna`.
        timezone: Option<ZoneConfig>, default_doc "that of the system";
        /// Silence detection.
        silence: SilenceConfig;
        /// A program that processes the programme, before `equalizer` and `normalize`.
        insert: Option<InsertConfig>, default_doc "none";
        /// Loudness normalization of the programme.
        normalize: Option<ConfigValue<NormalizeConfig>>, default_doc "off";
        /// Equalizer bands, in order of processing.
        equalizer: Vec<BandConfig>;
        /// Control script.
        plugin: Option<PluginConfig>;
        /// Icecast servers to which the programme is pushed.
        push: Vec<PushConfig>;
        /// HTTP Live Streaming.
        hls: Option<HlsConfig>, default_doc "off";
        /// Publish the programme to other servers of the `cluster`, which play it with `nats:`.
        publish: ConfigValue<bool> = false;
        /// RTP outputs.
        rtp: Vec<RtpConfig>;
        /// Recorders.
        record: OneOrMore<RecordConfig>;
        /// A text file with titles, and outputs that are told of them.
        now_playing: Option<NowPlayingConfig>;
        /// What web listeners and directories are told of the stream.
        icy: IcyConfig;
        /// A legal log of the output.
        logger: Option<LoggerConfig>;
    }

    /// A mount: a stream for web listeners at `/NAME`. The encoded frames of the source on air are
    /// passed on as they came; a decoded copy decides on silence and failover. Sources are switched
    /// between two frames.
    pub(crate) struct MountConfig {
        /// Unique name, and the path on the HTTP port: `live.mp3` is at `/live.mp3`.
        name: Option<ConfigValue<String>>, required "name = \"live.mp3\"";
        /// Codec of the stream: `mp3`, `aac` in ADTS, or `opus`, `vorbis` or `flac` in Ogg.
        codec: Option<MountCodec>, default_doc "that of the ending of `name`, or `mp3`";
        /// Sample rate and channels of the stream: `RATE:BITS:CHANNELS`. The audio of a source with
        /// another codec, rate or number of channels is encoded anew.
        spec: Option<ConfigValue<SampleSpec>>, default_doc "`48000:16:2` for `opus`, otherwise `44100:16:2`";
        /// Encoder for audio that cannot be passed, with its settings as in `mp3:128k` or
        /// `opus:96k`. There is none for `vorbis`.
        encoder: Option<ConfigValue<CodecConfig>>, default_doc "that of the codec";
        /// Sources in order of priority: source URIs, or tables with one. The frames of `http:` and
        /// `icecast:` are passed.
        sources: Vec<SourceEntry>;
        /// Station whose programme is encoded while no source has sound.
        station: Option<ConfigValue<String>>, default_doc "none";
        /// Failover between sources.
        switch: SwitchConfig;
        /// Sources that have precedence at their times, such as the news.
        schedule: Vec<ScheduleEntryConfig>;
        /// Time zone of `schedule`, by its name in the zone database, as in `Europe/Vienna`.
        timezone: Option<ZoneConfig>, default_doc "that of the system";
        /// Silence detection.
        silence: SilenceConfig;
        /// File whose frames each listener gets before the stream. Its codec, sample rate and
        /// channels are those of the mount.
        intro: Option<ConfigValue<String>>;
        /// What a listener gets at once, in 1,024 bytes: players begin sooner with more.
        burst_kb: u32 = 64, range BURST_KB, "KiB";
        /// Number of listeners at once.
        max_listeners: Option<u32>, range MAX_LISTENERS, "listeners", default_doc "no limit";
        /// Time after which a listener is disconnected.
        max_duration_s: Option<u32>, range MAX_DURATION_S, "seconds", default_doc "no limit";
        /// A text file with titles, and outputs that are told of them.
        now_playing: Option<NowPlayingConfig>;
        /// What listeners and directories are told of the stream.
        icy: IcyConfig;
        /// Leave the mount out of `/status-json.xsl` and `/listen/`. Its address works.
        hidden: bool = false;
    }

    /// A control script: a program that speaks JSON-RPC on standard input and output.
    pub(crate) struct PluginConfig {
        /// Program; relative to `streams.plugin_dir` unless it is absolute.
        script: Option<ConfigValue<String>>, required "plugin = { script = \"meta_mpd.py\" }";
        /// Arguments, separated by spaces.
        params: String;
    }

    /// A source. A text in place of the table is its `uri`.
    pub(crate) struct SourceEntry (text is "uri") {
        /// Source URI.
        uri: ConfigValue<String> = "", required "{ uri = \"demo://\" }";
        /// Name, unique in the station.
        name: Option<ConfigValue<String>>, default_doc "`name` of the URI, or its scheme";
        /// Gain before the switch.
        gain_db: f64 = 0.0, range GAIN_DB, "dB";
        /// Time without data after which the source has failed.
        timeout_ms: Option<ConfigValue<u32>>, range TIMEOUT_MS, "milliseconds", default_doc "that of `switch`";
        /// Buffer in front of the switch.
        input_buffer_ms: Option<u32>, range INPUT_BUFFER_MS, "milliseconds", default_doc "that of `switch`; at least 2000 for `http:` and `icecast:`";
        /// Readiness while the source is not needed: open and buffered, open, or closed.
        standby: Standby = Standby::Hot;
        /// Silence detection.
        silence: Option<SilenceConfig>, default_doc "that of the station";
        /// Password of a mount (`icecast:`), or for another server (`snapcast:`).
        password: Option<SecretConfig>;
        /// Charset of titles that are not UTF-8 (`http:`, `icecast:`): a label of the Encoding
        /// Standard, such as `windows-1251`.
        charset: Option<ConfigValue<String>>, default_doc "windows-1252";
        /// Variant of an HLS stream (`http:`): `best`, `lowest`, or the highest up to a bit rate, as
        /// `128k`.
        variant: Option<ConfigValue<String>>, default_doc "best";
        /// Loudness normalization of this source.
        normalize: Option<ConfigValue<NormalizeConfig>>, default_doc "off";
    }

    /// Failover between sources.
    pub(crate) struct SwitchConfig {
        /// Time without data after which a source has failed.
        timeout_ms: ConfigValue<u32> = 300, range TIMEOUT_MS, "milliseconds";
        /// Buffer in front of the switch.
        input_buffer_ms: u32 = 400, range INPUT_BUFFER_MS, "milliseconds";
        /// Cross-fade; 0 cuts.
        crossfade_ms: u32 = 20, range CROSSFADE_MS, "milliseconds";
        /// Time for which a source of higher priority has to be healthy before it takes over.
        failback_delay_s: u32 = 5, range FAILBACK_DELAY_S, "seconds", alias "hold_in_s";
        /// Whether a source that had failed takes over again: by itself, by a call, or never while
        /// another one plays.
        failback: FailbackMode = FailbackMode::Auto, alias "comeback";
        /// Whether the station may start with another source than the first.
        immediate: bool = true;
        /// What plays when no source has sound: `silence`, or a `file:`, `demo:` or `tone:` URI.
        last_resort: ConfigValue<String> = "silence";
    }

    /// Silence detection.
    pub(crate) struct SilenceConfig {
        /// Threshold.
        below_dbfs: f64 = -60.0, range SILENCE_DBFS, "dBFS";
        /// Time below the threshold.
        for_s: f64 = 10.0, range SILENCE_S, "seconds";
        /// Whether a constant value counts as silence.
        dc: bool = true;
        /// Time for which one channel may be silent while another one is not.
        dead_channel_s: Option<f64>, range SILENCE_S, "seconds", default_doc "no limit";
    }
}

impl StationConfig {
    /// The settings of codecs that have a key of their own.
    pub(crate) fn codecs(&self) -> Vec<ConfigValue<CodecConfig>> {
        fn row<T: Into<CodecConfig>>(key: ConfigValue<CodecKey<T>>) -> ConfigValue<CodecConfig> {
            ConfigValue { value: key.value.0.into(), at: key.at }
        }
        vec![row(self.mp3), row(self.aac)]
    }
}

impl NamedEnum for Standby {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("hot", Self::Hot), ("warm", Self::Warm), ("cold", Self::Cold)]
    }
}

impl NamedEnum for FailbackMode {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("auto", Self::Auto), ("manual", Self::Manual), ("never", Self::Never)]
    }
}

//! The parameters of each scheme of source URIs, and what a URI of the scheme means.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use aulos_core::{Db, SampleSpec, Span};
use aulos_engine::generate::Generator;
use aulos_io::feed::{FifoAccess, FifoMode};
use aulos_proto::http::HttpUrl;
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_proto::snap::wire::MAX_ID;
use aulos_proto::titles::TitleCharset;
use aulos_session::rtp::RtpPayloadFormat;
use aulos_session::rtp::{MAX_PLAYOUT_DELAY, PlayoutDelay};

use crate::cluster::{NATS_PORT, NatsServer, check_build};
use crate::keys::values::{parsed, quoted};
use crate::keys::{ConfigRead, NamedEnum, ReadContext, ValueKind, keys};
use crate::limits::{
    JITTER_MS, MAX_MOUNT, MAX_NAME, MAX_STATION_CHANNELS, NATS_LATENCY_MS, RED_TYPES,
    RTP_PAYLOAD_TYPE, SOURCE_LATENCY_MS, TONE_DBFS,
};
use crate::names::endpoint;
use crate::security::secrets::RedactedDebug;
use crate::source::data_timeout::DataTimeout;
use crate::source::query::Query;
use crate::source::{
    CaptureApi, Mount, NatsSource, ReceptionSettings, RtpSource, SnapcastSource, SourceConfig,
    TitleFifo, TitleFormat,
};
use crate::tree::Node;

type Parsed = Option<Vec<SourceConfig>>;

keys! {
    /// Parameters of a scheme that has none.
    pub(crate) struct NoParams {}

    /// Parameters of raw or generated samples.
    pub(crate) struct SampleParams {
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }

    /// Parameters of `tone:`.
    pub(crate) struct ToneParams {
        /// Frequency in Hz, below half the sample rate.
        hz: f64 = 997.0;
        /// Peak level.
        dbfs: f64 = -20.0, range TONE_DBFS, "dBFS";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }

    /// Parameters of `pipe:`.
    pub(crate) struct PipeParams {
        /// `create` makes the FIFO, for the server's user only; an octal number such as `0660`
        /// makes it with these permissions; `read` requires that it exists.
        mode: FifoModeParam = FifoModeParam::Create;
        /// Group of a FIFO that is made, by name or number; with it the default of `mode` is
        /// `0660`.
        group: Option<FifoGroup>, default_doc "the server's";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }

    /// Parameters of `file:`.
    pub(crate) struct FileParams {
        /// Play the file in a loop.
        repeat: bool = false, key "loop";
        /// Sample spec of raw samples: `RATE:BITS:CHANNELS`.
        sampleformat: Option<SampleSpec>, default_doc "`48000:16:2` with the extension `raw` or `pcm`; else the file has a header";
    }

    /// Parameters of `process:`.
    pub(crate) struct ProcessParams {
        /// Arguments of the program, separated by spaces.
        params: String;
        /// Log what the program writes to standard error.
        log_stderr: bool = false;
        /// Time without a sample after which the program is ended and started again; a number is
        /// seconds, `off` waits for ever.
        timeout: DataTimeout = DataTimeout::PROGRAM;
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }

    /// Parameters of `tcp:`.
    pub(crate) struct TcpParams {
        /// `server` waits for a connection, `client` connects.
        mode: TcpMode = TcpMode::Server;
        /// Time without a sample after which the connection is closed; a number is seconds, `off`
        /// waits for ever.
        timeout: DataTimeout = DataTimeout::CONNECTION;
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
    }

    /// Parameters of `pulse:` and `alsa:`.
    pub(crate) struct CaptureParams {
        /// Name of the device, if it is not in front of the parameters.
        device: Option<String>, default_doc "the default device";
        /// Sample spec: `RATE:BITS:CHANNELS`.
        sampleformat: Option<SampleSpec>, default_doc "the station's";
    }

    /// Parameters of `librespot:`.
    pub(crate) struct LibrespotParams {
        /// Name of the device in Spotify.
        devicename: String = "Snapcast";
        /// Bit rate in kbit/s: 96, 160 or 320.
        bitrate: String = "320";
        /// Initial volume in percent.
        volume: String = "100";
        /// User name.
        username: String;
        /// Not used: librespot 0.5 and later log in by an app of Spotify in the same network.
        password: String;
        /// Directory of the cache.
        cache: String;
        /// Keep no sound in the cache.
        disable_audio_cache: bool = false;
        /// Spotify's volume normalization.
        normalize: bool = false;
        /// Continue with similar titles.
        autoplay: Option<bool>, default_doc "as the app of Spotify sets it";
        /// Program that librespot runs on events.
        onevent: String;
        /// Further arguments of librespot.
        params: String;
        /// Read titles from librespot's log.
        titles: bool = true;
        /// Log what librespot writes to standard error.
        log_stderr: bool = false;
        /// Time without a sample after which the program is ended and started again; a number is
        /// seconds, `off` waits for ever.
        timeout: DataTimeout = DataTimeout::OFF;
    }

    /// Parameters of `airplay:`.
    pub(crate) struct AirplayParams {
        /// Name of the device that players see.
        devicename: String = "Snapcast";
        /// Port to listen on.
        port: String = "5000";
        /// Password.
        password: String;
        /// Further arguments of shairport-sync.
        params: String;
        /// Read titles; requires a shairport-sync that was built with metadata.
        titles: bool = true;
        /// Log what shairport-sync writes to standard error.
        log_stderr: bool = false;
        /// Time without a sample after which the program is ended and started again; a number is
        /// seconds, `off` waits for ever.
        timeout: DataTimeout = DataTimeout::OFF;
    }

    /// Parameters of `icecast:`.
    pub(crate) struct IcecastParams {
        /// Listen on the next port as well: there Shoutcast programs connect with their stream.
        shoutcast: bool = false;
    }

    /// Parameters of `snapcast:`.
    pub(crate) struct SnapcastParams {
        /// Connect with TLS, to another aulos; its certificate must be valid for the host.
        tls: bool = false;
        /// Id of this client on the other server, which keeps its settings under it.
        id: Option<String>, default_doc "this host's name and the station's";
        /// Name of this host on the other server.
        host_name: Option<String>, default_doc "this host's name";
        /// How much earlier than the other server's loudspeakers the source plays.
        latency: u32 = 0, range SOURCE_LATENCY_MS, "milliseconds";
        /// Pass the other server's chunks on without encoding them, so that the station's clients
        /// play in sync with those of that server; the station's `buffer_ms` must be at least 300
        /// shorter than there.
        pass: bool = false;
    }

    /// Parameters of `nats:`.
    pub(crate) struct NatsParams {
        /// Site of the station.
        site: Option<String>, default_doc "that of `cluster`, or `default`";
        /// Connect with TLS; the certificate must be valid for the host.
        tls: bool = false;
        /// How much earlier than at the origin the station plays, or later if it is negative: half
        /// of the time by which the network is slower towards this server than away from it.
        latency: f64 = 0.0, range NATS_LATENCY_MS, "milliseconds";
        /// Pass the origin's chunks on without encoding them, so that the station's clients play in
        /// sync with those of the origin; the station's `buffer_ms` must be at least 300 shorter
        /// than there.
        pass: bool = false;
    }

    /// Parameters of `rtp:`.
    pub(crate) struct RtpParams {
        /// Encoding of the payload.
        payload: Option<RtpCodec>, default_doc "`l16`; `l24` if `sampleformat` has more than 16 bits";
        /// Rate and channels of `l16` and `l24`; channels that `opus` is decoded to.
        sampleformat: SampleSpec = SampleSpec::DEFAULT;
        /// Payload type.
        payload_type: Option<u8>, range RTP_PAYLOAD_TYPE, "", default_doc "that of RFC 3551, or any from 96 to 127";
        /// Payload type of RED (RFC 2198).
        red: Option<u8>, range RED_TYPES, "";
        /// Network interface on which a multicast group is joined: its name or an address of it.
        interface: Option<String>, default_doc "by the routes";
        /// Time to wait for a packet that later ones have overtaken.
        jitter: Option<u32>, range JITTER_MS, "milliseconds", default_doc "100, at most half of the buffer";
        /// Playout delay in milliseconds: `20-200` adapts to the network, `80` is fixed.
        delay: Option<PlayoutDelay>;
        /// Addresses of the accepted senders, separated by commas.
        source: Senders, default_doc "all";
    }

    /// Parameters of `sdp:`.
    pub(crate) struct SdpParams {
        /// Network interface on which a multicast group is joined: its name or an address of it.
        interface: Option<String>, default_doc "by the routes";
        /// Time to wait for a packet that later ones have overtaken.
        jitter: Option<u32>, range JITTER_MS, "milliseconds", default_doc "100, at most half of the buffer";
        /// Playout delay in milliseconds: `20-200` adapts to the network, `80` is fixed.
        delay: Option<PlayoutDelay>;
        /// Addresses of the accepted senders, separated by commas.
        source: Senders, default_doc "all";
    }
}

/// Which end of a TCP connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpMode {
    Server,
    Client,
}

impl NamedEnum for TcpMode {
    fn values() -> Vec<(&'static str, Self)> {
        vec![("server", Self::Server), ("client", Self::Client)]
    }
}

/// How a FIFO comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FifoModeParam {
    Create,
    Read,
    /// Created, with these permission bits.
    Permissions(u32),
}

impl ConfigRead for FifoModeParam {
    const KIND: &'static ValueKind =
        &ValueKind::AnyOf(&[&ValueKind::Choice(|| vec!["create", "read"]), &ValueKind::Text]);

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| match text {
            "create" => Ok(Self::Create),
            "read" => Ok(Self::Read),
            text => match u32::from_str_radix(text, 8) {
                // The server has to read it, and others write into it: no other bits are of use.
                Ok(bits) if text.len() <= 4 && bits <= 0o777 && bits & 0o600 == 0o600 => {
                    Ok(Self::Permissions(bits))
                }
                _ => Err("it must be create, read or permissions from 0600 to 0777"),
            },
        })
    }

    fn toml(&self) -> Option<String> {
        Some(quoted(match self {
            Self::Read => "read",
            Self::Create | Self::Permissions(_) => "create",
        }))
    }
}

/// The id of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FifoGroup(u32);

impl ConfigRead for FifoGroup {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let id =
                text.parse().ok().or_else(|| group_id(&fs::read_to_string(GROUPS).ok()?, text));
            id.map(Self)
                .ok_or("there is no such group in /etc/group; a number needs no entry there")
        })
    }
}

/// The id of a group in the lines of `/etc/group`: `NAME:PASSWORD:ID:MEMBERS`.
fn group_id(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

const GROUPS: &str = "/etc/group";

impl NamedEnum for RtpCodec {
    fn values() -> Vec<(&'static str, Self)> {
        let named = |name| Some((name, Self::from_name(name)?));
        ["l16", "l24", "pcmu", "pcma", "g722", "opus"].into_iter().filter_map(named).collect()
    }
}

impl ConfigRead for PlayoutDelay {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let most = MAX_PLAYOUT_DELAY.as_millis();
        parsed(node, context, |text| {
            let hint = "20-200 adapts to the network, 80 is fixed";
            playout_delay(text).ok_or_else(|| format!("milliseconds, 0 to {most}: {hint}"))
        })
    }
}

/// Parses `20-200` or `80`, in milliseconds.
fn playout_delay(text: &str) -> Option<PlayoutDelay> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let millis = |text: &str| text.parse::<u32>().ok().map(|ms| Span::from_millis(ms.into()));
    let delay = PlayoutDelay { min: millis(least)?, max: millis(most)? };
    (delay.min <= delay.max && delay.max <= MAX_PLAYOUT_DELAY).then_some(delay)
}

/// Addresses of senders.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Senders(Vec<IpAddr>);

impl ConfigRead for Senders {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let all: Result<_, _> = text.split(',').map(str::parse).collect();
            all.map(Self).map_err(|_| "the sender's address: 192.0.2.1".to_owned())
        })
    }
}

pub(crate) fn demo(query: &Query<'_>) -> Parsed {
    let SampleParams { sampleformat: spec, .. } = query.params();
    Some(vec![SourceConfig::Generated { generator: Generator::Demo, spec }])
}

pub(crate) fn stdin(query: &Query<'_>) -> Parsed {
    let SampleParams { sampleformat: spec, .. } = query.params();
    Some(vec![SourceConfig::Stdin { spec }])
}

pub(crate) fn tone(query: &Query<'_>) -> Parsed {
    let ToneParams { hz, dbfs, sampleformat: spec, .. } = query.params();
    let top = f64::from(spec.rate.hz()) / 2.0;
    if !(hz > 0.0 && hz < top) {
        query
            .refuse::<()>(format!("`hz` is {hz}: it must be above 0 and below {top} Hz"), "hz=997");
    }
    let generator = Generator::Tone { hz, dbfs: Db::new(dbfs) };
    Some(vec![SourceConfig::Generated { generator, spec }])
}

pub(crate) fn pipe(query: &Query<'_>) -> Parsed {
    let PipeParams { mode, group, sampleformat: spec, .. } = query.params();
    let group = group.map(|FifoGroup(id)| id);
    let permissions = match mode {
        FifoModeParam::Permissions(bits) => Some(bits),
        _ => group.map(|_| 0o660),
    };
    let mode = match mode {
        FifoModeParam::Read if group.is_some() => {
            let hint = "leave `group` out: the permissions of the FIFO decide who may write";
            return query.refuse("`group` requires that the server creates the FIFO", hint);
        }
        FifoModeParam::Read => FifoMode::Read,
        _ => FifoMode::Create(FifoAccess { permissions, group }),
    };
    Some(vec![SourceConfig::Pipe { path: query.path()?.into(), mode, spec }])
}

pub(crate) fn file(query: &Query<'_>) -> Parsed {
    let FileParams { repeat, sampleformat, .. } = query.params();
    let path = query.path()?;
    let raw = path.extension().is_some_and(|end| end == "raw" || end == "pcm");
    let spec = sampleformat.or_else(|| raw.then_some(SampleSpec::DEFAULT));
    Some(vec![SourceConfig::File { path: path.into(), repeat, spec }])
}

pub(crate) fn process(query: &Query<'_>) -> Parsed {
    let ProcessParams { params, log_stderr, timeout, sampleformat: spec, .. } = query.params();
    let (path, DataTimeout(timeout)) = (query.path()?, timeout);
    Some(vec![SourceConfig::Process { path, params, spec, log_stderr, timeout, titles: None }])
}

pub(crate) fn tcp(query: &Query<'_>) -> Parsed {
    let TcpParams { mode, timeout: DataTimeout(timeout), sampleformat: spec, .. } = query.params();
    let client = mode == TcpMode::Client;
    let host = if client { None } else { Some("0.0.0.0") };
    let authority = query.uri.authority();
    let Some(address) = endpoint(&authority, host, Some(TCP_PORT)) else {
        let hint = "as in tcp://0.0.0.0:4953, or tcp://HOST:4953?mode=client";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    if client && address.port == 0 {
        return query.refuse("a client cannot connect to port 0", "a port from 1 to 65535");
    }
    Some(vec![if client {
        SourceConfig::TcpClient { address, spec, timeout }
    } else {
        SourceConfig::TcpServer { address, spec, timeout }
    }])
}

/// `pulse://SOURCE` of PulseAudio or PipeWire.
pub(crate) fn pulse(query: &Query<'_>) -> Parsed {
    capture(CaptureApi::Pulse, query)
}

/// `alsa://DEVICE`.
pub(crate) fn alsa(query: &Query<'_>) -> Parsed {
    capture(CaptureApi::Alsa, query)
}

fn capture(api: CaptureApi, query: &Query<'_>) -> Parsed {
    let CaptureParams { device, sampleformat: spec, .. } = query.params();
    let named = query.uri.path.trim_start_matches('/');
    if device.is_some() && !named.is_empty() {
        let hint = format!("{}://{named}", query.uri.scheme);
        return query.refuse(format!("\"{}\" names two devices", query.uri.raw), &hint);
    }
    let device = device.or_else(|| Some(named.to_owned())).filter(|device| !device.is_empty());
    if device.as_ref().is_some_and(|device| device.contains(char::is_control)) {
        let hint = "the name as `pactl list short sources` or `arecord -L` shows it";
        return query.refuse("the name of the device has a control character", hint);
    }
    Some(vec![SourceConfig::Capture { api, device, spec }])
}

/// The whole query belongs to the web server; a `name` in it is used as well.
pub(crate) fn http(query: &Query<'_>) -> Parsed {
    match query.uri.raw.parse::<HttpUrl>() {
        Ok(url) => Some(vec![SourceConfig::Http { url, charset: TitleCharset::default() }]),
        Err(error) => query
            .refuse(format!("\"{}\": {error}", query.uri.raw), "as in http://radio.example/live"),
    }
}

/// The stations of `meta:///a/b`, in order of priority. As in snapserver, empty parts are skipped,
/// and a name in place of the host counts.
pub(crate) fn meta(query: &Query<'_>) -> Parsed {
    let NoParams { .. } = query.params();
    let host = query.uri.authority();
    let names = std::iter::once(host.as_str()).chain(query.uri.path.split('/'));
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    let stations: Vec<SourceConfig> =
        names.map(|name| SourceConfig::Station { name: name.to_owned() }).collect();
    if stations.is_empty() {
        let hint = "the names of stations in order of priority, as in meta:///kitchen/radio";
        return query.refuse(format!("\"{}\" names no station", query.uri.raw), hint);
    }
    Some(stations)
}

/// The password of the mount is a key of its own.
pub(crate) fn icecast(query: &Query<'_>) -> Parsed {
    let uri = query.uri;
    let user = uri.user.clone().unwrap_or_else(|| DEFAULT_USER.to_owned());
    if user.contains(':') || uri.get("password").is_some() {
        return query.refuse("a source URI must not contain a password", MOUNT_SECRET_HINT);
    }
    let IcecastParams { shoutcast, .. } = query.params();
    if user.is_empty() || user.len() > MAX_NAME || user.chars().any(char::is_control) {
        let hint = "leave it out for the usual `source`";
        return query.refuse("the URI has no valid user name", hint);
    }
    let authority = uri.authority();
    let Some(address) = endpoint(&authority, Some("0.0.0.0"), Some(MOUNT_PORT)) else {
        let hint = "as in icecast://127.0.0.1:8000/live";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    let path = uri.path.clone();
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '?';
    if path.len() < 2 || path.len() > MAX_MOUNT || path.contains(odd) || path.starts_with("/admin/")
    {
        let hint = format!("1 to {MAX_MOUNT} letters, as in icecast://{address}/live");
        return query.refuse(format!("\"{}\" is not a valid mount", path.escape_debug()), &hint);
    }
    if shoutcast && address.port == u16::MAX {
        return query.refuse("`shoutcast` needs the next port, and 65535 is the last", "port 8000");
    }
    let (password, charset) = (None, TitleCharset::default());
    let mount = Mount { address, path, user, password, shoutcast, charset };
    Some(vec![SourceConfig::Icecast(mount)])
}

/// Another Snapcast server. The password is a key of its own.
pub(crate) fn snapcast(query: &Query<'_>) -> Parsed {
    let SnapcastParams { tls, id, host_name, latency, pass, .. } = query.params();
    let uri = query.uri;
    if uri.user.as_ref().is_some_and(|user| user.contains(':')) {
        return query.refuse("a source URI must not contain a password", SNAPCAST_SECRET_HINT);
    }
    let authority = uri.authority();
    let address = endpoint(&authority, None, Some(SNAPCAST_PORT)).filter(|at| at.port != 0);
    let Some(address) = address else {
        let hint = "as in snapcast://living-room.local or snapcast://192.0.2.7:1704";
        return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
    };
    for (key, text) in [("id", &id), ("host_name", &host_name)] {
        let is_valid = |text: &String| {
            !text.is_empty() && text.len() <= MAX_ID && !text.contains(char::is_control)
        };
        if text.as_ref().is_some_and(|text| !is_valid(text)) {
            let hint = format!("1 to {MAX_ID} bytes without line breaks");
            return query.refuse(format!("`{key}` is not valid"), &hint);
        }
    }
    let latency = Span::from_millis(latency.into());
    let (user, password) = (uri.user.clone(), RedactedDebug(None));
    let source = SnapcastSource { address, tls, id, host_name, latency, pass, user, password };
    Some(vec![SourceConfig::Snapcast(source)])
}

/// `nats://HOST/STATION`, or `nats:///STATION` with the servers of `cluster`.
pub(crate) fn nats(query: &Query<'_>) -> Parsed {
    let NatsParams { site, tls, latency, pass, .. } = query.params();
    check_build(query.at, query.problems);
    let (uri, hint) = (query.uri, "as in nats://nats.example/kitchen or nats:///kitchen");
    if uri.user.is_some() {
        let hint = "a login is in the table `cluster`";
        return query.refuse("a `nats:` URI must not contain a user", hint);
    }
    let authority = uri.authority();
    let server = if authority.is_empty() {
        None
    } else {
        let address = endpoint(&authority, None, Some(NATS_PORT)).filter(|at| at.port != 0);
        let Some(address) = address else {
            return query.refuse(format!("\"{authority}\" is not HOST:PORT"), hint);
        };
        Some(NatsServer { address, tls })
    };
    let station = uri.path.trim_start_matches('/').to_owned();
    let is_name =
        |name: &str| !name.is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control);
    if !is_name(&station) || site.as_deref().is_some_and(|site| !is_name(site)) {
        return query.refuse("a `nats:` URI has the name of a station, and of a site", hint);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is that of a minute")]
    let latency = Span::from_micros((latency * 1_000.0).round() as i64);
    Some(vec![SourceConfig::Nats(NatsSource { server, site, station, latency, pass })])
}

/// Spotify, played by librespot to standard output.
pub(crate) fn librespot(query: &Query<'_>) -> Parsed {
    let params: LibrespotParams = query.params();
    let mut line = format!(
        "--backend pipe --name {} --bitrate {} --initial-volume {}",
        quote(&params.devicename),
        quote(&params.bitrate),
        quote(&params.volume)
    );
    for (value, option) in [
        (&params.username, "--username"),
        (&params.cache, "--cache"),
        (&params.onevent, "--onevent"),
    ] {
        if !value.is_empty() {
            line += &format!(" {option} {}", quote(value));
        }
    }
    for (on, option) in [
        (params.disable_audio_cache, "--disable-audio-cache"),
        (params.normalize, "--enable-volume-normalisation"),
    ] {
        if on {
            line += &format!(" {option}");
        }
    }
    if let Some(on) = params.autoplay {
        line += if on { " --autoplay on" } else { " --autoplay off" };
    }
    if !params.password.is_empty() {
        let hint = "remove it; choose the device in an app of Spotify once, and set `cache` to keep \
                    the login";
        query.problems.warn(query.at, "librespot has no option for a password any more", hint);
    }
    add_arguments(&mut line, &params.params);
    let titles = params.titles.then_some(TitleFormat::Librespot);
    player_process(query, line, (params.log_stderr, params.timeout), titles)
}

/// `AirPlay`, played by shairport-sync to standard output.
pub(crate) fn airplay(query: &Query<'_>) -> Parsed {
    let params: AirplayParams = query.params();
    let mut line = format!(
        "--output=stdout {} {}",
        quote(&format!("--name={}", params.devicename)),
        quote(&format!("--port={}", params.port))
    );
    if !params.password.is_empty() {
        line += &format!(" {}", quote(&format!("--password={}", params.password)));
    }
    // A shairport-sync built without metadata support does not start with the options for titles.
    add_arguments(&mut line, &params.params);
    let titles = params.titles.then_some(TitleFormat::Airplay);
    player_process(query, line, (params.log_stderr, params.timeout), titles)
}

fn add_arguments(line: &mut String, more: &str) {
    if !more.is_empty() {
        *line += &format!(" {more}");
    }
}

/// A player process with 44.1 kHz output; without a slash it is looked up in `PATH`.
fn player_process(
    query: &Query<'_>,
    params: String,
    (log_stderr, DataTimeout(timeout)): (bool, DataTimeout),
    titles: Option<TitleFormat>,
) -> Parsed {
    let path = query.path()?;
    let name = path.strip_prefix("/").ok().filter(|rest| rest.components().count() == 1);
    let path = name.map_or_else(|| path.clone(), PathBuf::from);
    let spec = "44100:16:2".parse().unwrap_or(SampleSpec::DEFAULT);
    let titles = titles.map(|kind| TitleFifo { kind, fifo: PathBuf::new() });
    Some(vec![SourceConfig::Process { path, params, spec, log_stderr, timeout, titles }])
}

/// Quotes one argument for [`aulos_io::feed::split_arguments`].
fn quote(argument: &str) -> String {
    format!("\"{}\"", argument.replace('\\', "\\\\").replace('"', "\\\""))
}

/// `rtp://ADDRESS:PORT?payload=...`.
pub(crate) fn rtp(query: &Query<'_>) -> Parsed {
    let params: RtpParams = query.params();
    let RtpParams { sampleformat: spec, payload_type, red, .. } = params;
    let authority = query.uri.authority();
    let address = endpoint(&authority, Some("0.0.0.0"), Some(RTP_PORT));
    let address = address.and_then(|at| Some(SocketAddr::new(at.host.parse().ok()?, at.port)));
    let Some(address) = address else {
        let hint = "an address of this machine or a multicast group, as in rtp://0.0.0.0:5004 or \
                    rtp://239.69.1.2:5004";
        return query.refuse(format!("\"{authority}\" is not an address and a port"), hint);
    };
    let linear = if spec.format.bytes() > 2 { RtpCodec::L24 } else { RtpCodec::L16 };
    let (encoding, opus_channels) = rtp_encoding(params.payload.unwrap_or(linear), spec, query)?;
    if red.is_some() && red == payload_type {
        let hint = "a payload type from 96 to 127, other than that of the payload";
        return query.refuse("`red` and `payload_type` are the same", hint);
    }
    let reception = reception(params.interface, params.jitter, params.delay, params.source);
    let media = RtpPayloadFormat { encoding, payload_type };
    Some(vec![SourceConfig::Rtp(RtpSource { address, media, opus_channels, red, reception })])
}

fn rtp_encoding(codec: RtpCodec, spec: SampleSpec, query: &Query<'_>) -> Option<(Encoding, u8)> {
    let channels = u8::try_from(spec.layout.channels()).unwrap_or(u8::MAX);
    let (clock_rate, wire) = match codec {
        RtpCodec::L16 | RtpCodec::L24 => (spec.rate.hz(), channels),
        RtpCodec::Opus => (48_000, 2),
        _ => (8_000, 1),
    };
    let most = if codec == RtpCodec::Opus { 2 } else { MAX_STATION_CHANNELS };
    if usize::from(channels) > most {
        let message = format!("a source of {} has at most {most} channels", codec.name());
        return query.refuse(message, "48000:16:2");
    }
    Some((Encoding { codec, clock_rate, channels: wire }, channels))
}

/// `sdp:///path/to.sdp`.
pub(crate) fn sdp(query: &Query<'_>) -> Parsed {
    let SdpParams { interface, jitter, delay, source, .. } = query.params();
    let reception = reception(interface, jitter, delay, source);
    Some(vec![SourceConfig::Sdp { path: query.path()?.into(), reception }])
}

fn reception(
    interface: Option<String>,
    jitter: Option<u32>,
    delay: Option<PlayoutDelay>,
    Senders(senders): Senders,
) -> ReceptionSettings {
    let jitter = jitter.map(|millis| Span::from_millis(millis.into()));
    ReceptionSettings { interface, jitter, delay, senders }
}

/// Snapcast's default port of TCP sources.
const TCP_PORT: u16 = 4953;

/// The default port of AES67, and of the first examples in RFC 3550.
pub(crate) const RTP_PORT: u16 = 5_004;

/// Icecast's default port.
const MOUNT_PORT: u16 = 8000;

/// The user name of Icecast's source clients.
const DEFAULT_USER: &str = "source";

/// Snapcast's port of streams.
const SNAPCAST_PORT: u16 = 1_704;

pub(crate) const SNAPCAST_SECRET_HINT: &str =
    "write { uri = \"snapcast://USER@HOST\", password_file = \"FILE\" }";

pub(crate) const MOUNT_SECRET_HINT: &str =
    "write { uri = \"icecast://0.0.0.0:8000/live\", password_file = \"FILE\" }";

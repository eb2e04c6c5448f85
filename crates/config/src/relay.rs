//! `[[relay]]`: RTP in, RTP out.

use std::fmt;
use std::net::IpAddr;

use aulos_core::Span;
use aulos_io::relay::{DtmfPayloadTypes, RedConfig, RelayStreamConfig, RtpPayloadFormat, TAKEOVER};
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_proto::rtp::{Encoding, RtpCodec};

use super::limits::{
    MAX_RELAY_PORTS, MAX_RELAYS, OPUS_BITRATE, OPUS_COMPLEXITY, RED_DISTANCE, RED_TYPES,
    RELAY_HOLD_MS, RELAY_IDLE_S, RELAY_STREAMS, RELAY_TAKEOVER_MS,
};
use super::problem::{ConfigLocation, ConfigValue, Problem, Problems, did_you_mean};
use super::read::TableReader;
use super::resolve::check_name;
use super::tree::{Node, Value};

/// `[[relay]]` as written. The command line and control calls use the same keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// The name; by default `relay` with a number.
    pub name: Option<ConfigValue<String>>,
    /// `udp://ADDRESS:PORT`, `udp://ADDRESS:FIRST-LAST` or `trunk://ADDRESS:PORT`.
    pub listen: Option<ConfigValue<String>>,
    /// A second path for the same streams.
    pub also: Option<ConfigValue<String>>,
    /// The incoming encoding.
    pub from: Option<ConfigValue<String>>,
    /// The outgoing encoding.
    pub to: Option<ConfigValue<String>>,
    /// `udp://HOST:PORT`, `udp://HOST:FIRST-LAST` or `trunk://HOST:PORT`.
    pub dest: Option<ConfigValue<String>>,
    /// The payload type of DTMF telephone-events; two of them if the sides differ.
    pub events: Option<ConfigValue<String>>,
    /// The payload type of incoming RED.
    pub red_from: Option<ConfigValue<u32>>,
    /// The payload type of outgoing RED.
    pub red_to: Option<ConfigValue<u32>>,
    /// Number of earlier packets repeated in each outgoing packet.
    pub red_distance: Option<u32>,
    /// Milliseconds to wait for a missing packet.
    pub hold_ms: Option<u32>,
    /// Seconds without packets after which a stream ends.
    pub idle_s: Option<u32>,
    /// Milliseconds of silence after which another address may take over a stream.
    pub takeover_ms: Option<u32>,
    /// Whether RTCP reports are sent.
    pub rtcp: Option<bool>,
    /// Whether packets are sent from the listening port.
    pub symmetric: Option<bool>,
    /// Limit of streams on a single port.
    pub max_streams: Option<u32>,
    /// Opus bit rate in bit/s.
    pub opus_bitrate: Option<u32>,
    /// Opus complexity, 0 to 10.
    pub opus_complexity: Option<u32>,
    /// Whether Opus sends forward error correction.
    pub opus_fec: Option<bool>,
}

/// A relay: streams that share their configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct RelaySettings {
    /// Unique.
    pub name: String,
    /// The ports to listen on.
    pub listen: PortRange<IpAddr>,
    /// The ports of the second path, one for each port of `listen`.
    pub also: Option<PortRange<IpAddr>>,
    /// The incoming encoding.
    pub from: RtpPayloadFormat,
    /// The outgoing encoding.
    pub to: RtpPayloadFormat,
    /// The destination.
    pub dest: PortRange<String>,
    /// The payload types of DTMF telephone-events.
    pub events: Option<DtmfPayloadTypes>,
    /// The payload type of incoming RED.
    pub red_from: Option<u8>,
    /// Outgoing RED.
    pub red_to: Option<RedConfig>,
    /// How long to wait for a missing packet.
    pub hold: Span,
    /// Time without packets after which a stream ends.
    pub idle: Span,
    /// Silence after which another address may take over a stream.
    pub takeover: Span,
    /// Whether RTCP reports are sent.
    pub rtcp: bool,
    /// Whether packets are sent from the listening port.
    pub symmetric: bool,
    /// Limit of streams on a single port.
    pub max_streams: usize,
    /// Opus bit rate in bit/s.
    pub opus_bitrate: u32,
    /// Opus complexity, 0 to 10.
    pub opus_complexity: u8,
    /// Whether Opus sends forward error correction.
    pub opus_fec: bool,
}

impl RelaySettings {
    /// The configuration of its streams.
    #[must_use]
    pub fn stream_config(&self) -> RelayStreamConfig {
        let mut config = RelayStreamConfig::new(self.from, self.to);
        (config.reorder_delay, config.idle_timeout, config.symmetric) =
            (self.hold, self.idle, self.symmetric);
        config.takeover = self.takeover;
        (config.dtmf, config.red_in, config.red_out) = (self.events, self.red_from, self.red_to);
        (config.redundant, config.opus_fec) = (self.also.is_some(), self.opus_fec);
        (config.opus_bitrate, config.opus_complexity) = (self.opus_bitrate, self.opus_complexity);
        config
    }
}

/// A port or a range of ports of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange<H> {
    /// The host.
    pub host: H,
    /// The first port.
    pub first: u16,
    /// The last port; equal to the first for a single port.
    pub last: u16,
    /// Whether the port is a trunk: a flow of many streams to or from another relay of this
    /// program.
    pub trunk: bool,
}

impl<H> PortRange<H> {
    /// The number of ports.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// The URL scheme.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        if self.trunk { "trunk" } else { "udp" }
    }
}

impl<H: fmt::Display> fmt::Display for PortRange<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.to_string();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        write!(f, "{}://{host}:{}", self.scheme(), self.first)?;
        if self.last == self.first { Ok(()) } else { write!(f, "-{}", self.last) }
    }
}

/// Reads every `[[relay]]`.
pub(super) fn read(root: &mut TableReader<'_>, problems: &Problems) -> Vec<RelayConfig> {
    match root.node("relay") {
        Some(Node { value: Value::List(items), .. }) => {
            items.iter().map(|node| read_relay(node, problems)).collect()
        }
        Some(node) => {
            let message = format!("`relay` is {}: it must be a list of tables", node.kind());
            problems.add_with_hint(node.at, message, "write [[relay]] with two brackets");
            Vec::new()
        }
        None => Vec::new(),
    }
}

fn read_relay(node: &Node, problems: &Problems) -> RelayConfig {
    let mut table = TableReader::new(node, "a relay", problems);
    let mut relay = RelayConfig {
        at: node.at,
        name: table.text("name"),
        listen: table.text("listen"),
        also: table.text("also"),
        from: table.text("from"),
        to: table.text("to"),
        dest: table.text("dest"),
        rtcp: table.flag("rtcp"),
        symmetric: table.flag("symmetric"),
        opus_fec: table.flag("opus_fec"),
        events: events_text(&mut table, problems),
        red_from: table.number("red_from", "for a payload type", RED_TYPES),
        red_to: table.number("red_to", "for a payload type", RED_TYPES),
        ..RelayConfig::default()
    };
    let mut number = |key, unit, range| {
        table.number(key, unit, range).map(|number: ConfigValue<u32>| number.value)
    };
    relay.hold_ms = number("hold_ms", "milliseconds", RELAY_HOLD_MS);
    relay.idle_s = number("idle_s", "seconds", RELAY_IDLE_S);
    relay.red_distance = number("red_distance", "packets", RED_DISTANCE);
    relay.takeover_ms = number("takeover_ms", "milliseconds", RELAY_TAKEOVER_MS);
    relay.max_streams = number("max_streams", "streams", RELAY_STREAMS);
    relay.opus_bitrate = number("opus_bitrate", "bits per second", OPUS_BITRATE);
    relay.opus_complexity = number("opus_complexity", "", OPUS_COMPLEXITY);
    table.finish();
    relay
}

/// A number or a string.
fn events_text(table: &mut TableReader<'_>, problems: &Problems) -> Option<ConfigValue<String>> {
    let node = table.node("events")?;
    let value = match (&node.value, &node.raw) {
        (Value::Integer(number), _) => number.to_string(),
        (Value::Text(text), _) | (_, Some(text)) => text.clone(),
        _ => {
            let message = format!("`events` is {}: it must be a payload type", node.kind());
            problems.add_with_hint(node.at, message, EVENTS_EXAMPLE);
            return None;
        }
    };
    Some(ConfigValue { value, at: node.at })
}

/// Validates every relay.
pub(super) fn resolve(configs: &[RelayConfig], problems: &Problems) -> Vec<RelaySettings> {
    if let Some(relay) = configs.get(MAX_RELAYS) {
        problems.add(relay.at, format!("there are more than {MAX_RELAYS} relays"));
    }
    let mut relays: Vec<RelaySettings> = Vec::new();
    for config in configs {
        let name = name(config, &relays, problems);
        if let Some(relay) = resolve_one(config, name, problems) {
            check_overlap(config, &relay, &relays, problems);
            relays.push(relay);
        }
    }
    relays
}

/// Validates a relay from the command line.
///
/// # Errors
/// All problems.
pub fn resolve_relay(config: &RelayConfig) -> Result<RelaySettings, Vec<Problem>> {
    let problems = Problems::default();
    let name = name(config, &[], &problems);
    let relay = resolve_one(config, name, &problems);
    match relay.filter(|_| problems.is_empty()) {
        Some(relay) => Ok(relay),
        None => Err(problems.into_sorted()),
    }
}

/// A relay from the parameters of a control call, which are the keys of the table.
///
/// # Errors
/// All problems with their hints, in one line.
pub fn relay_from_json(json: &serde_json::Value) -> Result<RelaySettings, String> {
    let problems = Problems::default();
    let config = read_relay(&super::sound::node_from_json(json), &problems);
    if config.name.is_none() {
        problems.add_with_hint(config.at, "a relay that is added needs `name`", "name = \"desk\"");
    }
    let name = name(&config, &[], &problems);
    let relay = resolve_one(&config, name, &problems);
    match relay.filter(|_| problems.is_empty()) {
        Some(relay) => Ok(relay),
        None => Err(super::stream::in_one_line(problems)),
    }
}

fn resolve_one(config: &RelayConfig, name: String, problems: &Problems) -> Option<RelaySettings> {
    let need = |key: &str, value: &Option<ConfigValue<String>>| {
        if value.is_none() {
            let hint = format!("{key} = {}", EXAMPLES.iter().find(|(of, _)| *of == key)?.1);
            problems.add_with_hint(config.at, format!("a relay needs `{key}`"), hint);
        }
        value.clone()
    };
    let (listen, dest) = (need("listen", &config.listen), need("dest", &config.dest));
    let (from, to) = (need("from", &config.from), need("to", &config.to));
    let listen = listen.and_then(|setting| {
        let ports = ports("listen", &setting, problems)?;
        address("listen", &setting, ports, problems)
    });
    let dest = dest.and_then(|setting| destination(&setting, problems));
    let from = from.and_then(|setting| media("from", &setting, problems));
    let to = to.and_then(|setting| media("to", &setting, problems));
    let also = config.also.as_ref().map(|setting| {
        let ports = ports("also", setting, problems)?;
        address("also", setting, ports, problems)
    });
    let events = config.events.as_ref().map(|setting| events(setting, problems));
    let (listen, dest, from, to) = (listen?, dest?, from?, to?);
    let (also, events) = (if_valid(also)?, if_valid(events)?);
    check_also(config, &listen, also.as_ref(), problems);
    check_types(config, (&from, &to), events, problems);
    let red_to = red_to(config, problems);
    check_port_counts(config, &listen, &dest, problems)?;
    Some(RelaySettings {
        name,
        listen,
        also,
        from,
        to,
        dest,
        events,
        red_from: config.red_from.as_ref().map(|number| payload_type(number.value)),
        red_to,
        hold: Span::from_millis(config.hold_ms.unwrap_or(60).into()),
        idle: Span::from_secs(config.idle_s.unwrap_or(30).into()),
        takeover: config
            .takeover_ms
            .map_or(TAKEOVER, |milliseconds| Span::from_millis(milliseconds.into())),
        rtcp: config.rtcp.unwrap_or(true),
        symmetric: config.symmetric.unwrap_or(false),
        max_streams: config.max_streams.unwrap_or(10_000) as usize,
        opus_bitrate: config.opus_bitrate.unwrap_or(24_000),
        opus_complexity: config
            .opus_complexity
            .and_then(|complexity| u8::try_from(complexity).ok())
            .unwrap_or(5),
        opus_fec: config.opus_fec.unwrap_or(false),
    })
}

/// Parses the destination.
fn destination(setting: &ConfigValue<String>, problems: &Problems) -> Option<PortRange<String>> {
    let ports = ports("dest", setting, problems)?;
    if ports.first == 0 {
        let message = format!("`dest` is \"{}\": nobody can be reached at port 0", setting.value);
        problems.add_with_hint(setting.at, message, "a port from 1 to 65535");
        return None;
    }
    Some(ports)
}

/// Checks that the port counts of `listen` and `dest` match; none if they do not.
fn check_port_counts(
    config: &RelayConfig,
    listen: &PortRange<IpAddr>,
    dest: &PortRange<String>,
    problems: &Problems,
) -> Option<()> {
    let dest_at = config.dest.as_ref().map_or(config.at, |setting| setting.at);
    if dest.trunk && config.symmetric == Some(true) {
        let message = "`symmetric` sends from many ports, and a trunk is one flow".to_owned();
        problems.add_with_hint(dest_at, message, "leave `symmetric` out, or write udp://");
        return None;
    }
    // A trunk identifies its streams, so their ports need not match.
    if dest.count() != 1 && dest.count() != listen.count() && !listen.trunk {
        let message = format!(
            "`listen` has {} port(s) and `dest` {}: they do not belong together",
            listen.count(),
            dest.count()
        );
        problems.add_with_hint(
            dest_at,
            message,
            "one port for all of them, or as many as in `listen`",
        );
        return None;
    }
    Some(())
}

/// None if the value is present but invalid.
#[allow(clippy::option_option, reason = "absent is not wrong")]
const fn if_valid<T: Copy>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(None) => None,
        Some(some) => Some(some),
    }
}

/// `TYPE`, or `TYPE:TYPE` with another one on the outgoing side.
fn events(setting: &ConfigValue<String>, problems: &Problems) -> Option<DtmfPayloadTypes> {
    let (from, to) = setting.value.split_once(':').unwrap_or((&setting.value, &setting.value));
    let number =
        |text: &str| text.parse::<u8>().ok().filter(|number| DYNAMIC_TYPES.contains(number));
    if let (Some(from), Some(to)) = (number(from), number(to)) {
        return Some(DtmfPayloadTypes { from, to });
    }
    let message = format!("`events` is \"{}\": a payload type from 96 to 127", setting.value);
    problems.add_with_hint(setting.at, message, EVENTS_EXAMPLE);
    None
}

fn red_to(config: &RelayConfig, problems: &Problems) -> Option<RedConfig> {
    let Some(number) = &config.red_to else {
        if config.red_distance.is_some() {
            let message = "`red_distance` says how often what goes is repeated, and it is not";
            problems.add_with_hint(config.at, message, "red_to = 112");
        }
        return None;
    };
    let distance = config.red_distance.and_then(|distance| u8::try_from(distance).ok());
    let payload_type = payload_type(number.value);
    Some(RedConfig { payload_type, distance: distance.unwrap_or(1) })
}

/// A payload type that has been checked to be in range.
fn payload_type(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(*DYNAMIC_TYPES.start())
}

/// Checks that each payload type has one meaning.
fn check_types(
    config: &RelayConfig,
    (from, to): (&RtpPayloadFormat, &RtpPayloadFormat),
    events: Option<DtmfPayloadTypes>,
    problems: &Problems,
) {
    let events_at = config.events.as_ref().map_or(config.at, |setting| setting.at);
    let sides = [
        ("from", from.payload_type, &config.red_from, events.map(|events| events.from)),
        ("to", Some(to.outgoing_payload_type()), &config.red_to, events.map(|events| events.to)),
    ];
    for (side, sound, red, events) in sides {
        let mut used = sound.map(|number| (number, format!("`{side}`")));
        let red =
            red.as_ref().map(|red| (payload_type(red.value), format!("`red_{side}`"), red.at));
        let events = events.map(|number| (number, "`events`".to_owned(), events_at));
        for (number, name, at) in red.into_iter().chain(events) {
            if let Some((_, other)) = used.iter().find(|(other, _)| *other == number) {
                let message = format!("{name}: payload type {number} is that of {other}");
                problems.add_with_hint(at, message, "each of them needs its own, 96 to 127");
            }
            used.get_or_insert((number, name));
        }
    }
    if config.opus_fec == Some(true) && to.encoding.codec != RtpCodec::Opus {
        problems.add_with_hint(config.at, "`opus_fec`: what goes is not Opus", "to = \"opus\"");
    }
}

/// Checks that both paths have a port for every stream.
fn check_also(
    config: &RelayConfig,
    listen: &PortRange<IpAddr>,
    also: Option<&PortRange<IpAddr>>,
    problems: &Problems,
) {
    let Some(also) = also else { return };
    let at = config.also.as_ref().map_or(config.at, |setting| setting.at);
    if also.trunk || listen.trunk {
        let message = "`also`: what comes through a trunk comes one way".to_owned();
        problems.add_with_hint(at, message, "udp:// in `listen` and in `also`");
    } else if also.count() != listen.count() {
        let message =
            format!("`listen` has {} port(s) and `also` {}", listen.count(), also.count());
        problems.add_with_hint(at, message, "a port of each for every stream");
    } else if overlaps(listen, also) {
        let message = format!("`also`: {also} is also `listen`");
        problems.add_with_hint(at, message, "give the second way ports of its own");
    }
}

fn name(config: &RelayConfig, used: &[RelaySettings], problems: &Problems) -> String {
    let taken = |name: &str| used.iter().any(|relay| relay.name == name);
    if let Some(given) = &config.name {
        let name = check_name(given, problems);
        if taken(&name) {
            let message = format!("two relays are called `{name}`");
            problems.add_with_hint(given.at, message, "give one of them another name");
        }
        return name;
    }
    let numbered = (2..).map(|number| format!("relay-{number}"));
    let mut names = std::iter::once("relay".to_owned()).chain(numbered);
    names.find(|name| !taken(name)).unwrap_or_default()
}

/// Checks that no port is used by two relays.
fn check_overlap(
    config: &RelayConfig,
    relay: &RelaySettings,
    others: &[RelaySettings],
    problems: &Problems,
) {
    let owns = [
        ("listen", Some(&relay.listen), &config.listen),
        ("also", relay.also.as_ref(), &config.also),
    ];
    for (key, own, setting) in owns {
        let Some(own) = own else { continue };
        let clash = others.iter().find(|other| {
            core::iter::once(&other.listen).chain(&other.also).any(|theirs| overlaps(own, theirs))
        });
        if let Some(other) = clash {
            let at = setting.as_ref().map_or(config.at, |setting| setting.at);
            let message = format!("`{key}`: {own} is also that of relay `{}`", other.name);
            problems.add_with_hint(at, message, "give each relay ports of its own");
        }
    }
}

/// Whether both would bind the same socket.
fn overlaps(own: &PortRange<IpAddr>, theirs: &PortRange<IpAddr>) -> bool {
    let meets =
        own.host == theirs.host || own.host.is_unspecified() || theirs.host.is_unspecified();
    meets && own.first != 0 && own.first <= theirs.last && theirs.first <= own.last
}

/// `udp://HOST:PORT`, `udp://HOST:FIRST-LAST` or `trunk://HOST:PORT`.
fn ports(
    key: &str,
    setting: &ConfigValue<String>,
    problems: &Problems,
) -> Option<PortRange<String>> {
    let refuse = |why: String| {
        let example = EXAMPLES.iter().find(|(of, _)| *of == key).map_or("", |(_, text)| *text);
        problems.add_with_hint(
            setting.at,
            format!("`{key}` is \"{}\": {why}", setting.value),
            example,
        );
        None
    };
    let udp = setting.value.strip_prefix("udp://");
    let Some(rest) = udp.or_else(|| setting.value.strip_prefix("trunk://")) else {
        return refuse("it does not begin with udp:// or trunk://".to_owned());
    };
    let trunk = udp.is_none();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let Some((host, range)) = rest.rsplit_once(':') else {
        return refuse("there is no port".to_owned());
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return refuse("there is no address".to_owned());
    }
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
        return refuse("a port is a number from 1 to 65535".to_owned());
    };
    if last < first {
        return refuse(format!("{last} is less than {first}"));
    }
    if trunk && last != first {
        return refuse("a trunk has one port".to_owned());
    }
    if usize::from(last - first) >= MAX_RELAY_PORTS {
        return refuse(format!("at most {MAX_RELAY_PORTS} ports"));
    }
    Some(PortRange { host: host.to_owned(), first, last, trunk })
}

fn address(
    key: &str,
    setting: &ConfigValue<String>,
    ports: PortRange<String>,
    problems: &Problems,
) -> Option<PortRange<IpAddr>> {
    match ports.host.parse() {
        Ok(host) => {
            let PortRange { first, last, trunk, .. } = ports;
            Some(PortRange { host, first, last, trunk })
        }
        Err(_) => {
            let message = format!("`{key}` is \"{}\": {} is no address", setting.value, ports.host);
            problems.add_with_hint(
                setting.at,
                message,
                "0.0.0.0 for every network, 127.0.0.1 for this machine",
            );
            None
        }
    }
}

/// `CODEC[/RATE[/CHANNELS]][:TYPE]`.
fn media(
    key: &str,
    setting: &ConfigValue<String>,
    problems: &Problems,
) -> Option<RtpPayloadFormat> {
    let refuse = |why: String, hint: &str| {
        problems.add_with_hint(
            setting.at,
            format!("`{key}` is \"{}\": {why}", setting.value),
            hint,
        );
        None
    };
    let (encoding, payload_type) = match setting.value.split_once(':') {
        Some((encoding, number)) => match number.parse::<u8>() {
            Ok(number) if number < 128 => (encoding, Some(number)),
            _ => return refuse("a payload type is a number from 0 to 127".to_owned(), "opus:111"),
        },
        None => (setting.value.as_str(), None),
    };
    let mut parts = encoding.split('/');
    let name = parts.next().unwrap_or_default();
    let Some(usual) =
        DEFAULT_ENCODINGS.iter().find(|usual| usual.codec.name().eq_ignore_ascii_case(name))
    else {
        let names = DEFAULT_ENCODINGS.map(|usual| usual.codec.name().to_ascii_lowercase());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = match did_you_mean(name, &names) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there is {}", names.join(", ")),
        };
        return refuse(format!("there is no codec `{name}`"), &hint);
    };
    let mut encoding = *usual;
    let free = matches!(usual.codec, RtpCodec::L16 | RtpCodec::L24);
    for (what, slot) in [("rate", 0), ("channels", 1)] {
        let Some(part) = parts.next() else { break };
        let number = part.parse::<u32>().unwrap_or(0);
        let (is, most) = match slot {
            0 => (encoding.clock_rate, 192_000),
            _ => (u32::from(encoding.channels), 8),
        };
        if !free && number != is {
            return refuse(format!("its {what} is always {is}"), name);
        }
        if number == 0 || number > most || (slot == 0 && number < 8_000) {
            return refuse(format!("{what} {part} is out of range"), "l24/48000/2");
        }
        match slot {
            0 => encoding.clock_rate = number,
            _ => encoding.channels = u8::try_from(number).unwrap_or(1),
        }
    }
    if parts.next().is_some() {
        return refuse("there is too much of it".to_owned(), "l16/44100/2");
    }
    if payload_type
        .is_some_and(|own| !DYNAMIC_TYPES.contains(&own) && encoding.static_type() != Some(own))
    {
        return refuse("that payload type means something else".to_owned(), "96 to 127 are free");
    }
    Some(RtpPayloadFormat { encoding, payload_type })
}

const fn default_encoding(codec: RtpCodec, clock_rate: u32, channels: u8) -> Encoding {
    Encoding { codec, clock_rate, channels }
}

/// The default encoding of each codec.
const DEFAULT_ENCODINGS: [Encoding; 6] = [
    default_encoding(RtpCodec::Pcmu, 8_000, 1),
    default_encoding(RtpCodec::Pcma, 8_000, 1),
    default_encoding(RtpCodec::G722, 8_000, 1),
    default_encoding(RtpCodec::L16, 48_000, 2),
    default_encoding(RtpCodec::L24, 48_000, 2),
    default_encoding(RtpCodec::Opus, 48_000, 2),
];

const EVENTS_EXAMPLE: &str = "events = 101, or \"101:96\" where it has another one";

const EXAMPLES: [(&str, &str); 5] = [
    ("listen", "\"udp://0.0.0.0:6000-6999\""),
    ("also", "\"udp://0.0.0.0:8000-8999\""),
    ("from", "\"pcmu\""),
    ("to", "\"pcma\""),
    ("dest", "\"udp://192.0.2.7:7000\""),
];

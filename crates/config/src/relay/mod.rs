//! `[[relay]]`: RTP in, RTP out.

pub(crate) mod ports;
pub(crate) mod rtp_format;

use std::net::IpAddr;

use aulos_core::Span;
use aulos_proto::rtp::RtpCodec;
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_session::relay::{DtmfPayloadTypes, RedConfig, RelayStreamConfig};
use aulos_session::rtp::RtpPayloadFormat;
use serde_json::Value as Json;

use crate::keys::values::parsed;
use crate::keys::{ConfigRead, ReadContext, ValueKind, keys, table_of};
use crate::limits::{
    MAX_RELAYS, OPUS_BITRATE, OPUS_COMPLEXITY, RED_DISTANCE, RED_TYPES, RELAY_IDLE_S,
    RELAY_REORDER_WAIT_MS, RELAY_STREAMS, RELAY_TAKEOVER_MS,
};
use crate::names::{check_name, report_duplicate};
use crate::problem::{ConfigLocation, ConfigValue, Problem, Problems};
use crate::relay::ports::PortRange;
use crate::tree::{self, Node};

keys! {
    /// An RTP relay: streams that share their settings. The command line and control calls use the
    /// same keys.
    pub(crate) struct RelayConfig {
        /// Name, unique in the server.
        name: Option<ConfigValue<String>>, default_doc "`relay`, with a number";
        /// Ports to listen on: `udp://ADDRESS:PORT` for many streams, `udp://ADDRESS:FIRST-LAST`
        /// for a stream for each port, or `trunk://ADDRESS:PORT`.
        listen: Option<ConfigValue<PortRange<IpAddr>>>, required "listen = \"udp://0.0.0.0:6000-6999\"";
        /// Ports of a second network path for the same streams, as many as in `listen`.
        also: Option<ConfigValue<PortRange<IpAddr>>>;
        /// Encoding of the input: `CODEC[/RATE[/CHANNELS]][:PAYLOAD_TYPE]`.
        from: Option<RtpPayloadFormat>, required "from = \"pcmu\"";
        /// Encoding of the output, in the same form.
        to: Option<RtpPayloadFormat>, required "to = \"pcma\"";
        /// Destination: `udp://HOST:PORT`, `udp://HOST:FIRST-LAST` or `trunk://HOST:PORT`.
        dest: Option<ConfigValue<PortRange<String>>>, required "dest = \"udp://192.0.2.7:7000\"";
        /// Payload type of DTMF telephone-events (RFC 4733), 96 to 127; `101:96` where input and
        /// output differ.
        dtmf: Option<ConfigValue<DtmfPayloadTypes>>, alias "events";
        /// Payload type of received RED (RFC 2198).
        red_from: Option<ConfigValue<u8>>, range RED_TYPES, "";
        /// Payload type of sent RED.
        red_to: Option<ConfigValue<u8>>, range RED_TYPES, "";
        /// Number of earlier packets that each packet of sent RED repeats.
        red_distance: Option<u8>, range RED_DISTANCE, "packets", default_doc "1";
        /// Time to wait for a missing packet.
        hold_ms: u32 = 60, range RELAY_REORDER_WAIT_MS, "milliseconds";
        /// Silence after which a stream ends.
        idle_s: u32 = 30, range RELAY_IDLE_S, "seconds";
        /// Silence after which another address may take over a stream.
        takeover_ms: u32 = 2_000, range RELAY_TAKEOVER_MS, "milliseconds";
        /// Send RTCP reports.
        rtcp: bool = true;
        /// Send packets from the listening port.
        symmetric: bool = false;
        /// Maximum number of streams on a single port.
        max_streams: u32 = 10_000, range RELAY_STREAMS, "streams";
        /// Bit rate of Opus.
        opus_bitrate: u32 = 24_000, range OPUS_BITRATE, "bit/s";
        /// Complexity of Opus.
        opus_complexity: u8 = 5, range OPUS_COMPLEXITY, "";
        /// Send forward error correction in Opus.
        opus_fec: bool = false;
    }
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
    pub dtmf: Option<DtmfPayloadTypes>,
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
        config.receive.reorder_delay = self.hold;
        (config.idle_timeout, config.symmetric) = (self.idle, self.symmetric);
        config.takeover = self.takeover;
        (config.receive.dtmf_type, config.dtmf_to) =
            (self.dtmf.map(|types| types.from), self.dtmf.map(|types| types.to));
        (config.receive.red_type, config.red_out) = (self.red_from, self.red_to);
        (config.redundant, config.opus_fec) = (self.also.is_some(), self.opus_fec);
        (config.opus_bitrate, config.opus_complexity) = (self.opus_bitrate, self.opus_complexity);
        config
    }
}

impl ConfigRead for DtmfPayloadTypes {
    const KIND: &'static ValueKind = &ValueKind::AnyOf(&[&ValueKind::Integer, &ValueKind::Text]);

    /// `TYPE`, or `TYPE:TYPE` with another one on the outgoing side.
    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        let number =
            |text: &str| text.parse::<u8>().ok().filter(|number| DYNAMIC_TYPES.contains(number));
        parsed(&node.number_as_text(), context, |text| {
            let (from, to) = text.split_once(':').unwrap_or((text, text));
            let types = number(from).zip(number(to)).map(|(from, to)| Self { from, to });
            types.ok_or_else(|| {
                "it must be a payload type from 96 to 127, or two as in 101:96".to_owned()
            })
        })
    }
}

/// Validates every relay.
pub(crate) fn resolve(configs: &[RelayConfig], problems: &Problems) -> Vec<RelaySettings> {
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

/// A relay from the command line, as keys with their values.
///
/// # Errors
/// All problems.
pub fn relay_from_keys(keys: &[(&str, String)]) -> Result<RelaySettings, Vec<Problem>> {
    let problems = Problems::default();
    let keys = keys.iter().map(|(key, value)| (*key, value.as_str()));
    let config = table_of(&tree::from_texts(keys, ConfigLocation::Default), "relay", &problems);
    let name = name(&config, &[], &problems);
    let relay = resolve_one(&config, name, &problems);
    match relay.filter(|_| problems.is_empty()) {
        Some(relay) => Ok(relay),
        None => Err(problems.into_errors()),
    }
}

/// A relay from the parameters of a control call, which are the keys of the table.
///
/// # Errors
/// All problems with their hints, in one line.
pub fn relay_from_json(json: &Json) -> Result<RelaySettings, String> {
    let problems = Problems::default();
    let node = tree::from_json(json);
    if !json.is_object() {
        problems.add(node.at, format!("`relay` is {}: it must be a table", node.kind()));
    }
    let config: RelayConfig = table_of(&node, "relay", &problems);
    if config.name.is_none() {
        problems.add_with_hint(config.at, "`relay` has no `name`", "as in name = \"desk\"");
    }
    let name = name(&config, &[], &problems);
    let relay = resolve_one(&config, name, &problems);
    relay.filter(|_| problems.is_empty()).ok_or_else(|| problems.errors_as_line())
}

/// The settings of a relay; none if a required key is missing or wrong, which has been reported.
fn resolve_one(config: &RelayConfig, name: String, problems: &Problems) -> Option<RelaySettings> {
    // What can be checked without the other keys comes first, so that all problems are reported.
    let dest = config.dest.as_ref().inspect(|dest| check_dest(dest, problems));
    let listen = config.listen.as_ref();
    let listen = listen.inspect(|listen| check_also(config, &listen.value, problems));
    let red_to = red_to(config, problems);
    let (listen, dest, from, to) = (listen?, dest?, config.from?, config.to?);
    check_types(config, (&from, &to), problems);
    check_port_counts(config, listen, dest, problems);
    Some(RelaySettings {
        name,
        listen: listen.value,
        also: config.also.map(|also| also.value),
        from,
        to,
        dest: dest.value.clone(),
        dtmf: config.dtmf.map(|dtmf| dtmf.value),
        red_from: config.red_from.map(|number| number.value),
        red_to,
        hold: Span::from_millis(config.hold_ms.into()),
        idle: Span::from_secs(config.idle_s.into()),
        takeover: Span::from_millis(config.takeover_ms.into()),
        rtcp: config.rtcp,
        symmetric: config.symmetric,
        max_streams: config.max_streams as usize,
        opus_bitrate: config.opus_bitrate,
        opus_complexity: config.opus_complexity,
        opus_fec: config.opus_fec,
    })
}

fn check_dest(dest: &ConfigValue<PortRange<String>>, problems: &Problems) {
    if dest.value.first == 0 {
        let message = format!("`dest` is \"{}\": packets cannot be sent to port 0", dest.value);
        problems.add_with_hint(dest.at, message, "a port from 1 to 65535");
    }
}

/// Checks that the port counts of `listen` and `dest` match.
fn check_port_counts(
    config: &RelayConfig,
    ConfigValue { value: listen, .. }: &ConfigValue<PortRange<IpAddr>>,
    ConfigValue { value: dest, at }: &ConfigValue<PortRange<String>>,
    problems: &Problems,
) {
    if dest.trunk && config.symmetric {
        let message = "`symmetric` sends from many ports, and a trunk is one flow";
        problems.add_with_hint(*at, message, "leave `symmetric` out, or write udp://");
    } else if dest.count() != 1 && dest.count() != listen.count() && !listen.trunk {
        // A trunk identifies its streams, so their ports need not match.
        let (from, to) = (listen.count(), dest.count());
        let message = format!("`listen` has {from} port(s) and `dest` {to}: they do not match");
        problems.add_with_hint(*at, message, "one port for all, or as many as in `listen`");
    }
}

fn red_to(config: &RelayConfig, problems: &Problems) -> Option<RedConfig> {
    if config.red_to.is_none() && config.red_distance.is_some() {
        problems.add_with_hint(config.at, "`red_distance` requires `red_to`", "red_to = 112");
    }
    let distance = config.red_distance.unwrap_or(1);
    config.red_to.map(|number| RedConfig { payload_type: number.value, distance })
}

/// Checks that each payload type has one meaning.
fn check_types(
    config: &RelayConfig,
    (from, to): (&RtpPayloadFormat, &RtpPayloadFormat),
    problems: &Problems,
) {
    let dtmf = config.dtmf.map(|dtmf| (dtmf.value, dtmf.at));
    let sides = [
        ("from", from.payload_type, config.red_from, dtmf.map(|(types, at)| (types.from, at))),
        (
            "to",
            Some(to.outgoing_payload_type()),
            config.red_to,
            dtmf.map(|(types, at)| (types.to, at)),
        ),
    ];
    for (side, sound, red, dtmf) in sides {
        let mut used = sound.map(|number| (number, format!("`{side}`")));
        let red = red.map(|red| (red.value, format!("`red_{side}`"), red.at));
        let dtmf = dtmf.map(|(number, at)| (number, "`dtmf`".to_owned(), at));
        for (number, name, at) in red.into_iter().chain(dtmf) {
            if let Some((_, other)) = used.iter().find(|(other, _)| *other == number) {
                let message = format!("{name}: {other} has the payload type {number} already");
                problems.add_with_hint(at, message, "each needs its own, 96 to 127");
            }
            used.get_or_insert((number, name));
        }
    }
    if config.opus_fec && to.encoding.codec != RtpCodec::Opus {
        problems.add_with_hint(config.at, "`opus_fec` requires an Opus output", "to = \"opus\"");
    }
}

/// Checks that both paths have a port for every stream.
fn check_also(config: &RelayConfig, listen: &PortRange<IpAddr>, problems: &Problems) {
    let Some(ConfigValue { value: also, at }) = &config.also else { return };
    if also.trunk || listen.trunk {
        let message = "`also` requires UDP: a trunk has one path";
        problems.add_with_hint(*at, message, "udp:// in `listen` and in `also`");
    } else if also.count() != listen.count() {
        let (one, other) = (listen.count(), also.count());
        let message = format!("`listen` has {one} port(s) and `also` {other}: they do not match");
        problems.add_with_hint(*at, message, "a port of each for every stream");
    } else if listen.overlaps(also) {
        let message = format!("`also`: {also} overlaps `listen`");
        problems.add_with_hint(*at, message, "give the second path ports of its own");
    }
}

fn name(config: &RelayConfig, used: &[RelaySettings], problems: &Problems) -> String {
    let taken = |name: &str| used.iter().any(|relay| relay.name == name);
    if let Some(given) = &config.name {
        let name = check_name(given, problems);
        if taken(&name) {
            report_duplicate("relay", given, problems);
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
        ("listen", Some(&relay.listen), config.listen),
        ("also", relay.also.as_ref(), config.also),
    ];
    for (key, own, setting) in owns {
        let Some(own) = own else { continue };
        let clash = others.iter().find(|other| {
            core::iter::once(&other.listen).chain(&other.also).any(|theirs| own.overlaps(theirs))
        });
        if let Some(other) = clash {
            let at = setting.map_or(config.at, |setting| setting.at);
            let message = format!("`{key}`: {own} overlaps the ports of relay `{}`", other.name);
            problems.add_with_hint(at, message, "give each relay ports of its own");
        }
    }
}

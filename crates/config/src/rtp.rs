//! RTP of stations: `rtp:` and `sdp:` sources, and `rtp = [...]` outputs.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use aulos_core::{SampleSpec, Span};
use aulos_io::relay::RtpPayloadFormat;
use aulos_io::rtp::{MAX_PLAYOUT_DELAY, PlayoutDelay};
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_proto::rtp::{Encoding, RtpCodec};

use super::limits::{
    MAX_RTP_OUTPUTS, MAX_RTP_PAYLOAD, MAX_STATION_CHANNELS, OPUS_CHUNK_MS, RTP_DSCP, RTP_HOPS,
    RTP_PTIME_MS, RTP_TYPE,
};
use super::model::Config;
use super::problem::{ConfigLocation, ConfigValue, Problems, did_you_mean};
use super::read::{TableReader, report_missing};
use super::resolve::{Station, endpoint};
use super::source::{SourceConfig, UriQuery};
use super::tree::{Node, Value};

/// An RTP source: address and encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtpSource {
    /// A local address or a multicast group.
    pub address: SocketAddr,
    /// The incoming encoding.
    pub media: RtpPayloadFormat,
    /// Channels of decoded Opus.
    pub opus_channels: u8,
    /// The payload type of redundant packets (RED).
    pub red: Option<u8>,
    /// Reception settings.
    pub reception: ReceptionSettings,
}

/// Reception settings that do not depend on the encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceptionSettings {
    /// The network interface for a multicast group, by name or address.
    pub interface: Option<String>,
    /// How long to wait for a packet that others have overtaken; by default as long as the source's
    /// buffer allows.
    pub jitter: Option<Span>,
    /// Playout delay after the fastest packets; by default packets go to the input as soon as they
    /// are in order.
    pub delay: Option<PlayoutDelay>,
    /// Accepted senders; empty means all.
    pub senders: Vec<IpAddr>,
}

/// One entry of `rtp` as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RtpConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// `rtp://ADDRESS:PORT`; required.
    pub dest: Option<ConfigValue<String>>,
    /// The encoding of the payload.
    pub payload: Option<ConfigValue<String>>,
    /// The payload type.
    pub payload_type: Option<ConfigValue<u32>>,
    /// Packet time in milliseconds.
    pub ptime_ms: Option<ConfigValue<f64>>,
    /// The network interface.
    pub interface: Option<ConfigValue<String>>,
    /// TTL of multicast packets.
    pub ttl: Option<u32>,
    /// DSCP of packets.
    pub dscp: Option<u32>,
    /// Whether it is announced by SAP.
    pub sap: bool,
    /// The session name in the SDP.
    pub name: Option<ConfigValue<String>>,
}

/// An RTP output of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtpOutputSettings {
    /// The destination.
    pub dest: SocketAddr,
    /// The encoding of the payload.
    pub encoding: Encoding,
    /// The payload type.
    pub payload_type: u8,
    /// Packet time in units of the RTP clock.
    pub units: u32,
    /// The network interface.
    pub interface: Option<String>,
    /// TTL of multicast packets.
    pub ttl: u8,
    /// DSCP of packets.
    pub dscp: u8,
    /// Whether it is announced by SAP.
    pub sap: bool,
    /// The session name in the SDP; by default the station's name.
    pub name: Option<String>,
}

/// `rtp://ADDRESS:PORT?payload=...`.
pub(super) fn parse_source(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let authority = query.uri.authority();
    let address = endpoint(&authority, Some("0.0.0.0"), Some(DEFAULT_PORT));
    let address = address.and_then(|at| Some(SocketAddr::new(at.host.parse().ok()?, at.port)));
    let Some(address) = address else {
        let message = format!("\"{authority}\" is not an address and a port");
        let hint = "an address of this machine or a group, as in rtp://0.0.0.0:5004 or \
                    rtp://239.69.1.2:5004";
        query.refuse(message, hint);
        return None;
    };
    let spec = query.text("sampleformat").map(str::parse::<SampleSpec>);
    let spec = match spec.transpose() {
        Ok(spec) => spec,
        Err(error) => {
            query.refuse("sampleformat".to_owned(), &error.to_string());
            return None;
        }
    };
    let wide = spec.is_some_and(|spec| spec.format.bytes() > 2);
    let payload = query.choice("payload", &PAYLOADS).unwrap_or(if wide { "l24" } else { "l16" });
    let spec = spec.unwrap_or(SampleSpec::DEFAULT);
    let (encoding, channels) = parse_encoding(payload, spec, query)?;
    let payload_type = query.text("payload_type").and_then(|text| {
        let number = text.parse::<u8>().ok().filter(|number| *number < 128);
        if number.is_none() {
            query.refuse(format!("payload_type={text}"), "a number from 0 to 127");
        }
        number
    });
    let red = query.text("red").and_then(|text| {
        let number = text.parse::<u8>().ok().filter(|number| DYNAMIC_TYPES.contains(number));
        if number.is_none() || number == payload_type {
            let hint = "a payload type from 96 to 127, other than that of the payload";
            query.refuse(format!("red={text}"), hint);
        }
        number
    });
    let media = RtpPayloadFormat { encoding, payload_type };
    let reception = reception(query);
    Some(SourceConfig::Rtp(RtpSource { address, media, opus_channels: channels, red, reception }))
}

/// `sdp:///path/to.sdp`.
pub(super) fn parse_description(query: &mut UriQuery<'_>) -> Option<SourceConfig> {
    let path = query.path()?.into();
    Some(SourceConfig::Sdp { path, reception: reception(query) })
}

fn reception(query: &mut UriQuery<'_>) -> ReceptionSettings {
    let interface = query.text("interface").map(str::to_owned);
    let jitter = query.text("jitter").and_then(|text| {
        let span = text.parse().ok().filter(|millis: &i64| (0..=1_000).contains(millis));
        if span.is_none() {
            query.refuse(format!("jitter={text}"), "milliseconds, 0 to 1000");
        }
        span.map(Span::from_millis)
    });
    let delay = query.text("delay").and_then(|text| {
        let delay = playout_delay(text);
        if delay.is_none() {
            let most = MAX_PLAYOUT_DELAY.as_millis();
            let hint =
                format!("milliseconds, 0 to {most}: 20-200 follows the network, 80 is fixed");
            query.refuse(format!("delay={text}"), &hint);
        }
        delay
    });
    let mut senders = Vec::new();
    for text in query.text("source").into_iter().flat_map(|text| text.split(',')) {
        match text.parse() {
            Ok(sender) => senders.push(sender),
            Err(_) => query.refuse(format!("source={text}"), "the sender's address: 192.0.2.1"),
        }
    }
    ReceptionSettings { interface, jitter, delay, senders }
}

/// Parses `20-200` or `80`, in milliseconds.
fn playout_delay(text: &str) -> Option<PlayoutDelay> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let millis = |text: &str| text.parse::<u32>().ok().map(|ms| Span::from_millis(ms.into()));
    let delay = PlayoutDelay { min: millis(least)?, max: millis(most)? };
    (delay.min <= delay.max && delay.max <= MAX_PLAYOUT_DELAY).then_some(delay)
}

fn parse_encoding(payload: &str, spec: SampleSpec, query: &UriQuery<'_>) -> Option<(Encoding, u8)> {
    let codec = RtpCodec::from_name(payload)?;
    let channels = u8::try_from(spec.layout.channels()).unwrap_or(u8::MAX);
    let (clock_rate, wire) = match codec {
        RtpCodec::L16 | RtpCodec::L24 => (spec.rate.hz(), channels),
        RtpCodec::Opus => (48_000, 2),
        _ => (8_000, 1),
    };
    let most = if codec == RtpCodec::Opus { 2 } else { MAX_STATION_CHANNELS };
    if usize::from(channels) > most {
        query.refuse(format!("{payload} comes with up to {most} channels here"), "48000:16:2");
        return None;
    }
    Some((Encoding { codec, clock_rate, channels: wire }, channels))
}

/// Reads `rtp` of a station.
pub(super) fn read(table: &mut TableReader<'_>, problems: &Problems) -> Vec<RtpConfig> {
    let Some(items) = table.list("rtp") else { return Vec::new() };
    items.value.iter().filter_map(|node| read_one(node, problems)).collect()
}

fn read_one(node: &Node, problems: &Problems) -> Option<RtpConfig> {
    if !matches!(node.value, Value::Table(_)) {
        let message = format!("an entry of `rtp` is {}: it must be a table", node.kind());
        problems.add_with_hint(node.at, message, EXAMPLE);
        return None;
    }
    let mut table = TableReader::new(node, "an output over RTP", problems);
    let rtp = RtpConfig {
        at: node.at,
        dest: table.text("dest"),
        payload: table.text("payload"),
        payload_type: table.number("payload_type", "(a payload type)", RTP_TYPE),
        ptime_ms: table.real("ptime_ms", "milliseconds", RTP_PTIME_MS),
        interface: table.text("interface"),
        ttl: table.number("ttl", "routers", RTP_HOPS).map(|hops| hops.value),
        dscp: table.number("dscp", "(a mark)", RTP_DSCP).map(|mark| mark.value),
        sap: table.flag("sap").unwrap_or(false),
        name: table.text("name"),
    };
    table.finish();
    if rtp.dest.is_none() && node.get("dest").is_none() {
        report_missing(problems, node.at, "dest", "an output over RTP", EXAMPLE);
    }
    Some(rtp)
}

/// Validates the outputs of every station.
pub(super) fn complete(config: &Config, all: &mut [Station], problems: &Problems) {
    let mut seen: HashMap<SocketAddr, String> = HashMap::new();
    for (config, station) in config.stations.iter().zip(all) {
        if let Some(rtp) = config.rtp.get(MAX_RTP_OUTPUTS) {
            problems
                .add(rtp.at, format!("a station has at most {MAX_RTP_OUTPUTS} entries of `rtp`"));
        }
        for entry in &config.rtp {
            let Some(rtp) = resolve(entry, station, problems) else { continue };
            if let Some(other) = seen.insert(rtp.dest, station.name.clone()) {
                let message = format!("rtp://{} is sent to twice", rtp.dest);
                let hint = format!("station `{other}` does so already: use another group or port");
                problems.add_with_hint(entry.at, message, hint);
            }
            station.rtp.push(rtp);
        }
    }
}

fn resolve(
    config: &RtpConfig,
    station: &Station,
    problems: &Problems,
) -> Option<RtpOutputSettings> {
    let dest = dest(config.dest.as_ref()?, problems)?;
    let (payload, at) = match &config.payload {
        Some(payload) => (payload.value.as_str(), payload.at),
        None => ("l24", config.at),
    };
    if !PAYLOADS.contains(&payload) {
        let hint = match did_you_mean(payload, &PAYLOADS) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there is {}", PAYLOADS.join(", ")),
        };
        problems.add_with_hint(at, format!("`payload` is \"{payload}\""), hint);
        return None;
    }
    let encoding = encoding(payload, station, at, problems)?;
    let units = units(config, encoding, station, problems)?;
    let payload_type = payload_type(config.payload_type, encoding, problems)?;
    let group = dest.ip().is_multicast();
    if config.sap && !(group && dest.is_ipv4()) {
        let hint = "sap = false; GET /rtp/STATION.sdp has the description";
        problems.add_with_hint(config.at, "`sap` announces groups of IPv4, and this is none", hint);
    }
    let is_pcm = matches!(encoding.codec, RtpCodec::L16 | RtpCodec::L24);
    let small = |number: Option<u32>, usual: u8| {
        number.and_then(|number| u8::try_from(number).ok()).unwrap_or(usual)
    };
    Some(RtpOutputSettings {
        dest,
        encoding,
        payload_type,
        units,
        interface: config.interface.as_ref().map(|text| text.value.clone()),
        ttl: small(config.ttl, 1),
        dscp: small(config.dscp, if is_pcm { MEDIA_DSCP } else { VOICE_DSCP }),
        sap: config.sap,
        name: config.name.as_ref().map(|text| text.value.clone()),
    })
}

fn dest(setting: &ConfigValue<String>, problems: &Problems) -> Option<SocketAddr> {
    let refuse = |why: &str| {
        problems.add_with_hint(
            setting.at,
            format!("`dest` is \"{}\": {why}", setting.value),
            EXAMPLE,
        );
        None
    };
    let Some(rest) = setting.value.strip_prefix("rtp://") else {
        return refuse("it does not begin with rtp://");
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let Some(at) = endpoint(rest, None, Some(DEFAULT_PORT)) else {
        return refuse("it is not an address and a port");
    };
    let Ok(host) = at.host.parse::<IpAddr>() else {
        return refuse("a group or a machine is named by its address");
    };
    // RTCP uses the next port.
    if host.is_unspecified() || !(1..u16::MAX).contains(&at.port) {
        return refuse("nobody can be reached there");
    }
    Some(SocketAddr::new(host, at.port))
}

fn encoding(
    payload: &str,
    station: &Station,
    at: ConfigLocation,
    problems: &Problems,
) -> Option<Encoding> {
    let codec = RtpCodec::from_name(payload)?;
    let (rate, channels) = (station.spec.rate.hz(), station.spec.layout.channels());
    let encoding = match codec {
        RtpCodec::L16 | RtpCodec::L24 => {
            Encoding { codec, clock_rate: rate, channels: u8::try_from(channels).ok()? }
        }
        RtpCodec::Opus => {
            if rate != 48_000 || channels > 2 || !OPUS_CHUNK_MS.contains(&station.chunk_ms) {
                let message = format!(
                    "opus cannot carry {} in chunks of {} ms",
                    station.spec, station.chunk_ms
                );
                let hint = "payload = \"l24\", or a station of 48000 Hz with one or two channels \
                            and chunk_ms = 20";
                problems.add_with_hint(at, message, hint);
                return None;
            }
            Encoding { codec, clock_rate: 48_000, channels: 2 }
        }
        _ => Encoding { codec, clock_rate: 8_000, channels: 1 },
    };
    Some(encoding)
}

/// The packet time in units of the RTP clock.
fn units(
    config: &RtpConfig,
    encoding: Encoding,
    station: &Station,
    problems: &Problems,
) -> Option<u32> {
    let (wish, at) = match config.ptime_ms {
        Some(wish) => (Some(wish.value), wish.at),
        None => (None, config.at),
    };
    if encoding.codec == RtpCodec::Opus {
        let own = f64::from(station.chunk_ms);
        if wish.is_some_and(|wish| (wish - own).abs() > f64::EPSILON) {
            let message = "`ptime_ms`: a packet of opus is a chunk of the station";
            problems.add_with_hint(
                at,
                message,
                format!("leave it out, or chunk_ms = {wish}", wish = wish?),
            );
            return None;
        }
        return Some(station.chunk_ms * 48);
    }
    let is_pcm = matches!(encoding.codec, RtpCodec::L16 | RtpCodec::L24);
    let wish = wish.unwrap_or(if is_pcm { 1.0 } else { 20.0 });
    // AES67: rates of the 44.1 kHz family have as many frames per packet as those of the 48 kHz
    // family.
    let grid = match encoding.clock_rate {
        44_100 => 48_000,
        88_200 => 96_000,
        176_400 => 192_000,
        rate => rate,
    };
    let exact = wish * f64::from(grid) / 1e3;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "60 ms at most")]
    let units = exact.round() as u32;
    if (exact - f64::from(units)).abs() > 1e-6 {
        let message =
            format!("`ptime_ms` is {wish}: that is no whole number of frames at {grid} Hz");
        problems.add_with_hint(at, message, "1, 4, 5, 10 and 20 are usual");
        return None;
    }
    let bytes = encoding.payload_bytes(units).unwrap_or(0);
    if bytes > MAX_RTP_PAYLOAD {
        let message = format!(
            "packets of {wish} ms of {encoding} have {bytes} bytes, and {MAX_RTP_PAYLOAD} is the \
             most that a network carries in one piece"
        );
        problems.add_with_hint(at, message, "ptime_ms = 1, or payload = \"l16\"");
        return None;
    }
    Some(units)
}

fn payload_type(
    setting: Option<ConfigValue<u32>>,
    encoding: Encoding,
    problems: &Problems,
) -> Option<u8> {
    let Some(setting) = setting else {
        return Some(RtpPayloadFormat::new(encoding).outgoing_payload_type());
    };
    let number = u8::try_from(setting.value).ok()?;
    if DYNAMIC_TYPES.contains(&number) || encoding.static_type() == Some(number) {
        return Some(number);
    }
    let message = format!("`payload_type` {number} means something else");
    problems.add_with_hint(setting.at, message, "96 to 127 are free");
    None
}

/// Payload encodings.
const PAYLOADS: [&str; 6] = ["l16", "l24", "pcmu", "pcma", "g722", "opus"];

/// The default port of AES67, and of the first examples in RFC 3550.
const DEFAULT_PORT: u16 = 5_004;

/// DSCP of AES67 media: AF41. Telephony and Opus are marked as voice (RFC 4594): EF.
const MEDIA_DSCP: u8 = 34;
const VOICE_DSCP: u8 = 46;

const EXAMPLE: &str =
    "rtp = [{ dest = \"rtp://239.69.0.1:5004\", payload = \"l24\", ptime_ms = 1, sap = true }]";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigFile, Environment, load};

    fn station(keys: &str) -> Result<Station, String> {
        let text = format!("[[station]]\nname = \"Hall\"\n{keys}\n");
        let file = ConfigFile { name: "t", text: &text };
        let loaded = load(Some(file), &[], &Environment::default());
        loaded.map(|mut all| all.stations.remove(0)).map_err(|error| error.to_string())
    }

    fn source(uri: &str) -> Result<RtpSource, String> {
        let station = station(&format!("sources = [\"{uri}\"]"))?;
        match &station.sources[0].config {
            SourceConfig::Rtp(source) => Ok(source.clone()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_source_says_where_packets_come_to_and_what_is_in_them() {
        let plain = source("rtp://").unwrap();
        assert_eq!(plain.address, "0.0.0.0:5004".parse().unwrap());
        assert_eq!(plain.media.encoding.to_string(), "L16/48000/2");
        let group = source(
            "rtp://@239.1.2.3:6000?sampleformat=44100:24:1&payload_type=98&interface=eth1\
             &jitter=50&source=192.0.2.1,192.0.2.2",
        )
        .unwrap();
        assert_eq!(group.media.encoding.to_string(), "L24/44100");
        assert_eq!((group.media.payload_type, group.address.port()), (Some(98), 6_000));
        assert_eq!(group.reception.interface.as_deref(), Some("eth1"));
        assert_eq!(group.reception.jitter, Some(Span::from_millis(50)));
        assert_eq!(group.reception.senders.len(), 2);
        let opus = source("rtp://[::]:5004?payload=opus&sampleformat=48000:16:1").unwrap();
        assert_eq!(
            (opus.media.encoding.to_string().as_str(), opus.opus_channels),
            ("opus/48000/2", 1)
        );
        assert_eq!((opus.red, group.red), (None, None));
        let red = source("rtp://?payload=opus&payload_type=111&red=112").unwrap();
        assert_eq!(red.red, Some(112));
        let delay = |text: &str| {
            let delay = source(&format!("rtp://?delay={text}")).unwrap().reception.delay.unwrap();
            (delay.min.as_millis(), delay.max.as_millis())
        };
        assert_eq!((delay("20-200"), delay("80")), ((20, 200), (80, 80)));
        assert_eq!(red.reception.delay, None);
        for (uri, hint) in [
            ("rtp://0.0.0.0?payload=opus&red=8", "96 to 127"),
            ("rtp://0.0.0.0?payload=opus&payload_type=111&red=111", "other than"),
            ("rtp://hall:5004", "rtp://239.69.1.2:5004"),
            ("rtp://0.0.0.0?payload=mp3", "pcmu"),
            ("rtp://0.0.0.0?payload_type=200", "0 to 127"),
            ("rtp://0.0.0.0?jitter=5000", "0 to 1000"),
            ("rtp://0.0.0.0?delay=200-20", "20-200"),
            ("rtp://0.0.0.0?delay=20-5000", "0 to 500"),
            ("rtp://0.0.0.0?delay=-5", "80 is fixed"),
            ("rtp://0.0.0.0?latency=100", "input_buffer_ms"),
            ("rtp://0.0.0.0?payload=opus&sampleformat=48000:16:6", "48000:16:2"),
        ] {
            let refused = source(uri).unwrap_err();
            assert!(refused.contains("t:3:") && refused.contains(hint), "{uri}: {refused}");
        }
    }

    #[test]
    fn an_output_has_packets_that_a_network_carries() {
        let output = |keys: &str, spec: &str| {
            let keys = format!(
                "sources = [\"demo://\"]\nspec = \"{spec}\"\n\
                 rtp = [{{ dest = \"rtp://239.69.0.1:5004\", {keys} }}]"
            );
            station(&keys).map(|station| station.rtp[0].clone())
        };
        let plain = output("", "48000:24:2").unwrap();
        assert_eq!((plain.encoding.to_string().as_str(), plain.units), ("L24/48000/2", 48));
        assert_eq!((plain.payload_type, plain.ttl, plain.dscp), (96, 1, 34));
        // AES67 counts the frames of 48 kHz.
        let disc = output("payload = \"l16\"", "44100:16:2").unwrap();
        assert_eq!((disc.payload_type, disc.units), (10, 48));
        let call = output("payload = \"pcma\"", "44100:16:2").unwrap();
        assert_eq!((call.payload_type, call.units, call.dscp), (8, 160, 46));
        assert_eq!(output("payload = \"opus\"", "48000:16:2").unwrap().units, 960);
        for (keys, spec, hint) in [
            ("ptime_ms = 20", "48000:24:2", "ptime_ms = 1"),
            ("ptime_ms = 0.125", "48000:24:2", "1 to 60"),
            ("ptime_ms = 1.01", "48000:24:2", "1, 4, 5, 10 and 20"),
            ("payload = \"opus\"", "44100:16:2", "l24"),
            ("payload = \"l23\"", "48000:16:2", "did you mean `l24`?"),
            ("payload_type = 8", "48000:16:2", "96 to 127"),
            ("ttl = 0", "48000:16:2", "1 to 255"),
        ] {
            let refused = output(keys, spec).unwrap_err();
            assert!(refused.contains("t:5:") && refused.contains(hint), "{keys}: {refused}");
        }
        let twice = "sources = [\"demo://\"]\nrtp = [{ dest = \"rtp://239.69.0.1\" }, \
                     { dest = \"rtp://239.69.0.1:5004\" }]";
        assert!(station(twice).unwrap_err().contains("sent to twice"));
        let lonely = "sources = [\"demo://\"]\nrtp = [{ dest = \"rtp://192.0.2.1\", sap = true }]";
        assert!(station(lonely).unwrap_err().contains("/rtp/STATION.sdp"));
    }
}

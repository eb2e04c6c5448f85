//! `rtp` of a station: RTP outputs.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use aulos_core::Codec;
use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_session::rtp::RtpPayloadFormat;

use crate::keys::keys;
use crate::limits::{
    MAX_RTP_OUTPUTS, MAX_RTP_PAYLOAD, RTP_DSCP, RTP_PAYLOAD_TYPE, RTP_PTIME_MS, RTP_TTL,
};
use crate::names::endpoint;
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::source::rtp::RTP_PORT;
use crate::station::output::StationOutput;

keys! {
    /// An RTP output of a station.
    pub(crate) struct RtpConfig {
        /// Destination, unicast or multicast: `rtp://ADDRESS:PORT`. RTCP uses the next port.
        dest: Option<ConfigValue<String>>, required "rtp = [{ dest = \"rtp://239.69.0.1:5004\", payload = \"l24\", ptime_ms = 1, sap = true }]";
        /// Encoding of the payload.
        payload: ConfigValue<RtpCodec> = RtpCodec::L24;
        /// Payload type.
        payload_type: Option<ConfigValue<u8>>, range RTP_PAYLOAD_TYPE, "", default_doc "that of RFC 3551, or 96";
        /// Packet time: a whole number of frames, and at most 1440 bytes.
        ptime_ms: Option<ConfigValue<f64>>, range RTP_PTIME_MS, "milliseconds", default_doc "1 of `l16` and `l24`, 20 of telephony, a chunk of `opus`";
        /// Network interface for multicast: its name or an address of it.
        interface: Option<String>, default_doc "by the routes";
        /// TTL of multicast packets.
        ttl: u8 = 1, range RTP_TTL, "routers";
        /// DSCP of the packets.
        dscp: Option<u8>, range RTP_DSCP, "", default_doc "34 of `l16` and `l24`, else 46";
        /// Whether it is announced by SAP; requires an IPv4 group.
        sap: bool = false;
        /// Session name in the SDP.
        name: Option<String>, default_doc "the station's";
    }
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
    /// Packet time in ticks of the RTP clock.
    pub packet_ticks: u32,
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

/// Validates the outputs of a station. `seen` has the destinations of all stations so far, with
/// their stations.
pub(crate) fn resolve(
    configs: &[RtpConfig],
    station: &StationOutput,
    seen: &mut HashMap<SocketAddr, String>,
    problems: &Problems,
) -> Vec<RtpOutputSettings> {
    if let Some(rtp) = configs.get(MAX_RTP_OUTPUTS) {
        problems.add(rtp.at, format!("a station has at most {MAX_RTP_OUTPUTS} entries of `rtp`"));
    }
    let mut all = Vec::new();
    for config in configs {
        let Some(rtp) = resolve_one(config, station, problems) else { continue };
        if let Some(other) = seen.insert(rtp.dest, station.name.clone()) {
            let message = format!("duplicate RTP output to rtp://{}", rtp.dest);
            let hint = format!("station `{other}` sends there: use another group or port");
            problems.add_with_hint(config.at, message, hint);
        }
        all.push(rtp);
    }
    all
}

fn resolve_one(
    config: &RtpConfig,
    station: &StationOutput,
    problems: &Problems,
) -> Option<RtpOutputSettings> {
    let dest = dest(config.dest.as_ref()?, problems)?;
    let encoding = encoding(config, station, problems)?;
    let packet_ticks = packet_ticks(config, encoding, station, problems)?;
    let payload_type = payload_type(config.payload_type, encoding, problems)?;
    let group = dest.ip().is_multicast();
    if config.sap && !(group && dest.is_ipv4()) {
        let hint = "sap = false; GET /rtp/STATION.sdp has the description";
        problems.add_with_hint(config.at, "`sap` requires an IPv4 multicast group", hint);
    }
    let is_pcm = matches!(encoding.codec, RtpCodec::L16 | RtpCodec::L24);
    Some(RtpOutputSettings {
        dest,
        encoding,
        payload_type,
        packet_ticks,
        interface: config.interface.clone(),
        ttl: config.ttl,
        dscp: config.dscp.unwrap_or(if is_pcm { MEDIA_DSCP } else { VOICE_DSCP }),
        sap: config.sap,
        name: config.name.clone(),
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
    let Some(at) = endpoint(rest, None, Some(RTP_PORT)) else {
        return refuse("it is not an address and a port");
    };
    let Ok(host) = at.host.parse::<IpAddr>() else {
        return refuse("the host must be an IP address");
    };
    // RTCP uses the next port.
    if host.is_unspecified() || !(1..u16::MAX).contains(&at.port) {
        return refuse("no receiver can have this address");
    }
    Some(SocketAddr::new(host, at.port))
}

fn encoding(config: &RtpConfig, station: &StationOutput, problems: &Problems) -> Option<Encoding> {
    let ConfigValue { value: codec, at } = config.payload;
    let at = if at == ConfigLocation::Default { config.at } else { at };
    let (rate, channels) = (station.spec.rate.hz(), station.spec.layout.channels());
    let encoding = match codec {
        RtpCodec::L16 | RtpCodec::L24 => {
            Encoding { codec, clock_rate: rate, channels: u8::try_from(channels).ok()? }
        }
        RtpCodec::Opus => {
            let row = Codec::Opus.info();
            let fits = row.supports_rate(rate) && channels <= row.max_channels;
            if !fits || !row.supports_chunk(station.chunk_ms) {
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

/// The packet time in ticks of the RTP clock.
fn packet_ticks(
    config: &RtpConfig,
    encoding: Encoding,
    station: &StationOutput,
    problems: &Problems,
) -> Option<u32> {
    let at = config.ptime_ms.map_or(config.at, |ptime| ptime.at);
    let ptime = config.ptime_ms.map(|ptime| ptime.value);
    if encoding.codec == RtpCodec::Opus {
        let own = f64::from(station.chunk_ms);
        if let Some(ptime) = ptime.filter(|ptime| (ptime - own).abs() > f64::EPSILON) {
            let message = "`ptime_ms`: a packet of opus is a chunk of the station";
            let hint = format!("leave it out, or chunk_ms = {ptime}");
            problems.add_with_hint(at, message, hint);
            return None;
        }
        return Some(station.chunk_ms * 48);
    }
    let is_pcm = matches!(encoding.codec, RtpCodec::L16 | RtpCodec::L24);
    let ptime = ptime.unwrap_or(if is_pcm { 1.0 } else { 20.0 });
    // AES67: rates of the 44.1 kHz family have as many frames per packet as those of the 48 kHz
    // family.
    let grid = match encoding.clock_rate {
        44_100 => 48_000,
        88_200 => 96_000,
        176_400 => 192_000,
        rate => rate,
    };
    let exact = ptime * f64::from(grid) / 1e3;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "60 ms at most")]
    let packet_ticks = exact.round() as u32;
    if (exact - f64::from(packet_ticks)).abs() > 1e-6 {
        let message =
            format!("`ptime_ms` is {ptime}: it must be a whole number of frames at {grid} Hz");
        problems.add_with_hint(at, message, "1, 4, 5, 10 and 20 are usual");
        return None;
    }
    let bytes = encoding.payload_bytes(packet_ticks).unwrap_or(0);
    if bytes > MAX_RTP_PAYLOAD {
        let message = format!(
            "packets of {ptime} ms of {encoding} have {bytes} bytes: the maximum is {MAX_RTP_PAYLOAD}"
        );
        problems.add_with_hint(at, message, "ptime_ms = 1, or payload = \"l16\"");
        return None;
    }
    Some(packet_ticks)
}

fn payload_type(
    setting: Option<ConfigValue<u8>>,
    encoding: Encoding,
    problems: &Problems,
) -> Option<u8> {
    let Some(setting) = setting else {
        return Some(RtpPayloadFormat::new(encoding).outgoing_payload_type());
    };
    let number = setting.value;
    if DYNAMIC_TYPES.contains(&number) || encoding.static_type() == Some(number) {
        return Some(number);
    }
    let message = format!("`payload_type` is {number}, which RFC 3551 assigns to another encoding");
    problems.add_with_hint(setting.at, message, "96 to 127 are free");
    None
}

/// DSCP of AES67 media: AF41. Telephony and Opus are marked as voice (RFC 4594): EF.
const MEDIA_DSCP: u8 = 34;
const VOICE_DSCP: u8 = 46;

const EXAMPLE: &str = "as in rtp://239.69.0.1:5004";

#[cfg(test)]
mod tests {
    use crate::source::RtpSource;
    use crate::{ConfigFile, Environment, SourceConfig, StationSettings, load};
    use aulos_core::Span;

    fn station(keys: &str) -> Result<StationSettings, String> {
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
        assert_eq!((plain.encoding.to_string().as_str(), plain.packet_ticks), ("L24/48000/2", 48));
        assert_eq!((plain.payload_type, plain.ttl, plain.dscp), (96, 1, 34));
        // AES67 counts the frames of 48 kHz.
        let disc = output("payload = \"l16\"", "44100:16:2").unwrap();
        assert_eq!((disc.payload_type, disc.packet_ticks), (10, 48));
        let call = output("payload = \"pcma\"", "44100:16:2").unwrap();
        assert_eq!((call.payload_type, call.packet_ticks, call.dscp), (8, 160, 46));
        assert_eq!(output("payload = \"opus\"", "48000:16:2").unwrap().packet_ticks, 960);
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
        assert!(station(twice).unwrap_err().contains("duplicate RTP output"));
        let lonely = "sources = [\"demo://\"]\nrtp = [{ dest = \"rtp://192.0.2.1\", sap = true }]";
        assert!(station(lonely).unwrap_err().contains("/rtp/STATION.sdp"));
    }
}

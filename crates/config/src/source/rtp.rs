//! RTP packets, unicast or multicast: `rtp://`, and `sdp://` for a file that describes them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use aulos_core::{SampleSpec, Span};
use aulos_io::SourcePath;
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_session::rtp::{MAX_PLAYOUT_DELAY, PlayoutDelay, RtpPayloadFormat};

use crate::keys::values::parsed;
use crate::keys::{ConfigRead, NamedEnum, ReadContext, ValueKind, keys};
use crate::limits::{JITTER_MS, MAX_STATION_CHANNELS, RED_TYPES, RTP_PAYLOAD_TYPE};
use crate::names::endpoint;
use crate::source::kind::{LocalPath, SourceKind};
use crate::source::query::{Parsed, Query};
use crate::tree::Node;

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

/// RTP packets according to an SDP file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdpSource {
    /// The path of the SDP file.
    pub path: SourcePath,
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

impl SourceKind for RtpSource {
    fn scheme(&self) -> &'static str {
        "rtp"
    }
}

impl SourceKind for SdpSource {
    fn scheme(&self) -> &'static str {
        "sdp"
    }

    fn local_path(&self) -> Option<LocalPath<'_>> {
        Some(LocalPath::File(&self.path))
    }

    fn confine(&mut self, roots: &[PathBuf]) {
        self.path = self.path.clone().confined_to(roots);
    }
}

keys! {
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

impl Senders {
    /// The addresses; none means all.
    pub(crate) fn addresses(self) -> Vec<IpAddr> {
        self.0
    }
}

impl ConfigRead for Senders {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, |text| {
            let all: Result<_, _> = text.split(',').map(str::parse).collect();
            all.map(Self).map_err(|_| "the sender's address: 192.0.2.1".to_owned())
        })
    }
}

/// `rtp://ADDRESS:PORT?payload=...`.
pub(crate) fn parse(query: &Query<'_>) -> Parsed<RtpSource> {
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
    Some(vec![RtpSource { address, media, opus_channels, red, reception }])
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
pub(crate) fn sdp(query: &Query<'_>) -> Parsed<SdpSource> {
    let SdpParams { interface, jitter, delay, source, .. } = query.params();
    let reception = reception(interface, jitter, delay, source);
    Some(vec![SdpSource { path: query.path()?.into(), reception }])
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

/// The default port of AES67, and of the first examples in RFC 3550.
pub(crate) const RTP_PORT: u16 = 5_004;

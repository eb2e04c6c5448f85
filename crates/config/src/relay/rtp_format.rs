//! The encodings of relays: `CODEC[/RATE[/CHANNELS]][:PAYLOAD_TYPE]`.

use aulos_proto::rtp::payload::DYNAMIC_TYPES;
use aulos_proto::rtp::{Encoding, RtpCodec};
use aulos_session::rtp::RtpPayloadFormat;

use crate::keys::values::parsed;
use crate::keys::{ConfigRead, ReadContext, ValueKind, hint_for};
use crate::tree::Node;

impl ConfigRead for RtpPayloadFormat {
    const KIND: &'static ValueKind = &ValueKind::Text;

    fn from_node(node: &Node, context: &ReadContext<'_>) -> Option<Self> {
        parsed(node, context, parse)
    }
}

/// Parses `CODEC[/RATE[/CHANNELS]][:PAYLOAD_TYPE]`.
fn parse(text: &str) -> Result<RtpPayloadFormat, String> {
    let (encoding, payload_type) = match text.split_once(':') {
        Some((encoding, number)) => match number.parse::<u8>() {
            Ok(number) if number < 128 => (encoding, Some(number)),
            _ => return Err("a payload type must be 0 to 127, as in opus:111".to_owned()),
        },
        None => (text, None),
    };
    let mut parts = encoding.split('/');
    let name = parts.next().unwrap_or_default();
    let Some(usual) =
        DEFAULT_ENCODINGS.iter().find(|usual| usual.codec.name().eq_ignore_ascii_case(name))
    else {
        let names = DEFAULT_ENCODINGS.map(|usual| usual.codec.name().to_ascii_lowercase());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(format!("unknown codec `{name}`; {}", hint_for(name, &names)));
    };
    let mut encoding = *usual;
    let free = matches!(usual.codec, RtpCodec::L16 | RtpCodec::L24);
    for (what, slot) in [("rate", 0), ("channels", 1)] {
        let Some(part) = parts.next() else { break };
        let number = part.parse::<u32>().unwrap_or(0);
        let (is, low, most) = match slot {
            0 => (encoding.clock_rate, 8_000, 192_000),
            _ => (u32::from(encoding.channels), 1, 8),
        };
        if !free && number != is {
            return Err(format!("the {what} of {name} must be {is}"));
        }
        if !(low..=most).contains(&number) {
            return Err(format!("{what} is {part}: it must be {low} to {most}, as in l24/48000/2"));
        }
        match slot {
            0 => encoding.clock_rate = number,
            _ => encoding.channels = u8::try_from(number).unwrap_or(1),
        }
    }
    if parts.next().is_some() {
        return Err("it must end after the channels, as in l16/44100/2".to_owned());
    }
    if payload_type
        .is_some_and(|own| !DYNAMIC_TYPES.contains(&own) && encoding.static_type() != Some(own))
    {
        let why = "RFC 3551 assigns this payload type to another encoding: use 96 to 127";
        return Err(why.to_owned());
    }
    Ok(RtpPayloadFormat { encoding, payload_type })
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

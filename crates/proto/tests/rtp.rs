//! RTP of a real peer, byte for byte, and what it means. Each vector is `vectors/NAME.hex` with its
//! meaning in words in `vectors/NAME.txt`.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use aulos_core::Span;
use aulos_proto::rtp::payload::OpusParameters;
use aulos_proto::rtp::rtcp::{Compound, Ntp, Part, SenderInfo};
use aulos_proto::rtp::{Encoding, Header, Packet, is_rtcp};
use aulos_proto::sdp::Session;

macro_rules! vector {
    ($name:literal) => {
        unhex(include_str!(concat!("vectors/", $name, ".hex")))
    };
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn a_packet_of_pcmu() {
    let bytes = vector!("rtp_pcmu");
    let packet = Packet::parse(&bytes).unwrap();
    let header = Header {
        marker: false,
        payload_type: 0,
        sequence: 991,
        timestamp: 3_979_009_671,
        ssrc: 0x9cf3_5dc8,
    };
    assert_eq!(packet.header(), header);
    assert_eq!(Encoding::of_static(0).unwrap().ticks(packet.payload()), Some(155));
    assert_eq!(header.to_bytes(), bytes[..12], "what we would have written");
}

#[test]
fn a_packet_of_l16_in_stereo() {
    let bytes = vector!("rtp_l16");
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.payload_type(), packet.sequence()), (97, 2_493));
    assert_eq!((packet.timestamp(), packet.ssrc()), (1_512_431_775, 0x4a73_a546));
    let session = Session::parse(
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 1 RTP/AVP 97\n\
          a=rtpmap:97 L16/48000/2\n",
    );
    let encoding = session.unwrap().media[0].formats[0].encoding;
    assert_eq!(encoding.ticks(packet.payload()), Some(72));
    assert_eq!(
        packet.payload()[..8],
        [0, 0, 0, 0, 0, 0xa6, 0, 0xa6],
        "silence, then both channels"
    );
}

#[test]
fn a_packet_of_opus_and_its_description() {
    let bytes = vector!("rtp_opus");
    let packet = Packet::parse(&bytes).unwrap();
    assert!(packet.marker());
    assert_eq!((packet.payload_type(), packet.sequence()), (97, 3_710));
    let session = Session::parse(include_bytes!("vectors/ffmpeg_opus.sdp")).unwrap();
    let media = &session.media[0];
    let format = &media.formats[0];
    assert_eq!((media.port, format.payload_type), (37_447, packet.payload_type()));
    assert_eq!(format.encoding.to_string(), "opus/48000/2");
    assert_eq!(format.encoding.ticks(packet.payload()), Some(960));
    let parameters = OpusParameters::parse(&format.parameters);
    assert!(parameters.sprop_stereo && !parameters.stereo);
}

/// RFC 3550 wants SDES behind each report; ffmpeg sends none, and is read all the same.
#[test]
fn a_report_without_a_name() {
    let bytes = vector!("rtcp_sender");
    assert!(is_rtcp(&bytes));
    let compound = Compound::parse(&bytes).unwrap();
    let mut parts = compound.parts();
    let Some(Part::Report { ssrc, sender, blocks }) = parts.next() else { panic!() };
    let ntp = Ntp::from_bits(0xeead_061d_0d4f_df3b);
    let expected = SenderInfo { ntp, timestamp: 3_979_009_671, packets: 0, octets: 0 };
    assert_eq!((ssrc, sender, blocks.iter().len()), (0x9cf3_5dc8, Some(expected), 0));
    assert!(parts.next().is_none());
    let written = Ntp::from_unix(Span::from_millis(1_795_327_901_052)).to_bits();
    assert!(written.abs_diff(ntp.to_bits()) < 1 << 22, "within a millisecond");
}

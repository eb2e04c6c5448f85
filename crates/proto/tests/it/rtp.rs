//! Recorded RTP of a real peer, byte for byte, with its meaning; each vector is `vectors/NAME.hex`
//! with a description in `vectors/NAME.txt`. Also verifies that the classification of a receiver
//! suffices for a relay.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use aulos_core::{Instant, Span};
use aulos_proto::rtp::payload::OpusParameters;
use aulos_proto::rtp::rtcp::{CompoundPacket, NtpTime, RtcpPacket, SenderInfo};
use aulos_proto::rtp::{Encoding, ReceiveOutcome, RtpHeader, RtpPacket, RtpReceiver, is_rtcp};
use aulos_proto::sdp::SessionDescription;
use proptest::prelude::*;

macro_rules! vector {
    ($name:literal) => {
        unhex(include_str!(concat!("../vectors/", $name, ".hex")))
    };
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn a_packet_of_pcmu() {
    let bytes = vector!("rtp_pcmu");
    let packet = RtpPacket::parse(&bytes).unwrap();
    let header = RtpHeader {
        marker: false,
        payload_type: 0,
        sequence: 991,
        timestamp: 3_979_009_671,
        ssrc: 0x9cf3_5dc8,
    };
    assert_eq!(packet.header(), header);
    assert_eq!(Encoding::from_static_type(0).unwrap().ticks(packet.payload()), Some(155));
    assert_eq!(header.to_bytes(), bytes[..12], "what we would have written");
}

#[test]
fn a_packet_of_l16_in_stereo() {
    let bytes = vector!("rtp_l16");
    let packet = RtpPacket::parse(&bytes).unwrap();
    assert_eq!((packet.payload_type(), packet.sequence()), (97, 2_493));
    assert_eq!((packet.timestamp(), packet.ssrc()), (1_512_431_775, 0x4a73_a546));
    let session = SessionDescription::parse(
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
    let packet = RtpPacket::parse(&bytes).unwrap();
    assert!(packet.marker());
    assert_eq!((packet.payload_type(), packet.sequence()), (97, 3_710));
    let session = SessionDescription::parse(include_bytes!("../vectors/ffmpeg_opus.sdp")).unwrap();
    let media = &session.media[0];
    let format = &media.formats[0];
    assert_eq!((media.port, format.payload_type), (37_447, packet.payload_type()));
    assert_eq!(format.encoding.to_string(), "opus/48000/2");
    assert_eq!(format.encoding.ticks(packet.payload()), Some(960));
    let parameters = OpusParameters::parse(&format.parameters);
    assert!(parameters.sprop_stereo && !parameters.stereo);
}

/// RFC 3550 requires SDES after each report; ffmpeg sends none, and its reports are accepted.
#[test]
fn a_report_without_a_name() {
    let bytes = vector!("rtcp_sender");
    assert!(is_rtcp(&bytes));
    let compound = CompoundPacket::parse(&bytes).unwrap();
    let mut parts = compound.packets();
    let Some(RtcpPacket::Report { ssrc, sender, blocks }) = parts.next() else { panic!() };
    let ntp = NtpTime::from_bits(0xeead_061d_0d4f_df3b);
    let expected = SenderInfo { ntp, timestamp: 3_979_009_671, packets: 0, octets: 0 };
    assert_eq!((ssrc, sender, blocks.iter().len()), (0x9cf3_5dc8, Some(expected), 0));
    assert!(parts.next().is_none());
    let written = NtpTime::from_unix(Span::from_millis(1_795_327_901_052)).to_bits();
    assert!(written.abs_diff(ntp.to_bits()) < 1 << 22, "within a millisecond");
}

/// Sends one packet for each received one: packets in probation and strays are held, and are sent
/// first.
#[derive(Default)]
struct Relay {
    receiver: RtpReceiver,
    held: Vec<u16>,
    stray: Option<u16>,
    out: Vec<u64>,
}

impl Relay {
    fn take(&mut self, sequence: u16) {
        match self.receiver.receive(Instant::ZERO, sequence, 0, 8_000) {
            ReceiveOutcome::Valid(at) => {
                let receiver = &self.receiver;
                let number = |sequence: u16| receiver.position(sequence, 0).sequence;
                self.out.extend(self.held.drain(..).map(number));
                self.out.push(at.sequence);
            }
            ReceiveOutcome::Probation { fresh, .. } => {
                if fresh {
                    self.held.clear();
                }
                self.held.push(sequence);
            }
            ReceiveOutcome::Restarted(at) => {
                assert_eq!(self.stray.map(|stray| stray.wrapping_add(1)), Some(sequence));
                self.out.extend([at.sequence - 1, at.sequence]);
            }
            ReceiveOutcome::Stray => self.stray = Some(sequence),
            ReceiveOutcome::Duplicate => {}
        }
    }
}

proptest! {
    /// A sender that restarts at arbitrary numbers, on a network that duplicates and reorders
    /// packets: each packet is sent once, and the numbers increase across restarts.
    #[test]
    fn each_input_packet_gives_one_output_packet(
        starts in proptest::collection::vec(any::<u16>(), 1..6),
        fates in proptest::collection::vec(0_u8..10, 20..200),
    ) {
        let mut relay = Relay::default();
        let (mut expected, mut last) = (0, None::<u16>);
        for start in starts {
            // A restart near the numbers of the previous run cannot be detected.
            let near = |last: u16| start.wrapping_sub(last).wrapping_add(400) < 4_000;
            if last.is_some_and(near) {
                continue;
            }
            let before = relay.out.iter().max().copied();
            let first = relay.out.len();
            let mut sequences: Vec<_> = (0..).zip(&fates).map(|(n, fate)| (start.wrapping_add(n), *fate)).collect();
            for at in (3..sequences.len() - 1).step_by(2) {
                if sequences[at].1 == 0 {
                    sequences.swap(at, at + 1);
                }
            }
            for (sequence, fate) in &sequences {
                relay.take(*sequence);
                if *fate == 1 {
                    relay.take(*sequence);
                }
            }
            expected += sequences.len();
            prop_assert_eq!(relay.out.len(), expected);
            prop_assert!(relay.out[first..].iter().all(|number| before.is_none_or(|before| *number > before)));
            last = Some(start.wrapping_add(u16::try_from(sequences.len()).unwrap()));
        }
        let mut once = relay.out.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), expected);
    }
}

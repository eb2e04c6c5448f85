//! Layouts, and what malformed datagrams do.

use proptest::prelude::*;

use super::*;

fn round_trip(packet: &SrtPacket<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.emit(&mut bytes);
    assert_eq!(SrtPacket::parse(&bytes).as_ref(), Some(packet));
    bytes
}

fn control(kind: ControlKind<'_>) -> SrtPacket<'_> {
    SrtPacket::Control(SrtControl { timestamp: 0x0102_0304, destination: 0x0506_0708, kind })
}

#[test]
fn a_data_packet_has_the_layout_of_the_standard() {
    let data = DataPacket {
        sequence: Sequence::new(0x0102_0304),
        message: 5,
        key: 2,
        is_retransmitted: true,
        timestamp: 0x0A0B_0C0D,
        destination: 7,
        payload: &[0x47, 1],
    };
    let bytes = round_trip(&SrtPacket::Data(data));
    // PP 11, O 0, KK 10, R 1.
    let expected = [1, 2, 3, 4, 0b1101_0100, 0, 0, 5, 10, 11, 12, 13, 0, 0, 0, 7, 0x47, 1];
    assert_eq!(bytes, expected);
}

#[test]
fn reports_have_the_layout_of_the_standard() {
    let ack = Acknowledgement {
        number: 9,
        next: Sequence::new(100),
        round_trip: (100_000, 50_000),
        room: 8_000,
        rates: (12, 0, 16_000),
    };
    let bytes = round_trip(&control(ControlKind::Ack(ack)));
    assert_eq!((bytes[..8].to_vec(), bytes.len()), (vec![0x80, 2, 0, 0, 0, 0, 0, 9], 44));
    let light = Acknowledgement { next: Sequence::new(3), ..Acknowledgement::default() };
    assert_eq!(round_trip(&control(ControlKind::Ack(light))).len(), 20);
    let mut list = Vec::new();
    let lost = [(Sequence::new(5), Sequence::new(5)), (Sequence::new(8), Sequence::new(11))];
    let ranges = LossRanges::write(lost.into_iter(), 10, &mut list);
    let bytes = round_trip(&control(ControlKind::Nak(ranges)));
    assert_eq!(bytes[16..], [0, 0, 0, 5, 0x80, 0, 0, 8, 0, 0, 0, 11]);
    let Some(SrtPacket::Control(SrtControl { kind: ControlKind::Nak(read), .. })) =
        SrtPacket::parse(&bytes)
    else {
        panic!()
    };
    assert_eq!(read.iter().collect::<Vec<_>>(), lost);
    for kind in [
        ControlKind::KeepAlive,
        ControlKind::Shutdown,
        ControlKind::AckAck(77),
        ControlKind::DropRequest(Sequence::new(3), Sequence::new(4)),
        ControlKind::KeyRequest(&[1, 2, 3, 4]),
        ControlKind::KeyResponse(&[0, 0, 0, 3]),
        ControlKind::Other(0x77),
    ] {
        round_trip(&control(kind));
    }
}

fn conclusion(extensions: Extensions) -> Handshake {
    Handshake {
        version: 5,
        encryption: 2,
        extension: 7,
        initial: Sequence::new(1_000),
        window: 8_192,
        kind: HandshakeKind::Conclusion,
        socket: 0x1122_3344,
        cookie: 0xDEAD_BEEF,
        peer: Handshake::peer_field("192.0.2.1".parse().unwrap()),
        extensions,
    }
}

#[test]
fn a_conclusion_carries_times_keys_and_the_stream_id() {
    let time = HandshakeTime {
        version: 0x01_05_01,
        flags: SrtFlags::LIVE,
        receive_delay: 120,
        send_delay: 600,
    };
    let extensions = Extensions {
        time: Some(time),
        key: Some(vec![9; 8]),
        stream_id: Some("#!::r=live".to_owned()),
        ..Extensions::default()
    };
    let handshake = conclusion(extensions);
    let bytes = round_trip(&control(ControlKind::Handshake(Box::new(handshake))));
    // Version, fields, first number, MTU; then, behind the fixed part, the times.
    assert_eq!(bytes[16..32], [0, 0, 0, 5, 0, 2, 0, 7, 0, 0, 3, 0xE8, 0, 0, 5, 0xDC]);
    assert_eq!(bytes[64..80], [0, 1, 0, 3, 0, 1, 5, 1, 0, 0, 0, 0x3F, 0, 120, 2, 88]);
    // Four bytes at a time in reverse, filled with zeros.
    assert_eq!(bytes[92..108], *b"\0\x05\0\x03::!#il=r\0\0ev");
    let rejected = Handshake {
        kind: HandshakeKind::Rejection(RejectCode::BAD_SECRET),
        extensions: Extensions::default(),
        ..conclusion(Extensions::default())
    };
    round_trip(&control(ControlKind::Handshake(Box::new(rejected))));
}

#[test]
fn extensions_beyond_the_datagram_are_refused() {
    let handshake = conclusion(Extensions { key: Some(vec![1; 8]), ..Extensions::default() });
    let handshake = Handshake { extension: 2, ..handshake };
    let bytes = round_trip(&control(ControlKind::Handshake(Box::new(handshake))));
    let mut longer = bytes.clone();
    longer[67] = 3;
    assert_eq!(SrtPacket::parse(&longer), None);
    assert_eq!(SrtPacket::parse(&bytes[..60]), None, "the fixed part is cut");
}

#[test]
fn a_key_message_has_the_layout_of_the_standard() {
    let message = KeyMaterial {
        slots: KeySlots::One(KeyParity::Even),
        salt: [7; 16],
        key_bytes: 16,
        wrapped: vec![1; 24],
    };
    let bytes = message.emit();
    assert_eq!(bytes[..16], [0x12, 0x20, 0x29, 1, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 4, 4]);
    assert_eq!(KeyMaterial::parse(&bytes), Some(message));
    for (at, value) in [(0, 0x13), (1, 0), (3, 0), (8, 4), (14, 5), (15, 5), (15, 8)] {
        let mut other = bytes.clone();
        other[at] = value;
        assert_eq!(KeyMaterial::parse(&other), None, "{at} {value}");
    }
    assert_eq!(KeyMaterial::parse(&bytes[..bytes.len() - 1]), None);
}

proptest! {
    #[test]
    fn no_datagram_panics_and_what_is_read_can_be_written(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::option::of(0u8..9),
    ) {
        if let (Some(kind), [first, second, ..]) = (kind, &mut bytes[..]) {
            (*first, *second) = (0x80, kind);
        }
        if let Some(packet) = SrtPacket::parse(&bytes) {
            let mut again = Vec::new();
            packet.emit(&mut again);
            prop_assert!(SrtPacket::parse(&again).is_some());
        }
        drop(KeyMaterial::parse(&bytes).map(|key| key.emit()));
    }

    #[test]
    fn distances_wrap(start in 0u32..1 << 31, count in 0u32..(1 << 30)) {
        let from = Sequence::new(start);
        let to = from.plus(count);
        prop_assert_eq!(to.since(from), count.cast_signed());
        prop_assert_eq!(from.since(to), -count.cast_signed());
    }
}

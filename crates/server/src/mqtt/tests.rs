//! What a broker may send.

use aulos_core::Rng;
use bytes::BytesMut;
use rumqttc::{ConnAck, ConnectReturnCode, Packet, PubAck, Publish, QoS};

use super::connection::parse;

/// Bytes of a broker that is broken or hostile are an error or wait for more, and are never held
/// without a bound: nothing here panics.
#[test]
fn any_bytes_are_packets_or_an_error() {
    let packets = [
        Packet::ConnAck(ConnAck::new(ConnectReturnCode::Success, false)),
        Packet::PubAck(PubAck::new(7)),
        Packet::PingResp,
        Packet::Publish(Publish::new(
            "aulos/box/station/hall/next/press",
            QoS::AtLeastOnce,
            "PRESS",
        )),
    ];
    let mut whole = BytesMut::new();
    for packet in packets {
        let packet = match packet {
            Packet::Publish(mut publish) => {
                publish.pkid = 3;
                Packet::Publish(publish)
            }
            other => other,
        };
        packet.write(&mut whole, 1 << 20).unwrap();
    }
    let mut good = whole.clone();
    assert_eq!(std::iter::from_fn(|| parse(&mut good).unwrap()).count(), 4);
    let mut rng = Rng::new(5);
    let mut ends = [0; 2];
    for _ in 0..200_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] = u8::try_from(rng.below(256)).unwrap();
        }
        bytes.truncate(rng.below(bytes.len() + 1));
        let end = loop {
            match parse(&mut bytes) {
                Ok(Some(_)) => {}
                Ok(None) => break 0,
                Err(why) => {
                    assert!(why.len() < 200, "{why}");
                    break 1;
                }
            }
        };
        ends[end] += 1;
    }
    assert!(ends.iter().all(|count| *count > 1_000), "{ends:?}");
    let mut long = BytesMut::from(&[0x30, 0xff, 0xff, 0xff, 0x7f][..]);
    assert!(parse(&mut long).unwrap_err().contains("more than 16384 bytes"));
}

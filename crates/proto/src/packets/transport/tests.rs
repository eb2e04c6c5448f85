//! Streams of ffmpeg, beside the packets that ffprobe reads in them.

use aulos_core::Span;

use super::super::tests::events;
use super::*;

macro_rules! stream {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/vectors/ts_", $name, ".bin"))
    };
}

/// The codec, and the number, size and time of the packets.
fn read(bytes: &[u8], grain: usize) -> (PacketFormat, Vec<(usize, Option<Span>)>) {
    let (found, refused, stats) = events(bytes, grain);
    assert_eq!((refused, stats.skipped), (None, 0));
    let mut format = None;
    let mut packets = Vec::new();
    for (event, packet) in found {
        match event {
            SplitterEvent::Begin(start) => assert_eq!(format.replace(start.format), None),
            SplitterEvent::Packet(placement) => packets.push((packet.len(), placement.time)),
            other => panic!("{other:?}"),
        }
    }
    (format.unwrap(), packets)
}

fn sizes(packets: &[(usize, Option<Span>)]) -> Vec<usize> {
    packets.iter().map(|(size, _)| *size).collect()
}

/// The presentation time of the first packet, which ffmpeg sets.
const BEGIN: Span = Span::from_millis(1_400);

#[test]
fn the_packets_are_those_that_ffprobe_reads() {
    for grain in [1, 100, 188, 5_000] {
        let (format, packets) = read(stream!("aac"), grain);
        assert!(matches!(format, PacketFormat::Aac { config: [0x11, 0x88], .. }), "{format:?}");
        // Without their headers of seven bytes.
        assert_eq!(sizes(&packets), [252, 235, 150, 194, 160, 154, 146, 192, 5]);
        assert_eq!(packets[0].1, Some(BEGIN));
        let (format, packets) = read(stream!("latm"), grain);
        assert!(matches!(format, PacketFormat::Aac { config: [0x11, 0x88], .. }), "{format:?}");
        // The same sound, but for the encoder's name in the first.
        assert_eq!(packets.len(), 9);
        assert_eq!(sizes(&packets)[1..], [235, 150, 194, 160, 154, 146, 192, 5]);
        assert_eq!(packets[0].1, Some(BEGIN));
        let (format, packets) = read(stream!("mp2"), grain);
        assert!(matches!(format, PacketFormat::Mpeg { layer: 2, .. }), "{format:?}");
        assert_eq!((sizes(&packets), packets[0].1), (vec![192; 7], Some(BEGIN)));
        let (format, packets) = read(stream!("mp3"), grain);
        assert!(matches!(format, PacketFormat::Mpeg { layer: 3, .. }), "{format:?}");
        assert_eq!((sizes(&packets), packets[0].1), (vec![192; 8], Some(BEGIN)));
        let (format, packets) = read(stream!("opus"), grain);
        assert!(matches!(format, PacketFormat::Opus { .. }), "{format:?}");
        assert_eq!(sizes(&packets), [222, 139, 148, 147, 141, 148, 144, 237]);
        // A PES packet has five of them.
        assert_eq!((packets[0].1, packets[5].1), (Some(BEGIN), Some(Span::from_millis(1_500))));
    }
}

#[test]
fn a_codec_that_cannot_be_decoded_is_named() {
    let (found, refused, _) = events(stream!("ac3"), 188);
    assert!(found.is_empty());
    assert_eq!(
        refused.unwrap().to_string(),
        "the transport stream has AC-3; AAC, MP1, MP2, MP3 and Opus are supported"
    );
}

#[test]
fn sound_goes_on_behind_lost_and_inserted_bytes() {
    let whole = stream!("mp2");
    let twice = [&whole[..], &whole[3 * 188..]].concat();
    let (complete, _, _) = events(&twice, 100);
    // Whole packets are missing, a packet is torn, or there is something else between them.
    let lost = [&twice[..5 * 188], &twice[6 * 188..]].concat();
    let torn = [&twice[..5 * 188 + 20], &twice[5 * 188 + 60..]].concat();
    let other = [&twice[..5 * 188], &[0x47; 100], &twice[5 * 188..]].concat();
    for damaged in [lost, torn, other] {
        let (found, refused, _) = events(&damaged, 100);
        assert_eq!(refused, None);
        let packets = |found: &[(SplitterEvent, Vec<u8>)]| {
            let is_packet = |event: &SplitterEvent| matches!(event, SplitterEvent::Packet(_));
            found.iter().filter(|(event, _)| is_packet(event)).count()
        };
        let missing = packets(&complete) - packets(&found);
        assert!((0..=3).contains(&missing), "{missing}");
        assert_eq!(found.last(), complete.last());
    }
}

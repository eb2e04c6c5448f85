//! Inputs written by hand from the formats' tables; the tests of the decoders compare real streams
//! with ffmpeg.

use proptest::prelude::*;

use super::*;
use crate::flac::{FrameHeader, ParsedFrameHeader};

/// A frame of MPEG 1 layer III, 128 kb/s, 44.1 kHz, stereo: 417 bytes.
fn mp3(fill: u8) -> Vec<u8> {
    let mut frame = vec![0xff, 0xfb, 0x90, 0x64];
    frame.resize(417, fill);
    frame
}

/// An ADTS frame of `payload` bytes at 44.1 kHz, stereo.
fn adts(payload: &[u8]) -> Vec<u8> {
    let [.., high, low] = ((payload.len() + 7) << 5).to_be_bytes();
    let mut frame = vec![0xff, 0xf1, 0x50, 0x80, high, low | 0x1f, 0xfc];
    frame.extend_from_slice(payload);
    frame
}

pub(super) type Events = Vec<(SplitterEvent, Vec<u8>)>;

/// All events of `bytes` in pieces of `grain`, with the bytes of the packets.
pub(super) fn events(
    bytes: &[u8],
    grain: usize,
) -> (Events, Option<StreamFormatError>, SplitterStats) {
    let mut splitter = PacketSplitter::new(FormatHint::None);
    let mut found = Vec::new();
    let mut pieces = bytes.chunks(grain);
    loop {
        match pieces.next() {
            Some(piece) => assert_eq!(splitter.push(piece), piece.len()),
            None => splitter.finish(),
        }
        loop {
            match splitter.next() {
                Ok(Some(event)) => {
                    let is_packet = matches!(event, SplitterEvent::Packet(_));
                    let packet = if is_packet { splitter.packet().to_vec() } else { Vec::new() };
                    found.push((event, packet));
                }
                Ok(None) => break,
                Err(why) => return (found, Some(why), splitter.stats()),
            }
        }
        if splitter.input.is_ended() {
            return (found, None, splitter.stats());
        }
    }
}

fn packets(found: &[(SplitterEvent, Vec<u8>)]) -> Vec<&[u8]> {
    let packets = found.iter().filter(|(event, _)| matches!(event, SplitterEvent::Packet(_)));
    packets.map(|(_, packet)| &packet[..]).collect()
}

#[test]
fn lengths_of_mpeg_frames_are_those_of_the_standard() {
    // Header and length in bytes, by hand after ISO/IEC 11172-3, 2.4.3.1.
    let cases: [(u32, usize); 7] = [
        (0xfffb_9064, 417),
        (0xfffb_9264, 418),
        (0xfffb_e444, 960),
        (0xfff3_40c4, 104),
        (0xffe3_18c4, 72),
        (0xfffd_a400, 576),
        (0xffff_9404, 288),
    ];
    for (word, bytes) in cases {
        let header = mpeg::Header::parse(word.to_be_bytes()).unwrap();
        assert_eq!(header.bytes(), bytes, "{word:08x}");
    }
    // Free format, a forbidden rate, a reserved layer, a reserved version, no sync word.
    for word in [0xfffb_0064_u32, 0xfffb_9c64, 0xfff9_9064, 0xffeb_9064, 0xfe1b_9064] {
        assert_eq!(mpeg::Header::parse(word.to_be_bytes()), None, "{word:08x}");
    }
}

#[test]
fn tags_are_skipped_at_any_position() {
    let tag = [&b"ID3\x04\0\0\0\0\x02\x10"[..], &[0xff; 272]].concat();
    let stream = [tag.clone(), mp3(1), mp3(2), tag, mp3(3), mp3(4), mp3(5)].concat();
    for grain in [1, 100, 10_000] {
        let (found, why, counts) = events(&stream, grain);
        assert_eq!(why, None);
        let wanted: Vec<_> = (1..=5).map(mp3).collect();
        assert_eq!(packets(&found), wanted);
        assert_eq!((counts.packets, counts.skipped, counts.resyncs), (5, 0, 0));
    }
}

#[test]
fn one_lie_about_the_length_costs_one_frame() {
    let mut frames: Vec<Vec<u8>> = (1..=9).map(mp3).collect();
    // The header of the fifth frame claims 64 kb/s.
    frames[4][2] = 0x50;
    let (found, why, counts) = events(&frames.concat(), 50);
    assert_eq!((why, counts.resyncs), (None, 1));
    assert_eq!(packets(&found).len(), 9, "the short one, and all whole ones");
    let lost = found.iter().find(|(event, _)| matches!(event, SplitterEvent::Lost(_)));
    assert_eq!(lost.map(|(event, _)| event), Some(&SplitterEvent::Lost(417 - 208)));
}

#[test]
fn another_format_begins_without_a_loss() {
    let sound = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let stream = [mp3(1), mp3(2), adts(&sound), adts(&sound), mp3(3), mp3(4)].concat();
    let (found, why, counts) = events(&stream, 7);
    assert_eq!((why, counts.skipped), (None, 0));
    let begins: Vec<_> = found
        .iter()
        .filter_map(|(event, _)| match event {
            SplitterEvent::Begin(start) => Some(matches!(start.format, PacketFormat::Mpeg { .. })),
            _ => None,
        })
        .collect();
    assert_eq!(begins, [true, false, true]);
    let wanted = [&mp3(1)[..], &mp3(2), &sound, &sound, &mp3(3), &mp3(4)];
    assert_eq!(packets(&found), wanted);
}

#[test]
fn what_a_decoder_of_aac_is_configured_with() {
    let (found, ..) = events(&[adts(&[1; 9]), adts(&[2; 9])].concat(), 4);
    let Some((SplitterEvent::Begin(start), _)) = found.first() else { panic!("{found:?}") };
    // Low complexity, 44.1 kHz, two channels (ISO/IEC 14496-3, 1.6.2.1).
    assert!(
        matches!(
            start.format,
            PacketFormat::Aac { config: [0x12, 0x10], low_complexity: true, .. }
        ),
        "{start:?}"
    );
}

#[test]
fn a_tag_that_never_ends_and_a_buffer_that_never_fills() {
    // A tag of 256 MB is not accepted, and a megabyte of zeros is not buffered.
    let stream = [&b"ID3\x04\0\0\x7f\x7f\x7f\x7f"[..], &vec![0; 1_000_000]].concat();
    let (found, why, _) = events(&stream, 4_096);
    assert_eq!((found.len(), why), (0, Some(StreamFormatError::NotAudio)));
}

#[test]
fn a_flac_frame_that_never_ends_does_not_grow() {
    // A valid header without an end of the frame.
    let header = [0xff, 0xf8, 0xc9, 0x18, 0x00, 0xc2];
    assert!(matches!(FrameHeader::parse(&header), ParsedFrameHeader::Header(_)));
    let mut splitter = PacketSplitter::new(FormatHint::Flac);
    let mut why = None;
    splitter.push(&header);
    for _ in 0..4_000 {
        let room = splitter.push(&[0x55; 1_000]);
        assert_eq!(room, 1_000, "there is always room");
        loop {
            match splitter.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    why = Some(error);
                    break;
                }
            }
        }
        if why.is_some() {
            break;
        }
    }
    assert_eq!(why, Some(StreamFormatError::NotAudio));
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same(
        bytes in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(0xff_u8), Just(0xfb), Just(0xf8), Just(b'O'), Just(0x90),
        ], 0..3_000),
        front in 0..4_usize,
        grain in 1..600_usize,
    ) {
        let fronts = [&b""[..], b"fLaC\x80\0\0\x22", b"OggS\0\x02", b"ID3\x04\0\0\0\0\0\x08"];
        let bytes = [fronts[front], &bytes].concat();
        let (whole, pieces) = (events(&bytes, usize::MAX), events(&bytes, grain));
        prop_assert_eq!(whole.0, pieces.0);
        prop_assert_eq!(whole.1, pieces.1);
    }
}

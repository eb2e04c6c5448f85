//! What our own HLS writes, and what nobody should.

use aulos_core::{SampleRate, Span};

use super::super::{FormatHint, PacketFormat, PacketSplitter};
use super::*;
use crate::hls::{EventMessage, Fragment, Track, TrackCodec, title_tag};

fn track(codec: TrackCodec) -> Vec<u8> {
    let track = Track { codec, rate: SampleRate::HZ_48000, channels: 2 };
    track.init_segment().unwrap()
}

/// A segment of frames of 1, 2 and 3 bytes of 10 ms that begins at `time`.
fn segment(time: u64, events: &[EventMessage]) -> Vec<u8> {
    let fragment = Fragment {
        sequence: 7,
        decode_time: time,
        timescale: 48_000,
        frame_duration: 480,
        sizes: &[1, 2, 3],
        payload: &[1, 2, 2, 3, 3, 3],
        events,
    };
    fragment.write().unwrap()
}

/// Events, with the packets, of pieces of `grain`.
fn read(bytes: &[u8], grain: usize) -> (Vec<(SplitterEvent, Vec<u8>)>, Option<StreamFormatError>) {
    let mut splitter = PacketSplitter::new(FormatHint::Segments);
    let mut found = Vec::new();
    for piece in bytes.chunks(grain) {
        splitter.push(piece);
        loop {
            match splitter.next() {
                Ok(Some(event)) => found.push((event, splitter.packet().to_vec())),
                Ok(None) => break,
                Err(why) => return (found, Some(why)),
            }
        }
    }
    (found, None)
}

fn times(found: &[(SplitterEvent, Vec<u8>)]) -> Vec<(usize, i64)> {
    let packets = found.iter().filter_map(|(event, packet)| match event {
        SplitterEvent::Packet(place) => Some((packet.len(), place.time?.as_nanos() / 1_000)),
        _ => None,
    });
    packets.collect()
}

#[test]
fn frames_come_with_their_times_and_titles_before_them() {
    let event = EventMessage { time: 0, id: 1, tag: title_tag("Song") };
    let bytes = [
        track(TrackCodec::Flac { bits: 16, block: 480 }),
        segment(4_800, &[event]),
        segment(48_000, &[]),
    ]
    .concat();
    for grain in [1, 7, bytes.len()] {
        let (found, refused) = read(&bytes, grain);
        assert_eq!(refused, None);
        assert!(matches!(&found[0].0, SplitterEvent::Begin(start)
            if matches!(start.format, PacketFormat::Flac { .. })));
        assert!(matches!(&found[1].0, SplitterEvent::Title(title)
            if title.title.as_deref() == Some("Song")));
        let expected = [100_000, 110_000, 120_000, 1_000_000, 1_010_000, 1_020_000];
        let sizes = [1, 2, 3, 1, 2, 3];
        assert_eq!(times(&found), sizes.into_iter().zip(expected).collect::<Vec<_>>());
    }
}

#[test]
fn the_codec_is_read_from_the_sample_entry() {
    let begin = |codec| match read(&track(codec), 1).0.remove(0).0 {
        SplitterEvent::Begin(start) => start.format,
        other => panic!("{other:?}"),
    };
    // HE-AAC is begun by its core.
    for config in [vec![0x11, 0x90], vec![0x2b, 0x11, 0x88, 0x00]] {
        let core = if config.len() == 2 { [0x11, 0x90] } else { [0x13, 0x10] };
        let format = begin(TrackCodec::Aac { config, bitrate: 128_000 });
        assert!(matches!(format, PacketFormat::Aac { config, .. } if config == core), "{format:?}");
    }
    let PacketFormat::Opus { head } = begin(TrackCodec::Opus) else { panic!() };
    assert_eq!(head[..12], *b"OpusHead\x01\x02\0\0");
}

#[test]
fn a_file_without_fragments_and_encrypted_sound_are_refused() {
    let file = b"\0\0\0\x0cftypM4A \0\0\0\0moov".to_vec();
    assert_eq!(read(&file, 3), (Vec::new(), Some(StreamFormatError::Mp4)));
    let mut encrypted = track(TrackCodec::Opus);
    let at = encrypted.windows(4).position(|name| name == b"Opus").unwrap();
    encrypted[at..at + 4].copy_from_slice(b"enca");
    assert_eq!(read(&encrypted, 50).1, Some(StreamFormatError::Scrambled));
}

#[test]
fn frames_outside_their_media_data_are_left_out() {
    let mut lying = segment(0, &[]);
    let at = lying.windows(4).position(|name| name == b"mdat").unwrap();
    // Four bytes of frames are left of six.
    lying[at - 4..at].copy_from_slice(&12_u32.to_be_bytes());
    lying.truncate(at + 8);
    let bytes = [track(TrackCodec::Opus), lying, segment(480, &[])].concat();
    let (found, _) = read(&bytes, 10);
    assert_eq!(times(&found), [(1, 0), (2, 10_000), (1, 10_000), (2, 20_000), (3, 30_000)]);
    assert_eq!(Span::from_millis(10).as_micros(), 10_000);
}

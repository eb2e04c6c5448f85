//! Packets written by hand; streams of ffmpeg are compared in `packets::transport`.

use aulos_core::Span;
use proptest::prelude::*;

use super::*;
use crate::crc::crc32;

type Packet = [u8; TS_PACKET];

/// A packet with `payload`, filled up by an adaptation field.
fn packet(pid: u16, starts: bool, counter: u8, payload: &[u8]) -> Packet {
    let [high, low] = pid.to_be_bytes();
    let mut bytes = vec![0x47, high | u8::from(starts) << 6, low, counter & 15 | 0x10];
    let room = TS_PACKET - 4 - payload.len();
    if room > 0 {
        bytes[3] |= 0x20;
        bytes.push(u8::try_from(room - 1).unwrap());
        bytes.resize(4 + room, 0);
    }
    if room > 1 {
        bytes[5] = 0;
    }
    bytes.extend_from_slice(payload);
    bytes.try_into().unwrap()
}

/// A table with its header and checksum.
fn section(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 9).unwrap();
    let [high, low] = (0xb000 | length).to_be_bytes();
    let mut bytes = vec![kind, high, low, 0, 1, 0xc1, 0, 0];
    bytes.extend_from_slice(body);
    let crc = crc32(u32::MAX, bytes.iter().copied());
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

fn starting(section: &[u8]) -> Vec<u8> {
    [&[0], section].concat()
}

/// Programme 1 with its table at PID 0x100.
fn association() -> Packet {
    packet(0, true, 0, &starting(&section(0, &[0, 1, 0xe1, 0])))
}

/// The table of streams: type, PID, descriptors.
fn programme(streams: &[(u8, u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![0xe1, 0, 0xf0, 0];
    for (kind, pid, descriptors) in streams {
        let [high, low] = pid.to_be_bytes();
        let length = u8::try_from(descriptors.len()).unwrap();
        body.extend_from_slice(&[*kind, high | 0xe0, low, 0xf0, length]);
        body.extend_from_slice(descriptors);
    }
    section(2, &body)
}

/// A PES packet of sound at `ticks`.
fn pes(ticks: u64, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 8).unwrap();
    let mut bytes = vec![0, 0, 1, 0xc0];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[0x80, 0x80, 5]);
    let byte = |shift: u32| u8::try_from(ticks >> shift & 0xff).unwrap();
    bytes.extend_from_slice(&[
        0x21 | (byte(30) & 7) << 1,
        byte(22),
        byte(14) | 1,
        byte(7),
        byte(0) << 1 | 1,
    ]);
    bytes.extend_from_slice(payload);
    bytes
}

/// A demultiplexer that knows a stream of ADTS at PID 0x101.
fn begun() -> TsDemuxer {
    let mut demuxer = TsDemuxer::default();
    assert_eq!(demuxer.handle_packet(&association()), None);
    let table = packet(0x100, true, 0, &starting(&programme(&[(0x0f, 0x101, &[])])));
    assert_eq!(demuxer.handle_packet(&table), Some(TsEvent::Stream(TsCodec::Adts)));
    demuxer
}

fn sound(event: Option<TsEvent<'_>>) -> (Option<u64>, bool, usize) {
    match event {
        Some(TsEvent::Sound { time, is_after_loss, bytes }) => {
            (time.map(TsTime::ticks), is_after_loss, bytes.len())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_codec_is_that_of_the_first_stream_that_can_be_decoded() {
    let codec = |streams: &[(u8, u16, &[u8])]| {
        let mut demuxer = TsDemuxer::default();
        demuxer.handle_packet(&association());
        match demuxer.handle_packet(&packet(0x100, true, 0, &starting(&programme(streams)))) {
            Some(TsEvent::Stream(codec)) => Ok(codec),
            Some(TsEvent::NoSound(codec)) => Err(codec),
            other => panic!("{other:?}"),
        }
    };
    let video = (0x1b, 0x110, &[][..]);
    assert_eq!(codec(&[video, (0x03, 0x101, &[])]), Ok(TsCodec::Mpeg));
    assert_eq!(codec(&[(0x81, 0x101, b"\x05\x04AC-3"), (0x11, 0x102, &[])]), Ok(TsCodec::Latm));
    assert_eq!(codec(&[(0x06, 0x101, b"\x05\x04Opus\x7f\x02\x80\x01")]), Ok(TsCodec::Opus(1)));
    let surround = codec(&[(0x06, 0x101, b"\x05\x04Opus\x7f\x02\x80\x06")]);
    assert_eq!(surround, Err(Some(UnsupportedTsCodec::OpusChannels)));
    assert_eq!(codec(&[(0x06, 0x101, b"\x6a\x01\0")]), Err(Some(UnsupportedTsCodec::Ac3)));
    let pcm = codec(&[(0x06, 0x101, b"\x05\x04BSSD")]);
    assert_eq!(pcm, Err(Some(UnsupportedTsCodec::Smpte302m)));
    assert_eq!(codec(&[video]), Err(None));
}

#[test]
fn a_table_may_span_packets_and_needs_its_checksum() {
    let fill = [&b"\x05\xc8"[..], &[0; 200]].concat();
    let table = programme(&[(0x1b, 0x110, &fill), (0x0f, 0x101, &[])]);
    let whole = starting(&table);
    let (first, second) = whole.split_at(184);
    let send = |first: &[u8], second: &[u8], counter: u8| {
        let mut demuxer = TsDemuxer::default();
        demuxer.handle_packet(&association());
        assert_eq!(demuxer.handle_packet(&packet(0x100, true, 7, first)), None);
        demuxer.handle_packet(&packet(0x100, false, counter, second)).is_some()
    };
    assert!(send(first, second, 8));
    assert!(!send(first, second, 9), "a packet between them is missing");
    let mut damaged = first.to_vec();
    damaged[100] ^= 1;
    assert!(!send(&damaged, second, 8));
}

#[test]
fn times_and_payloads_come_in_pieces_and_counters_show_what_is_missing() {
    let mut demuxer = begun();
    let unit = pes(90_000, &[9; 400]);
    let (first, rest) = unit.split_at(5);
    // The header is in two packets.
    assert_eq!(demuxer.handle_packet(&packet(0x101, true, 0, first)), None);
    let (second, rest) = rest.split_at(100);
    let piece = packet(0x101, false, 1, second);
    assert_eq!(sound(demuxer.handle_packet(&piece)), (Some(90_000), false, 91));
    assert_eq!(demuxer.handle_packet(&piece), None, "a packet that is repeated");
    let piece = packet(0x101, false, 3, &rest[..100]);
    assert_eq!(sound(demuxer.handle_packet(&piece)), (None, true, 100));
    let piece = packet(0x101, false, 4, &rest[100..200]);
    assert_eq!(sound(demuxer.handle_packet(&piece)), (None, false, 100));
    // What is behind the length of a PES packet is not a part of it.
    let unit = [pes(93_600, &[9; 40]), vec![0xff; 50]].concat();
    let piece = packet(0x101, true, 5, &unit);
    assert_eq!(sound(demuxer.handle_packet(&piece)), (Some(93_600), false, 40));
}

#[test]
fn scrambled_sound_is_reported_once_it_lasts() {
    let mut demuxer = begun();
    let mut events = Vec::new();
    for counter in 0..=255 {
        let mut scrambled = packet(0x101, true, counter, &pes(0, &[1; 20]));
        scrambled[3] |= 0x80;
        events.extend(demuxer.handle_packet(&scrambled).map(|event| event == TsEvent::Scrambled));
    }
    assert_eq!(events, [true]);
}

#[test]
fn times_go_on_over_their_wrap() {
    let mut line = TsTimeline::default();
    let second = 90_000;
    let wrap = 1 << 33;
    let times = [wrap - second, wrap - second / 2, wrap, wrap + second, wrap - second];
    let line = times.map(|ticks| line.extend(TsTime::from_ticks(ticks)));
    let first = line[0];
    let since = line.map(|time| (time - first).as_millis());
    assert_eq!(since, [0, 500, 1_000, 2_000, 0]);
    assert_eq!(first, Span::from_nanos(95_442_717_688_888));
}

proptest! {
    #[test]
    fn a_difference_of_times_is_the_shorter_way(at in 0_u64..1 << 33, by in -(1_i64 << 32)..1 << 32) {
        let time = TsTime::from_ticks(at);
        let later = TsTime::from_ticks(at.wrapping_add_signed(by));
        prop_assert_eq!(later.diff(time), by);
    }
}

/// Bytes of a stream, with the time of the unit that begins in them.
type TimedPiece = (Option<TsTime>, Vec<u8>);

/// What a demultiplexer gets of a stream of this codec: its codec, and the bytes with their times.
fn demultiplexed(stream: &[u8]) -> (Option<TsCodec>, Vec<TimedPiece>) {
    let (packets, rest) = stream.as_chunks::<TS_PACKET>();
    assert!(rest.is_empty());
    let mut demuxer = TsDemuxer::default();
    let (mut codec, mut units) = (None, Vec::new());
    for packet in packets {
        match demuxer.handle_packet(packet) {
            Some(TsEvent::Stream(found)) => codec = Some(found),
            Some(TsEvent::Sound { time, is_after_loss, bytes }) => {
                assert!(!is_after_loss);
                units.push((time, bytes.to_vec()));
            }
            other => assert_eq!(other, None),
        }
    }
    (codec, units)
}

#[test]
fn what_the_multiplexer_writes_is_read_with_its_times() {
    for codec in [TsCodec::Adts, TsCodec::Latm, TsCodec::Mpeg, TsCodec::Opus(1), TsCodec::Opus(2)] {
        let mut muxer = TsMuxer::new(codec);
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for number in 0..400u16 {
            // Frames of 1 to 1,500 bytes; ten seconds of them.
            let length = usize::from(number) * 379 % 1_500 + 1;
            let frame = vec![number.to_le_bytes()[0]; length];
            let time = TsTime::from_ticks(u64::from(number) * 2_250);
            muxer.push(time, &frame);
            expected.push((time.ticks() + 9_000, frame));
            muxer.flush(&mut stream);
        }
        let (found, units) = demultiplexed(&stream);
        assert_eq!(found, Some(codec));
        let mut units = units.into_iter().peekable();
        for (ticks, frame) in expected {
            let (time, mut bytes) = units.next().unwrap();
            assert_eq!(time.map(TsTime::ticks), Some(ticks));
            while let Some((_, more)) = units.next_if(|(time, _)| time.is_none()) {
                bytes.extend(more);
            }
            if matches!(codec, TsCodec::Opus(_)) {
                let header = 2 + frame.len() / 255 + 1;
                assert_eq!(bytes[..2], [0x7f, 0xe0]);
                bytes.drain(..header);
            }
            assert!(bytes == frame, "{codec:?} at {ticks}");
        }
    }
}

#[test]
fn tables_come_first_and_then_four_times_a_second() {
    let mut muxer = TsMuxer::new(TsCodec::Adts);
    let mut stream = Vec::new();
    for number in 0..100 {
        muxer.push(TsTime::from_ticks((1 << 33) - 90_000 + number * 1_800), &[0xff; 100]);
        assert!(!muxer.is_full());
        muxer.flush(&mut stream);
    }
    let is_table = |packet: &&[u8; TS_PACKET]| packet[1..3] == [0x40, 0];
    let (packets, _) = stream.as_chunks::<TS_PACKET>();
    assert!(is_table(&&packets[0]));
    // Two seconds, over the wrap of the clock.
    let tables = packets.iter().filter(is_table).count();
    assert!((8..=9).contains(&tables), "{tables}");
    muxer.push(TsTime::from_ticks(0), &[0; 9_000]);
    assert_eq!(muxer.waiting_ticks(TsTime::from_ticks(900)), 0, "too long for a frame");
    muxer.push(TsTime::from_ticks(0), &[0; 3_000]);
    assert!(muxer.is_full() && muxer.waiting_ticks(TsTime::from_ticks(900)) == 900);
}

//! The rules of RFC 8216 that a text or a box can break; `docs/standards/hls.md` names them.

use aulos_core::SampleRate;
use mp4_atom::{Any, Codec, DecodeMaybe as _};

use super::*;

const RATE: SampleRate = SampleRate::HZ_48000;

fn segment(number: u64) -> PlaylistSegment {
    PlaylistSegment {
        uri: format!("{number}.m4s"),
        date: HlsDate(number * 5_760),
        is_discontinuous: false,
        is_gap: false,
    }
}

fn playlist(segments: &[PlaylistSegment], ranges: &[DateRange]) -> String {
    MediaPlaylist {
        segment_micros: 5_760_000,
        media_sequence: 307_000_000,
        discontinuity_sequence: 0,
        map: Some("init.mp4"),
        segments,
        ranges,
    }
    .write()
}

fn boxes(bytes: &[u8]) -> Vec<Any> {
    let mut rest = bytes;
    std::iter::from_fn(|| Any::decode_maybe(&mut rest).unwrap()).collect()
}

#[test]
fn a_media_playlist_has_its_tags_once_and_in_order() {
    let text = playlist(&[segment(307_000_000), segment(307_000_001)], &[]);
    let expected = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:6\n\
        #EXT-X-MEDIA-SEQUENCE:307000000\n#EXT-X-INDEPENDENT-SEGMENTS\n\
        #EXT-X-MAP:URI=\"init.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-01-13T16:00:00.000Z\n#EXTINF:5.760000,\n307000000.m4s\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-01-13T16:00:05.760Z\n#EXTINF:5.760000,\n307000001.m4s\n";
    assert_eq!(text, expected);
}

#[test]
fn the_target_is_the_rounded_duration_of_a_segment() {
    for (micros, target) in
        [(5_760_000, 6), (3_200_000, 3), (1_920_000, 2), (2_500_000, 3), (400_000, 1)]
    {
        let list = MediaPlaylist {
            segment_micros: micros,
            media_sequence: 0,
            discontinuity_sequence: 0,
            map: Some(""),
            segments: &[],
            ranges: &[],
        };
        assert_eq!(list.target_seconds(), target, "{micros}");
    }
}

#[test]
fn a_discontinuity_repeats_the_map_and_a_gap_raises_the_version() {
    let segments = [
        segment(1),
        PlaylistSegment { is_gap: true, ..segment(2) },
        PlaylistSegment { is_discontinuous: true, ..segment(3) },
    ];
    let text = playlist(&segments, &[]);
    assert!(text.starts_with("#EXTM3U\n#EXT-X-VERSION:8\n"), "{text}");
    let tail = text.split("1.m4s\n").nth(1).unwrap();
    assert!(tail.starts_with("#EXT-X-GAP\n#EXT-X-PROGRAM-DATE-TIME:"), "{tail}");
    let tail = tail.split("2.m4s\n").nth(1).unwrap();
    assert!(tail.starts_with("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"init.mp4\"\n"), "{tail}");
}

#[test]
fn a_title_is_one_line_without_quotes() {
    let range = DateRange { id: 7, start: HlsDate(1_500), title: "a \"b\"\nc".to_owned() };
    let text = playlist(&[segment(1)], &[range]);
    let last = text.lines().last().unwrap();
    let expected = "#EXT-X-DATERANGE:ID=\"title-7\",CLASS=\"org.aulos.title\",\
        START-DATE=\"1970-01-01T00:00:01.500Z\",END-ON-NEXT=YES,X-TITLE=\"a 'b'c\"";
    assert_eq!(last, expected);
}

#[test]
fn a_multivariant_playlist_lists_both_bandwidths_and_the_codec() {
    let variant = |uri: &str, codecs: &str| Variant {
        uri: uri.to_owned(),
        peak: 2_000,
        average: 1_000,
        codecs: codecs.to_owned(),
    };
    let text =
        multivariant_playlist(&[variant("a/b.m3u8", "fLaC"), variant("c/b.m3u8", "Opus")], true);
    let expected = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n\
        #EXT-X-STREAM-INF:BANDWIDTH=2000,AVERAGE-BANDWIDTH=1000,CODECS=\"fLaC\"\na/b.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=2000,AVERAGE-BANDWIDTH=1000,CODECS=\"Opus\"\nc/b.m3u8\n";
    assert_eq!(text, expected);
}

#[test]
fn an_init_segment_describes_its_codec() {
    let flac = Track { codec: TrackCodec::Flac { bits: 16, block: 960 }, rate: RATE, channels: 2 };
    let opus = Track { codec: TrackCodec::Opus, ..flac };
    let config = TrackCodec::Aac { config: vec![0x11, 0x90], bitrate: 128_000 };
    let aac = Track { codec: config, ..flac };
    for (track, name) in [(flac, "fLaC"), (opus, "Opus"), (aac, "mp4a.40.2")] {
        assert_eq!(track.codec.name(), name);
        let bytes = track.init_segment().unwrap();
        let [Any::Ftyp(_), Any::Moov(moov)] = &*boxes(&bytes) else { panic!("{name}") };
        let mdia = &moov.trak[0].mdia;
        assert_eq!(mdia.mdhd.timescale, 48_000);
        match &mdia.minf.stbl.stsd.codecs[..] {
            [Codec::Flac(flac)] => {
                // STREAMINFO as a reader of ours has it, behind the header of its block.
                let at = bytes.windows(4).position(|name| name == b"dfLa").unwrap();
                let info = crate::flac::StreamInfo::parse(&bytes[at + 12..]).unwrap();
                assert_eq!((info.block_size(), info.frames()), (Some(960), 0));
                assert_eq!(flac.audio.sample_size, 16);
                assert_eq!(&bytes[at + 8..at + 12], [0x80, 0, 0, 34], "the last block");
            }
            [Codec::Opus(opus)] => assert_eq!(opus.dops.output_channel_count, 2),
            [Codec::Mp4a(aac)] => {
                let config = &aac.esds.es_desc.dec_config;
                assert_eq!(config.dec_specific.as_ref().unwrap().raw, [0x11, 0x90]);
                assert_eq!((config.object_type_indication, config.avg_bitrate), (0x40, 128_000));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_fragment_places_its_frames_and_its_events() {
    let event = EventMessage { time: 48_123, id: 9, tag: title_tag("a – b") };
    let fragment = Fragment {
        sequence: 0x1_0000_0002,
        decode_time: 48_000 * 5_000_000_000,
        timescale: 48_000,
        frame_duration: 960,
        sizes: &[3, 2],
        payload: b"abcde",
        events: std::slice::from_ref(&event),
    };
    let bytes = fragment.write().unwrap();
    let [Any::Styp(_), Any::Emsg(emsg), Any::Moof(moof), Any::Mdat(data)] = &*boxes(&bytes) else {
        panic!()
    };
    assert_eq!((&*data.data, moof.mfhd.sequence_number), (&b"abcde"[..], 2));
    let traf = &moof.traf[0];
    assert_eq!(traf.tfdt.as_ref().unwrap().base_media_decode_time, 240_000_000_000_000);
    assert_eq!(traf.tfhd.default_sample_duration, Some(960));
    let sizes: Vec<_> = traf.trun[0].samples.iter().map(|entry| entry.size).collect();
    assert_eq!(sizes, [Some(3), Some(2)]);
    let start = bytes.windows(4).position(|name| name == b"moof").unwrap() - 4;
    let offset = usize::try_from(traf.trun[0].data_offset.unwrap()).unwrap();
    assert_eq!(&bytes[start + offset..], b"abcde");
    assert_eq!(emsg.message_data, event.tag);
    assert_eq!(emsg.scheme_id_uri, "https://aomedia.org/emsg/ID3");
    assert_eq!(emsg.presentation_time, mp4_atom::EmsgTimestamp::Absolute(48_123));
}

#[test]
fn a_tag_has_the_sizes_of_its_parts_and_no_endless_title() {
    assert_eq!(title_tag("ab"), b"ID3\x04\0\0\0\0\0\x0dTIT2\0\0\0\x03\0\0\x03ab");
    let long = title_tag(&"\u{20ac}".repeat(1_000));
    assert!(long.len() < 1_030 && std::str::from_utf8(&long[21..]).is_ok());
}

#[test]
fn packed_audio_has_no_map_and_a_version_that_old_players_know() {
    let segments = [segment(7), PlaylistSegment { is_discontinuous: true, ..segment(8) }];
    let list = MediaPlaylist {
        segment_micros: 5_760_000,
        media_sequence: 7,
        discontinuity_sequence: 0,
        map: None,
        segments: &segments,
        ranges: &[],
    };
    let text = list.write();
    assert!(text.starts_with("#EXTM3U\n#EXT-X-VERSION:3\n"), "{text}");
    assert!(!text.contains("#EXT-X-MAP") && text.contains("#EXT-X-DISCONTINUITY\n"), "{text}");
    let text = multivariant_playlist(&[], false);
    assert!(text.starts_with("#EXTM3U\n#EXT-X-VERSION:3\n"), "{text}");
}

#[test]
fn the_tag_of_packed_audio_has_the_time_in_33_bits_and_the_title() {
    let tag = packed_audio_tag((5 << 33) + 90_000, Some("a title"));
    let read = crate::id3::Id3Tag::parse(&tag);
    assert_eq!(read.time(), Some(crate::mpegts::TsTime::from_ticks(90_000)));
    assert_eq!(read.title().and_then(|title| title.title).as_deref(), Some("a title"));
    let owner = b"com.apple.streaming.transportStreamTimestamp\0";
    assert_eq!(&tag[..14], b"ID3\x04\0\0\0\0\0\x51PRIV");
    assert_eq!(&tag[20..20 + owner.len()], owner);
    assert_eq!(&tag[65..73], [0, 0, 0, 0, 0, 1, 0x5f, 0x90]);
    assert_eq!(packed_audio_tag(0, None).len(), 73);
}

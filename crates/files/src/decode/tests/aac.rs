//! HE-AAC, compared with ffmpeg's decoding of the same bytes.
//!
//! ffmpeg does not encode HE-AAC, so two streams of libxaac are kept beside this file: two seconds
//! of tones and noise bursts, other ones left than right, stereo at 48 kHz; version 1 at 48 kbit/s
//! with a tone of 13.5 kHz on the left, version 2 at 24 kbit/s. libxaac sends the header of SBR
//! with every tenth packet or so.

use std::process::Command;

use aulos_core::{ChannelLayout, SampleRate};
use aulos_proto::packets::FormatHint;
use proptest::prelude::*;

use super::super::aac::{AacDecoder, AacPacket};
use super::super::{FileDecodeOptions, FileDecoder, OpenError, StreamDecodeStatus, StreamDecoder};
use super::fixture::Folder;
use super::{block, read_whole};

/// Both versions: name, ADTS.
const STREAMS: [(&str, &[u8]); 2] =
    [("v1", include_bytes!("data/he-aac-v1.aac")), ("v2", include_bytes!("data/he-aac-v2.aac"))];

const SHAPE: (SampleRate, ChannelLayout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);

/// The greatest difference to ffmpeg, for audio with a peak of 0.4.
const CLOSE: f32 = 1e-5;

/// The file as ffmpeg decodes it.
fn by_ffmpeg(folder: &Folder, name: &str) -> Vec<f32> {
    let out = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-i"])
        .arg(folder.file(name))
        .args(["-c:a", "pcm_f32le", "-f", "f32le", "pipe:1"])
        .output()
        .expect("these tests need ffmpeg: install it (apt-get install ffmpeg)");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    out.stdout.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// ADTS in another container, unchanged.
fn remux(folder: &Folder, from: &str, to: &str) {
    let status = Command::new("ffmpeg")
        .args(["-nostdin", "-y", "-loglevel", "error", "-i"])
        .arg(folder.file(from))
        .args(["-c", "copy"])
        .arg(folder.file(to))
        .status()
        .unwrap();
    assert!(status.success(), "{to}");
}

fn greatest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn open(folder: &Folder, name: &str) -> FileDecoder {
    FileDecoder::open(&folder.file(name), FileDecodeOptions::default()).unwrap()
}

/// The packets of ADTS.
fn packets(adts: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut packets) = (adts, Vec::new());
    while let [_, _, _, d, e, f, _, ..] = rest {
        let length = usize::from(d & 3) << 11 | usize::from(*e) << 3 | usize::from(f >> 5);
        packets.push(&rest[7..length]);
        rest = &rest[length..];
    }
    packets
}

/// The samples of a stream, which must not change its rate or layout, and the damaged packets.
fn stream(bytes: &[u8], piece: usize) -> (Vec<f32>, u64) {
    let (mut decoder, mut into) = (StreamDecoder::new(FormatHint::None), block());
    let mut sound = Vec::new();
    let mut drain = |decoder: &mut StreamDecoder| {
        while decoder.next(&mut into).unwrap() == StreamDecodeStatus::Block {
            assert_eq!((into.rate(), into.layout()), SHAPE);
            sound.extend_from_slice(into.samples());
        }
    };
    for mut piece in bytes.chunks(piece) {
        while !piece.is_empty() {
            piece = &piece[decoder.push(piece)..];
            drain(&mut decoder);
        }
    }
    decoder.finish();
    drain(&mut decoder);
    let info = decoder.info().unwrap();
    assert_eq!((info.codec, (info.rate, info.layout)), ("aac", SHAPE));
    (sound, decoder.counts().damaged)
}

#[test]
fn files_and_streams_decode_as_in_ffmpeg_in_any_container() {
    let folder = Folder::new();
    for (name, adts) in STREAMS {
        let source = format!("{name}.aac");
        folder.write(&source, adts);
        let wanted = by_ffmpeg(&folder, &source);
        let (sound, damaged) = stream(adts, 100);
        assert_eq!((sound.len(), damaged), (wanted.len(), 0), "{name}");
        let difference = greatest_difference(&sound, &wanted);
        println!("{name} stream: {difference:e}");
        assert!(difference <= CLOSE, "{name}: {difference:e}");
        for container in ["aac", "m4a", "mka"] {
            let file = format!("{name}.{container}");
            if container != "aac" {
                remux(&folder, &source, &file);
            }
            let wanted = by_ffmpeg(&folder, &file);
            let mut decoder = open(&folder, &file);
            let info = decoder.info().clone();
            assert_eq!((info.rate, info.layout), SHAPE, "{file}");
            let sound = read_whole(&mut decoder);
            assert_eq!(sound.len(), wanted.len(), "{file}");
            let difference = greatest_difference(&sound, &wanted);
            println!("{file}: {difference:e}, {:?} of {} frames", info.frames, sound.len() / 2);
            assert!(difference <= CLOSE, "{file}: {difference:e}");
            if container == "m4a" {
                assert_eq!(info.frames.map(|it| it.0), Some(sound.len() as u64 / 2), "{file}");
            }
        }
    }
}

#[test]
fn an_mp4_that_announces_sbr_is_cut_to_what_was_encoded() {
    let folder = Folder::new();
    let tone = |hz: f32| -> Vec<f32> {
        let step = core::f32::consts::TAU * hz / 48_000.0;
        (0_u16..50_001).map(|n| 0.3 * (f32::from(n) * step).sin()).collect()
    };
    let planes = [tone(440.0), tone(700.0)];
    let options = syom::EncodeOptions::m4a();
    let versions = [
        (options.clone().with_he(true).with_bitrate_bps(64_000), 0.9),
        (options.with_he_v2(true).with_bitrate_bps(40_000), 0.5),
    ];
    for (options, least) in versions {
        let mp4 = syom::encode_with(&planes, 48_000, &options).unwrap();
        folder.write("a.m4a", &mp4);
        // The container library refuses the original.
        remux(&folder, "a.m4a", "b.m4a");
        let mut decoder = open(&folder, "b.m4a");
        assert_eq!((decoder.info().rate, decoder.info().layout), SHAPE);
        assert_eq!(decoder.info().frames.map(|it| it.0), Some(50_001));
        let sound = read_whole(&mut decoder);
        assert_eq!(sound.len(), 2 * 50_001);
        // Aligned: correlation with what was encoded. (ffmpeg 5.1 skips twice what the edit list
        // says.)
        for (channel, plane) in planes.iter().enumerate() {
            let decoded = || sound.iter().skip(channel).step_by(2);
            let product: f32 = decoded().zip(plane).map(|(a, b)| a * b).sum();
            let power: f32 =
                decoded().map(|a| a * a).sum::<f32>() * plane.iter().map(|b| b * b).sum::<f32>();
            let correlation = product / power.sqrt();
            assert!(correlation > least, "channel {channel}: {correlation}");
        }
    }
}

#[test]
fn a_stream_that_is_joined_between_two_headers_plays_at_the_full_rate() {
    for (name, adts) in STREAMS {
        let (whole, _) = stream(adts, 4_096);
        for first in [1, 5, 12] {
            let at: usize = packets(adts)[..first].iter().map(|packet| packet.len() + 7).sum();
            let (sound, damaged) = stream(&adts[at..], 333);
            let missing = whole.len() - sound.len();
            println!("{name} from packet {first}: {} packets missing", missing / 4_096);
            assert_eq!(damaged, 0, "{name}: to wait for a header is no damage");
            assert!(missing <= (first + 16) * 4_096, "{name}: {missing}");
        }
    }
}

/// The first packets are AAC LC of the core rate, as from an encoder whose SBR begins later.
#[test]
fn the_rate_is_decided_on_the_first_packets() {
    let folder = Folder::new();
    let path = folder.encoded("a.aac", 48_000, 16, "-t 1 -c:a aac -ar 24000 -aac_pns 0");
    let plain = std::fs::read(path).unwrap();
    let lengths: Vec<_> = packets(&plain).iter().map(|packet| packet.len() + 7).collect();
    let (whole, _) = stream(STREAMS[0].1, 4_096);
    for count in [1, 3] {
        let first = &plain[..lengths[..count].iter().sum()];
        let (sound, damaged) = stream(&[first, STREAMS[0].1].concat(), 500);
        assert_eq!((sound.len(), damaged), (whole.len() + count * 4_096, 0));
        // The tail is that of the stream alone, but for the noise of SBR.
        let tail = &sound[sound.len() - 40_000..];
        assert!(greatest_difference(tail, &whole[whole.len() - 40_000..]) < 0.05);
    }
    // Without SBR it is the core's rate.
    let (mut decoder, mut into) = (StreamDecoder::new(FormatHint::None), block());
    let mut frames = 0;
    for piece in plain.chunks(1_000) {
        assert_eq!(decoder.push(piece), piece.len());
        while decoder.next(&mut into).unwrap() == StreamDecodeStatus::Block {
            assert_eq!(into.rate().hz(), 24_000);
            frames += into.frames().0;
        }
    }
    decoder.finish();
    while decoder.next(&mut into).unwrap() == StreamDecodeStatus::Block {
        frames += into.frames().0;
    }
    assert_eq!(frames, 1_024 * lengths.len() as u64);
}

#[test]
fn after_damage_the_next_packet_is_decoded_at_the_full_rate() {
    for (name, adts) in STREAMS {
        let packets = packets(adts);
        let mut decoder = AacDecoder::new(&CONFIGS[usize::from(name == "v2")]).unwrap();
        let mut out = Vec::new();
        for (index, packet) in packets.iter().enumerate() {
            if index % 7 == 6 {
                assert_eq!(
                    decoder.decode(&packet[..packet.len() / 3], &mut out),
                    AacPacket::Damaged
                );
                assert!(out.is_empty());
                continue;
            }
            assert_eq!(decoder.decode(packet, &mut out), AacPacket::Frames, "{name} {index}");
            assert_eq!((decoder.shape(), out.len()), (SHAPE, 4_096), "{name} {index}");
        }
    }
}

#[test]
fn nothing_of_an_earlier_packet_is_heard_after_damage() {
    let silence: [&[u8]; 2] = [&[0x20, 0, 0, 0, 0, 0, 0x0e], &[0, 0, 0, 0x07]];
    for (index, (name, adts)) in STREAMS.into_iter().enumerate() {
        let packets = packets(adts);
        let peak = |out: &[f32]| out.iter().fold(0.0_f32, |peak, x| peak.max(x.abs()));
        let (mut decoder, mut out) = (AacDecoder::new(&CONFIGS[index]).unwrap(), Vec::new());
        // Begins in the middle, so that the packet with the header is loud.
        for packet in &packets[15..] {
            decoder.decode(packet, &mut out);
        }
        assert!(peak(&out) > 0.1, "{name}");
        assert_eq!(decoder.decode(&packets[20][..40], &mut out), AacPacket::Damaged);
        assert_eq!(decoder.decode(silence[index], &mut out), AacPacket::Frames);
        assert_eq!((decoder.shape(), out.len()), (SHAPE, 4_096));
        assert!(peak(&out) < 0.01, "{name}: {}", peak(&out));
    }
}

/// What ADTS says of both: AAC LC of 24 kHz, stereo and mono.
const CONFIGS: [[u8; 2]; 2] = [[0x13, 0x10], [0x13, 0x08]];

#[test]
fn what_ends_in_an_error_says_why() {
    // Object types 42 and 39; HE-AAC with 960 samples per frame; 5.1.
    let usac = [0xf9, 0x46, 0x40];
    assert_eq!(AacDecoder::new(&usac).err(), Some("xHE-AAC (USAC)"));
    assert_eq!(AacDecoder::new(&[0xf8, 0xe6, 0x40]).err(), Some("AAC-ELD"));
    let short = [0x2b, 0x11, 0x8a, 0x00];
    assert_eq!(AacDecoder::new(&short).err(), Some("HE-AAC with 960-sample frames"));
    assert_eq!(AacDecoder::new(&[0x11, 0xb0]).err(), Some("AAC of more than two channels"));

    // The same from a file, whose config is replaced.
    let folder = Folder::new();
    folder.write("a.aac", STREAMS[0].1);
    remux(&folder, "a.aac", "a.m4a");
    let mut mp4 = std::fs::read(folder.file("a.m4a")).unwrap();
    // DecoderSpecificInfo: tag 5 and a length of four bytes.
    let at = mp4.windows(5).position(|it| it == [5, 0x80, 0x80, 0x80, 2]).unwrap() + 5;
    mp4[at..at + 2].copy_from_slice(&usac[..2]);
    let refused = FileDecoder::open(&folder.write("b.m4a", &mp4), FileDecodeOptions::default());
    assert!(matches!(refused.err(), Some(OpenError::UnsupportedAac(_))));

    // No packet of a stream can be decoded.
    let mut decoder = AacDecoder::new(&CONFIGS[0]).unwrap();
    let (mut out, mut last) = (Vec::new(), AacPacket::Frames);
    for _ in 0..=100 {
        last = decoder.decode(&[0x55; 300], &mut out);
        assert!(out.is_empty());
    }
    assert_eq!(last, AacPacket::Unsupported);
}

#[test]
fn the_config_of_adts_is_that_of_lc() {
    assert_eq!(AacDecoder::lc_config(24_000, 2), Some(CONFIGS[0]));
    assert_eq!(AacDecoder::lc_config(24_000, 1), Some(CONFIGS[1]));
    assert_eq!(AacDecoder::lc_config(48_000, 2), Some([0x11, 0x90]));
    assert_eq!(AacDecoder::lc_config(24_000, 6), None);
    assert_eq!(AacDecoder::lc_config(24_001, 2), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    /// Of each packet some bits are changed, or it is cut, or another one follows in its middle.
    #[test]
    fn any_damage_to_packets_is_survived(
        edits in prop::collection::vec((any::<u32>(), 0..8_u32, any::<u8>()), 80),
    ) {
        for (index, (_, adts)) in STREAMS.into_iter().enumerate() {
            let packets = packets(adts);
            let mut decoder = AacDecoder::new(&CONFIGS[index]).unwrap();
            let (mut out, mut rates) = (Vec::new(), Vec::new());
            for (packet, (at, kind, value)) in packets.iter().zip(&edits) {
                let mut packet = packet.to_vec();
                let at = *at as usize % packet.len();
                match kind {
                    0 => packet[at] ^= (*value).max(1),
                    1 => packet.truncate(at),
                    2 => packet.splice(at.., packets[usize::from(*value) % packets.len()].to_vec())
                        .for_each(drop),
                    3 => packet.resize(at + usize::from(*value) * 40, *value),
                    _ => {}
                }
                let frames = decoder.decode(&packet, &mut out);
                prop_assert_eq!(frames == AacPacket::Frames, !out.is_empty());
                prop_assert!(out.len() <= 2 * 2_048);
                prop_assert!(out.iter().all(|sample| sample.abs() <= 16.0));
                if frames == AacPacket::Frames {
                    rates.push(decoder.shape().0);
                }
            }
            // Damage may hide SBR in the first packet only.
            rates.dedup();
            prop_assert!(rates.len() <= 2, "{:?}", rates);
        }
    }

    #[test]
    fn any_config_and_packets_are_survived(
        config in prop::collection::vec(any::<u8>(), 0..8),
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..30),
    ) {
        if let Ok(mut decoder) = AacDecoder::new(&config) {
            let mut out = Vec::new();
            for packet in &packets {
                decoder.decode(packet, &mut out);
                prop_assert!(out.len() <= 2 * 2_048);
            }
        }
    }
}

/// Each case decodes two streams.
const CASES: u32 = 64;

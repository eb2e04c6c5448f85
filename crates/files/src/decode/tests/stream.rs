//! Streams of real music encoded by ffmpeg, pushed in pieces of any size, and compared with
//! ffmpeg's decoding of the same bytes.

#![allow(clippy::cast_possible_truncation, reason = "sizes of test material")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use aulos_core::{ChannelLayout, MediaTime, Rng, SampleRate, SampleSpec};
use aulos_engine::source::BLOCK_SAMPLES;
use aulos_io::feed::{StreamCounts, StreamError};
use aulos_proto::packets::{FormatHint, RawOpening, StreamFormatError, classify_raw_opening};
use proptest::prelude::*;

use super::super::{StreamDecodeStatus, StreamDecoder};
use super::block;

/// A format: ffmpeg's options for encoding and decoding, and the least SNR in dB.
struct StreamFormat {
    name: &'static str,
    encode: &'static str,
    decode: &'static str,
    rate: u32,
    channels: usize,
    snr: f64,
}

const fn kind(
    name: &'static str,
    encode: &'static str,
    rate: u32,
    channels: usize,
    snr: f64,
) -> StreamFormat {
    StreamFormat { name, encode, decode: "", rate, channels, snr }
}

/// AAC without noise substitution: a decoder that joins later generates other noise.
const KINDS: [StreamFormat; 14] = [
    kind("mp3", "-c:a libmp3lame -b:a 128k -write_xing 0 -f mp3", 44_100, 2, 90.0),
    kind("mp3-vbr", "-c:a libmp3lame -q:a 4 -write_xing 0 -f mp3", 44_100, 2, 90.0),
    kind(
        "mp3-mpeg2",
        "-c:a libmp3lame -b:a 48k -ar 22050 -ac 1 -write_xing 0 -f mp3",
        22_050,
        1,
        90.0,
    ),
    kind(
        "mp3-mpeg2.5",
        "-c:a libmp3lame -b:a 16k -ar 11025 -ac 1 -write_xing 0 -f mp3",
        11_025,
        1,
        90.0,
    ),
    kind("mp2", "-c:a mp2 -b:a 192k -f mp2", 44_100, 2, 75.0),
    kind("aac", "-c:a aac -aac_pns 0 -b:a 128k -f adts", 44_100, 2, 90.0),
    kind("aac-mono", "-c:a aac -aac_pns 0 -b:a 64k -ar 22050 -ac 1 -f adts", 22_050, 1, 90.0),
    kind("vorbis", "-c:a libvorbis -q:a 4 -f ogg", 44_100, 2, 90.0),
    StreamFormat {
        decode: "-c:a libopus",
        ..kind("opus", "-c:a libopus -b:a 128k -f ogg", 48_000, 2, 40.0)
    },
    kind("ogg-flac", "-c:a flac -f ogg", 44_100, 2, f64::INFINITY),
    kind("flac", "-c:a flac -f flac", 44_100, 2, f64::INFINITY),
    kind("flac-24", "-c:a flac -sample_fmt s32 -ar 96000 -f flac", 96_000, 2, f64::INFINITY),
    kind("wav", "-c:a pcm_s16le -f wav", 44_100, 2, f64::INFINITY),
    kind("wav-float", "-c:a pcm_f32le -ac 1 -f wav", 44_100, 1, f64::INFINITY),
];

const MUSIC: &str = "/usr/share/games/frozen-bubble/snd/frozen-mainzik-1p.ogg";

/// Runs ffmpeg as a filter.
fn ffmpeg(before: &str, input: &[u8], after: &str) -> Vec<u8> {
    let mut child = Command::new("ffmpeg")
        .args(["-nostdin", "-loglevel", "error", "-bitexact"])
        .args(before.split_whitespace())
        .args(["-i", "pipe:0"])
        .args(after.split_whitespace())
        .arg("pipe:1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("these tests need ffmpeg: install it (apt-get install ffmpeg)");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // ffmpeg may close its input early when it has enough.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.status.success(), "ffmpeg {before} {after}");
    out.stdout
}

/// Five seconds of music in each format.
fn encoded() -> &'static [(&'static StreamFormat, Vec<u8>)] {
    static ENCODED: OnceLock<Vec<(&'static StreamFormat, Vec<u8>)>> = OnceLock::new();
    ENCODED.get_or_init(|| {
        let music = std::fs::read(MUSIC).expect("apt-get install frozen-bubble-data");
        let music = ffmpeg("-ss 30 -t 5", &music, "-c:a pcm_s16le -f wav");
        let tags = "-map_metadata -1 -metadata title=Penguin -metadata artist=Frozen";
        KINDS
            .iter()
            .map(|kind| (kind, ffmpeg("", &music, &format!("{tags} {}", kind.encode))))
            .collect()
    })
}

fn of(name: &str) -> &'static (&'static StreamFormat, Vec<u8>) {
    encoded().iter().find(|(kind, _)| kind.name == name).unwrap()
}

/// The audio as decoded by ffmpeg.
fn decoded_by_ffmpeg(kind: &StreamFormat, bytes: &[u8]) -> Vec<f32> {
    let sound = ffmpeg(kind.decode, bytes, "-c:a pcm_f32le -f f32le");
    sound.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The decoded audio of a stream, and its status.
#[derive(Default)]
struct DecodedStream {
    sound: Vec<f32>,
    shapes: Vec<(SampleRate, ChannelLayout)>,
    titles: Vec<(Option<String>, Option<String>)>,
    codec: Option<&'static str>,
    counts: StreamCounts,
    error: Option<StreamError>,
}

/// Pushes `bytes` in pieces whose lengths `next` returns.
fn decode_in_pieces(bytes: &[u8], mut next: impl FnMut() -> usize) -> DecodedStream {
    let mut decoder = StreamDecoder::new(FormatHint::None);
    let (mut told, mut into, mut rest) = (DecodedStream::default(), block(), bytes);
    loop {
        let piece = next().clamp(1, rest.len().max(1)).min(rest.len());
        let taken = decoder.push(&rest[..piece]);
        rest = &rest[taken..];
        if rest.is_empty() {
            decoder.finish();
        }
        let hungry = loop {
            match decoder.next(&mut into) {
                Ok(StreamDecodeStatus::Block) => told.take(&into),
                Ok(StreamDecodeStatus::NeedsInput) => break true,
                Ok(StreamDecodeStatus::End) => break false,
                Err(error) => {
                    told.error = Some(error);
                    break false;
                }
            }
        };
        if let Some(title) = decoder.take_title() {
            told.titles.push((title.title, title.artist));
        }
        told.codec = decoder.info().map(|info| info.codec).or(told.codec);
        if !hungry {
            assert_eq!(decoder.next(&mut into).err(), told.error, "an end is final");
            told.counts = decoder.counts();
            return told;
        }
    }
}

impl DecodedStream {
    fn take(&mut self, block: &aulos_core::Block) {
        assert!(block.frames().0 > 0 && block.samples().len() <= BLOCK_SAMPLES);
        assert!(block.samples().iter().all(|sample| sample.is_finite()));
        let shape = (block.rate(), block.layout());
        if self.shapes.last() != Some(&shape) {
            self.shapes.push(shape);
        }
        if self.shapes.len() == 1 {
            let frames = self.sound.len() / shape.1.channels();
            assert_eq!(block.pts, MediaTime(frames as u64));
        }
        self.sound.extend_from_slice(block.samples());
    }
}

/// Pieces of 1 byte to 64 kB, with small and large ones equally likely.
fn random_pieces(seed: u64) -> impl FnMut() -> usize {
    let mut rng = Rng::new(seed);
    move || {
        let most = 1 << rng.below(17);
        1 + rng.below(most)
    }
}

/// The signal-to-noise ratio in dB.
fn snr(sound: &[f32], wanted: &[f32]) -> f64 {
    let power = |it: &mut dyn Iterator<Item = f64>| it.map(|x| x * x).sum::<f64>();
    let noise = power(&mut sound.iter().zip(wanted).map(|(a, b)| f64::from(a - b)));
    10.0 * (power(&mut wanted.iter().map(|b| f64::from(*b))) / noise).log10()
}

#[test]
fn every_format_decodes_as_in_ffmpeg_for_any_segmentation() {
    for (kind, bytes) in encoded() {
        let wanted = decoded_by_ffmpeg(kind, bytes);
        assert!(wanted.len() > 4 * kind.rate as usize * kind.channels, "{}", kind.name);
        let told = decode_in_pieces(bytes, random_pieces(7));
        let ratio = snr(&told.sound, &wanted);
        println!(
            "{:12} {ratio:6.1} dB, {} of {} samples, {:?}",
            kind.name,
            told.sound.len(),
            wanted.len(),
            told.counts
        );
        assert_eq!(told.error, None, "{}", kind.name);
        assert_eq!(told.sound.len(), wanted.len(), "{}", kind.name);
        assert!(ratio >= kind.snr, "{}: {ratio} dB", kind.name);
        let layout = ChannelLayout::new(kind.channels).unwrap();
        assert_eq!(told.shapes, [(SampleRate::new(kind.rate).unwrap(), layout)], "{}", kind.name);
        assert_eq!((told.counts.damaged, told.counts.resyncs), (0, 0), "{}", kind.name);
        let named = kind.name.split('-').next();
        assert!(
            kind.name.starts_with("ogg-") || told.codec.or(named) == named || named == Some("wav")
        );
    }
}

#[test]
fn one_byte_at_a_time_is_the_same_as_all_at_once() {
    for (kind, bytes) in encoded() {
        let bytes = &bytes[..bytes.len().min(150_000)];
        let (whole, single) =
            (decode_in_pieces(bytes, || usize::MAX), decode_in_pieces(bytes, || 1));
        assert!(!whole.sound.is_empty(), "{}", kind.name);
        assert_eq!(whole.sound, single.sound, "{}", kind.name);
        assert_eq!(whole.titles, single.titles, "{}", kind.name);
    }
}

#[test]
fn titles_of_ogg_and_flac_are_reported() {
    for name in ["vorbis", "opus", "ogg-flac", "flac"] {
        let told = decode_in_pieces(&of(name).1, random_pieces(3));
        let wanted = (Some("Penguin".to_owned()), Some("Frozen".to_owned()));
        assert_eq!(told.titles, [wanted], "{name}");
    }
}

#[test]
fn an_encoders_delay_and_padding_are_cut_off() {
    // A file, so that lame writes its tag: five seconds are then exactly five seconds.
    let folder = super::fixture::Folder::new();
    let path = folder.encoded("a.mp3", 44_100, 16, "-c:a libmp3lame -b:a 128k");
    let bytes = std::fs::read(path).unwrap();
    let told = decode_in_pieces(&bytes, random_pieces(11));
    assert_eq!(told.sound.len(), 2 * super::fixture::FRAMES);
    let wanted = super::fixture::signal_f32(44_100, 16);
    let ratio = snr(&told.sound, &wanted);
    assert!(ratio > 20.0, "{ratio} dB: not aligned with what was encoded");
}

#[test]
fn a_stream_that_is_joined_in_the_middle_plays_from_the_next_packet() {
    for name in ["mp3", "mp3-vbr", "mp2", "aac"] {
        let (kind, bytes) = of(name);
        let wanted = decoded_by_ffmpeg(kind, bytes);
        let at = bytes.len() / 2 + 77;
        let told = decode_in_pieces(&bytes[at..], random_pieces(5));
        assert_eq!(told.error, None);
        // The first packets depend on those before them; the end equals that of the whole.
        let tail = told.sound.len() * 9 / 10;
        let (sound, wanted) =
            (&told.sound[told.sound.len() - tail..], &wanted[wanted.len() - tail..]);
        let ratio = snr(sound, wanted);
        assert!(ratio > 75.0, "{name}: {ratio} dB");
        assert!(told.sound.len() > wanted.len() / 2, "{name}");
    }
}

#[test]
fn skipped_packets_are_not_decoded_and_decoding_resumes_correctly() {
    for (kind, bytes) in encoded() {
        let wanted = decoded_by_ffmpeg(kind, bytes);
        let (mut decoder, mut into) = (StreamDecoder::new(FormatHint::None), block());
        let (mut sound, mut skimmed, mut in_vain) = (Vec::new(), 0, 0);
        let pieces = bytes.chunks(bytes.len() / 100 + 1);
        let count = pieces.len();
        for (at, mut piece) in pieces.enumerate() {
            // From a fifth to a half of it.
            let skims = (count / 5..count / 2).contains(&at);
            decoder.set_parse_only(skims);
            let before = decoder.counts().packets;
            while !piece.is_empty() {
                let taken = decoder.push(piece);
                piece = &piece[taken..];
                while decoder.next(&mut into) == Ok(StreamDecodeStatus::Block) {
                    sound.extend_from_slice(into.samples());
                    in_vain += if skims { into.samples().len() } else { 0 };
                }
            }
            skimmed += if skims { decoder.counts().packets - before } else { 0 };
        }
        decoder.finish();
        while decoder.next(&mut into) == Ok(StreamDecodeStatus::Block) {
            sound.extend_from_slice(into.samples());
        }
        // Until its first page arrives, one or two packets are decoded to learn the format.
        assert!(skimmed > 0 && in_vain < 10_000, "{}: {in_vain} samples", kind.name);
        assert!(sound.len() < wanted.len() * 9 / 10, "{}", kind.name);
        // One second before the end nothing is left of it.
        let tail = kind.rate as usize * kind.channels;
        let ratio = snr(&sound[sound.len() - tail..], &wanted[wanted.len() - tail..]);
        println!("{}: {skimmed} packets skimmed, then {ratio:.1} dB", kind.name);
        assert!(ratio >= kind.snr.min(60.0), "{}: {ratio} dB", kind.name);
    }
}

#[test]
fn garbage_in_the_middle_costs_a_few_packets_and_no_more() {
    for (kind, bytes) in encoded().iter().filter(|(kind, _)| !kind.name.starts_with("wav")) {
        let clean = decode_in_pieces(bytes, || 4_096);
        let at = bytes.len() / 2;
        let count = 5_000.min(bytes.len() as u32 / 10);
        let garbage: Vec<u8> = (0..count).map(|n| ((n * n) >> 3) as u8).collect();
        let mut hurt = bytes.clone();
        let end = (at + garbage.len()).min(hurt.len());
        hurt[at..end].copy_from_slice(&garbage[..end - at]);
        let told = decode_in_pieces(&hurt, random_pieces(13));
        assert_eq!(told.error, None, "{}", kind.name);
        assert!(told.counts.resyncs + told.counts.damaged > 0, "{}", kind.name);
        // After the damage the audio is intact again, within a second.
        let second = kind.rate as usize * kind.channels;
        let tail = second / 2;
        let (a, b) = (&told.sound, &clean.sound);
        let ratio = snr(&a[a.len() - tail..], &b[b.len() - tail..]);
        assert!(ratio > 60.0, "{}: {ratio} dB", kind.name);
        assert!(a.len().abs_diff(b.len()) < second, "{}: {} {}", kind.name, a.len(), b.len());
    }
}

#[test]
fn formats_may_follow_one_another_and_so_may_rates() {
    let names = ["mp3", "aac", "mp3-mpeg2", "vorbis", "opus", "flac", "ogg-flac", "mp2"];
    let all: Vec<u8> = names.iter().flat_map(|name| of(name).1.clone()).collect();
    let told = decode_in_pieces(&all, random_pieces(17));
    assert_eq!(told.error, None);
    let rates: Vec<_> = told.shapes.iter().map(|(rate, _)| rate.hz()).collect();
    assert_eq!(rates, [44_100, 22_050, 44_100, 48_000, 44_100]);
    // Nearly forty seconds, in samples: no more than a packet at a seam may be missing.
    let alone: usize =
        names.iter().map(|name| decode_in_pieces(&of(name).1, || 9_999).sound.len()).sum();
    assert!(alone.abs_diff(told.sound.len()) < 30_000, "{} of {alone}", told.sound.len());
}

#[test]
fn a_change_of_rate_or_channels_costs_no_sound() {
    let music = ffmpeg("-f ogg", &of("vorbis").1, "-c:a pcm_s16le -f wav");
    let changes = ["-ar 48000 -ac 2", "-ar 44100 -ac 2", "-ar 48000 -ac 2", "-ar 22050 -ac 1"];
    for codec in [
        "-c:a libmp3lame -b:a 96k -write_xing 0 -id3v2_version 0 -f mp3",
        "-c:a libmp3lame -b:a 96k -f mp3",
        "-c:a aac -b:a 96k -f adts",
        "-c:a libvorbis -q:a 3 -f ogg",
        "-c:a flac -f ogg",
        "-c:a flac -f flac",
    ] {
        let parts = changes.map(|change| ffmpeg("-t 2", &music, &format!("{change} {codec}")));
        let told = decode_in_pieces(&parts.concat(), random_pieces(3));
        assert_eq!((told.error, told.counts.damaged), (None, 0), "{codec}");
        let shapes: Vec<_> =
            told.shapes.iter().map(|(rate, layout)| (rate.hz(), layout.channels())).collect();
        assert_eq!(shapes, [(48_000, 2), (44_100, 2), (48_000, 2), (22_050, 1)], "{codec}");
        // ffmpeg decodes each part alone; no more than a packet may be missing at a change.
        let whole: usize = parts
            .iter()
            .map(|part| ffmpeg("", part, "-c:a pcm_f32le -f f32le").len() / size_of::<f32>())
            .sum();
        let missing = whole.saturating_sub(told.sound.len());
        assert!(missing <= 3 * 2 * 1_152 / 2, "{codec}: {missing} of {whole} samples are missing");
    }
}

#[test]
fn every_format_is_recognized_where_samples_are_expected() {
    for (kind, bytes) in encoded() {
        let opening = classify_raw_opening(bytes, SampleSpec::DEFAULT, false);
        assert!(matches!(opening, RawOpening::Encoded(_)), "{}: {opening:?}", kind.name);
    }
    let mp3 = &of("mp3").1;
    for (name, options) in
        [("tag", "-c:a copy -f mp3"), ("MP4", "-c:a aac -f mp4"), ("AIFF", "-f aiff")]
    {
        let file = ffmpeg("", mp3, &format!("{options} -movflags +frag_keyframe+empty_moov"));
        let opening = classify_raw_opening(&file, SampleSpec::DEFAULT, false);
        assert!(matches!(opening, RawOpening::Encoded(_)), "{name}: {opening:?}");
    }
}

#[test]
fn what_is_no_sound_is_refused_by_name() {
    let html = b"<!DOCTYPE html><html><body>Not found</body></html>".to_vec();
    let list = b"#EXTM3U\nhttp://radio.example/live\n".to_vec();
    let noise: Vec<u8> =
        (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x7f).collect();
    let mut free = vec![0xff, 0xfb, 0x00, 0x64];
    free.extend(vec![0; 300_000]);
    let cases = [
        (html, StreamFormatError::WebPage),
        (list, StreamFormatError::Playlist),
        (noise, StreamFormatError::NotAudio),
        (free, StreamFormatError::FreeFormat),
        (b"\0\0\0\x18ftypM4A \0\0\0\0".to_vec(), StreamFormatError::Mp4),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86".to_vec(), StreamFormatError::Matroska),
    ];
    for (bytes, why) in cases {
        let told = decode_in_pieces(&bytes, random_pieces(19));
        assert_eq!(told.error, Some(StreamError::Refused(why)));
        assert!(told.sound.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn any_damage_to_any_stream_is_survived(
        seed in any::<u64>(),
        edits in prop::collection::vec((any::<u32>(), any::<u8>(), any::<bool>()), 1..20),
        cut in prop::option::of(any::<u32>()),
        drop in prop::option::of((any::<u32>(), 1..3_000_usize)),
    ) {
        for (kind, bytes) in encoded() {
            // One second of each.
            let mut bytes = bytes[..bytes.len() / 5].to_vec();
            for (at, value, early) in &edits {
                let range = if *early { bytes.len().min(400) } else { bytes.len() };
                bytes[*at as usize % range] ^= (*value).max(1);
            }
            if let Some((at, count)) = drop {
                let at = at as usize % bytes.len();
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            if let Some(cut) = cut {
                bytes.truncate(cut as usize % bytes.len());
            }
            let told = decode_in_pieces(&bytes, random_pieces(seed));
            // Damage may lengthen the audio only by its concealment.
            let second = 96_000 * 2;
            prop_assert!(told.sound.len() < 8 * second, "{}: {}", kind.name, told.sound.len());
        }
    }
}

/// Each case decodes fourteen streams.
const CASES: u32 = 24;

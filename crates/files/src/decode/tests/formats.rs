//! Decoded files equal the encoded signal.

use aulos_core::{ChannelLayout, Frames, SampleFormat, SampleRate, SampleSpec};

use super::super::{FileDecodeOptions, FileDecoder};
use super::fixture::{FRAMES, Folder, signal, signal_f32};
use super::{read, read_whole};

struct Case {
    name: &'static str,
    rate: u32,
    bits: u32,
    arguments: &'static str,
    codec: &'static str,
}

const fn case(
    name: &'static str,
    rate: u32,
    bits: u32,
    arguments: &'static str,
    codec: &'static str,
) -> Case {
    Case { name, rate, bits, arguments, codec }
}

const LOSSLESS: [Case; 17] = [
    case("u8.wav", 22_050, 8, "-c:a pcm_u8", "pcm_u8"),
    case("16.wav", 44_100, 16, "-c:a pcm_s16le", "pcm_s16le"),
    case("24.wav", 48_000, 24, "-c:a pcm_s24le", "pcm_s24le"),
    case("32.wav", 96_000, 24, "-c:a pcm_s32le", "pcm_s32le"),
    case("float.wav", 44_100, 24, "-c:a pcm_f32le", "pcm_f32le"),
    case("16.flac", 44_100, 16, "-c:a flac -sample_fmt s16", "flac"),
    case("24.flac", 48_000, 24, "-c:a flac -sample_fmt s32 -bits_per_raw_sample 24", "flac"),
    case("16.m4a", 44_100, 16, "-c:a alac -sample_fmt s16p", "alac"),
    case("24.m4a", 48_000, 24, "-c:a alac -sample_fmt s32p", "alac"),
    case("alac.caf", 44_100, 16, "-c:a alac -sample_fmt s16p", "alac"),
    case("16.aiff", 44_100, 16, "-c:a pcm_s16be", "pcm_s16be"),
    case("24.aiff", 44_100, 24, "-c:a pcm_s24be", "pcm_s24be"),
    case("16.caf", 48_000, 16, "-c:a pcm_s16le", "pcm_s16le"),
    case("24.caf", 48_000, 24, "-c:a pcm_s24be", "pcm_s24be"),
    case("flac.mkv", 48_000, 16, "-c:a flac -sample_fmt s16", "flac"),
    case("pcm.mkv", 48_000, 16, "-c:a pcm_s16le", "pcm_s16le"),
    case("flac.ogg", 44_100, 16, "-c:a flac -sample_fmt s16", "flac"),
];

/// The last column is the least waveform SNR in decibels.
const LOSSY: [(Case, f64); 9] = [
    (case("a.mp3", 44_100, 16, "-c:a libmp3lame -b:a 320k", "mp3"), 30.0),
    (case("vbr.mp3", 48_000, 16, "-c:a libmp3lame -q:a 0", "mp3"), 30.0),
    (case("a.ogg", 44_100, 16, "-c:a libvorbis -q:a 8", "vorbis"), 20.0),
    (case("a.m4a", 44_100, 16, "-c:a aac -b:a 256k", "aac"), 20.0),
    (case("48.m4a", 48_000, 16, "-c:a aac -b:a 256k", "aac"), 20.0),
    (case("a.opus", 48_000, 16, "-c:a libopus -b:a 256k", "opus"), 20.0),
    (case("opus.mkv", 48_000, 16, "-c:a libopus -b:a 256k", "opus"), 20.0),
    (case("opus.m4a", 48_000, 16, "-c:a libopus -b:a 256k -f mp4", "opus"), 20.0),
    (case("vorbis.mkv", 44_100, 16, "-c:a libvorbis -q:a 8", "vorbis"), 20.0),
];

fn open(folder: &Folder, case: &Case, looped: bool) -> FileDecoder {
    let path = folder.encoded(case.name, case.rate, case.bits, case.arguments);
    FileDecoder::open(&path, FileDecodeOptions { looped, raw: None }).expect(case.name)
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.iter().map(|s| s.to_bits()).eq(b.iter().map(|s| s.to_bits()))
}

#[test]
fn lossless_files_decode_bit_exact() {
    let folder = Folder::new();
    for case in &LOSSLESS {
        let mut decoder = open(&folder, case, false);
        assert_eq!(decoder.info().codec, case.codec, "{}", case.name);
        assert_eq!(decoder.info().rate.hz(), case.rate, "{}", case.name);
        assert_eq!(decoder.info().layout, ChannelLayout::STEREO, "{}", case.name);
        let sound = read_whole(&mut decoder);
        assert_eq!(sound.len(), 2 * FRAMES, "{}", case.name);
        // A zero may have either sign.
        let wanted = signal_f32(case.rate, case.bits);
        let wrong = sound.iter().zip(&wanted).position(|(a, b)| (a - b).abs() > 0.0);
        assert_eq!(wrong, None, "{}", case.name);
    }
}

#[test]
fn lossy_files_have_the_right_length_and_lie_in_time() {
    let folder = Folder::new();
    for (case, least) in &LOSSY {
        let mut decoder = open(&folder, case, false);
        assert_eq!(decoder.info().codec, case.codec, "{}", case.name);
        let sound = read_whole(&mut decoder);
        let snr = snr(&signal_f32(case.rate, 16), &sound);
        println!("{}: {} frames, {snr:.1} dB", case.name, sound.len() / 2);
        assert!(snr > *least, "{}: {snr} dB", case.name);
        // The library does not read Matroska's DiscardPadding: up to one packet of padding stays.
        let padding = if case.name.ends_with("mkv") { 1_024 } else { 0 };
        let frames = sound.len() / 2;
        assert!((FRAMES..=FRAMES + padding).contains(&frames), "{}: {frames}", case.name);
    }
}

fn snr(wanted: &[f32], got: &[f32]) -> f64 {
    let energy = |samples: &mut dyn Iterator<Item = f32>| {
        samples.map(|sample| f64::from(sample).powi(2)).sum::<f64>()
    };
    let noise = energy(&mut wanted.iter().zip(got).map(|(a, b)| a - b));
    10.0 * (energy(&mut wanted.iter().copied()) / noise).log10()
}

#[test]
fn the_length_is_known_before_the_end() {
    let folder = Folder::new();
    let cases = LOSSLESS.iter().chain(LOSSY.iter().map(|(case, _)| case));
    for case in cases {
        let frames = open(&folder, case, false).info().frames;
        let exact = frames == Some(Frames(FRAMES as u64));
        // Matroska counts in milliseconds, which the library ignores; ffmpeg counts whole packets
        // when it writes ALAC to CAF.
        let inexact = case.name.ends_with("mkv") || case.name == "alac.caf";
        assert!(exact || inexact, "{}: {frames:?}", case.name);
    }
}

#[test]
fn a_loop_has_neither_gap_nor_lost_frame() {
    let folder = Folder::new();
    for case in LOSSLESS.iter().chain(LOSSY.iter().map(|(case, _)| case)) {
        let once = read_whole(&mut open(&folder, case, false));
        let mut decoder = open(&folder, case, true);
        let (sound, end) = read(&mut decoder, 3 * FRAMES + 1_000);
        assert_eq!((end, decoder.damaged()), (Ok(()), 0), "{}", case.name);
        assert_eq!(sound.len(), 2 * (3 * FRAMES + 1_000), "{}", case.name);
        for round in sound.chunks(once.len()) {
            assert!(same_bits(round, &once[..round.len()]), "{}", case.name);
        }
    }
}

#[test]
fn blocks_are_full_until_the_end_and_across_the_seam() {
    let folder = Folder::new();
    let mut decoder = open(&folder, &LOSSLESS[1], true);
    let mut into = super::block();
    for n in 0..40 {
        decoder.next(&mut into).unwrap();
        assert_eq!((into.frames(), into.pts.0), (Frames(4_096), 4_096 * n));
    }
}

#[test]
fn padding_is_cut_exactly_in_every_container() {
    let folder = Folder::new();
    for (name, arguments) in [
        ("opus.webm", "-c:a libopus"),
        ("opus.mka", "-c:a libopus -f matroska"),
        ("mp3.mp4", "-c:a libmp3lame"),
        ("aac.mp4", "-c:a aac"),
        ("opus.mp4", "-c:a libopus"),
        ("a.mp3", "-c:a libmp3lame"),
    ] {
        let path = folder.encoded(name, 48_000, 16, arguments);
        let mut decoder = FileDecoder::open(&path, FileDecodeOptions::default()).unwrap();
        assert_eq!(read_whole(&mut decoder).len() / 2, FRAMES, "{name}");
    }
}

#[test]
fn title_and_artist_are_read() {
    let folder = Folder::new();
    // Without WAVE: the library drops its INFO list.
    for case in [&LOSSLESS[5], &LOSSLESS[7], &LOSSY[0].0, &LOSSY[2].0, &LOSSY[5].0] {
        let decoder = open(&folder, case, false);
        let info = decoder.info();
        assert_eq!(info.title.as_deref(), Some("Two lines"), "{}", case.name);
        assert_eq!(info.artist.as_deref(), Some("Nobody"), "{}", case.name);
    }
}

#[test]
fn raw_samples_by_name_or_by_spec() {
    let folder = Folder::new();
    let bytes: Vec<u8> =
        signal(48_000, 16).iter().flat_map(|s| ((s >> 16) as i16).to_le_bytes()).collect();
    let wanted = signal_f32(48_000, 16);
    for name in ["a.raw", "a.PCM", "a.s16"] {
        let path = folder.write(name, &bytes);
        let mut decoder = FileDecoder::open(&path, FileDecodeOptions::default()).unwrap();
        assert_eq!(decoder.info().rate, SampleRate::HZ_48000);
        assert_eq!(decoder.info().frames, Some(Frames(FRAMES as u64)));
        assert!(same_bits(&read_whole(&mut decoder), &wanted));
    }
    let wide: Vec<u8> = signal(8_000, 24).iter().flat_map(|s| s.to_le_bytes()).collect();
    let path = folder.write("no-extension", &wide);
    let spec = SampleSpec {
        rate: SampleRate::new(8_000).unwrap(),
        format: SampleFormat::S32Le,
        layout: ChannelLayout::STEREO,
    };
    let options = FileDecodeOptions { looped: true, raw: Some(spec) };
    let mut decoder = FileDecoder::open(&path, options).unwrap();
    let (sound, end) = read(&mut decoder, 2 * FRAMES);
    assert_eq!((end, decoder.info().rate.hz()), (Ok(()), 8_000));
    let wanted = signal_f32(8_000, 24);
    assert!(sound.chunks(wanted.len()).all(|round| same_bits(round, &wanted)));
}

#[test]
fn a_torn_raw_file_loses_its_last_half_frame_only() {
    let folder = Folder::new();
    let path = folder.write("a.raw", &[1; 4 * 10 + 3]);
    let mut decoder = FileDecoder::open(&path, FileDecodeOptions::default()).unwrap();
    let (sound, end) = read(&mut decoder, 100);
    assert_eq!((sound.len(), end, decoder.damaged()), (20, Ok(()), 1));
}

//! Lengths in headers that are wrong, tags behind the audio, and changes of format within a file.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::{FileDecodeOptions, FileDecodeStatus, FileDecoder, FileWarning, UniformDecoder};
use super::fixture::{FRAMES, Folder, signal_f32};
use super::{block, read, read_whole};

/// The size in a header: its offset, its bytes, and whether the first is the most significant.
type SizeField = (usize, usize, bool);

struct Container {
    name: &'static str,
    arguments: &'static str,
    field: fn(&[u8]) -> SizeField,
    /// Frames of the encoder that may be played when the file does not confirm that they are
    /// padding.
    tolerance: usize,
    /// Whether a wrong size is a length that contradicts the file.
    warns: bool,
}

fn behind(bytes: &[u8], name: &[u8], offset: usize) -> usize {
    bytes.windows(name.len()).position(|part| part == name).unwrap() + name.len() + offset
}

const CONTAINERS: [Container; 10] = [
    Container {
        name: "a.wav",
        arguments: "-c:a pcm_s16le",
        field: |bytes| (behind(bytes, b"data", 0), 4, false),
        tolerance: 0,
        warns: true,
    },
    Container {
        name: "law.wav",
        arguments: "-c:a pcm_alaw",
        field: |bytes| (behind(bytes, b"data", 0), 4, false),
        tolerance: 0,
        warns: true,
    },
    Container {
        name: "riff.wav",
        arguments: "-c:a pcm_s24le",
        field: |_| (4, 4, false),
        tolerance: 0,
        warns: false,
    },
    Container {
        name: "a.aiff",
        arguments: "-c:a pcm_s16be",
        field: |bytes| (behind(bytes, b"SSND", 0), 4, true),
        tolerance: 0,
        warns: true,
    },
    Container {
        name: "form.aiff",
        arguments: "-c:a pcm_s24be",
        field: |_| (4, 4, true),
        tolerance: 0,
        warns: false,
    },
    Container {
        name: "a.caf",
        arguments: "-c:a pcm_s24be",
        field: |bytes| (behind(bytes, b"data", 0), 8, true),
        tolerance: 0,
        warns: true,
    },
    Container {
        name: "a.flac",
        arguments: "-c:a flac -sample_fmt s16",
        field: |_| (8 + 14, 4, true),
        tolerance: 0,
        warns: true,
    },
    Container {
        name: "a.mp3",
        arguments: "-c:a libmp3lame -q:a 4",
        field: |bytes| (behind(bytes, b"Xing", 4), 4, true),
        tolerance: 3 * 1_152,
        warns: true,
    },
    Container {
        name: "a.m4a",
        arguments: "-c:a alac -sample_fmt s16p -movflags +faststart",
        field: |bytes| (behind(bytes, b"mdat", 0) - 8, 4, true),
        tolerance: 0,
        warns: false,
    },
    Container {
        name: "a.mkv",
        arguments: "-c:a flac -sample_fmt s16",
        field: |bytes| (behind(bytes, b"\x18\x53\x80\x67", 1), 7, true),
        tolerance: 0,
        warns: false,
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrongSize {
    Short,
    Long,
    Zero,
    /// All bits are ones: most formats have it for an unknown length.
    Ones,
}

fn write_size(bytes: &mut [u8], (at, width, big): SizeField, wrong: WrongSize) {
    let place = &mut bytes[at..at + width];
    if !big {
        place.reverse();
    }
    let old = place.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    let new = match wrong {
        WrongSize::Short => old / 2,
        WrongSize::Long => old + 5_000,
        WrongSize::Zero => 0,
        WrongSize::Ones => u64::MAX,
    };
    place.copy_from_slice(&new.to_be_bytes()[8 - width..]);
    if !big {
        place.reverse();
    }
}

/// The number of frames that FFmpeg decodes.
fn frames_by_ffmpeg(path: &Path) -> usize {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(path);
    let decoded = command.args(["-map", "0:a:0", "-ac", "1", "-f", "u8", "-"]).output().unwrap();
    decoded.stdout.len()
}

fn open(path: &Path) -> FileDecoder {
    let opened = FileDecoder::open(path, FileDecodeOptions::default());
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn length_warning(decoder: &FileDecoder) -> Option<(f64, f64)> {
    decoder.warnings().into_iter().find_map(|warning| match warning {
        FileWarning::Length { stated, found } => Some((stated, found)),
        _ => None,
    })
}

#[test]
fn files_are_decoded_to_their_last_byte_whatever_their_header_says() {
    let folder = Folder::new();
    for Container { name, arguments, field, tolerance, warns } in CONTAINERS {
        let path = folder.encoded(name, 48_000, 16, arguments);
        let right = fs::read(&path).unwrap();
        let whole = frames_by_ffmpeg(&path);
        let mut decoder = open(&path);
        assert_eq!(read_whole(&mut decoder).len() / 2, whole, "{name}");
        assert_eq!(decoder.warnings(), [], "{name}");
        for wrong in [WrongSize::Short, WrongSize::Long, WrongSize::Zero, WrongSize::Ones] {
            let mut bytes = right.clone();
            write_size(&mut bytes, field(&right), wrong);
            let path = folder.write(name, &bytes);
            let mut decoder = open(&path);
            let (sound, end) = read(&mut decoder, 10 * FRAMES);
            let frames = sound.len() / 2;
            assert_eq!(end, Ok(()), "{name} {wrong:?}");
            assert!((whole..=whole + tolerance).contains(&frames), "{name} {wrong:?}: {frames}");
            let is_unknown = match wrong {
                WrongSize::Zero => name == "a.flac",
                WrongSize::Ones => !matches!(name, "a.flac" | "a.mp3"),
                _ => false,
            };
            let warning = length_warning(&decoder);
            assert_eq!(warning.is_some(), warns && !is_unknown, "{name} {wrong:?}: {warning:?}");
            if let Some((stated, found)) = warning {
                let decoded = frames as f64 / 48_000.0;
                assert!((found - decoded).abs() < 1e-9, "{name} {wrong:?}: {found}, {decoded}");
                let is_longer = matches!(wrong, WrongSize::Long | WrongSize::Ones);
                assert_eq!(stated > found, is_longer, "{name} {wrong:?}: {stated}, {found}");
            }
        }
    }
}

#[test]
fn mpeg_audio_without_a_count_of_frames_is_decoded_to_its_end() {
    let folder = Folder::new();
    // Loud noise, then a soft tone: the first frames are far longer than the mean.
    let filter = "-filter_complex anoisesrc=d=3:a=0.5:r=48000,volume=1[a];sine=d=9:r=48000[b];\
                  [a][b]concat=n=2:v=0:a=1[o] -map [o] -write_xing 0 -q:a 4 -c:a";
    let path = folder.encoded("vbr.mp3", 48_000, 16, &format!("{filter} libmp3lame"));
    let mut decoder = open(&path);
    let (sound, end) = read(&mut decoder, usize::MAX / 64);
    let frames = sound.len() / decoder.info().layout.channels();
    assert_eq!((frames, end), (frames_by_ffmpeg(&path), Ok(())));
    assert!(frames >= 12 * 48_000, "{frames}");
}

#[test]
fn what_is_no_length_is_not_compared() {
    let folder = Folder::new();
    let fragments = "-c:a aac -movflags +frag_keyframe+empty_moov";
    for (name, arguments) in [("a.m4a", fragments), ("a.aac", "-c:a aac"), ("a.mka", "-c:a aac")] {
        let mut decoder = open(&folder.encoded(name, 48_000, 16, arguments));
        read_whole(&mut decoder);
        assert_eq!(decoder.warnings(), [], "{name}");
    }
}

#[test]
fn an_error_page_in_front_of_the_first_frame_is_skipped() {
    let folder = Folder::new();
    let mp3 = fs::read(folder.encoded("a.mp3", 48_000, 16, "-c:a libmp3lame")).unwrap();
    let page = "<html><body>Not Found</body></html>\r\n".repeat(50);
    let path = folder.write("b.mp3", &[page.as_bytes(), &mp3].concat());
    let (sound, _) = read(&mut open(&path), usize::MAX / 64);
    assert!(sound.len() / 2 >= FRAMES, "{}", sound.len() / 2);
}

#[test]
fn joined_files_are_played_to_the_end_of_the_last_and_warned_about() {
    let folder = Folder::new();
    let path = folder.encoded("one.mp3", 48_000, 16, "-c:a libmp3lame -q:a 4");
    let one = fs::read(&path).unwrap();
    let joined = folder.write("joined.mp3", &[&one[..], &one].concat());
    let mut decoder = open(&joined);
    let sound = read_whole(&mut decoder);
    // The padding between the two is not removed: its count is not confirmed.
    assert!((2 * FRAMES..2 * FRAMES + 4_608).contains(&(sound.len() / 2)), "{}", sound.len() / 2);
    let (stated, found) = length_warning(&decoder).unwrap();
    assert!((stated - FRAMES as f64 / 48_000.0).abs() < 0.001 && found > 2.0 * stated);
    let text = decoder.warnings()[0].to_string();
    assert!(text.starts_with("the header says 1.847 s, the file has 3."), "{text}");
}

#[test]
fn a_download_that_broke_off_is_played_as_far_as_it_goes() {
    let folder = Folder::new();
    for (name, arguments) in [
        ("a.caf", "-c:a pcm_s24be"),
        ("a.aiff", "-c:a pcm_s16be"),
        ("a.wav", "-c:a pcm_s16le"),
        ("fragments.m4a", "-c:a aac -movflags +frag_keyframe+empty_moov"),
        ("front.m4a", "-c:a aac -movflags +faststart"),
        ("a.mkv", "-c:a pcm_s16le"),
    ] {
        let whole = fs::read(folder.encoded(name, 48_000, 16, arguments)).unwrap();
        let path = folder.write(name, &whole[..whole.len() * 6 / 10]);
        let mut decoder = open(&path);
        let (sound, end) = read(&mut decoder, 2 * FRAMES);
        let (ours, theirs) = (sound.len() / 2, frames_by_ffmpeg(&path));
        assert_eq!(end, Ok(()), "{name}");
        assert!(ours + 1_024 >= theirs && ours > FRAMES / 2, "{name}: {ours}, ffmpeg {theirs}");
        assert!(decoder.damaged() > 0 || name == "a.mkv", "{name}");
    }
}

fn id3v1() -> Vec<u8> {
    let mut tag = b"TAGOld title".to_vec();
    tag.resize(128, 0);
    tag
}

fn ape() -> Vec<u8> {
    let item = b"\x03\0\0\0\0\0\0\0Title\0abc";
    let block = |flags: u32| {
        let mut bytes = b"APETAGEX\xd0\x07\0\0".to_vec();
        bytes.extend(u32::try_from(item.len() + 32).unwrap().to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    };
    [&block(0xa000_0000)[..], item, &block(0x8000_0000)].concat()
}

#[test]
fn tags_behind_flac_are_no_audio_and_no_damage() {
    let folder = Folder::new();
    let whole = fs::read(folder.encoded("a.flac", 48_000, 16, "-c:a flac")).unwrap();
    let id3v2 = b"ID3\x03\0\0\0\0\0\x15TIT2\0\0\0\x0a\0\0\0Title one\0";
    for (name, front, tags) in [
        ("v1.flac", &b""[..], id3v1()),
        ("ape.flac", b"", ape()),
        ("both.flac", b"", [ape(), id3v1()].concat()),
        ("all.flac", id3v2, [ape(), id3v1()].concat()),
    ] {
        let path = folder.write(name, &[front, &whole, &tags].concat());
        let mut decoder = open(&path);
        let sound = read_whole(&mut decoder);
        assert!(sound == signal_f32(48_000, 16), "{name}: {} frames", sound.len() / 2);
        assert_eq!(decoder.warnings(), [], "{name}");
    }
}

#[test]
fn a_file_that_changes_its_format_keeps_all_its_sound() {
    let folder = Folder::new();
    let mp3 = "-c:a libmp3lame -write_xing 0 -id3v2_version 0";
    let encoded = |name: &str, arguments: &str| {
        let path = folder.encoded(name, 48_000, 16, arguments);
        (fs::read(&path).unwrap(), frames_by_ffmpeg(&path))
    };
    let stereo = encoded("stereo.mp3", &format!("{mp3} -b:a 128k"));
    let mono = encoded("mono.mp3", &format!("{mp3} -ac 1 -b:a 64k"));
    let slow = encoded("slow.mp3", &format!("{mp3} -ar 44100 -b:a 128k"));
    let vorbis = encoded("vorbis.ogg", "-c:a libvorbis");
    let other = encoded("other.ogg", "-c:a libvorbis -ar 44100 -ac 1");
    for (name, first, then, rate) in [
        ("mono-stereo.mp3", &mono, &stereo, 48_000.0),
        ("stereo-mono.mp3", &stereo, &mono, 48_000.0),
        ("rate.mp3", &stereo, &slow, 44_100.0),
        ("chain.ogg", &vorbis, &other, 44_100.0),
    ] {
        let path = folder.write(name, &[&first.0[..], &then.0].concat());
        let wanted = first.1 as f64 / 48_000.0 + then.1 as f64 / rate;
        let mut decoder = open(&path);
        let mut seconds = 0.0;
        let mut into = block();
        while decoder.next(&mut into).unwrap() == FileDecodeStatus::Block {
            seconds += into.frames().0 as f64 / f64::from(into.rate().hz());
        }
        assert!((seconds - wanted).abs() < 0.06, "{name}: {seconds}, {wanted}");
        assert_eq!(decoder.damaged(), 0, "{name}");
        let changes = decoder.warnings();
        assert!(
            matches!(changes[..], [FileWarning::FormatChanges { changes: 1, .. }]),
            "{name}: {changes:?}"
        );
        let mut uniform = UniformDecoder::open(&path, FileDecodeOptions::default()).unwrap();
        let (rate, layout) = (uniform.info().rate, uniform.info().layout);
        let (mut frames, mut energy) = (0, [0.0f64; 2]);
        while uniform.next(&mut into).unwrap() == FileDecodeStatus::Block {
            assert_eq!((into.rate(), into.layout()), (rate, layout), "{name}");
            frames += into.frames().0;
            let half = usize::from(frames as f64 > 48_000.0 * wanted / 2.0);
            energy[half] += into.samples().iter().map(|it| f64::from(it * it)).sum::<f64>();
        }
        let seconds = frames as f64 / f64::from(rate.hz());
        assert!((seconds - wanted).abs() < 0.06, "{name}: {seconds}, {wanted}");
        // Both halves have the same signal; mixed to one channel it has half of the energy.
        let ratio = energy[1] / energy[0];
        assert!((0.4..2.5).contains(&ratio), "{name}: {energy:?}");
    }
}

//! Damaged files and false headers.

use std::fs;

use proptest::prelude::*;

use super::super::{FileDecodeOptions, FileDecoder, OpenError};
use super::fixture::{FRAMES, Folder, signal_f32};
use super::read;

pub(super) const CONTAINERS: [(&str, &str); 9] = [
    ("a.wav", "-c:a pcm_s16le"),
    ("a.flac", "-c:a flac"),
    ("a.mp3", "-c:a libmp3lame -b:a 128k"),
    ("a.ogg", "-c:a libvorbis -page_duration 100000"),
    ("a.opus", "-c:a libopus -b:a 64k -page_duration 100000"),
    ("a.m4a", "-c:a aac"),
    ("a.aiff", "-c:a pcm_s16be"),
    ("a.caf", "-c:a alac -sample_fmt s16p"),
    ("a.mkv", "-c:a flac"),
];

/// The same codecs in other containers, where only damage matters.
const MORE_CONTAINERS: [(&str, &str); 4] = [
    ("opus.mkv", "-c:a libopus -b:a 64k"),
    ("opus.m4a", "-c:a libopus -b:a 64k -f mp4"),
    ("surround.opus", "-c:a libopus -ac 6 -b:a 128k"),
    ("a.aac", "-c:a aac"),
];

#[test]
fn a_damaged_packet_is_skipped_and_counted() {
    let folder = Folder::new();
    let mut bytes = fs::read(folder.encoded("a.flac", 48_000, 16, "-c:a flac")).unwrap();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..middle + 50] {
        *byte ^= 0x55;
    }
    let path = folder.write("b.flac", &bytes);
    let mut decoder = FileDecoder::open(&path, FileDecodeOptions::default()).unwrap();
    let (sound, end) = read(&mut decoder, 2 * FRAMES);
    assert_eq!(end, Ok(()));
    assert!(decoder.damaged() > 0);
    // A few FLAC frames are missing, and both ends are intact.
    let (lost, wanted) = (2 * FRAMES - sound.len(), signal_f32(48_000, 16));
    assert!((1..=2 * 3 * 4_608).contains(&lost), "{lost}");
    assert_eq!(sound[..60_000], wanted[..60_000]);
    assert_eq!(sound[sound.len() - 60_000..], wanted[wanted.len() - 60_000..]);
}

#[test]
fn a_file_that_is_cut_off_plays_to_its_cut_and_loops_from_there() {
    let folder = Folder::new();
    for (name, arguments) in CONTAINERS {
        let whole = fs::read(folder.encoded(name, 48_000, 16, arguments)).unwrap();
        let path = folder.write(name, &whole[..whole.len() * 6 / 10]);
        let (frames, looped) = match FileDecoder::open(&path, FileDecodeOptions::default()) {
            Ok(mut decoder) => {
                let (sound, end) = read(&mut decoder, 2 * FRAMES);
                assert_eq!(end, Ok(()), "{name}");
                (sound.len() / 2, FileDecodeOptions { looped: true, raw: None })
            }
            // The index of MP4 and the packet table of CAF are behind the audio.
            Err(error) => {
                let known = [("a.m4a", OpenError::NoIndex), ("a.caf", OpenError::Torn)];
                assert!(known.contains(&(name, error)), "{name}: {error:?}");
                continue;
            }
        };
        assert!((FRAMES / 3..FRAMES).contains(&frames), "{name}: {frames}");
        let mut decoder = FileDecoder::open(&path, looped).unwrap();
        let (sound, end) = read(&mut decoder, 3 * frames);
        assert_eq!((sound.len() / 2, end), (3 * frames, Ok(())), "{name}");
    }
}

#[test]
fn lengths_that_lie_cost_nothing() {
    let folder = Folder::new();
    let mut wav = fs::read(folder.encoded("a.wav", 48_000, 16, "-c:a pcm_s16le")).unwrap();
    let data = wav.windows(4).position(|w| w == b"data").unwrap();
    // As ffmpeg writes it to a pipe.
    wav[4..8].fill(0xFF);
    wav[data + 4..data + 8].fill(0xFF);
    let mut decoder =
        FileDecoder::open(&folder.write("b.wav", &wav), FileDecodeOptions::default()).unwrap();
    let (sound, end) = read(&mut decoder, 4 * FRAMES);
    assert_eq!((sound.len(), end, decoder.damaged()), (2 * FRAMES, Ok(()), 0));
    // Two gigabytes according to the header, most of them missing.
    wav[4..8].copy_from_slice(&0x7FFF_FFFFu32.to_le_bytes());
    wav[data + 4..data + 8].copy_from_slice(&0x7FFF_FF00u32.to_le_bytes());
    let mut decoder =
        FileDecoder::open(&folder.write("b.wav", &wav), FileDecodeOptions::default()).unwrap();
    let (sound, end) = read(&mut decoder, 4 * FRAMES);
    assert_eq!((sound.len(), end, decoder.damaged()), (2 * FRAMES, Ok(()), 1));
    let mut flac = fs::read(folder.encoded("a.flac", 48_000, 16, "-c:a flac")).unwrap();
    // A picture of 16 MB right after STREAMINFO, with no data.
    flac.splice(42..42, [6, 0xFF, 0xFF, 0xFF]);
    let refused = FileDecoder::open(&folder.write("b.flac", &flac), FileDecodeOptions::default());
    assert_eq!(refused.err(), Some(OpenError::Torn));
    let mp4 = b"\0\0\0\x18ftypM4A \0\0\0\0isommp42\0\0\0\x01moov\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xF0";
    let refused = FileDecoder::open(&folder.write("b.m4a", mp4), FileDecodeOptions::default());
    assert!(refused.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn any_change_to_any_container_is_survived(
        seed in any::<u64>(),
        edits in proptest::collection::vec((any::<u32>(), any::<u8>(), any::<bool>()), 1..12),
        cut in proptest::option::of(any::<u32>()),
    ) {
        let folder = Folder::new();
        for (name, bytes) in originals() {
            let mut bytes = bytes.clone();
            for (at, value, early) in &edits {
                // Half of the edits are in the headers, where they do the most harm.
                let range = if *early { bytes.len().min(512) } else { bytes.len() };
                bytes[*at as usize % range] ^= (*value).max(1);
            }
            if let Some(cut) = cut {
                bytes.truncate(cut as usize % bytes.len());
            }
            let path = folder.write(name, &bytes);
            let options = FileDecodeOptions { looped: seed % 2 == 0, raw: None };
            if let Ok(mut decoder) = FileDecoder::open(&path, options) {
                let (_, _end) = read_any(&mut decoder);
            }
        }
    }
}

/// Reads three seconds in any format, because damage may change the format.
fn read_any(decoder: &mut FileDecoder) -> (u64, bool) {
    let (mut into, mut frames) = (super::block(), 0);
    while frames < 150_000 {
        match decoder.next(&mut into) {
            Ok(super::FileDecodeStatus::Block) => {
                assert!(into.frames().0 > 0);
                assert!(into.samples().iter().all(|sample| sample.is_finite()));
                frames += into.frames().0;
            }
            Ok(super::FileDecodeStatus::End) | Err(_) => return (frames, true),
        }
    }
    (frames, false)
}

fn originals() -> &'static [(&'static str, Vec<u8>)] {
    static ORIGINALS: std::sync::OnceLock<Vec<(&'static str, Vec<u8>)>> =
        std::sync::OnceLock::new();
    ORIGINALS.get_or_init(|| {
        let folder = Folder::new();
        let short = |(name, arguments): (&'static str, &str)| {
            let arguments = format!("-t 0.4 {arguments}");
            (name, fs::read(folder.encoded(name, 48_000, 16, &arguments)).unwrap())
        };
        CONTAINERS.into_iter().chain(MORE_CONTAINERS).map(short).collect()
    })
}

/// Each case opens thirteen files.
const CASES: u32 = 44;

//! Markers in files: ffprobe reads them as chapters, and a writer that is killed while it puts them
//! there leaves exactly the sound that was recorded.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::Frames;
use aulos_files::record::format::{repair, write_markers};
use aulos_proto::FileMarker;
use aulos_proto::wav::{self, ParseOutcome, WaveInfo};

use super::{
    decode_format, decoded_by_ffmpeg, file, format, metadata, music, steps, write_file, written,
};

/// The chapters that ffprobe finds: where they begin, in seconds, and their titles.
fn chapters(path: &Path) -> Vec<(String, String)> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-show_chapters", "-of", "json"])
        .arg(path)
        .output()
        .expect("ffprobe must be installed: it comes with ffmpeg");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", path.display());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = report["chapters"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    all.map(|it| (text(&it["start_time"]), text(&it["tags"]["title"]))).collect()
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn head(bytes: &[u8]) -> WaveInfo {
    let Ok(ParseOutcome::Complete(wave)) = wav::parse(bytes) else {
        panic!("{:?}", wav::parse(bytes))
    };
    wave
}

const MARKERS: [FileMarker<'static>; 3] = [
    FileMarker { position: 0, label: "the beginning" },
    FileMarker { position: 24_000, label: "J\u{fc}rg & <Eva>" },
    FileMarker { position: 47_999, label: "odd" },
];

#[test]
fn ffprobe_reads_markers_as_chapters_and_the_audio_is_unchanged() {
    let scratch = ScratchDir::new("marked").unwrap();
    for name in ["wav:16", "wav:24", "wav:f32", "flac:16", "flac:24"] {
        for channels in [1, 2] {
            let kind = format(name);
            let metadata = metadata(48_000, channels);
            // With 24 bits and one channel an odd number of bytes.
            let sound = file(kind, &metadata, &music(48_000, channels, 48_001));
            let paths = [scratch.join("plain.x"), scratch.join("marked.x")];
            write_file(&paths[0], &sound);
            let marked = write_file(&paths[1], &sound);
            write_markers(&marked, &MARKERS, false).unwrap();
            let wanted = ["0.000000", "0.500000", "0.999979"];
            let found = chapters(&paths[1]);
            let titles: Vec<_> = found.iter().map(|(_, title)| title.as_str()).collect();
            assert_eq!(titles, MARKERS.map(|marker| marker.label), "{name}");
            for ((at, _), wanted) in found.iter().zip(wanted) {
                let [at, wanted] = [at, wanted].map(|text| text.parse::<f64>().unwrap());
                // FLAC has milliseconds.
                assert!((at - wanted).abs() < 0.001, "{name}: {at}, not {wanted}");
            }
            assert_eq!(chapters(&paths[0]), []);
            let (all, complaints) = decoded_by_ffmpeg(&paths, decode_format(kind));
            assert_eq!((all[0] == all[1], &*complaints), (true, ""), "{name}");
            assert_eq!(all[0].len(), 48_001 * channels * decode_format(kind).bytes());
            let report = repair(&marked).unwrap();
            assert_eq!((report.frames, report.changed), (Frames(48_001), false), "{name}");
        }
    }
}

#[test]
fn markers_do_not_change_an_opus_file() {
    let scratch = ScratchDir::new("marked").unwrap();
    let sound = file(format("opus:32k"), &metadata(48_000, 1), &music(48_000, 1, 4_800));
    let path = scratch.join("a.opus");
    write_markers(&write_file(&path, &sound), &MARKERS, true).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), sound);
}

/// Until its markers are written a file of WAVE has exactly the frames whose bytes are there, also
/// where a writer was killed between the two sizes of the head.
#[test]
fn a_wave_file_keeps_every_frame_that_is_there() {
    let scratch = ScratchDir::new("marked").unwrap();
    for (name, channels) in [("wav:24", 1), ("wav:16", 1), ("wav:f32", 2)] {
        let kind = format(name);
        let steps = steps(kind, &metadata(8_000, channels), &music(8_000, channels, 501), 167);
        let (all, length) = written(&steps, usize::MAX, usize::MAX);
        let (start, frame) = (head(&all).data_offset, head(&all).frame_bytes());
        let path = scratch.join("torn.wav");
        for end in start + frame..=all.len() {
            for patched in 0..=2 {
                let (bytes, _) = written(&steps, end, patched);
                let frames = ((bytes.len() - start) / frame) as u64;
                let report = repair(&write_file(&path, &bytes)).unwrap();
                assert_eq!(report.frames, Frames(frames).min(length), "{name}: {end}, {patched}");
            }
        }
    }
}

#[test]
fn a_kill_at_any_byte_of_the_markers_leaves_the_sound_and_they_can_be_written_again() {
    let scratch = ScratchDir::new("marked").unwrap();
    for (name, frames) in [("wav:24", 501), ("wav:24", 500), ("wav:16", 333), ("wav:f32", 77)] {
        let kind = format(name);
        let sound = file(kind, &metadata(8_000, 1), &music(8_000, 1, frames));
        let path = scratch.join("torn.wav");
        let markers =
            [FileMarker { position: 3, label: "one" }, FileMarker { position: 70, label: "two" }];
        write_markers(&write_file(&path, &sound), &markers, false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let start = head(&whole).data_offset;
        assert!(whole.len() > sound.len() + 100 && whole.len().is_multiple_of(2));
        assert_eq!(whole[start..sound.len()], sound[start..]);
        for end in sound.len()..=whole.len() {
            for grown in [false, true] {
                let mut torn = whole[..end].to_vec();
                // What a disk that has lost power may have there.
                torn.resize(if grown { whole.len() } else { end }, 0);
                let file = write_file(&path, &torn);
                let report = repair(&file).unwrap();
                assert_eq!(report.frames, Frames(frames as u64), "{name}: {end}");
                let bytes = std::fs::read(&path).unwrap();
                let behind = bytes.len() > sound.len();
                assert!(!behind || bytes.len() == whole.len(), "{name}: {end}");
                assert_eq!(bytes[start..sound.len()], sound[start..], "{name}: {end}");
                assert!(behind || bytes == sound, "{name}: {end}");
                write_markers(&file, &markers, false).unwrap();
                assert!(std::fs::read(&path).unwrap() == whole, "{name}: {end}");
            }
        }
    }
}

#[test]
fn a_kill_while_chapters_are_written_leaves_a_flac_file_that_is_whole() {
    let scratch = ScratchDir::new("marked").unwrap();
    let sound = file(format("flac:16"), &metadata(8_000, 1), &music(8_000, 1, 1_301));
    let path = scratch.join("torn.flac");
    write_markers(&write_file(&path, &sound), &MARKERS, true).unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(whole.len(), sound.len());
    let differs: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != sound[*at]).collect();
    // The first page is written at once, and last.
    let page = differs.iter().position(|at| *at >= 46 + 200).unwrap();
    for step in page..=differs.len() {
        let mut torn = sound.clone();
        differs[page..step].iter().for_each(|at| torn[*at] = whole[*at]);
        let file = write_file(&path, &torn);
        let report = repair(&file).unwrap();
        assert_eq!(
            (report.frames, report.truncated_bytes, report.damaged_bytes),
            (Frames(1_301), 0, 0)
        );
        write_markers(&file, &MARKERS, false).unwrap();
        assert!(std::fs::read(&path).unwrap() == whole, "{step}");
    }
}

/// Of the nine gigabytes nearly all is a hole.
#[test]
fn a_marker_beyond_32_bits_is_in_ixml_and_the_sizes_of_rf64_are_right() {
    let scratch = ScratchDir::new("marked").unwrap();
    let path = scratch.join("long.wav");
    let begun = file(format("wav:16"), &metadata(48_000, 1), &music(48_000, 1, 480));
    let start = head(&begun).data_offset as u64;
    let file = write_file(&path, &begun);
    let frames = (1_u64 << 32) + 48_000;
    file.set_len(start + 2 * frames).unwrap();
    assert_eq!(repair(&file).unwrap().frames, Frames(frames));
    let far = FileMarker { position: (1 << 32) + 7, label: "far" };
    write_markers(&file, &[FileMarker { position: 480_000, label: "near" }, far], false).unwrap();
    let mut front = vec![0; 1_024];
    file.read_exact_at(&mut front, 0).unwrap();
    let long = |at: usize| u64::from_le_bytes(front[at..at + 8].try_into().unwrap());
    let length = file.metadata().unwrap().len();
    assert_eq!(&front[..4], b"RF64");
    assert_eq!([long(20), long(28), long(36)], [length - 8, 2 * frames, frames]);
    let mut behind = vec![0; (length - start - 2 * frames) as usize];
    file.read_exact_at(&mut behind, start + 2 * frames).unwrap();
    assert_eq!(behind[..12], *b"cue \x1c\0\0\0\x01\0\0\0");
    let text = String::from_utf8_lossy(&behind).into_owned();
    assert!(
        text.contains("<SYNC_POINT_LOW>7</SYNC_POINT_LOW>\n<SYNC_POINT_HIGH>1</SYNC_POINT_HIGH>")
    );
    assert_eq!(chapters(&path), [("10.000000".to_owned(), "near".to_owned())]);
    let report = repair(&open(&path)).unwrap();
    assert_eq!((report.frames, report.changed), (Frames(frames), false));
    // A kill takes the end of the chunks.
    file.set_len(length - 5).unwrap();
    let report = repair(&file).unwrap();
    assert_eq!((report.frames, report.changed), (Frames(frames), true));
    assert_eq!(file.metadata().unwrap().len(), start + 2 * frames);
}

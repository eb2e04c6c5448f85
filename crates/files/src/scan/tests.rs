//! Order and selection of files; the figures are verified by the tests of the command.

use core::num::NonZeroUsize;
use core::ops::ControlFlow;
use std::fs;
use std::path::{Path, PathBuf};

use aulos_blackbox::scratch::ScratchDir;

use super::{
    ScanError, ScanEvent, ScanFile, ScanOptions, ScanProgress, ScanReport, find_all_files,
    find_files, join_segments, measure_file, measure_segment, scan_files,
};
use crate::decode::OpenError;

struct Folder(ScratchDir);

impl Folder {
    fn new(name: &str) -> Self {
        Self(ScratchDir::new(name).unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// A mono WAVE file at 8 kHz with a square wave of this many tenths of a second.
fn wave(tenths: u32, value: i16) -> Vec<u8> {
    let data = tenths * 800 * 2;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend(8_000u32.to_le_bytes());
    bytes.extend(16_000u32.to_le_bytes());
    bytes.extend(b"\x02\0\x10\0data");
    bytes.extend(data.to_le_bytes());
    for n in 0..data / 2 {
        let sample = if n % 16 < 8 { value } else { -value };
        bytes.extend(sample.to_le_bytes());
    }
    bytes
}

fn names(found: &[ScanFile], root: &Path) -> Vec<String> {
    let name = |found: &ScanFile| found.path.strip_prefix(root).unwrap().display().to_string();
    found.iter().map(name).collect()
}

#[test]
fn a_folder_expands_to_its_audio_files_by_name() {
    let folder = Folder::new("find");
    for name in ["b.wav", "a.FLAC", "cover.jpg", ".hidden.wav", "sub/c.ogg", "sub/.git/d.wav"] {
        folder.write(name, b"");
    }
    folder.write(".gitignore", b"*.wav");
    std::os::unix::fs::symlink(&folder.0, folder.0.join("sub/loop")).unwrap();
    std::os::unix::fs::symlink("nowhere.wav", folder.0.join("z.wav")).unwrap();
    std::os::unix::fs::symlink("nowhere.txt", folder.0.join("z.txt")).unwrap();
    let found = find_files(&[folder.0.join("cover.jpg"), folder.0.path().to_owned()]);
    let wanted = ["cover.jpg", "a.FLAC", "b.wav", "sub/c.ogg", "z.wav"];
    assert_eq!(names(&found, &folder.0), wanted);
    assert_eq!(found[4].error, Some(ScanError::Open(OpenError::NoSuchFile)));
    assert!(found[..4].iter().all(|found| found.error.is_none()));
}

#[test]
fn sound_files_of_unsupported_formats_are_listed() {
    let folder = Folder::new("unsupported");
    for name in ["a.wav", "b.wv", "notes.txt", "sub/c.WMA", ".d.ape"] {
        folder.write(name, b"");
    }
    let (files, unsupported) = find_all_files(&[folder.0.path().to_owned()]);
    assert_eq!(names(&files, &folder.0), ["a.wav"]);
    assert_eq!(unsupported, [folder.0.join("b.wv"), folder.0.join("sub/c.WMA")]);
}

#[test]
fn a_folder_without_audio_files_is_an_error() {
    let folder = Folder::new("empty");
    folder.write("notes.txt", b"");
    let found = find_files(&[folder.0.path().to_owned()]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].error, Some(ScanError::NothingInFolder));
}

#[test]
fn reports_have_the_order_of_the_files() {
    let folder = Folder::new("order");
    let mut files = Vec::new();
    for n in 0..40u32 {
        let path =
            folder.write(&format!("{n}.wav"), &wave(if n % 7 == 0 { 300 } else { 5 }, 3_000));
        files.push(path);
        files.push(folder.0.join(format!("{n}.missing")));
    }
    for jobs in [1, 2, 5, 200] {
        let found = files.iter().cloned().map(ScanFile::file).collect();
        let (mut reports, mut measured, mut last) = (Vec::new(), 0, ScanProgress::default());
        let jobs = NonZeroUsize::new(jobs).unwrap();
        scan_files(found, jobs, &ScanOptions::default(), |event| {
            match event {
                ScanEvent::Report(report) => reports.push(report.path),
                ScanEvent::Measured => measured += 1,
                ScanEvent::Progress(progress) => {
                    assert!(progress.bytes >= last.bytes && progress.seconds >= last.seconds);
                    last = progress;
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!((reports, measured), (files.clone(), files.len()), "{jobs} jobs");
        // Six files of 30 s, and the rest of half a second, with headers of 44 bytes.
        let expected = 6 * (44 + 480_000) + 34 * (44 + 8_000);
        assert_eq!((last.bytes, last.seconds), (expected, 197.0));
    }
}

#[test]
fn segments_join_to_the_report_of_the_file() {
    let folder = Folder::new("segments");
    let path = folder.write("long.wav", &wave(11_000, 3_000));
    let options = ScanOptions { keep_measurement: true, true_peak: true, ..Default::default() };
    let whole = measure_file(ScanFile::file(path.clone()), &options);
    assert!(whole.error.is_none() && whole.measurement.is_some());
    for count in [1, 2, 3, 6, 7, 40].map(|count| NonZeroUsize::new(count).unwrap()) {
        let segment = |n| measure_segment(&path, n, count, &options).unwrap();
        let joined = join_segments(path.clone(), (0..count.get()).map(segment).collect(), &options);
        let joined = joined.unwrap();
        assert_eq!((joined.shape, joined.loudness), (whole.shape, whole.loudness), "{count}");
        assert_eq!(joined.measurement, whole.measurement, "{count}");
        assert!(measure_segment(&path, count.get(), count, &options).is_none());
    }
    let short = folder.write("short.wav", &wave(100, 3_000));
    for (path, index) in [(&short, 0), (&folder.0.join("missing"), 0), (&path, usize::MAX)] {
        assert!(measure_segment(path, index, NonZeroUsize::MIN, &options).is_none());
    }
    assert!(join_segments(path, Vec::new(), &options).is_none());
}

#[test]
fn a_break_stops_the_scan() {
    let folder = Folder::new("break");
    let path = folder.write("a.wav", &wave(5, 3_000));
    for jobs in [1, 3] {
        let mut reports = 0;
        let found = vec![ScanFile::file(path.clone()); 500];
        scan_files(found, NonZeroUsize::new(jobs).unwrap(), &ScanOptions::default(), |event| {
            reports += usize::from(matches!(event, ScanEvent::Report(_)));
            if reports == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert_eq!(reports, 2);
    }
}

#[test]
fn merged_tracks_have_the_loudness_of_the_whole() {
    let folder = Folder::new("album");
    let options = ScanOptions { keep_measurement: true, ..ScanOptions::default() };
    let report = |name: &str, bytes: &[u8]| -> ScanReport {
        let path = folder.write(name, bytes);
        measure_file(ScanFile::file(path), &options)
    };
    let loud = report("loud.wav", &wave(100, 8_000));
    let soft = report("soft.wav", &wave(100, 4_000));
    let mut album = loud.measurement.unwrap();
    album.merge(&soft.measurement.unwrap()).unwrap();
    let power = |lufs: Option<aulos_core::Lufs>| 10f64.powf(lufs.unwrap().get() / 10.0);
    let mean = (power(loud.loudness.integrated) + power(soft.loudness.integrated)) / 2.0;
    let both = super::LoudnessSummary::from_measurement(&album, 20.0, &options);
    // Both have as many gating blocks, and none is gated.
    assert!((power(both.integrated) / mean - 1.0).abs() < 1e-9);
    assert_eq!(both.max_momentary, loud.loudness.max_momentary);
    assert_eq!(both.sample_peak, loud.loudness.sample_peak);
}

//! The process is killed while it records.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{MediaTime, Rng, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};

use super::test_recorder::{TestRecorder, check_frames, decode, decode_damaged, json};
use crate::record::RecorderEventKind;

/// Environment variable with format and folder for the child process.
const CHILD_ENV: &str = "AULOS_RECORD_UNTIL_KILLED";

/// The child process that is killed. Without the variable it records for a moment, and checks by
/// itself that each flush is readable.
#[test]
fn records_and_reports_its_position() {
    let child_config = std::env::var(CHILD_ENV).ok();
    let (format, folder) = child_config.as_deref().and_then(|text| text.split_once(' ')).unzip();
    let scratch = Arc::new(ScratchDir::new("killed-child").unwrap());
    let place = folder.map_or_else(|| scratch.path().to_owned(), Into::into);
    let mut recorder = TestRecorder::at(&place, scratch, |config| {
        config.format = format.unwrap_or("wav:f32").parse().unwrap();
        config.recorder.rotation.duration = Some(Span::from_secs(3));
    });
    recorder.run(100);
    recorder.command(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    let most = if folder.is_some() { 100_000 } else { 50 };
    for _ in 0..most {
        recorder.run(20);
        println!("at {}", recorder.position().0);
        if folder.is_some() {
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
    }
}

fn child(format: &str, folder: &ScratchDir) -> Child {
    Program::new(std::env::current_exe().unwrap())
        .args(["--exact", "record::tests::killed::records_and_reports_its_position", "--nocapture"])
        .env(CHILD_ENV, format!("{format} {}", folder.path().display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills one process, checks the files that it left with ffmpeg, and starts the next one.
fn kill_one(format: &str, after: u64) {
    let folder = Arc::new(ScratchDir::new("killed").unwrap());
    let mut child = child(format, &folder);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut position_reached = 0;
    let positions =
        lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("at ")?.parse().ok());
    for frame in positions {
        position_reached = frame;
        if position_reached >= after {
            break;
        }
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(position_reached >= after, "it ended by itself at {position_reached}");
    // Before any repair.
    for path in names(&folder) {
        let bytes = std::fs::metadata(&path).unwrap().len();
        if path.extension().is_some_and(|ending| ending == "part") && bytes > 50_000 {
            assert!(decode_damaged(&path).len() > 4_800, "{}", path.display());
        }
    }
    let mut next =
        TestRecorder::in_folder(folder.clone(), |config| config.format = format.parse().unwrap());
    for path in names(&folder) {
        if path.extension().is_some_and(|ending| ending == "part") {
            panic!("{} is not repaired", path.display());
        }
    }
    next.poll_recorder();
    let is_repaired =
        |kind: &RecorderEventKind| matches!(kind, RecorderEventKind::FileRepaired { .. });
    assert!(next.events_seen.iter().all(is_repaired), "{:?}", next.events_seen);
    let mut files: Vec<_> = names(&folder)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending != "json"))
        .map(|path| (json(&path)["start_frame"].as_u64().unwrap(), path))
        .collect();
    files.sort();
    let mut end = 0;
    for (start, path) in files {
        assert_eq!(start, end, "{}", path.display());
        assert_ne!(json(&path)["state"], "recording", "{}", path.display());
        let samples = decode(&path);
        let mut frames = samples.len() as u64;
        if format.starts_with("m4a") {
            // ffmpeg does not cut the padding off the last access unit.
            let padded = frames;
            frames = json(&path)["frames"].as_u64().unwrap();
            assert!((frames..frames + 1_024).contains(&padded), "{}: {padded}", path.display());
        }
        end += frames;
        if !["opus", "mp3", "m4a"].iter().any(|name| format.starts_with(name)) {
            check_frames(&samples, start);
        }
    }
    assert!(end + 24_000 >= position_reached, "{format}: {end} of {position_reached} frames");
}

fn names(folder: &ScratchDir) -> Vec<PathBuf> {
    folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_kill_loses_at_most_half_a_second_and_the_next_start_repairs_the_file() {
    let kills = if std::env::var_os("AULOS_SOAK").is_some() { 200 } else { 7 };
    let mut rng = Rng::new(0xa01);
    for format in ["wav:24", "flac:24", "opus:96k", "mp3:128k", "m4a:96k"] {
        for _ in 0..kills {
            kill_one(format, 48 * (200 + rng.next_u64() % 8_000));
        }
    }
}

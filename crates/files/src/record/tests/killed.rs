//! Somebody kills the program while it records.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;

use aulos_blackbox::scratch::ScratchDir;
use aulos_core::{MediaTime, Rng, Span};
use aulos_engine::recorder::{CommandTime, RecorderCommand};

use super::world::{Rig, check_run, hear, json, sound};
use crate::record::What;

/// What the other program is told by: format and folder.
const TOLD: &str = "AULOS_RECORD_UNTIL_KILLED";

/// The program that is killed. Nobody having told it where to record, it does so for a moment, and
/// looks itself whether each flush is readable.
#[test]
fn records_and_says_how_far_it_is() {
    let told = std::env::var(TOLD).ok();
    let (format, folder) = told.as_deref().and_then(|told| told.split_once(' ')).unzip();
    let scratch = Arc::new(ScratchDir::new("killed-child").unwrap());
    let place = folder.map_or_else(|| scratch.path().to_owned(), Into::into);
    let mut rig = Rig::at(&place, scratch, |wish| {
        wish.format = format.unwrap_or("wav:f32").parse().unwrap();
        wish.config.rotation.duration = Some(Span::from_secs(3));
    });
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    let most = if folder.is_some() { 100_000 } else { 50 };
    for _ in 0..most {
        rig.run(20);
        println!("at {}", rig.position().0);
        if folder.is_some() {
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
    }
}

fn child(format: &str, folder: &ScratchDir) -> Child {
    Program::new(std::env::current_exe().unwrap())
        .args(["--exact", "record::tests::killed::records_and_says_how_far_it_is", "--nocapture"])
        .env(TOLD, format!("{format} {}", folder.path().display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills one, looks at what it has left as ffmpeg does, and starts the next.
fn kill_one(format: &str, after: u64) {
    let folder = Arc::new(ScratchDir::new("killed").unwrap());
    let mut child = child(format, &folder);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut far = 0;
    let said =
        lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("at ")?.parse().ok());
    for frame in said {
        far = frame;
        if far >= after {
            break;
        }
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(far >= after, "it ended by itself at {far}");
    // As it is, before anybody has repaired it.
    for path in names(&folder) {
        let bytes = std::fs::metadata(&path).unwrap().len();
        if path.extension().is_some_and(|ending| ending == "part") && bytes > 50_000 {
            assert!(hear(&path).len() > 4_800, "{}", path.display());
        }
    }
    let mut next = Rig::in_folder(folder.clone(), |wish| wish.format = format.parse().unwrap());
    for path in names(&folder) {
        if path.extension().is_some_and(|ending| ending == "part") {
            panic!("{} is not repaired", path.display());
        }
    }
    next.look();
    let fine = |what: &What| matches!(what, What::Repaired { .. });
    assert!(next.told.iter().all(fine), "{:?}", next.told);
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
        let samples = sound(&path);
        end += samples.len() as u64;
        if !format.starts_with("opus") {
            check_run(&samples, start);
        }
    }
    assert!(end + 24_000 >= far, "{format}: {end} of {far} frames");
}

fn names(folder: &ScratchDir) -> Vec<PathBuf> {
    folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn all_but_half_a_second_is_there_and_the_next_start_repairs_it() {
    let kills = if std::env::var_os("AULOS_SOAK").is_some() { 200 } else { 7 };
    let mut chance = Rng::new(0xa01);
    for format in ["wav:24", "flac:24", "opus:96k"] {
        for _ in 0..kills {
            kill_one(format, 48 * (200 + chance.next_u64() % 8_000));
        }
    }
}

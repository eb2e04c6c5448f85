//! Names, neighbours, leavings and what is deleted.

use std::fs;
use std::sync::Arc;

use aulos_core::{Frames, MediaTime, Rng, Span};
use aulos_engine::recorder::{ClockZone, CommandTime, RecorderCommand};

use super::world::{self, Rig, check_run, file_name, json, sidecar_of, sound};
use crate::record::{Closed, Pattern, Rule, Sync, What};

fn record(rig: &mut Rig, millis: u64) {
    rig.run(100);
    rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
    rig.run(millis);
}

#[test]
fn two_recorders_of_one_name_do_not_meet_and_nothing_is_overwritten() {
    let mut one = Rig::new("two", |_| {});
    let mut two = Rig::in_folder(one.folder.clone(), |_| {});
    let theirs = one.folder.join("hall-2026-11-22T120050Z-2.wav");
    fs::write(&theirs, "theirs").unwrap();
    record(&mut one, 1_000);
    record(&mut two, 1_000);
    // A third name is taken while the file is being written.
    fs::write(one.folder.join("hall-2026-11-22T120050Z.wav"), "as well").unwrap();
    let (one, two) = (one.finish(), two.finish());
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    let names = [file_name(&one[0].path), file_name(&two[0].path)];
    assert_eq!(names, ["hall-2026-11-22T120050Z-4.wav", "hall-2026-11-22T120050Z-3.wav"]);
    for closed in [one, two] {
        check_run(&sound(&closed[0].path), 0);
        assert_eq!(json(&closed[0].path)["frames"], closed[0].frames.0);
    }
}

#[test]
fn a_pattern_makes_folders() {
    let mut rig = Rig::new("folders", |wish| {
        wish.pattern = Pattern::new("%Y/{name}/%H-{index}", ClockZone::Utc).unwrap();
        wish.config.rotation.duration = Some(Span::from_secs(1));
    });
    record(&mut rig, 1_500);
    let closed = rig.finish();
    assert!(closed[0].path.ends_with("2026/hall/12-000000.wav"));
    assert!(closed[1].path.ends_with("2026/hall/12-000001.wav"));
}

#[test]
fn what_a_crash_left_behind_is_repaired_and_what_is_in_use_is_not() {
    let folder = {
        let mut rig = Rig::new("left", |_| {});
        record(&mut rig, 3_000);
        // Whoever comes now finds it in use.
        let mut other = Rig::in_folder(rig.folder.clone(), |_| {});
        other.look();
        assert!(other.told.is_empty(), "{:?}", other.told);
        rig.folder.clone()
    };
    let part = folder.join("hall-2026-11-22T120050Z.wav.part");
    assert!(part.exists());
    fs::write(folder.join("other.wav.part"), "no sound").unwrap();
    let mut rig = Rig::in_folder(folder.clone(), |_| {});
    rig.look();
    assert!(!part.exists());
    let whole = folder.join("hall-2026-11-22T120050Z.wav");
    let repaired = rig
        .told
        .iter()
        .any(|what| matches!(what, What::Repaired { path } if path.ends_with(file_name(&whole))));
    assert!(repaired, "{:?}", rig.told);
    assert!(rig.told.iter().any(|what| matches!(what, What::Unrepaired { .. })));
    let samples = sound(&whole);
    check_run(&samples, 0);
    assert!(samples.len() >= (3_100 - 500) * 48, "{}", samples.len());
    let note = json(&whole);
    assert_eq!((&note["state"], &note["frames"]), (&"repaired".into(), &samples.len().into()));
    assert_eq!(note["start_utc"], "2026-11-22T12:00:50.000000Z");
}

#[test]
fn only_what_this_recorder_has_written_is_deleted() {
    let folder = Arc::new(aulos_blackbox::scratch::ScratchDir::new("retain").unwrap());
    fs::write(folder.join("hall-2020-01-01T000000Z.wav"), "a treasure").unwrap();
    let sidecar = r#"{"written_by":"aulos","recorder":"foyer","state":"closed","start_unix_ns":0,"rate":48000}"#;
    fs::write(folder.join("foyer.wav"), "theirs").unwrap();
    fs::write(folder.join("foyer.wav.json"), sidecar).unwrap();
    let rules = |wish: &mut crate::record::Wish| {
        wish.retention.count = Some(3);
        wish.config.rotation.duration = Some(Span::from_secs(1));
    };
    let mut rig = Rig::in_folder(folder.clone(), rules);
    record(&mut rig, 6_500);
    let closed = rig.finish();
    let deleted: Vec<_> = rig
        .told
        .iter()
        .filter_map(|what| match what {
            What::Deleted { path, why } => Some((path.clone(), *why)),
            _ => None,
        })
        .collect();
    assert_eq!(closed.len(), 7);
    assert_eq!(deleted.len(), 4);
    assert_eq!(rig.deck.status().deleted, 4);
    for (segment, (path, why)) in closed.iter().zip(&deleted) {
        assert_eq!((&segment.path, *why), (path, Rule::Count));
        assert!(!path.exists() && !sidecar_of(path).exists());
    }
    // Those of an earlier run are known by their sidecars.
    let mut rig = Rig::in_folder(folder.clone(), |wish| wish.retention.count = Some(1));
    rig.look();
    assert_eq!(rig.deck.status().deleted, 2);
    assert!(closed[6].path.exists() && !closed[5].path.exists());
    assert_eq!(fs::read(folder.join("foyer.wav")).unwrap(), b"theirs");
    assert_eq!(fs::read(folder.join("hall-2020-01-01T000000Z.wav")).unwrap(), b"a treasure");
}

/// All of them, one after the other, as ffmpeg hears them.
fn joined(rig: &Rig, closed: &[Closed]) -> Vec<f32> {
    let lines = closed.iter().map(|it| format!("file '{}'\n", it.path.display()));
    let list = rig.folder.path().join("list.txt");
    fs::write(&list, lines.collect::<String>()).unwrap();
    let list = list.display().to_string();
    world::samples_of(&["-f", "concat", "-safe", "0", "-i", &list])
}

#[test]
fn twice_five_hundred_files_cut_at_random_are_the_stream() {
    for (format, seed) in [("wav:f32", 1), ("flac:24", 2)] {
        let mut chance = Rng::new(seed);
        let mut rig = Rig::new("thousand", |wish| {
            wish.format = format.parse().unwrap();
            wish.pattern = Pattern::new("{index}", ClockZone::Utc).unwrap();
            wish.safety.sync = Sync::Never;
            wish.sidecar = false;
        });
        rig.run(100);
        rig.tell(RecorderCommand::Start, CommandTime::Frame(MediaTime::ZERO)).unwrap();
        for _ in 0..500 {
            rig.run(20 * (1 + chance.next_u64() % 4));
            // Where it is, in the block that is still to come, or some blocks away.
            let ahead = Frames(chance.next_u64() % 3_000);
            let when = if ahead.0 < 500 {
                CommandTime::Now
            } else {
                CommandTime::Frame(rig.position() + ahead)
            };
            rig.tell(RecorderCommand::Cut, when).unwrap();
        }
        rig.run(200);
        let closed = rig.finish();
        // Two cuts that meet leave an empty segment between them, which is no file.
        assert!(closed.len() > 450, "{}", closed.len());
        let mut at = MediaTime::ZERO;
        for segment in &closed {
            assert_eq!(segment.start, at, "{format}");
            at = segment.end;
        }
        let samples = joined(&rig, &closed);
        assert_eq!(samples.len() as u64, at.0, "{format}");
        check_run(&samples, 0);
        assert_eq!(rig.lost(), Frames::ZERO);
    }
}

#[test]
fn a_link_in_the_folder_leads_nowhere_else() {
    use std::os::unix::fs::symlink;

    use crate::record::store::{Folder, Store};

    let path = std::env::temp_dir().join(format!("aulos-record-links-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    let folder = Folder::new(&path.join("in")).unwrap();
    let secret = path.join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, path.join("in/a.wav.json.new")).unwrap();
    folder.put("a.wav.json", b"note").unwrap();
    assert_eq!(fs::read(path.join("in/a.wav.json")).unwrap(), b"note");
    symlink(&secret, path.join("in/b.wav.part")).unwrap();
    assert!(folder.open("b.wav.part").is_err());
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = path.join("in/c.wav.part");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(folder.open("c.wav.part").is_err());
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    fs::remove_dir_all(&path).unwrap();
}

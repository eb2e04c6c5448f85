//! Folders, files that are replaced, and runs that are ended.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use aulos_core::Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{command, decoded, generated, in_place, judge, names, noise, normalize, rows, short};
use crate::common::scratch;

const KEYS: [&str; 20] = [
    "path",
    "out",
    "ok",
    "error",
    "state",
    "format",
    "mode",
    "target_lufs",
    "seconds",
    "sample_rate",
    "wanted_db",
    "gain_db",
    "bound",
    "limited_db",
    "before",
    "after",
    "rejected",
    "damaged",
    "tags_lost",
    "remarks",
];
const FIGURES: [&str; 6] = [
    "integrated_lufs",
    "loudness_range_lu",
    "max_momentary_lufs",
    "max_short_term_lufs",
    "true_peak_dbtp",
    "sample_peak_dbfs",
];

/// Whether the keys of an object are these and no others.
fn has_keys(object: &Value, keys: &[&str]) -> bool {
    let object = object.as_object().unwrap();
    object.len() == keys.len() && keys.iter().all(|key| object.contains_key(*key))
}

/// A folder with files of four kinds in two folders, one of them no sound.
fn music(folder: &Path) {
    fs::create_dir_all(folder.join("deep/er")).unwrap();
    for (name, db) in [("a.wav", -10), ("a.mp3", -12), ("deep/a.flac", -20), ("deep/er/b.opus", 0)]
    {
        short(&folder.join(name), db);
    }
    fs::write(folder.join("broken.wav"), "no sound").unwrap();
    fs::write(folder.join("read.me"), "no sound either").unwrap();
}

#[test]
fn a_folder_is_normalized_to_a_folder_despite_failed_files() {
    let folder = scratch();
    let (from, to) = (folder.join("music"), folder.join("music/louder"));
    music(&from);
    for (format, wanted) in [
        (None, ["a.flac", "a.wav", "deep/a.flac", "deep/er/b.opus"]),
        (Some("wav"), ["a.mp3.wav", "a.wav", "deep/a.wav", "deep/er/b.wav"]),
        (Some("opus"), ["a.opus", "a.wav.opus", "deep/a.opus", "deep/er/b.opus"]),
    ] {
        let more = format.map_or_else(Vec::new, |format| vec!["--format", format]);
        let (code, out, said) =
            normalize(&[&["--json", "--jobs", "2"], &more[..]].concat(), &from, &to);
        assert_eq!(code, 3, "{said}");
        let rows = rows(&out);
        assert_eq!(rows.len(), 5, "{out}");
        let paths: Vec<_> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
        assert!(paths.is_sorted(), "{paths:?}");
        for row in &rows {
            assert!(has_keys(row, &KEYS), "{row}");
            assert!(has_keys(&row["before"], &FIGURES) && has_keys(&row["after"], &FIGURES));
            let is_broken = row["path"].as_str().unwrap().ends_with("broken.wav");
            assert_eq!(row["ok"], !is_broken, "{row}");
            assert_eq!(row["state"], if is_broken { "failed" } else { "written" }, "{row}");
        }
        assert!(said.contains("4 written, 0 unchanged, 1 failed"), "{said}");
        assert!(said.contains("broken.wav: not an audio file"), "{said}");
        for name in wanted {
            let [integrated, _] = judge(&to.join(name));
            assert!((integrated + 23.0).abs() <= 0.2, "{name}: {integrated}");
        }
        assert_eq!(names(&to.join("deep/er")).len(), 1);
        fs::remove_dir_all(&to).unwrap();
    }
    let (code, out, _) = normalize(&[], &from, &to);
    let line = out.lines().find(|line| line.contains("broken.wav")).unwrap();
    assert!(code == 3 && line.contains("failed") && line.contains("not an audio file"), "{out}");
}

#[test]
fn a_dry_run_prints_everything_and_writes_nothing() {
    let folder = scratch();
    let (from, to) = (folder.join("music"), folder.join("louder"));
    music(&from);
    let (code, out, said) = normalize(&["--dry-run", "--json"], &from, &to);
    assert!(code == 3 && said.contains("4 to be written"), "{said}");
    assert!(!to.exists());
    let planned = rows(&out).into_iter().filter(|row| row["state"] == "planned");
    let gains: Vec<_> = planned.map(|row| row["gain_db"].as_f64().unwrap()).collect();
    assert!(gains.len() == 4 && gains.iter().all(|gain| gain.abs() > 0.1), "{gains:?}");
    let before = fs::read(from.join("a.wav")).unwrap();
    assert_eq!(in_place(&["--dry-run"], &[&from.join("a.wav")]).0, 0);
    assert_eq!(fs::read(from.join("a.wav")).unwrap(), before);
}

#[test]
fn an_album_keeps_the_steps_between_its_files() {
    let folder = scratch();
    let (from, to) = (folder.join("in"), folder.join("out"));
    for album in ["one", "two"] {
        fs::create_dir_all(from.join(album)).unwrap();
        for (n, db) in [-20, -14, -17].into_iter().enumerate() {
            let db = if album == "two" { db + 9 } else { db };
            short(&from.join(album).join(format!("{n}.wav")), db);
        }
    }
    // Half a second is too short for a range, a tenth of one for a loudness, and neither is a
    // fault.
    generated(&from.join("one/tiny.wav"), "sine=d=0.1", "-ac 2");
    let (code, out, said) = normalize(&["--album", "--json"], &from, &to);
    assert_eq!(code, 0, "{said}");
    let rows = rows(&out);
    for album in ["/one/", "/two/"] {
        let of_it = rows.iter().filter(|row| row["path"].as_str().unwrap().contains(album));
        let gains: Vec<_> = of_it.map(|row| row["gain_db"].as_f64().unwrap()).collect();
        assert!(gains.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-9), "{gains:?}");
        let levels = [0, 1, 2].map(|n| judge(&to.join(&album[1..]).join(format!("{n}.wav")))[0]);
        assert!((levels[1] - levels[0] - 6.0).abs() <= 0.15, "{levels:?}");
        // Above the relative gate, all three count for the same time.
        let power = levels.iter().map(|lufs| 10f64.powf(lufs / 10.0)).sum::<f64>() / 3.0;
        assert!((10.0 * power.log10() + 23.0).abs() <= 0.2, "{levels:?}");
    }
    fs::write(from.join("one/broken.wav"), "no sound").unwrap();
    fs::remove_dir_all(&to).unwrap();
    let (code, _, said) = normalize(&["--album", "--json"], &from, &to);
    assert!(code == 3 && said.contains("so the album has no gain"), "{said}");
    assert!(said.contains("3 written, 0 unchanged, 5 failed"), "{said}");
}

#[test]
fn in_place_keeps_the_mode_follows_links_and_touches_nothing_twice() {
    let folder = scratch();
    let (file, link, twin) =
        (folder.join("a.flac"), folder.join("link.flac"), folder.join("twin.flac"));
    short(&file, -10);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("a.flac", &link).unwrap();
    fs::hard_link(&file, &twin).unwrap();
    let old = fs::read(&file).unwrap();
    let (code, _, said) = in_place(&["--quiet"], &[&link]);
    assert_eq!(code, 0, "{said}");
    assert!((judge(&file)[0] + 23.0).abs() <= 0.1);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::read(&twin).unwrap(), old, "a hard link is a file of its own then");
    assert_eq!(decoded(&file).len(), decoded(&twin).len());
    fs::remove_file(&twin).unwrap();

    // Two names of one file are one file, and that is right already.
    let before = (fs::metadata(&file).unwrap().ino(), fs::read(&file).unwrap());
    let (code, out, said) = in_place(&["--json"], &[&folder]);
    assert_eq!(code, 0, "{said}");
    let rows = rows(&out);
    assert!(rows.len() == 1 && rows[0]["state"] == "unchanged", "{out}");
    assert_eq!((fs::metadata(&file).unwrap().ino(), fs::read(&file).unwrap()), before);
    assert_eq!(names(&folder), ["a.flac", "link.flac"]);

    // Nor is one that the ceiling keeps below the target, nor silence.
    let (loud, silent) = (folder.join("loud.wav"), folder.join("silent.wav"));
    short(&loud, -10);
    generated(&silent, "anullsrc=r=48000:d=1", "-ac 2");
    let both: [&Path; 2] = [&loud, &silent];
    for state in ["written", "unchanged", "unchanged"] {
        let (code, out, said) = in_place(&["--target", "-5", "--json"], &both);
        assert_eq!(code, 0, "{said}");
        let rows = super::rows(&out);
        assert_eq!([&rows[0]["state"], &rows[1]["state"]], [state, "unchanged"], "{out}");
        assert!(said.contains("silent, so it has no loudness") && !said.contains("copy"), "{said}");
    }

    let other = folder.join("b.mp3");
    short(&other, -10);
    let (code, _, said) = in_place(&[], &[&other]);
    assert!(code == 2 && said.contains("its format cannot be written"), "{said}");
    // A link as the target leads to the file that is written.
    let target = folder.join("target.wav");
    fs::write(&target, "old").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("target.wav", folder.join("to.wav")).unwrap();
    assert_eq!(normalize(&[], &other, &folder.join("to.wav")).0, 0);
    assert!(fs::read(&target).unwrap().starts_with(b"RIFF"));
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn whoever_kills_a_run_finds_each_file_old_or_new() {
    let folder = scratch();
    let files: Vec<_> = ["a.wav", "b.flac", "c.opus"].map(|name| folder.join(name)).into();
    for file in &files {
        noise(file, "-ac 2");
    }
    let old: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let lengths: Vec<_> = files.iter().map(|file| decoded(file).len()).collect();
    let run = || command(&["--in-place", "--quiet", "--jobs", "2"], &[&folder]).spawn().unwrap();
    // As long as a whole run lasts here and now, there is something to be torn.
    let begun = Instant::now();
    assert!(run().wait().unwrap().success());
    let most = begun.elapsed() + Duration::from_millis(100);
    let mut dice = Rng::new(7);
    for round in 0..20 {
        for (file, old) in files.iter().zip(&old) {
            fs::write(file, old).unwrap();
        }
        let mut child = run();
        std::thread::sleep(most.mul_f64(dice.next_f64()));
        child.kill().ok();
        child.wait().unwrap();
        for ((file, old), length) in files.iter().zip(&old).zip(&lengths) {
            let is_old = fs::read(file).unwrap() == *old;
            let is_new = || decoded(file).len() == *length && (judge(file)[0] + 23.0).abs() <= 0.2;
            assert!(is_old || is_new(), "round {round}: {}", file.display());
        }
    }
    // What killed runs left behind is hidden, and used up by the next.
    let left = names(&folder).len();
    assert!(left <= 3 + 20 * 3, "{left}");
    assert_eq!(in_place(&["--quiet"], &[&folder]).0, 0);
}

#[test]
fn ctrl_c_removes_incomplete_files() {
    let folder = scratch();
    let from = folder.join("in");
    fs::create_dir(&from).unwrap();
    let sound = "anoisesrc=r=48000:c=pink:seed=5:a=0.3:d=240";
    generated(&from.join("a.wav"), sound, "-ac 2");
    fs::copy(from.join("a.wav"), from.join("b.wav")).unwrap();
    let old = fs::read(from.join("a.wav")).unwrap();
    for (arguments, paths) in [
        (&["--in-place", "--mode", "low", "--lra", "5"][..], vec![&*from]),
        (&["--mode", "low", "--lra", "5"], vec![&*from, &folder.join("out")]),
    ] {
        let child = command(arguments, &paths).spawn().unwrap();
        let is_part = |name: &String| name.starts_with('.');
        // Until it has begun to write; it has some seconds of work.
        for _ in 0..2_000 {
            let under_way = [&from, &folder.join("out")]
                .iter()
                .any(|folder| folder.is_dir() && names(folder).iter().any(is_part));
            if under_way {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        // As `timeout` does: it signals its child, and then the group, in which the child is.
        for _ in 0..2 {
            kill_process(pid, Signal::INT).unwrap();
        }
        let (code, _, said) = super::of_output(&child.wait_with_output().unwrap());
        assert!(code == 130 && said.contains("stopped"), "{code}: {said}");
        assert_eq!(names(&from), ["a.wav", "b.wav"]);
        assert!(fs::read(from.join("a.wav")).unwrap() == old);
        if folder.join("out").exists() {
            assert_eq!(names(&folder.join("out")), Vec::<String>::new());
        }
    }
}

#[test]
fn what_a_killed_run_left_is_used_up_by_the_next() {
    let folder = scratch();
    let (from, to) = (folder.join("in.wav"), folder.join("out.flac"));
    short(&from, -10);
    fs::write(folder.join(".out.flac.part"), vec![7; 9_000_000]).unwrap();
    assert_eq!(normalize(&[], &from, &to).0, 0);
    assert_eq!(names(&folder), ["in.wav", "out.flac"]);
    assert!(!decoded(&to).is_empty() && fs::metadata(&to).unwrap().len() < 9_000_000);
}

#[test]
fn paths_that_make_no_sense_are_named() {
    let folder = scratch();
    let from = folder.join("music");
    music(&from);
    let file = folder.join("file.wav");
    short(&file, -10);
    for (paths, word) in [
        (vec![&*from, &file], "is a file, but IN is a folder"),
        (vec![&*from, &from], "use --in-place"),
        (vec![&*from], "expected two paths"),
        (vec![&*file, &file], "use --in-place"),
    ] {
        let output = command(&[], &paths).output().unwrap();
        let (code, _, said) = super::of_output(&output);
        assert!(code == 2 && said.contains(word), "{paths:?}: {code} {said}");
    }
    let (code, _, said) = normalize(&["--jobs", "1"], &folder.join("none"), &folder.join("x.wav"));
    assert!(code == 66 && said.contains("no such file"), "{said}");
    fs::create_dir(folder.join("empty")).unwrap();
    let (code, out, _) = normalize(&[], &folder.join("empty"), &folder.join("y"));
    assert!(code == 66 && out.contains("no audio file in the folder"), "{code}: {out}");
}

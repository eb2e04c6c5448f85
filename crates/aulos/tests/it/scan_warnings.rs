//! What `aulos scan` says about files that do not keep to their headers, and about those without
//! loudness.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::scratch;
use crate::scan::scan;

fn row(path: &Path) -> (i32, Value, String) {
    let (code, out, said) = scan(&["--json"], &[path]);
    (code, serde_json::from_str(&out).unwrap(), said)
}

/// WAVE of 32-bit floats, one channel, 8 kHz, whose header has this size of the data.
fn wave(to: &Path, samples: &[f32], size: u32) {
    let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x03\0\x01\0".to_vec();
    bytes.extend(8_000_u32.to_le_bytes());
    bytes.extend(32_000_u32.to_le_bytes());
    bytes.extend(b"\x04\0\x20\0data");
    bytes.extend(size.to_le_bytes());
    bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    fs::write(to, bytes).unwrap();
}

#[test]
fn a_contradiction_is_said_once_per_file_with_both_figures() {
    let folder = scratch();
    let tone: Vec<f32> = (0..16_000).map(|n| 0.3 * (0.4 * n as f32).sin()).collect();
    let path = folder.join("zero.wav");
    wave(&path, &tone, 0);
    let (code, row, said) = row(&path);
    assert_eq!((code, &row["ok"], &row["seconds"]), (0, &true.into(), &2.0.into()), "{row}");
    let warning = &row["warnings"][0];
    assert_eq!(warning["kind"], "length");
    assert_eq!((&warning["stated_seconds"], &warning["seconds"]), (&0.0.into(), &2.0.into()));
    let text = "the header says 0.000 s, the file has 2.000 s";
    assert_eq!(said.matches(text).count(), 1, "{said}");
    let (_, table, _) = scan(&[], &[&path]);
    assert_eq!(table.matches(text).count(), 1, "{table}");
    let (_, csv, _) = scan(&["--csv"], &[&path]);
    assert!(csv.lines().nth(1).unwrap().ends_with(&format!(",\"{text}\"")), "{csv}");
    // The journal remembers it.
    let journal = folder.join("journal");
    for _ in 0..2 {
        let (_, out, _) = scan(&["--json", "--resume", journal.to_str().unwrap()], &[&path]);
        assert!(out.contains(text), "{out}");
    }
}

#[test]
fn a_file_without_loudness_has_its_reason() {
    let folder = scratch();
    let path = folder.join("a.wav");
    wave(&path, &[0.0; 16_000], 64_000);
    let (code, silent, _) = row(&path);
    assert_eq!((code, &silent["warnings"][0]["kind"]), (0, &"silent".into()), "{silent}");
    wave(&path, &[0.3; 800], 3_200);
    let (code, short, _) = row(&path);
    assert!(code == 65 && short["error"].as_str().unwrap().contains("shorter than 400 ms"));
    wave(&path, &[], 0);
    let (code, headers, _) = row(&path);
    assert!(code == 65 && headers["error"].as_str().unwrap().contains("headers but no sound"));
    fs::write(&path, b"").unwrap();
    let (code, empty, _) = row(&path);
    assert_eq!((code, &empty["error"]), (65, &"the file is empty".into()));
    let mut samples = vec![0.1; 16_000];
    (samples[5], samples[6]) = (f32::NAN, f32::INFINITY);
    wave(&path, &samples, 64_000);
    let (_, invalid, said) = row(&path);
    assert!(said.contains("2 samples are NaN or infinite"), "{said} {invalid}");
}

#[test]
fn sound_that_cannot_be_read_is_counted_and_named() {
    let folder = scratch();
    let tone: Vec<f32> = (0..16_000).map(|n| 0.3 * (0.4 * n as f32).sin()).collect();
    wave(&folder.join("a.wav"), &tone, 64_000);
    for name in ["b.wv", "c.WMA", "notes.txt"] {
        fs::write(folder.join(name), "x").unwrap();
    }
    let (code, out, said) = scan(&["--json"], &[&folder]);
    assert_eq!((code, out.lines().count()), (0, 1), "{out}");
    assert!(said.contains("2 file(s) skipped: their format is not supported:"), "{said}");
    assert!(said.contains("b.wv") && said.contains("c.WMA") && !said.contains("notes"), "{said}");
    let (_, _, said) = scan(&["--quiet"], &[&folder]);
    assert_eq!(said, "");
}

/// A copy of equal size and time replaces a measured file.
#[test]
fn a_replaced_file_is_measured_again() {
    let folder = scratch();
    let (path, other, journal) =
        (folder.join("a.wav"), folder.join("b.wav"), folder.join("journal"));
    let tone =
        |gain: f32| -> Vec<f32> { (0..16_000).map(|n| gain * (0.4 * n as f32).sin()).collect() };
    wave(&path, &tone(0.3), 64_000);
    wave(&other, &tone(0.03), 64_000);
    let integrated = || {
        let (_, out, _) = scan(&["--json", "--resume", journal.to_str().unwrap()], &[&path]);
        serde_json::from_str::<Value>(&out).unwrap()["integrated_lufs"].as_f64().unwrap()
    };
    let first = integrated();
    assert!((integrated() - first).abs() < 1e-9);
    let time = path.metadata().unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    fs::rename(&other, &path).unwrap();
    assert!((first - integrated() - 20.0).abs() < 0.01);
    // The same file, with new contents and its old time.
    let second = integrated();
    wave(&path, &tone(0.3), 64_000);
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert!((integrated() - second - 20.0).abs() < 0.01);
}

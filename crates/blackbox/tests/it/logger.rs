//! The log of a station whose server is killed: the index is written again, and the command line
//! finds, exports and checks.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::Value;

use crate::rpc::Rpc;
use crate::{script, shared_turn, text, wait_for};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn logger(arguments: &[&str]) -> Output {
    Command::new(binary()).arg("logger").args(arguments).output().unwrap()
}

pub(crate) fn verify(dir: &Path) -> Value {
    let output = logger(&["verify", text(dir), "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Seconds in the file that is being written.
pub(crate) fn seconds(rpc: &mut Rpc) -> f64 {
    let all = rpc.call("Aulos.GetRecordings", &serde_json::json!({}));
    all["recorders"][0]["file"]["seconds"].as_f64().unwrap_or(0.0)
}

#[test]
fn a_killed_server_loses_no_line_of_its_log_and_what_was_played_is_exported() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("logger").unwrap();
    let dir = scratch.join("log");
    let config = format!(
        "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=997&dbfs=-6\"]\n\
         logger = {{ dir = \"{}\", keep = \"uk\", format = \"flac\" }}\n",
        dir.display()
    );
    let mut heads = Vec::new();
    for round in 0..3 {
        let server = AulosServer::start(&scratch, &config).unwrap();
        if round > 0 {
            wait_for("the repaired file in the index", PATIENCE, || {
                verify(&dir)["lines"] == round && verify(&dir)["problems"] == serde_json::json!([])
            });
            let head = verify(&dir)["head"].as_str().unwrap().to_owned();
            wait_for("the head in the log", PATIENCE, || server.printed().unwrap().contains(&head));
            heads.push(head);
        }
        let mut rpc = Rpc::connect(server.control);
        wait_for("two seconds", PATIENCE, || seconds(&mut rpc) >= 2.0);
        let killed = Command::new("kill").args(["-9", &server.id().to_string()]).status();
        assert!(killed.unwrap().success());
        drop(server);
    }
    // The index is lost, and the next start writes it anew with the same lines.
    fs::remove_file(dir.join("hall-log.logger.jsonl")).unwrap();
    let server = AulosServer::start(&scratch, &config).unwrap();
    wait_for("the index", PATIENCE, || verify(&dir)["lines"] == 3);
    server.stop().unwrap();
    assert_eq!(verify(&dir)["problems"], serde_json::json!([]));
    for head in &heads {
        assert!(logger(&["verify", text(&dir), "--head", head]).status.success(), "{head}");
    }
    let cut = logger(&["verify", text(&dir), "--head", &"0".repeat(64)]);
    assert_eq!(cut.status.code(), Some(1));

    let range = ["--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z", "--json"];
    let found = logger(&[&["find", text(&dir)][..], &range].concat());
    let found: Value = serde_json::from_slice(&found.stdout).unwrap();
    let causes = found["gaps"].as_array().unwrap().iter();
    let down = causes.filter(|gap| gap["cause"] == "server down").count();
    assert!(down >= 2, "{found}");
    let first = &found["files"][0];
    let from = first["from_ns"].as_i64().unwrap() / 1_000_000_000 + 1;
    let [from, to] = [from, from + 1].map(|at| {
        let output = Command::new("date").args(["-uIseconds", "-d", &format!("@{at}")]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    });
    let out = scratch.join("second.wav");
    let exported = logger(&["export", text(&dir), text(&out), "--from", &from, "--to", &to]);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let again = logger(&["export", text(&dir), text(&out), "--from", &from, "--to", &to]);
    assert_eq!(again.status.code(), Some(73));
    // 48,000 frames of stereo, with a header.
    let bytes = fs::metadata(&out).unwrap().len();
    assert!((192_000..194_000).contains(&bytes), "{bytes}");
    assert!(fs::read_to_string(scratch.join("second.wav.txt")).unwrap().contains("sha256"));
    let notes = fs::read_to_string(dir.join("hall-log.exports.jsonl")).unwrap();
    assert_eq!(notes.lines().count(), 1, "{notes}");
}

/// A hook that appends each event as a line of JSON.
fn hook(scratch: &ScratchDir) -> (std::path::PathBuf, std::path::PathBuf) {
    let (program, lines) = (scratch.join("hook"), scratch.join("events"));
    script(&program, &format!("#!/bin/sh\ncat >> {0}\necho >> {0}\n", lines.display()));
    (program, lines)
}

#[test]
fn a_disk_that_is_missing_at_the_start_is_an_alarm_and_then_a_gap_with_its_cause() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("logger-missing").unwrap();
    let (program, lines) = hook(&scratch);
    let (disk, away) = (scratch.join("disk"), scratch.join("away"));
    fs::create_dir(&disk).unwrap();
    let config = format!(
        "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=997&dbfs=-6\"]\n\
         logger = {{ dir = \"{}\", format = \"flac\" }}\n\
         [[hook]]\nrun = \"{}\"\non = [\"recorder-trouble\", \"recorder-recovered\", \"log-gap\"]\n",
        disk.join("log").display(),
        program.display()
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("a second", PATIENCE, || seconds(&mut rpc) >= 1.0);
    server.stop().unwrap();
    // A file in the place of the disk: no folder can be made there.
    fs::rename(&disk, &away).unwrap();
    fs::write(&disk, "").unwrap();
    let server = AulosServer::start(&scratch, &config).unwrap();
    let events = || -> Vec<Value> {
        let text = fs::read_to_string(&lines).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let has = |event: &str| events().iter().any(|one| one["event"] == event);
    wait_for("the alarm", PATIENCE, || has("recorder-trouble"));
    assert!(!has("recorder-recovered") && !has("log-gap"), "{:?}", events());
    fs::remove_file(&disk).unwrap();
    fs::rename(&away, &disk).unwrap();
    wait_for("the gap", PATIENCE, || has("recorder-recovered") && has("log-gap"));
    let found = events();
    let gap = found.iter().find(|one| one["event"] == "log-gap").unwrap();
    assert!(gap["cause"] == "disk" && gap["seconds"].as_f64() > Some(1.0), "{gap}");
    assert_eq!(found.iter().filter(|one| one["event"] == "recorder-trouble").count(), 1);
    let mut rpc = Rpc::connect(server.control);
    wait_for("a second", PATIENCE, || seconds(&mut rpc) >= 1.0);
    server.stop().unwrap();
    let range = ["--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z", "--json"];
    let log = disk.join("log");
    let output = logger(&[&["find", text(&log)][..], &range].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let causes = report["gaps"].as_array().unwrap().iter();
    let causes: Vec<&str> = causes.map(|gap| gap["cause"].as_str().unwrap()).collect();
    assert!(causes.contains(&"disk"), "{report}");
    assert_eq!(verify(&log)["problems"], serde_json::json!([]));
}

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
use crate::{shared_turn, text, wait_for};

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

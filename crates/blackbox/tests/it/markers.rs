//! Markers of a recording through the server: ffprobe reads them in the file, and a kill right
//! after the answer takes none away.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// Where the chapters of a file begin, in milliseconds, and their titles.
fn chapters(ffprobe: &Path, file: &Path) -> Vec<(u128, String)> {
    let mut command = Command::new(ffprobe);
    command.args(["-v", "error", "-show_chapters", "-of", "json", text(file)]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let chapters = told["chapters"].as_array().unwrap().iter();
    let seconds = |value: &Value| value.as_str().unwrap().parse().unwrap();
    let millis = |value: &Value| Duration::from_secs_f64(seconds(value)).as_millis();
    let title = |chapter: &Value| chapter["tags"]["title"].as_str().unwrap().to_owned();
    chapters.map(|chapter| (millis(&chapter["start_time"]), title(chapter))).collect()
}

fn config(dir: &Path, format: &str, start: bool) -> String {
    format!(
        "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=997&dbfs=-6\"]\n\
         record = {{ dir = \"{}\", format = \"{format}\", start = {start}, file = \"take-{{index}}\" }}\n",
        dir.display()
    )
}

fn sidecar(file: &Path) -> Value {
    let bytes = std::fs::read(format!("{}.json", file.display())).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn seconds(rpc: &mut Rpc) -> f64 {
    let all = rpc.call("Aulos.GetRecordings", &json!({}));
    all["recorders"][0]["file"]["seconds"].as_f64().unwrap_or(0.0)
}

/// While `hall` is recorded.
fn check_refusals(rpc: &mut Rpc) {
    for (params, why) in [
        (json!({ "station": "hall" }), "label"),
        (json!({ "station": "hall", "label": "" }), "label"),
        (json!({ "station": "hall", "label": "x".repeat(129) }), "128"),
        (json!({ "label": "it" }), "station"),
        (json!({ "station": "hall", "label": "it", "in_s": 60 }), "in the future"),
    ] {
        let answer = rpc.answer("Aulos.AddMarker", &params);
        assert!(answer["error"].to_string().contains(why), "{params}: {answer}");
    }
}

#[test]
fn a_marker_is_in_the_file_that_holds_its_frame_and_ffprobe_reads_it() {
    let Some(ffprobe) = find_or_skip("ffprobe") else { return };
    let _turn = shared_turn();
    for format in ["wav", "flac", "opus"] {
        let scratch = ScratchDir::new("markers").unwrap();
        let folder = scratch.join("rec");
        let server = AulosServer::start(&scratch, &config(&folder, format, false)).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let refused = rpc.answer("Aulos.AddMarker", &json!({ "station": "hall", "label": "no" }));
        assert!(refused["error"].to_string().contains("start it first"), "{refused}");
        rpc.call("Aulos.StartRecording", &json!({ "station": "hall" }));
        wait_for("three seconds", PATIENCE, || seconds(&mut rpc) >= 3.0);
        let all = rpc.call("Aulos.GetRecordings", &json!({}));
        let start = all["recorders"][0]["file"]["start_frame"].as_u64().unwrap();
        let mut mark = |params: Value| {
            let answer = rpc.call("Aulos.AddMarker", &params);
            assert_eq!(answer["refused"], json!([]), "{answer}");
            answer["recorders"][0].clone()
        };
        let exact = json!({ "station": "hall", "label": "exact", "frame": start + 60_000 });
        let exact = mark(exact);
        assert_eq!((&exact["frame"], &exact["position"]), (&json!(start + 60_000), &json!(60_000)));
        let ago = mark(json!({ "recorder": "hall", "label": "\u{fc}ber & <so>", "ago_s": 0.5 }));
        let now = mark(json!({ "station": "hall", "label": "now" }));
        let frame = |answer: &Value| answer["frame"].as_u64().unwrap();
        assert!((20_000..72_000).contains(&(frame(&now) - frame(&ago))), "{ago} {now}");
        let file = folder.join(format!("take-000000.{format}"));
        assert_eq!(exact["file"], text(&file));
        check_refusals(&mut rpc);
        rpc.call(
            "Aulos.CutRecording",
            &json!({ "station": "hall", "frame": frame(&now) + 48_000 }),
        );
        wait_for("the first file", PATIENCE, || file.exists());
        let second = rpc.call("Aulos.AddMarker", &json!({ "station": "hall", "label": "second" }));
        let next = PathBuf::from(second["recorders"][0]["file"].as_str().unwrap());
        assert!(next.ends_with(format!("take-000001.{format}")), "{second}");
        rpc.call("Aulos.StopRecording", &json!({ "station": "hall" }));
        wait_for("both files", PATIENCE, || next.exists() && sidecar(&next)["state"] == "closed");
        let note = sidecar(&file);
        let labels: Vec<_> = note["markers"].as_array().unwrap().iter().collect();
        assert_eq!((labels.len(), &labels[0]["label"]), (3, &json!("exact")), "{note}");
        assert_eq!(labels[0]["position"], 60_000);
        assert_eq!(sidecar(&next)["markers"][0]["label"], "second");
        if format != "opus" {
            let read = chapters(&ffprobe, &file);
            let titles: Vec<_> = read.iter().map(|(_, title)| &**title).collect();
            assert_eq!(titles, ["exact", "\u{fc}ber & <so>", "now"], "{format}");
            assert_eq!(read[0].0, 1_250, "{format}");
            assert_eq!(
                read[2].0,
                u128::from(now["position"].as_u64().unwrap()) * 10 / 480,
                "{format}"
            );
            assert_eq!(chapters(&ffprobe, &next)[0].1, "second");
        }
        server.stop().unwrap();
    }
}

#[test]
fn a_marker_that_was_answered_survives_a_kill() {
    let Some(ffprobe) = find_or_skip("ffprobe") else { return };
    let _turn = shared_turn();
    for format in ["wav", "flac", "opus"] {
        let scratch = ScratchDir::new("markers-killed").unwrap();
        let folder = scratch.join("rec");
        let config = config(&folder, format, true);
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        wait_for("two seconds", PATIENCE, || seconds(&mut rpc) >= 2.0);
        let labels = ["one", "two", "three"];
        for label in labels {
            rpc.call("Aulos.AddMarker", &json!({ "station": "hall", "label": label }));
        }
        // SIGKILL, at once.
        drop(server);
        let file = folder.join(format!("take-000000.{format}"));
        assert!(!file.exists());
        let server = AulosServer::start(&scratch, &config).unwrap();
        wait_for("the repair", PATIENCE, || file.exists() && sidecar(&file)["state"] == "repaired");
        server.stop().unwrap();
        let note = sidecar(&file);
        let markers = note["markers"].as_array().unwrap();
        let found: Vec<_> =
            markers.iter().map(|marker| marker["label"].as_str().unwrap()).collect();
        assert_eq!(found, labels, "{format}: {note}");
        let frames = note["frames"].as_u64().unwrap();
        assert!(markers.iter().all(|marker| marker["position"].as_u64().unwrap() < frames));
        if format != "opus" {
            let read = chapters(&ffprobe, &file);
            let titles: Vec<_> = read.iter().map(|(_, title)| &**title).collect();
            assert_eq!(titles, labels, "{format}");
        }
    }
}

//! A playlist on a running station: what is heard, what is shown, and how files are skipped.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::{Controller, Playing, Server, eventually, resolve, scratch, wave};

fn config(sources: &str) -> String {
    format!(
        "[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n\
         [[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [{sources}]\n"
    )
}

/// A folder with three constants of these lengths.
fn music(seconds: [usize; 3]) -> PathBuf {
    let folder = scratch().join("music");
    fs::create_dir_all(&folder).unwrap();
    for (number, seconds) in (1..).zip(seconds) {
        let name = format!("Singer {number} - Song {number}.wav");
        let samples = vec![number * 4_096; 48_000 * seconds];
        fs::write(folder.join(name), wave(&samples)).unwrap();
    }
    folder
}

fn playlist(caller: &mut Controller) -> Value {
    let status = caller.call("Aulos.GetStatus", json!({}));
    status["result"]["stations"][0]["sources"][0]["playlist"].clone()
}

fn is_playing(caller: &mut Controller, number: u32) -> bool {
    let file = playlist(caller)["current"]["file"].as_str().unwrap_or_default().to_owned();
    file.ends_with(&format!("Song {number}.wav"))
}

#[test]
#[allow(clippy::cast_possible_truncation, reason = "whole numbers below 8")]
fn files_follow_each_other_without_a_gap_and_name_their_titles() {
    let folder = music([1, 1, 1]);
    let uri = format!("\"playlist://{}?loudness=off\"", folder.display());
    let server = Playing::start(resolve(&config(&uri)));
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    let samples = sound.samples(2 * 48_000 * 4);
    let mut values: Vec<i32> = samples.iter().map(|it| (it * 8.0).round() as i32).collect();
    values.dedup();
    // Silence before the first file at most.
    let values: Vec<i32> = values.into_iter().skip_while(|it| *it == 0).collect();
    let is_next = |pair: &[i32]| pair[1] == pair[0] % 3 + 1;
    assert!(values.len() >= 3 && values.windows(2).all(is_next), "{values:?}");
    let shown = playlist(&mut caller);
    assert_eq!((&shown["files"], &shown["skipped"]), (&json!(3), &json!(0)), "{shown}");
    assert_eq!(shown["next"].as_array().unwrap().len(), 10, "{shown}");
    eventually(|| {
        let status = caller.call("Server.GetStatus", json!({}));
        let about = &status["result"]["server"]["streams"][0]["properties"]["metadata"];
        about["title"] == "Song 2" && about["artist"] == json!(["Singer 2"])
    });
}

#[test]
fn a_call_and_a_snapcast_client_skip_to_the_next_file() {
    let folder = music([60, 60, 60]);
    let uri = format!("\"playlist://{}?loudness=off\"", folder.display());
    let server = Playing::start(resolve(&config(&uri)));
    let mut caller = server.controller();
    eventually(|| is_playing(&mut caller, 1));
    let answer = caller.call("Aulos.SkipTrack", json!({ "station": "hall" }));
    assert_eq!(answer["result"], json!({ "station": "hall", "source": "playlist" }));
    eventually(|| is_playing(&mut caller, 2));
    let status = caller.call("Server.GetStatus", json!({}));
    let properties = &status["result"]["server"]["streams"][0]["properties"];
    assert_eq!(
        (&properties["canControl"], &properties["canGoNext"], &properties["canPause"]),
        (&json!(true), &json!(true), &json!(false))
    );
    let next = json!({ "id": "hall", "command": "next" });
    assert_eq!(caller.call("Stream.Control", next)["result"], "ok");
    eventually(|| is_playing(&mut caller, 3));
    let pause = json!({ "id": "hall", "command": "pause" });
    assert_eq!(caller.call("Stream.Control", pause)["error"]["code"], 5);
}

#[test]
fn only_a_playlist_can_skip() {
    let server = Server::start();
    let mut caller = server.controller();
    for wrong in [json!({}), json!({ "source": "demo" }), json!({ "source": "nothing" })] {
        let mut params = wrong;
        params["station"] = json!("default");
        assert_eq!(caller.call("Aulos.SkipTrack", params)["error"]["code"], -32_602);
    }
    assert_eq!(*server.backend.skips.lock().unwrap(), []);
}

#[test]
fn a_live_source_interrupts_a_playlist_that_goes_on_afterwards() {
    let folder = music([60, 60, 60]);
    let uri =
        format!("\"playlist://{}?loudness=off\", \"tone://?hz=400&name=live\"", folder.display());
    let server = Playing::start(resolve(&config(&uri)));
    let mut caller = server.controller();
    eventually(|| is_playing(&mut caller, 1));
    let position = |caller: &mut Controller| playlist(caller)["current"]["position_s"].as_f64();
    eventually(|| position(&mut caller).is_some_and(|at| at > 1.0));
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": "live" }));
    let active = |caller: &mut Controller| {
        caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0]["active"].clone()
    };
    eventually(|| active(&mut caller) == "live");
    let before = position(&mut caller).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert!(position(&mut caller).unwrap() < before + 1.0, "it waits");
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": "auto" }));
    eventually(|| position(&mut caller).is_some_and(|at| at > before + 1.0));
    assert!(is_playing(&mut caller, 1));
}

#[test]
fn a_folder_that_vanishes_is_reported_and_the_next_source_plays() {
    let folder = music([1, 1, 1]);
    let uri = format!("\"playlist://{}\", \"tone://?hz=400\"", folder.display());
    let server = Playing::start(resolve(&config(&uri)));
    let mut caller = server.controller();
    let station = |caller: &mut Controller| {
        caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone()
    };
    eventually(|| station(&mut caller)["active"] == "playlist");
    fs::rename(&folder, folder.with_extension("away")).unwrap();
    eventually(|| station(&mut caller)["active"] == "tone");
    let shown = station(&mut caller)["sources"][0].clone();
    let reason = shown["reason"].as_str().unwrap_or_default();
    assert!(reason.ends_with("no such folder or playlist file"), "{shown}");
    fs::rename(folder.with_extension("away"), &folder).unwrap();
    eventually(|| station(&mut caller)["active"] == "playlist");
}

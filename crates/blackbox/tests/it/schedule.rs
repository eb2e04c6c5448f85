//! The built server with entries that begin in a moment.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::RATE;
use serde_json::{Value, json};

use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::wave_recording::WaveRecording;
use crate::{script, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// A date and time of day, this many seconds from now.
fn date(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = format!("@{}", now + seconds);
    let printed = Command::new("date").args(["-u", "-d", &at, "+%Y-%m-%d %H:%M:%S"]).output();
    String::from_utf8(printed.unwrap().stdout).unwrap().trim().to_owned()
}

fn station(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0].clone()
}

/// Records the station in WAVE until the condition holds.
fn record(server: &AulosServer, mut ends: impl FnMut() -> bool) -> Vec<i16> {
    let recording = WaveRecording::start(server.http, "default");
    while !ends() {
        std::thread::sleep(Duration::from_millis(10));
    }
    recording.left()
}

#[test]
fn an_entry_of_a_reload_lasts_for_its_frames() {
    retry_after_stall("schedule::an_entry_of_a_reload_lasts_for_its_frames", || {
        let _turn = shared_turn();
        let scratch = ScratchDir::new("schedule").unwrap();
        let config = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\ntimezone = \"UTC\"\n\
                      sources = [\"tone://?hz=250&dbfs=-30\", \
                      { uri = \"tone://?hz=1000&dbfs=-6\", name = \"news\" }]\n\
                      switch = { crossfade_ms = 0 }\n";
        let server = AulosServer::start(&scratch, config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let entry = format!("{{ at = \"{}\", for = \"2s\", source = \"news\" }}", date(4));
        let scheduled = format!("{config}schedule = [{entry}]\n");
        std::fs::write(scratch.join("aulos.toml"), scheduled).unwrap();
        let reloaded = rpc.call("Aulos.Reload", &Value::Null);
        assert_eq!(reloaded["adjusted"], json!(["default"]), "{reloaded}");
        let mut active = Vec::new();
        let sound = record(&server, || {
            let station = station(&mut rpc);
            let now = (station["active"].clone(), station["schedule"]["active"]["source"].clone());
            if active.last() != Some(&now) {
                active.push(now);
            }
            station["switch"]["switches"]["schedule"] == 2
        });
        // What the connection still holds does not matter: the end of the entry has been sent.
        let loud = |sample: &&i16| sample.unsigned_abs() > 3_000;
        let first = sound.iter().position(|sample| loud(&sample)).unwrap();
        let last = sound.iter().rposition(|sample| loud(&sample)).unwrap();
        println!("{} frames of the entry, active: {active:?}", last - first);
        // The ends lie within a millisecond: the sine begins and ends near zero, its resampler has
        // a delay, and the wall clock is followed.
        assert!((last - first).abs_diff(2 * RATE) < RATE / 500, "{}", last - first);
        assert!(active.contains(&(json!("news"), json!("news"))), "{active:?}");
        let kind = json!({ "kind": "schedule" });
        let events = rpc.call("Aulos.GetEvents", &kind).to_string();
        assert!(events.contains("news is scheduled until"), "{events}");
        wait_for("the end of the entry", PATIENCE, || {
            station(&mut rpc)["schedule"]["active"].is_null()
        });
        server.stop().unwrap();
    });
}

#[test]
fn a_dead_scheduled_source_is_replaced_and_comes_back_within_its_time() {
    retry_after_stall("schedule::a_dead_scheduled_source_is_replaced_and_comes_back", || {
        let _turn = shared_turn();
        let scratch = ScratchDir::new("schedule").unwrap();
        let (program, works) = (scratch.join("news"), scratch.join("works"));
        let body = format!("[ -e {} ] || exit 1\nexec yes abcdefg", text(&works));
        script(&program, &format!("#!/bin/sh\n{body}\n"));
        let config = format!(
            "[[station]]\nname = \"default\"\ntimezone = \"UTC\"\n\
             sources = [{{ uri = \"tone://\", name = \"music\" }}, \
             {{ uri = \"process://{}\", name = \"news\" }}]\n\
             switch = {{ failback_delay_s = 1 }}\n\
             schedule = [{{ at = \"{}\", for = \"7d\", source = \"news\" }}]\n",
            text(&program),
            date(0)
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        wait_for("the fallback", PATIENCE, || station(&mut rpc)["active"] == "music");
        // The server began within the entry.
        assert_eq!(station(&mut rpc)["schedule"]["active"]["source"], "news");
        std::fs::write(&works, "").unwrap();
        wait_for("the scheduled source", PATIENCE, || station(&mut rpc)["active"] == "news");
        rpc.call("Aulos.SetSource", &json!({ "station": "default", "source": "music" }));
        wait_for("the preference", PATIENCE, || station(&mut rpc)["active"] == "music");
        rpc.call("Aulos.SetSource", &json!({ "station": "default", "source": "auto" }));
        wait_for("the schedule", PATIENCE, || station(&mut rpc)["active"] == "news");
        server.stop().unwrap();
    });
}

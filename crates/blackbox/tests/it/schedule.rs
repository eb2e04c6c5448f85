//! The built server with entries that begin in a moment.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::RATE;
use serde_json::{Value, json};

use crate::mounts::{MountListener, check_frames, complaints, on_air, tone_file};
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
    // The last chunk of it is counted before it is sent.
    std::thread::sleep(Duration::from_millis(500));
    recording.left()
}

/// Frames from the first to the last of the loud source. What the connection still held does not
/// matter: the end has been sent.
fn loud_frames(sound: &[i16]) -> usize {
    let is_loud = |sample: &i16| sample.unsigned_abs() > 3_000;
    let first = sound.iter().position(is_loud).unwrap();
    sound.iter().rposition(is_loud).unwrap() - first
}

/// A quiet source and a loud one.
const TWO_TONES: &str = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\ntimezone = \"UTC\"\n\
                         sources = [\"tone://?hz=250&dbfs=-30\", \
                         { uri = \"tone://?hz=1000&dbfs=-6\", name = \"news\" }]\n\
                         switch = { crossfade_ms = 0 }\n";

#[test]
fn an_entry_of_a_reload_lasts_for_its_frames() {
    retry_after_stall("schedule::an_entry_of_a_reload_lasts_for_its_frames", || {
        let _turn = shared_turn();
        let scratch = ScratchDir::new("schedule").unwrap();
        let server = AulosServer::start(&scratch, TWO_TONES).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let entry = format!("{{ at = \"{}\", for = \"2s\", source = \"news\" }}", date(4));
        let scheduled = format!("{TWO_TONES}schedule = [{entry}]\n");
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
        let frames = loud_frames(&sound);
        println!("{frames} frames of the entry, active: {active:?}");
        // The ends lie within a millisecond: the sine begins and ends near zero, its resampler has
        // a delay, and the wall clock is followed.
        assert!(frames.abs_diff(2 * RATE) < RATE / 500, "{frames}");
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
fn a_switch_by_call_lasts_for_its_frames_and_a_cancelled_one_never_begins() {
    retry_after_stall("schedule::a_switch_by_call_lasts_for_its_frames", || {
        let _turn = shared_turn();
        let scratch = ScratchDir::new("switch-at").unwrap();
        let server = AulosServer::start(&scratch, TWO_TONES).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let mut order = |from: f64, until: f64| {
            let params =
                json!({ "station": "default", "source": "news", "in_s": from, "for_s": until });
            rpc.call("Aulos.SwitchAt", &params)
        };
        let (answer, other) = (order(2.0, 2.0), order(3_600.0, 60.0));
        assert_eq!((&answer["source"], &answer["station"]), (&json!("news"), &json!("default")));
        let place = json!({ "station": "default" });
        let ids = |rpc: &mut Rpc| {
            let all = rpc.call("Aulos.GetSwitches", &place)["switches"].clone();
            all.as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&mut rpc), [answer["id"].clone(), other["id"].clone()]);
        let cancel = json!({ "station": "default", "id": other["id"] });
        rpc.call("Aulos.CancelSwitch", &cancel);
        assert_eq!(ids(&mut rpc), [answer["id"].clone()]);
        assert!(rpc.answer("Aulos.CancelSwitch", &cancel).get("error").is_some());
        let sound = record(&server, || station(&mut rpc)["switch"]["switches"]["schedule"] == 2);
        let frames = loud_frames(&sound);
        assert!(frames.abs_diff(2 * RATE) < RATE / 500, "{frames}");
        wait_for("the end of the switch", PATIENCE, || ids(&mut rpc).is_empty());
        server.stop().unwrap();
    });
}

#[test]
fn a_mount_has_a_schedule_and_its_frames_are_passed_all_the_time() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let Some(mpg123) = find_or_skip("mpg123") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mount-schedule").unwrap();
    let files = [(300, "-b:a 128k"), (700, "-b:a 128k")]
        .map(|(hz, arguments)| tone_file(&ffmpeg, &scratch, hz, arguments));
    let uri = |file: &Path| format!("file://{}?loop=true", text(file));
    let config = format!(
        "[[mount]]\nname = \"live.mp3\"\ntimezone = \"UTC\"\nsources = [\
             {{ name = \"music\", uri = \"{}\" }}, {{ name = \"news\", uri = \"{}\" }}]\n\
             schedule = [{{ at = \"{}\", for = \"3s\", source = \"news\" }}]\n",
        uri(&files[0]),
        uri(&files[1]),
        date(5)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("the first source", PATIENCE, || on_air(&mut rpc) == ("music".to_owned(), true));
    let (mut listener, head) = MountListener::connect(server.http, "/live.mp3", "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for source in ["news", "music"] {
        listener.read_until(source, || on_air(&mut rpc) == (source.to_owned(), true));
    }
    listener.read_for(Duration::from_secs(1));
    check_frames(&listener.bytes, &files, [60, 60, 0]);
    assert_eq!(complaints(&ffmpeg, &mpg123, &listener.bytes, &scratch), "");
    server.stop().unwrap();
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

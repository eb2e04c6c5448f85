//! Which source a station plays: preferences by the control API, what everybody hears of it, and
//! what is heard when nothing is left.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Playing, Server, eventually, resolve, scratch, wave};
use aulos_control::backend::{InputChange, SwitchCause};
use aulos_core::Span;
use serde_json::{Value, json};

fn config(station: &str) -> String {
    format!("[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n[[station]]\nname = \"hall\"\n{station}")
}

#[test]
fn a_preference_names_a_source_for_a_time_or_until_it_is_cancelled() {
    let server = Server::start();
    let mut caller = server.controller();
    let mut set = |params: Value| caller.call("Aulos.SetSource", params);
    let answer = set(json!({ "station": "default", "source": "demo", "for_s": 1.5 }));
    let expected = json!({ "station": "default", "source": "demo", "for_s": 1.5 });
    assert_eq!(answer["result"], expected);
    set(json!({ "station": "default", "source": 0 }));
    for free in [Value::Null, json!("auto")] {
        let answer = set(json!({ "station": "default", "source": free, "for_s": 3 }));
        let expected = json!({ "station": "default", "source": null, "for_s": null });
        assert_eq!(answer["result"], expected);
    }
    let preferences = server.backend.preferences.lock().unwrap().clone();
    let span = Some(Span::from_millis(1_500));
    assert_eq!(preferences, [(0, Some((1, span))), (0, Some((0, None))), (0, None), (0, None)]);
    for wrong in [
        json!({ "station": "default", "source": "nobody" }),
        json!({ "station": "default", "source": 2 }),
        json!({ "station": "default", "source": -1 }),
        json!({ "station": "default", "source": "demo", "for_s": 0 }),
        json!({ "station": "default", "source": "demo", "for_s": "long" }),
    ] {
        assert_eq!(set(wrong.clone())["error"]["code"], -32_602, "{wrong}");
    }
    assert_eq!(set(json!({ "station": "nowhere" }))["error"]["code"], -32_603);
    assert_eq!(server.backend.preferences.lock().unwrap().len(), 4);
}

#[test]
fn each_change_of_source_is_notified_by_name() {
    let server = Server::start();
    let (mut one, mut other) = (server.controller(), server.controller());
    for controller in [&mut one, &mut other] {
        controller.call("Aulos.GetInfo", json!({}));
    }
    server.backend.switches.lock().unwrap().extend([
        (0, InputChange { from: Some(1), to: Some(0), cause: SwitchCause::Better }),
        (0, InputChange { from: Some(0), to: None, cause: SwitchCause::Late }),
        (7, InputChange { from: None, to: None, cause: SwitchCause::Late }),
    ]);
    for controller in [&mut one, &mut other] {
        for (from, to, cause) in
            [(json!("demo"), json!("pipe"), "better"), (json!("pipe"), Value::Null, "late")]
        {
            let notice = controller.notice_of("Aulos.OnSwitch");
            let expected = json!({ "station": "default", "from": from, "to": to, "cause": cause });
            assert_eq!(notice["params"], expected);
        }
    }
}

#[test]
fn a_playing_station_follows_commands_and_reports_them() {
    let server = Playing::start(resolve(&config(
        "sources = [\"tone://?hz=400\", \"tone://?hz=900&name=second\"]",
    )));
    let mut caller = server.controller();
    let station = |caller: &mut crate::common::Controller| {
        caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone()
    };
    eventually(|| station(&mut caller)["active"] == "tone");
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": "second", "for_s": 600 }));
    eventually(|| station(&mut caller)["active"] == "second");
    let shown = station(&mut caller);
    assert_eq!(shown["switch"]["preferred"], "second");
    assert_eq!(shown["switch"]["cause"], "manual");
    assert!(shown["switch"]["preferred_for_s"].as_f64().unwrap() > 400.0, "{}", shown["switch"]);
    assert_eq!(shown["sources"][1]["health"]["state"], "healthy");
    assert_eq!(
        shown["latency_ms"],
        json!({ "input": 0, "look_ahead": 0, "client": 1_000, "total": 1_000 })
    );
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": "auto" }));
    eventually(|| station(&mut caller)["active"] == "tone");
    let switches = &station(&mut caller)["switch"]["switches"];
    assert_eq!((&switches["manual"], &switches["better"]), (&json!(1), &json!(1)), "{switches}");
}

#[test]
fn the_last_resort_plays_from_memory_without_a_gap() {
    let folder = scratch();
    let file = folder.join("resort.wav");
    // A third of a second, over and over: a constant, so that a seam would be heard.
    std::fs::write(&file, wave(&[8_192; 16_000])).unwrap();
    let fifo = folder.join("in.fifo");
    let server = Playing::start(resolve(&config(&format!(
        "codec = \"pcm\"\nsources = [\"pipe://{}\"]\nswitch = {{ last_resort = \"file://{}\" }}",
        fifo.display(),
        file.display()
    ))));
    std::fs::remove_file(&file).unwrap();
    let mut sound = server.listen("hall");
    sound.samples(2 * 4_800);
    let samples = sound.samples(2 * 96_000);
    assert!(samples.iter().all(|sample| (sample - 0.25).abs() < 0.001), "{:?}", &samples[..8]);
    let mut caller = server.controller();
    let status = caller.call("Aulos.GetStatus", json!({}));
    let shown = &status["result"]["stations"][0]["switch"];
    assert_eq!((&shown["output"], &shown["dead_air_ms"]), (&json!("last resort"), &json!(0)));
    assert!(shown["last_resort_ms"].as_i64().unwrap() >= 1_900, "{shown}");
}

#[test]
fn a_cold_standby_process_runs_only_while_needed() {
    let folder = scratch();
    let (mark, fifo) = (folder.join("ran"), folder.join("in.fifo"));
    let program = folder.join("program");
    crate::common::script(&program, &format!("echo x >> {}\nexec cat /dev/zero", mark.display()));
    let sources = |first: &str| {
        format!(
            "sources = [\"{first}\", {{ uri = \"process://{}\", standby = \"cold\" }}]\n\
             silence = {{ for_s = 80000 }}",
            program.display()
        )
    };
    let server = Playing::start(resolve(&config(&sources("demo://"))));
    let mut caller = server.controller();
    let health = |caller: &mut crate::common::Controller| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        status["result"]["stations"][0]["sources"][1]["health"]["state"].clone()
    };
    eventually(|| health(&mut caller) == "disabled");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!mark.exists(), "it was started without need");
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": 1 }));
    eventually(|| mark.exists() && health(&mut caller) == "healthy");
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": null }));
    eventually(|| health(&mut caller) == "disabled");
    drop(server);
    let first = format!("pipe://{}", fifo.display());
    let server = Playing::start(resolve(&config(&sources(&first))));
    let mut caller = server.controller();
    eventually(|| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        status["result"]["stations"][0]["active"] == "process"
    });
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "x\nx\n");
}

#[test]
fn cold_standby_web_radio_is_connected_only_while_needed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Arc::new(AtomicUsize::new(0));
    let listeners = Arc::clone(&open);
    std::thread::spawn(move || {
        for mut socket in listener.incoming().take(8).flatten() {
            let listeners = Arc::clone(&listeners);
            std::thread::spawn(move || {
                listeners.fetch_add(1, Ordering::Relaxed);
                let head = b"HTTP/1.0 200 OK\r\nContent-Type: audio/wav\r\n\r\n";
                // Sound without an end, as fast as it is taken.
                let mut sent = socket.write_all(head);
                let sound = wave(&[8_192; 48_000]);
                sent = sent.and_then(|()| socket.write_all(ENDLESS));
                while sent.is_ok() {
                    sent = socket.write_all(&sound[44..]);
                }
                listeners.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    let server = Playing::start(resolve(&config(&format!(
        "sources = [\"demo://\", {{ uri = \"http://127.0.0.1:{port}/\", standby = \"cold\" }}]\n\
         silence = {{ dc = false }}"
    ))));
    let mut caller = server.controller();
    let station = |caller: &mut crate::common::Controller| {
        caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone()
    };
    eventually(|| station(&mut caller)["sources"][1]["radio"]["phase"] == "resting");
    assert_eq!(station(&mut caller)["sources"][1]["radio"]["connects"], 0);
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": 1 }));
    eventually(|| station(&mut caller)["active"] == "http");
    assert_eq!(open.load(Ordering::Relaxed), 1);
    caller.call("Aulos.SetSource", json!({ "station": "hall", "source": null }));
    eventually(|| open.load(Ordering::Relaxed) == 0);
    eventually(|| station(&mut caller)["sources"][1]["radio"]["phase"] == "resting");
    let shown = station(&mut caller)["sources"][1].clone();
    assert_eq!((&shown["radio"]["connects"], &shown["radio"]["failures"]), (&json!(1), &json!(0)));
    assert_eq!(shown["health"]["standby"], "cold", "{shown}");
}

/// The head of a WAVE file without an end: one channel of 16 bits at 48 kHz.
const ENDLESS: &[u8] =
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\
    \x02\0\x10\0data\xff\xff\xff\xff";

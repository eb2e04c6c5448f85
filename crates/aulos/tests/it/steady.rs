//! A station that is normalized: what a configuration and calls change, and what listeners hear.

use std::process::Command;

use aulos_config::ResolvedConfig;

use crate::common::{
    ANY_PORTS, Listening, Playing, Server, TWO_STATIONS, eventually, resolve, scratch, wave,
};
use serde_json::{Value, json};

/// Integrated loudness and true peak of stereo at 48 kHz, by ffmpeg.
fn judge(samples: &[f32]) -> (f64, f64) {
    let folder = scratch();
    let file = folder.join("heard.f32");
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostats", "-f", "f32le", "-ar", "48000", "-ac", "2", "-i"])
        .arg(&file)
        .args(["-af", "ebur128=peak=true", "-f", "null", "-"])
        .output()
        .expect("ffmpeg: see scripts/test-setup");
    std::fs::remove_dir_all(folder).unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = text.rsplit("Summary:").next().unwrap();
    let number = |name: &str| {
        let behind = summary.split(name).nth(1).expect("a summary").trim_start();
        behind.split_whitespace().next().unwrap().parse().unwrap()
    };
    (number("I:"), number("Peak:"))
}

/// The next seconds of a station.
fn seconds(sound: &mut Listening, count: usize) -> Vec<f32> {
    sound.samples(2 * 48_000 * count)
}

fn tone(normalize: &str) -> String {
    format!(
        "{ANY_PORTS}[[station]]\nname = \"hall\"\ncodec = \"pcm\"\n\
         sources = [\"tone://?dbfs=-30\"]\n{normalize}\n"
    )
}

fn greatest_step(samples: &[f32]) -> f32 {
    let left = samples.chunks_exact(2).map(|frame| frame[0]).collect::<Vec<_>>();
    left.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max)
}

#[test]
fn configured_normalization_applies_and_changes_while_playing() {
    let text = tone("normalize = { target = -24.0, mode = \"low\" }");
    let resolved = resolve(&text);
    let server = Playing::start(resolved.clone());
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    // 6 dB at 3 to 6 dB a second.
    seconds(&mut sound, 4);
    let (lufs, _) = judge(&seconds(&mut sound, 3));
    assert!((lufs + 24.0).abs() <= 0.5, "{lufs}");
    let status = |caller: &mut crate::common::Controller| {
        caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone()
    };
    let shown = status(&mut caller);
    assert_eq!(
        (&shown["normalize"]["target"], &shown["normalize"]["mode"]),
        (&json!(-24.0), &json!("low"))
    );
    let steady = &shown["normalizer"];
    assert_eq!((&steady["latency_frames"], &steady["latency_ms"]), (&json!(480), &json!(10.0)));
    let gain = steady["gain_db"].as_f64().unwrap();
    assert!((gain - 6.0).abs() < 0.6, "{steady}");
    assert!((steady["input"]["short_term_lufs"].as_f64().unwrap() + 30.0).abs() < 0.2, "{steady}");
    assert_eq!((&steady["clamped"], &steady["rejected"]), (&json!(0), &json!(0)));
    let chunks = |caller: &mut crate::common::Controller| {
        let counters = caller.call("Aulos.GetStatus", json!({}))["result"]["counters"].clone();
        (counters["timeline_stalls"].clone(), counters["chunks_made"].as_u64().unwrap())
    };
    let before = chunks(&mut caller);

    // A call.
    let call = json!({ "station": "hall", "normalize": { "target": -30 } });
    let answer = caller.call("Aulos.SetNormalize", call)["result"].clone();
    assert_eq!(
        (&answer["normalize"]["target"], &answer["normalize"]["mode"]),
        (&json!(-30.0), &json!("low"))
    );
    let changing = seconds(&mut sound, 4);
    assert!(greatest_step(&changing) < 0.0631 * 0.14, "a click");
    let (lufs, _) = judge(&seconds(&mut sound, 2));
    // What was too loud on the way is made up for, by less than 1 LU.
    assert!((lufs + 30.0).abs() <= 1.0, "{lufs}");
    // A comparison: at one gain, and no step either way.
    caller.call("Aulos.SetCompare", json!({ "station": "hall", "compare": true }));
    let compared = seconds(&mut sound, 3);
    assert!(greatest_step(&compared) < 0.0631 * 0.14, "a click");
    assert_eq!(status(&mut caller)["normalizer"]["compare"], true);
    // A reload: the file says something else, and the listener stays.
    server.next(ResolvedConfig {
        state_dir: resolved.state_dir,
        ..resolve(&tone("normalize = \"a85\"\nequalizer = [{ type = \"notch\", hz = 997 }]"))
    });
    let reloaded = caller.call("Aulos.Reload", json!({}))["result"].clone();
    assert_eq!((&reloaded["adjusted"], &reloaded["changed"]), (&json!(["hall"]), &json!([])));
    assert_eq!(status(&mut caller)["normalize"]["mode"], "full");
    // The tone is notched out; what is left of it is not made louder by more than 20 dB.
    seconds(&mut sound, 2);
    let rest = seconds(&mut sound, 1);
    assert!(rest.iter().all(|sample| sample.abs() < 0.001), "the tone");
    let after = chunks(&mut caller);
    assert!(after.1 > before.1 && after.0 == before.0);
}

#[test]
fn an_announcement_over_a_loud_programme_keeps_the_ceiling() {
    let folder = scratch();
    let mut seed = 1_u32;
    let noise: Vec<i16> = (0..48_000 * 20)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i16::try_from(seed.cast_signed() >> 17).unwrap()
        })
        .collect();
    std::fs::write(folder.join("loud.wav"), wave(&noise)).unwrap();
    let bell: Vec<i16> =
        (0..48_000).map(|n| if n / 30 % 2 == 0 { 32_000 } else { -32_000 }).collect();
    std::fs::write(folder.join("bell.wav"), wave(&bell)).unwrap();
    let folder = folder.to_str().unwrap();
    let text = format!(
        "{ANY_PORTS}[streams]\nroots = [\"{folder}\"]\n[[station]]\nname = \"hall\"\n\
         codec = \"pcm\"\nsources = [\"file://{folder}/loud.wav?loop=true\"]\n\
         normalize = {{ target = -6, true_peak = -3, mode = \"mid\" }}\n"
    );
    let server = Playing::start(resolve(&text));
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    let uri = format!("file://{folder}/bell.wav");
    let mut heard = seconds(&mut sound, 2);
    let params = json!({ "station": "hall", "uri": uri, "duck_db": -6 });
    assert_eq!(caller.call("Aulos.Announce", params)["result"]["id"], 1);
    heard.extend(seconds(&mut sound, 3));
    let (_, peak) = judge(&heard);
    assert!((-4.0..=-2.9).contains(&peak), "{peak}");
}

#[test]
fn invalid_settings_are_reported_and_valid_ones_notified() {
    let server = Server::of(resolve(&format!(
        "{TWO_STATIONS}normalize = {{ target = -20 }}\nequalizer = [{{ type = \"notch\", hz = 50 }}]\n"
    )));
    let (mut caller, mut other) = (server.controller(), server.controller());
    other.call("Server.GetRPCVersion", json!({}));
    let station = "kitchen radio";
    let get = |caller: &mut crate::common::Controller, what: &str| {
        caller.call(&format!("Aulos.Get{what}"), json!({ "station": station }))["result"].clone()
    };
    assert_eq!(get(&mut caller, "Normalize")["normalize"]["target"], -20.0);
    assert_eq!(get(&mut caller, "Equalizer")["equalizer"][0]["hz"], 50.0);
    for (method, params, why) in [
        ("SetNormalize", json!({ "station": station, "normalize": { "target": 3 } }), "-70 to -5"),
        ("SetNormalize", json!({ "station": station, "normalize": { "mode": "fast" } }), "mid"),
        ("SetNormalize", json!({ "station": station, "normalize": "r182" }), "did you mean `r128`"),
        ("SetNormalize", json!({ "station": station, "normalize": { "loud": 1 } }), "unknown key"),
        (
            "SetNormalize",
            json!({ "station": station, "normalize": { "dual_mono": true } }),
            "one channel",
        ),
        ("SetNormalize", json!({ "station": station, "normalize": [1] }), "a list"),
        ("SetNormalize", json!({ "station": station }), "`normalize`"),
        ("SetNormalize", json!({ "station": "attic", "normalize": true }), "no station `attic`"),
        ("SetEqualizer", json!({ "station": station, "equalizer": [{ "hz": 5 }] }), "no `type`"),
        ("SetEqualizer", json!({ "station": station, "equalizer": {} }), "must be a list"),
        ("SetEqualizer", json!({ "station": station }), "`equalizer`"),
        ("SetCompare", json!({ "station": "default", "compare": true }), "nothing to compare"),
        ("SetCompare", json!({ "station": station, "compare": 1 }), "true or false"),
    ] {
        let error = caller.call(&format!("Aulos.{method}"), params.clone())["error"].to_string();
        assert!(error.contains(why), "{method} {params}: {error}");
    }
    // Only what is given is another.
    let set = |caller: &mut crate::common::Controller, normalize: Value| {
        let params = json!({ "station": station, "normalize": normalize });
        caller.call("Aulos.SetNormalize", params)["result"]["normalize"].clone()
    };
    let answer = set(&mut caller, json!({ "true_peak": -2 }));
    assert_eq!((&answer["target"], &answer["true_peak"]), (&json!(-20.0), &json!(-2.0)));
    let heard = other.notice_of("Aulos.OnSoundChanged")["params"].clone();
    assert_eq!((&heard["station"], &heard["normalize"]), (&json!(station), &answer));
    assert_eq!(set(&mut caller, json!(false)), Value::Null);
    assert_eq!(other.notice_of("Aulos.OnSoundChanged")["params"]["normalize"], Value::Null);
    assert_eq!(set(&mut caller, json!("podcast"))["lra"], 5.0);
    let bands = json!([{ "type": "peaking", "hz": 100.0, "gain_db": -3.0, "q": 1.0 }]);
    let params = json!({ "station": station, "equalizer": bands });
    assert_eq!(caller.call("Aulos.SetEqualizer", params)["result"]["equalizer"], bands);
    assert_eq!(get(&mut other, "Equalizer")["equalizer"], bands);
    caller.call("Aulos.SetCompare", json!({ "station": station, "compare": true }));
    let compared = other.notice_of("Aulos.OnCompareChanged")["params"].clone();
    assert_eq!(compared, json!({ "station": station, "compare": true }));
}

#[test]
fn settings_of_a_call_last_until_the_configuration_changes_them() {
    let file = |target: f64| format!("{TWO_STATIONS}normalize = {{ target = {target:?} }}\n");
    let target = |server: &Server| {
        let params = json!({ "station": "kitchen radio" });
        server.controller().call("Aulos.GetNormalize", params)["result"]["normalize"]["target"]
            .clone()
    };
    let first = resolve(&file(-20.0));
    let of = |text: &str| ResolvedConfig { state_dir: first.state_dir.clone(), ..resolve(text) };
    let server = Server::of(first.clone());
    let params = json!({ "station": "kitchen radio", "normalize": { "target": -14 } });
    server.controller().call("Aulos.SetNormalize", params.clone());
    let path = first.state_dir.join("server.json");
    eventually(|| std::fs::read_to_string(&path).is_ok_and(|text| text.contains("\"Sounds\"")));
    server.stop();
    // The same file: the call holds, also over a reload that changes something else.
    let server = Server::of(of(&file(-20.0)));
    assert_eq!(target(&server), -14.0);
    *server.next.lock().unwrap() =
        Ok(of(&file(-20.0).replace("buffer_ms = 400", "buffer_ms = 500")));
    let reload =
        |server: &Server| server.controller().call("Aulos.Reload", json!({}))["result"].clone();
    assert_eq!(reload(&server)["changed"], json!(["kitchen radio"]));
    assert_eq!(target(&server), -14.0);
    // Another one: it holds.
    *server.next.lock().unwrap() =
        Ok(of(&file(-18.0).replace("buffer_ms = 400", "buffer_ms = 500")));
    assert_eq!(reload(&server)["adjusted"], json!(["kitchen radio"]));
    assert_eq!(target(&server), -18.0);
    server.controller().call("Aulos.SetNormalize", params);
    server.stop();
    let server = Server::of(of(&file(-16.0)));
    assert_eq!(target(&server), -16.0);
    // And back to what the file says is nothing to keep.
    let back =
        |target: f64| json!({ "station": "kitchen radio", "normalize": { "target": target } });
    server.controller().call("Aulos.SetNormalize", back(-10.0));
    server.controller().call("Aulos.SetNormalize", back(-16.0));
    server.stop();
    assert!(!std::fs::read_to_string(&path).unwrap().contains("Sounds"));
}

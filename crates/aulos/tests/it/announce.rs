//! Announcements in a server that plays: what controllers hear, and what listeners do.

use aulos_io::SystemClock;

use crate::common::{
    Controller, Heard, Listening, Playing, Room, eventually, resolve, scratch, wave, waves,
};
use serde_json::json;

fn config(roots: &str) -> String {
    format!(
        r#"
        [listen]
        stream = 0
        control = 0
        http = 0
        [streams]
        roots = ["{roots}"]
        [[station]]
        name = "hall"
        codec = "pcm"
        sources = ["tone://?dbfs=-40"]
        "#
    )
}

#[test]
fn an_announcement_plays_over_the_programme_and_is_notified() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 14_400])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let (mut caller, mut other) = (server.controller(), server.controller());
    let mut sound = server.listen("hall");
    let uri = format!("file://{}/bell.wav", folder.display());
    assert!(sound.samples(9_600).iter().all(|sample| sample.abs() < 0.02), "the tone alone");
    let params = json!({ "station": "hall", "uri": uri, "duck_db": -20 });
    let answer = caller.call("Aulos.Announce", params.clone());
    assert_eq!(answer["result"], json!({ "id": 1, "station": "hall", "before": 0 }));
    assert_eq!(caller.call("Aulos.Announce", params)["result"]["before"], 1);
    let status = other.call("Aulos.GetStatus", json!({}));
    let shown = &status["result"]["stations"][0]["announcements"];
    assert_eq!(shown.as_array().unwrap().len(), 2, "{shown}");
    assert_eq!((&shown[1]["id"], &shown[1]["duck_db"]), (&json!(2), &json!(-20.0)));

    // 0.5 beside a programme that is lowered by 20 dB: nine tenths of it are left.
    let said = |samples: &[f32]| samples.iter().filter(|sample| **sample > 0.4).count();
    let (mut heard, mut loudest) = (0, 0.0f32);
    while heard < 2 * 2 * 14_000 {
        let samples = sound.samples(1_920);
        heard += said(&samples);
        loudest = samples.into_iter().fold(loudest, f32::max);
    }
    assert!((loudest - 0.45).abs() < 0.01, "{loudest}");
    for controller in [&mut caller, &mut other] {
        for (id, state) in [(1, "began"), (1, "ended"), (2, "began"), (2, "ended")] {
            let notice = controller.notice_of("Aulos.OnAnnouncement")["params"].clone();
            assert_eq!((&notice["id"], &notice["state"]), (&json!(id), &json!(state)));
            assert_eq!((&notice["station"], &notice["uri"]), (&json!("hall"), &json!(uri)));
        }
    }
    let status = other.call("Aulos.GetStatus", json!({}));
    assert_eq!(status["result"]["stations"][0]["announcements"], json!([]));
}

#[test]
fn an_unplayable_announcement_has_a_reason_and_a_cancelled_one_ends() {
    let folder = scratch();
    std::fs::write(folder.join("noise.wav"), [7; 5_000]).unwrap();
    std::fs::write(folder.join("long.wav"), wave(&vec![1_000; 48_000 * 60])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let mut announce = |file: &str| {
        let uri = format!("file://{}/{file}", folder.display());
        caller.call("Aulos.Announce", json!({ "station": "hall", "uri": uri }))["result"]["id"]
            .as_u64()
            .unwrap()
    };
    let (noise, gone, long) = (announce("noise.wav"), announce("gone.wav"), announce("long.wav"));
    let mut ended = |id: u64| loop {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["state"] == "began" {
            assert_eq!(notice["id"], long);
            let cancelled = caller.call("Aulos.CancelAnnouncement", json!({ "station": "hall" }));
            assert_eq!(cancelled["result"], json!({ "cancelled": [long] }));
        } else {
            assert_eq!(notice["id"], id);
            return notice;
        }
    };
    assert!(ended(noise)["reason"].as_str().unwrap().contains("not an audio file"));
    assert!(ended(gone)["reason"].as_str().unwrap().contains("no such file"));
    assert_eq!(ended(long)["cause"], "cancelled");
    let nothing = caller.call("Aulos.CancelAnnouncement", json!({ "id": long }));
    assert_eq!(nothing["result"], json!({ "cancelled": [] }));
}

#[test]
fn a_volume_lowers_the_announcement_alone() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 14_400])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    let uri = format!("file://{}/bell.wav", folder.display());
    let params = json!({ "station": "hall", "uri": uri, "duck_db": -20, "volume": 50 });
    caller.call("Aulos.Announce", params);
    let (mut heard, mut loudest) = (0, 0.0f32);
    while heard < 2 * 14_000 {
        let samples = sound.samples(1_920);
        heard += samples.iter().filter(|sample| **sample > 0.05).count();
        loudest = samples.into_iter().fold(loudest, f32::max);
    }
    // 0.45 without it; 12.4 dB below that, and the tone.
    assert!((loudest - 0.108).abs() < 0.004, "{loudest}");
}

#[test]
fn one_that_waits_is_replaced_by_its_key_and_one_that_plays_is_not() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[1_000; 96_000])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let uri = format!("file://{}/bell.wav", folder.display());
    let announce = |caller: &mut Controller, key: &str| {
        let params = json!({ "station": "hall", "uri": uri, "key": key });
        assert!(caller.call("Aulos.Announce", params)["result"]["id"].is_u64());
    };
    announce(&mut caller, "door");
    assert_eq!(caller.notice_of("Aulos.OnAnnouncement")["params"]["state"], "began");
    for key in ["door", "door", "phone", "door"] {
        announce(&mut caller, key);
    }
    let mut causes = std::collections::BTreeMap::new();
    while causes.len() < 5 {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["state"] == "ended" {
            causes.insert(notice["id"].as_u64().unwrap(), notice["cause"].clone());
        }
    }
    let expected = [(1, "played"), (2, "replaced"), (3, "replaced"), (4, "played"), (5, "played")];
    assert_eq!(causes, expected.map(|(id, cause)| (id, json!(cause))).into());
}

#[test]
fn a_chime_or_another_sound_comes_before_an_announcement() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 14_400])).unwrap();
    std::fs::write(folder.join("gong.wav"), wave(&[-16_384; 9_600])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let mut sound = server.listen("hall");
    let file = |name: &str| format!("file://{}/{name}", folder.display());
    let uri = file("bell.wav");
    for (more, chimes, gongs) in [
        (json!({ "chime": true }), true, false),
        (json!({ "before": file("gong.wav") }), false, true),
        // One that is not there is left out.
        (json!({ "before": file("none.wav") }), false, false),
    ] {
        let mut params = json!({ "station": "hall", "uri": uri, "duck_db": -20 });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert!(caller.call("Aulos.Announce", params.clone())["result"]["id"].is_u64());
        let (mut before, mut heard) = (Vec::new(), 0);
        // Nine tenths of a half.
        let bells = |samples: &[f32]| {
            samples.iter().filter(|sample| (**sample - 0.45).abs() < 0.01).count()
        };
        while heard < 2 * 14_000 {
            let samples = sound.samples(1_920);
            let bells = bells(&samples);
            if heard == 0 {
                before.extend(samples.iter().copied());
            }
            heard += bells;
        }
        let low = before.iter().filter(|sample| (**sample + 0.45).abs() < 0.01).count();
        let notes = before.iter().filter(|sample| (0.05..0.4).contains(&sample.abs())).count();
        assert_eq!(
            (low > 2 * 9_000, notes > 2 * 9_600),
            (gongs, chimes),
            "{params}: {low} {notes}"
        );
        while bells(&sound.samples(1_920)) > 0 {}
        for state in ["began", "ended"] {
            assert_eq!(caller.notice_of("Aulos.OnAnnouncement")["params"]["state"], state);
        }
    }
    for (more, why) in [
        (json!({ "chime": true, "before": uri }), "left out where `chime` is true"),
        (json!({ "before": "file:///etc/hostname" }), "roots"),
        (json!({ "priority": 10 }), "from 0 to 9, not 10"),
    ] {
        let mut params = json!({ "station": "hall", "uri": uri });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = caller.call("Aulos.Announce", params.clone())["error"].to_string();
        assert!(error.contains(why), "{params}: {error}");
    }
}

#[test]
fn a_doorbell_interrupts_a_reading_and_a_reading_no_doorbell() {
    let folder = scratch();
    std::fs::write(folder.join("reading.wav"), wave(&vec![4_000; 48_000 * 60])).unwrap();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 48_000])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let announce = |caller: &mut Controller, file: &str, priority: u8| {
        let uri = format!("file://{}/{file}", folder.display());
        let params = json!({ "station": "hall", "uri": uri, "priority": priority, "key": file });
        let result = caller.call("Aulos.Announce", params)["result"].clone();
        (result["id"].as_u64().unwrap(), result["before"].as_u64().unwrap())
    };
    let notice = |caller: &mut Controller| {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        let what = notice["cause"].as_str().unwrap_or("began").to_owned();
        (notice["id"].as_u64().unwrap(), what)
    };
    let (reading, _) = announce(&mut caller, "reading.wav", 5);
    assert_eq!(notice(&mut caller), (reading, "began".to_owned()));
    let (bell, before) = announce(&mut caller, "bell.wav", 8);
    assert_eq!(before, 0);
    // Behind the bell; of two with the same key the newer one is played.
    let (replaced, before) = announce(&mut caller, "reading.wav", 5);
    assert!(before >= 1, "{before}");
    let (next, _) = announce(&mut caller, "reading.wav", 5);
    let mut ended = Vec::new();
    while ended.last() != Some(&(next, "began".to_owned())) {
        ended.push(notice(&mut caller));
    }
    ended.retain(|(_, what)| what != "began");
    ended.sort();
    let expected = [(reading, "interrupted"), (bell, "played"), (replaced, "replaced")];
    assert_eq!(ended, expected.map(|(id, what)| (id, what.to_owned())));
}

#[test]
fn the_end_is_notified_once_clients_have_heard_it() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 24_000])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "bedroom");
    while !matches!(room.hear(), Heard::Chunk(..)) {}
    let status = caller.call("Server.GetStatus", json!({}));
    let group = status["result"]["server"]["groups"][0]["id"].as_str().unwrap().to_owned();
    let uri = format!("file://{}/bell.wav", folder.display());
    caller.call("Aulos.Announce", json!({ "group": group, "uri": uri }));
    let is_loud = |sound: &[u8]| {
        let samples = sound.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
        samples.into_iter().any(|sample| sample > 8_000)
    };
    let mut times = Vec::new();
    loop {
        let Heard::Chunk(at, sound) = room.hear() else { continue };
        if is_loud(&sound) {
            times.push(at);
        } else if !times.is_empty() {
            break;
        }
    }
    // A chunk is played a buffer, here a second, after its time.
    let now = || i64::try_from(SystemClock::now().as_nanos() / 1_000).unwrap();
    for (state, at) in [("began", times[0]), ("ended", times[times.len() - 1])] {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        assert_eq!(notice["state"], state);
        // The programme is ducked for 0.2 s before.
        let late = now() - (at + 1_000_000);
        assert!(late > if state == "began" { -300_000 } else { 0 }, "{state}: {late}");
        if state == "ended" {
            assert!(late < 2_000_000, "{late}");
            assert_eq!(notice["clients"], json!(["bedroom"]));
            assert_eq!(notice["group"], json!(group));
        }
    }
}

#[test]
fn what_a_call_must_not_have_opened_is_refused() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[0; 480])).unwrap();
    let server = Playing::start(resolve(&config(folder.to_str().unwrap())));
    let mut caller = server.controller();
    let good = format!("file://{}/bell.wav", folder.display());
    let looped = format!("{good}?loop=true");
    for (params, why) in [
        (json!({ "station": "hall", "uri": "file:///etc/hostname" }), "`streams.roots`"),
        (json!({ "station": "hall", "uri": "process:///bin/ls" }), "a file"),
        (json!({ "station": "hall", "uri": "tone://" }), "a file"),
        (json!({ "station": "hall", "uri": looped }), "ends"),
        (json!({ "station": "hall", "uri": "bell" }), "not a source"),
        (json!({ "station": "hall", "uri": good, "duck_db": -3 }), "-6"),
        (json!({ "station": "hall", "group": "x", "uri": good }), "only one of them"),
        (json!({ "uri": good }), "`station`"),
        (json!({ "station": "hall", "uri": good, "volum": 5 }), "did you mean `volume`?"),
        (json!({ "station": "hall", "uri": good, "volume": 0 }), "from 1 to 100, not 0"),
        (json!({ "station": "hall", "uri": good, "loudness_lufs": 1 }), "from -40 to -5, not 1"),
        (json!({ "station": "hall", "uri": good, "key": "k".repeat(129) }), "at most 128 bytes"),
        (json!({ "station": "hall" }), "`uri`"),
        (
            json!({ "station": "attic", "uri": good }),
            "there is no station `attic`; there is `hall`",
        ),
        (
            json!({ "group": "attic", "uri": good }),
            "`group`: there is no group `attic`; there are no groups",
        ),
        (
            json!({ "client": "attic", "uri": good }),
            "`client`: there is no client `attic`; there are no clients",
        ),
    ] {
        let error = caller.call("Aulos.Announce", params.clone())["error"].to_string();
        assert!(error.contains(why), "{params}: {error}");
    }
}

/// A station whose left channel is a quarter and whose right one is minus a half.
pub(crate) fn two_sides(folder: &std::path::Path, more: &str) -> aulos_config::ResolvedConfig {
    std::fs::write(folder.join("sides.wav"), waves(&[8_192, -16_384].repeat(48_000), 2)).unwrap();
    let source = format!("file://{}/sides.wav?loop=true", folder.display());
    let text = config(folder.to_str().unwrap()).replace("tone://?dbfs=-40", &source);
    resolve(&(text + "buffer_ms = 200\n" + more))
}

/// The next chunk: its time, and the first sample of each channel. Counts codec headers.
pub(crate) fn sides(room: &mut Room, headers: &mut usize) -> (i64, [i16; 2]) {
    loop {
        match room.hear() {
            Heard::Chunk(at, pcm) => {
                let samples = pcm.as_chunks::<2>().0;
                return (at, [0, 1].map(|at| i16::from_le_bytes(samples[at])));
            }
            Heard::Codec(_) => *headers += 1,
            Heard::Other(_) => {}
        }
    }
}

#[test]
fn a_client_with_one_channel_hears_its_announcement_in_it_and_others_hear_none() {
    let folder = scratch();
    std::fs::write(folder.join("bell.wav"), wave(&[16_384; 14_400])).unwrap();
    let server = Playing::start(two_sides(&folder, ""));
    let mut caller = server.controller();
    let (mut room, mut other) =
        (Room::enter(server.stream, "shelf"), Room::enter(server.stream, "sofa"));
    let map = json!({ "client": "shelf", "map": "left" });
    eventually(|| caller.call("Aulos.SetChannelMap", map.clone()).get("result").is_some());
    let (mut headers, mut others) = (0, 0);
    while sides(&mut room, &mut headers).1 != [8_192; 2] {}
    while sides(&mut other, &mut others).1 != [8_192, -16_384] {}
    let (before, uri) = (headers, format!("file://{}/bell.wav", folder.display()));
    let params = json!({ "client": "shelf", "uri": uri, "duck_db": -20 });
    assert!(caller.call("Aulos.Announce", params)["result"]["id"].is_u64());
    let status = caller.call("Aulos.GetStatus", json!({}));
    let shown = &status["result"]["stations"][0]["announcements"][0];
    assert_eq!((&shown["client"], &shown["group"]), (&json!("shelf"), &json!(null)));
    let (mut last, mut highest, mut up) = (0, 0, 0);
    // Until a second after it.
    while up < 50 {
        let (at, [left, right]) = sides(&mut room, &mut headers);
        assert!(left.abs_diff(right) < 4, "each is dithered: {left} {right}");
        assert!(last == 0 || (19_999..=20_001).contains(&(at - last)), "{last} {at}");
        (last, highest) = (at, highest.max(left));
        up = if highest > 8_192 && left == 8_192 { up + 1 } else { 0 };
    }
    // A tenth of the programme, and nine tenths of the half.
    assert!((15_500..15_600).contains(&highest), "{highest}");
    assert_eq!((headers, others), (before, 1), "no new codec header");
    assert_eq!(caller.notice_of("Aulos.OnAnnouncement")["params"]["state"], "began");
    assert_eq!(caller.notice_of("Aulos.OnAnnouncement")["params"]["cause"], "played");
    for _ in 0..100 {
        assert_eq!(sides(&mut other, &mut others).1, [8_192, -16_384]);
    }
    let maps = |status: &serde_json::Value| status["result"]["counters"]["channel_maps"].clone();
    assert_eq!(maps(&caller.call("Aulos.GetStatus", json!({}))), 1, "it still plays one channel");
}

#[test]
fn a_station_that_restarts_or_loses_its_group_ends_their_announcement() {
    let folder = scratch();
    std::fs::write(folder.join("long.wav"), wave(&vec![16_384; 48_000 * 20])).unwrap();
    let second = "[[station]]\nname = \"attic\"\ncodec = \"pcm\"\nsources = [\"tone://\"]\n";
    let server = Playing::start(two_sides(&folder, second));
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "shelf");
    let (mut headers, uri) = (0, format!("file://{}/long.wav", folder.display()));
    while sides(&mut room, &mut headers).1 != [8_192, -16_384] {}
    let group_of = |caller: &mut Controller, client: &str| {
        let shown = caller.call("Server.GetStatus", json!({}));
        let groups = shown["result"]["server"]["groups"].as_array().unwrap().clone();
        let found = groups.iter().find(|group| group["clients"][0]["id"] == client);
        found.map(|group| group["id"].clone())
    };
    let announce = |caller: &mut Controller, client: &str| {
        let params = json!({ "client": client, "uri": uri });
        caller.call("Aulos.Announce", params)["result"]["id"].as_u64().unwrap()
    };
    let ended = |caller: &mut Controller| loop {
        let notice = caller.notice_of("Aulos.OnAnnouncement")["params"].clone();
        if notice["state"] == "ended" {
            return (notice["id"].as_u64().unwrap(), notice["cause"].clone());
        }
    };
    // A client of the other station, which is not concerned, and goes.
    drop(Room::enter(server.stream, "sofa"));
    eventually(|| group_of(&mut caller, "sofa").is_some());
    let params = json!({ "id": group_of(&mut caller, "sofa"), "stream_id": "attic" });
    assert_eq!(caller.call("Group.SetStream", params)["result"]["stream_id"], "attic");
    let elsewhere = announce(&mut caller, "sofa");
    let id = announce(&mut caller, "shelf");
    while sides(&mut room, &mut headers).1[0] < 12_000 {}
    server.next(two_sides(&folder, &format!("chunk_ms = 10\n{second}")));
    let reloaded = caller.call("Aulos.Reload", json!({}));
    assert_eq!(reloaded["result"]["changed"], json!(["hall"]), "{reloaded}");
    assert_eq!(ended(&mut caller), (id, json!("station gone")));
    let before = std::mem::take(&mut headers);
    assert_eq!(before, 1);
    while headers == 0 || sides(&mut room, &mut headers).1 != [8_192, -16_384] {
        sides(&mut room, &mut headers);
    }
    assert_eq!(headers, 1, "it joined the successor");

    let id = announce(&mut caller, "shelf");
    while sides(&mut room, &mut headers).1[0] < 12_000 {}
    let params = json!({ "id": group_of(&mut caller, "shelf"), "stream_id": "attic" });
    assert_eq!(caller.call("Group.SetStream", params)["result"]["stream_id"], "attic");
    assert_eq!(ended(&mut caller), (id, json!("cancelled")));
    caller.call("Aulos.CancelAnnouncement", json!({ "id": elsewhere }));
    assert_eq!(ended(&mut caller), (elsewhere, json!("cancelled")));
    while headers == 1 {
        sides(&mut room, &mut headers);
    }
    let counter =
        |status: &serde_json::Value| status["result"]["counters"]["announcement_overlays"].clone();
    eventually(|| counter(&caller.call("Aulos.GetStatus", json!({}))) == 0);
    sides(&mut room, &mut headers);
    assert_eq!(headers, 2);
}

/// Two and a half seconds of noise that swells and fades like speech, about -33 LUFS from two
/// loudspeakers.
pub(crate) fn quiet_voice() -> Vec<i16> {
    let mut noise = 1u32;
    (0..120_000u32)
        .map(|n| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [_, _, _, high] = noise.to_le_bytes();
            let swell = (f64::from(n) / 3_000.0).sin().abs();
            #[allow(clippy::cast_possible_truncation, reason = "far below full scale")]
            let sample = (swell * (f64::from(high) - 127.5) * 10.0) as i16;
            sample
        })
        .collect()
}

/// Integrated loudness of stereo sound, as FFmpeg measures it.
pub(crate) fn judge(name: &str, samples: &[f32]) -> f64 {
    let path = scratch().join(name);
    #[allow(clippy::cast_possible_truncation, reason = "it came as such samples")]
    let samples: Vec<i16> = samples.iter().map(|sample| (sample * 32_768.0) as i16).collect();
    std::fs::write(&path, waves(&samples, 2)).unwrap();
    let output = std::process::Command::new("ffmpeg")
        .args(["-nostdin", "-hide_banner", "-i"])
        .arg(&path)
        .args(["-af", "ebur128", "-f", "null", "-"])
        .output()
        .expect("this test needs ffmpeg: install it (apt-get install ffmpeg)");
    std::fs::remove_file(path).unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = text.rsplit("Summary:").next().unwrap();
    summary.split("I:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Plays an announcement over silence: all of it, without the silence around it, which the gate
/// would not leave out of the first and last 400 ms.
pub(crate) fn until_silence(sound: &mut Listening) -> Vec<f32> {
    let (mut heard, mut said) = (Vec::new(), 0);
    // All of it, and then a quarter of a second of silence.
    while said < 2 * 100_000 || heard[heard.len() - 24_000..].iter().any(|s: &f32| *s != 0.0) {
        let samples = sound.samples(4_800);
        said += samples.iter().filter(|sample| **sample != 0.0).count();
        heard.extend(samples);
        assert!(heard.len() < 2 * 48_000 * 60, "{said}");
    }
    let begin = heard.iter().position(|sample| *sample != 0.0).unwrap();
    let end = heard.iter().rposition(|sample| *sample != 0.0).unwrap();
    heard[begin / 2 * 2..end / 2 * 2 + 2].to_vec()
}

#[test]
fn a_quiet_voice_is_as_loud_as_its_station_is_normalized_to() {
    let folder = scratch();
    let voice = quiet_voice();
    std::fs::write(folder.join("voice.wav"), wave(&voice)).unwrap();
    std::fs::write(folder.join("silence.wav"), wave(&[0; 48_000])).unwrap();
    let station = format!(
        "[[station]]\nname = \"level\"\ncodec = \"pcm\"\nnormalize = {{ target = -18.0 }}\n\
         sources = [\"file://{}/silence.wav?loop=true\"]\n",
        folder.display()
    );
    let server = Playing::start(resolve(&(config(folder.to_str().unwrap()) + &station)));
    let mut caller = server.controller();
    // One listener for all: another one would hear a second of what was before.
    let mut sound = server.listen("level");
    let uri = format!("file://{}/voice.wav", folder.display());
    let as_it_is: Vec<f32> =
        voice.iter().flat_map(|sample| [f32::from(*sample) / 32_768.0; 2]).collect();
    let own = judge("own.wav", &as_it_is);
    for (more, wanted) in [
        (json!({}), -18.0),
        (json!({ "gain_db": -6, "duck_db": -6 }), -24.0),
        (json!({ "loudness_lufs": -26 }), -26.0),
        // It gives away a tenth to the programme.
        (json!({ "normalize": false, "duck_db": -20 }), own - 0.9),
    ] {
        let mut params = json!({ "station": "level", "uri": uri });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert!(caller.call("Aulos.Announce", params.clone())["result"]["id"].is_u64());
        let heard = until_silence(&mut sound);
        let loudness = judge("heard.wav", &heard);
        assert!((loudness - wanted).abs() < 0.3, "{params}: {loudness}, not {wanted}");
    }
    let wrong = json!({ "station": "level", "uri": uri, "gain_db": 21 });
    let refused = caller.call("Aulos.Announce", wrong);
    assert!(refused["error"]["data"].to_string().contains("-40 to 20"), "{refused}");
}

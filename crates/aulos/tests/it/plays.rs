//! Plays: a sound in place of the programme, for a station, a group or a client.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::announce::{sides, two_sides};
use crate::announce_url::serve;
use crate::common::{Controller, Playing, Room, eventually, scratch, wave};

/// The programme of `two_sides`, and the sound that plays in its place.
const PROGRAMME: [i16; 2] = [8_192, -16_384];
const SOUND: i16 = 12_000;

/// Writes a sound of this length, and returns its URI.
fn sound(folder: &Path, name: &str, seconds: usize) -> String {
    std::fs::write(folder.join(name), wave(&vec![SOUND; 48_000 * seconds])).unwrap();
    format!("file://{}/{name}", folder.display())
}

fn play(caller: &mut Controller, target: &str, name: &str, uri: &str) -> u64 {
    let answer = caller.call("Aulos.Play", json!({ target: name, "uri": uri }));
    answer["result"]["id"].as_u64().unwrap_or_else(|| panic!("{uri}: {answer}"))
}

/// The next notification: id, state, cause and reason.
fn notice(caller: &mut Controller) -> (u64, String, Value) {
    let notice = caller.notice_of("Aulos.OnPlay")["params"].clone();
    let what = notice["cause"].as_str().unwrap_or("began").to_owned();
    (notice["id"].as_u64().unwrap(), what, notice["reason"].clone())
}

fn is_sound(samples: [i16; 2], value: i16) -> bool {
    samples.iter().all(|sample| sample.abs_diff(value) < 4)
}

#[test]
fn a_group_plays_a_file_in_place_of_its_station_and_then_the_station_again() {
    let folder = scratch();
    let uri = sound(&folder, "tale.wav", 1);
    let server = Playing::start(two_sides(&folder, ""));
    let mut caller = server.controller();
    let (mut room, mut other) =
        (Room::enter(server.stream, "shelf"), Room::enter(server.stream, "sofa"));
    let (mut headers, mut others) = (0, 0);
    while sides(&mut room, &mut headers).1 != PROGRAMME {}
    while sides(&mut other, &mut others).1 != PROGRAMME {}
    let params = json!({ "group": "shel", "uri": uri, "title": "Tale" });
    let answer = caller.call("Aulos.Play", params)["result"].clone();
    assert_eq!(answer, json!({ "id": 1, "station": "hall" }));
    let shown = caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone();
    assert_eq!(
        (&shown["plays"][0]["id"], &shown["plays"][0]["title"]),
        (&json!(1), &json!("Tale"))
    );
    assert_eq!(shown["announcements"], json!([]));

    let (mut last, mut heard, mut back) = (0, 0, 0);
    while back < 50 {
        let (at, samples) = sides(&mut room, &mut headers);
        assert!(last == 0 || (19_999..=20_001).contains(&(at - last)), "{last} {at}");
        last = at;
        heard += usize::from(is_sound(samples, SOUND));
        back = if heard > 0 && samples == PROGRAMME { back + 1 } else { 0 };
    }
    assert!((48..=50).contains(&heard), "a second of it, alone: {heard} chunks");
    assert_eq!((headers, others), (1, 1), "no new codec header");
    for _ in 0..100 {
        assert_eq!(sides(&mut other, &mut others).1, PROGRAMME);
    }
    let began = caller.notice_of("Aulos.OnPlay")["params"].clone();
    assert_eq!((&began["state"], &began["title"]), (&json!("began"), &json!("Tale")));
    let ended = caller.notice_of("Aulos.OnPlay")["params"].clone();
    assert_eq!((&ended["cause"], &ended["clients"]), (&json!("played"), &json!(["shelf"])));
    assert!(ended["group"].is_string() && ended["client"].is_null(), "{ended}");
    let shown = caller.call("Aulos.GetStatus", json!({}))["result"]["stations"][0].clone();
    assert_eq!(shown["plays"], json!([]));
}

#[test]
fn a_newer_play_replaces_the_older_one_and_a_stopped_one_ends() {
    let folder = scratch();
    let long = sound(&folder, "long.wav", 600);
    let server = Playing::start(two_sides(&folder, ""));
    let mut caller = server.controller();
    let first = play(&mut caller, "station", "hall", &long);
    assert_eq!(notice(&mut caller), (first, "began".to_owned(), Value::Null));
    let missing = play(&mut caller, "station", "hall", &long.replace("long", "none"));
    let (id, cause, reason) = notice(&mut caller);
    assert_eq!((id, &cause[..]), (missing, "failed"));
    assert!(reason.as_str().unwrap().contains("no such file"), "{reason}");
    let second = play(&mut caller, "station", "hall", &long);
    assert_eq!(notice(&mut caller), (first, "replaced".to_owned(), Value::Null));
    assert_eq!(notice(&mut caller), (second, "began".to_owned(), Value::Null));
    // Announcements are cancelled by another call.
    let cancelled = caller.call("Aulos.CancelAnnouncement", json!({ "station": "hall" }));
    assert_eq!(cancelled["result"], json!({ "cancelled": [] }));
    let stopped = caller.call("Aulos.StopPlay", json!({ "station": "hall" }));
    assert_eq!(stopped["result"], json!({ "stopped": [second] }));
    assert_eq!(notice(&mut caller), (second, "stopped".to_owned(), Value::Null));
    let mut room = Room::enter(server.stream, "shelf");
    while sides(&mut room, &mut 0).1 != PROGRAMME {}
    for (method, params, why) in [
        ("Aulos.Play", json!({ "station": "hall", "uri": "file:///etc/hostname" }), "roots"),
        ("Aulos.Play", json!({ "station": "hall", "client": "x", "uri": long }), "only one"),
        ("Aulos.Play", json!({ "uri": long }), "`station`"),
        ("Aulos.Play", json!({ "station": "attic", "uri": long }), "there is no station `attic`"),
        ("Aulos.Play", json!({ "station": "hall", "uri": "tone://" }), "a file or a URL"),
        (
            "Aulos.Play",
            json!({ "station": "hall", "uri": long, "title": "t".repeat(513) }),
            "at most 512 bytes",
        ),
        ("Aulos.StopPlay", json!({}), "`station`"),
    ] {
        let error = caller.call(method, params.clone())["error"].to_string();
        assert!(error.contains(why), "{params}: {error}");
    }
}

#[test]
fn an_announcement_to_a_group_reaches_a_client_that_plays_a_file_of_its_own() {
    let folder = scratch();
    let long = sound(&folder, "long.wav", 60);
    std::fs::write(folder.join("bell.wav"), wave(&[20_000; 14_400])).unwrap();
    let server = Playing::start(two_sides(&folder, ""));
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "shelf");
    let mut headers = 0;
    while sides(&mut room, &mut headers).1 != PROGRAMME {}
    let id = play(&mut caller, "client", "shelf", &long);
    while !is_sound(sides(&mut room, &mut headers).1, SOUND) {}
    let bell = format!("file://{}/bell.wav", folder.display());
    // To the group of the client, and to the client: both are heard, over programme and file.
    for target in ["group", "client"] {
        let answer = caller.call("Aulos.Announce", json!({ target: "shelf", "uri": bell }));
        assert!(answer["result"]["id"].is_u64(), "{answer}");
        let loud = |samples: [i16; 2]| samples[0] > 16_000;
        while !loud(sides(&mut room, &mut headers).1) {}
        while !is_sound(sides(&mut room, &mut headers).1, SOUND) {}
    }
    assert_eq!(headers, 1);
    assert_eq!(notice(&mut caller), (id, "began".to_owned(), Value::Null));
    // Its clients are gone: it plays on, and ends with its group.
    drop(room);
    assert!(caller.call("Server.DeleteClient", json!({ "id": "shelf" }))["result"].is_object());
    assert_eq!(notice(&mut caller), (id, "stopped".to_owned(), Value::Null));
    let overlays = |caller: &mut Controller| {
        let status = caller.call("Aulos.GetStatus", json!({}));
        status["result"]["counters"]["announcement_overlays"].clone()
    };
    eventually(|| overlays(&mut caller) == 0);
}

#[test]
fn a_sound_from_a_url_has_any_length_and_the_programme_returns_when_its_server_dies() {
    let (address, _) = serve("127.0.0.1", |target, out| {
        let mut header = wave(&[0; 48_000])[..44].to_vec();
        header[4..8].fill(0xff);
        header[40..44].fill(0xff);
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")?;
        out.write_all(&header)?;
        let second = SOUND.to_le_bytes().repeat(48_000);
        // As fast as it is taken; the other one stops after two seconds.
        for sent in 0.. {
            if target == "/dies" && sent == 2 {
                std::thread::sleep(Duration::from_secs(20));
            }
            out.write_all(&second)?;
        }
        Ok(())
    });
    let folder = scratch();
    let mut config = two_sides(&folder, "");
    config.streams.announce_hosts = vec!["127.0.0.1".parse().unwrap()];
    let server = Playing::start(config);
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "shelf");
    let mut headers = 0;
    for (path, cause) in [("long", "stopped"), ("dies", "failed")] {
        while sides(&mut room, &mut headers).1 != PROGRAMME {}
        let id = play(&mut caller, "client", "shelf", &format!("http://{address}/{path}"));
        while !is_sound(sides(&mut room, &mut headers).1, SOUND) {}
        if path == "long" {
            // Longer than what is decoded ahead.
            for _ in 0..150 {
                assert!(is_sound(sides(&mut room, &mut headers).1, SOUND));
            }
            caller.call("Aulos.StopPlay", json!({ "id": id }));
        }
        assert_eq!(notice(&mut caller), (id, "began".to_owned(), Value::Null));
        let (ended, how, reason) = notice(&mut caller);
        assert_eq!((ended, &how[..]), (id, cause), "{reason}");
        if path == "dies" {
            assert!(reason.as_str().unwrap().contains("sent nothing for 3 s"), "{reason}");
        }
        while sides(&mut room, &mut headers).1 != PROGRAMME {}
    }
    assert_eq!(headers, 1);
}

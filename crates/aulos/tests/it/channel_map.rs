//! Clients that play one channel of a station, in a server that plays.

use crate::common::{Controller, Heard, Playing, Room, eventually, resolve, scratch, waves};
use serde_json::{Value, json};

/// Milliseconds of a client's buffer: what a change takes.
const BUFFER: u32 = 200;

/// A station of this codec whose left channel is a quarter and whose right one is minus a half.
fn server(codec: &str) -> Playing {
    Playing::start(resolve(&text(codec, "")))
}

fn text(codec: &str, more: &str) -> String {
    let folder = scratch();
    let sound = folder.join("sides.wav");
    let frames: Vec<i16> = [8_192, -16_384].repeat(48_000);
    std::fs::write(&sound, waves(&frames, 2)).unwrap();
    format!(
        "[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n[[station]]\nname = \"hall\"\n\
         codec = \"{codec}\"\nbuffer_ms = {BUFFER}\nsources = [\"file://{}?loop=true\"]\n{more}",
        sound.display()
    )
}

/// Sets the map of the client on the shelf, as soon as it is known: it is answered before.
fn set(caller: &mut Controller, map: &str) {
    let params = json!({ "client": "shelf", "map": map });
    eventually(|| {
        let answer = caller.call("Aulos.SetChannelMap", params.clone());
        answer.get("result") == Some(&json!({ "map": map }))
    });
}

/// What is heard until a codec begins: the times of the chunks and the last one's bytes.
fn until_codec(room: &mut Room) -> (Vec<i64>, Vec<u8>) {
    let (mut times, mut last) = (Vec::new(), Vec::new());
    loop {
        assert!(times.len() < 3_000, "half a minute without another codec");
        match room.hear() {
            Heard::Codec(_) => return (times, last),
            Heard::Chunk(time, bytes) => {
                times.push(time);
                last = bytes;
            }
            Heard::Other(_) => {}
        }
    }
}

fn chunk(room: &mut Room) -> (i64, Vec<u8>) {
    loop {
        if let Heard::Chunk(time, bytes) = room.hear() {
            return (time, bytes);
        }
    }
}

/// The left and the right sample of its middle.
fn sides(pcm: &[u8]) -> (i16, i16) {
    let samples: Vec<i16> =
        pcm.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect();
    (samples[960], samples[961])
}

fn maps(status: &Value) -> u64 {
    status["result"]["counters"]["channel_maps"].as_u64().unwrap()
}

#[test]
fn a_client_switches_to_one_channel_without_a_gap() {
    let server = server("pcm");
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "shelf");
    let mut other = Room::enter(server.stream, "sofa");
    until_codec(&mut room);
    assert_eq!(sides(&chunk(&mut room).1), (8_192, -16_384));
    for (map, left, right) in [
        ("left", 8_192, 8_192),
        ("right", -16_384, -16_384),
        ("mono", -4_096, -4_096),
        ("stereo", 8_192, -16_384),
    ] {
        set(&mut caller, map);
        let (before, _) = until_codec(&mut room);
        let (mut time, mut pcm) = chunk(&mut room);
        // The new channels begin no later than where the old ones have got to.
        assert!(time <= before.last().unwrap() + 20_000, "{map}: a hole");
        for _ in 0..30 {
            assert_eq!(sides(&pcm), (left, right), "{map}");
            let next = chunk(&mut room);
            assert_eq!(next.0, time + 20_000, "{map}: one timeline");
            (time, pcm) = next;
        }
    }
    until_codec(&mut other);
    for _ in 0..100 {
        assert_eq!(sides(&chunk(&mut other).1), (8_192, -16_384), "other clients are unchanged");
    }
    eventually(|| maps(&caller.call("Aulos.GetStatus", json!({}))) == 0);
}

#[test]
fn a_channel_map_is_stored_and_unused_renditions_are_not_encoded() {
    for codec in ["pcm", "flac", "opus"] {
        let server = server(codec);
        let mut caller = server.controller();
        let mut room = Room::enter(server.stream, "shelf");
        let plain = chunk(&mut room).1.len();
        set(&mut caller, "mono");
        until_codec(&mut room);
        let mapped = chunk(&mut room).1.len();
        assert!(mapped > 0 && plain > 0, "{codec}");
        assert_eq!(maps(&caller.call("Aulos.GetStatus", json!({}))), 1, "{codec}");
        drop(room);
        eventually(|| maps(&caller.call("Aulos.GetStatus", json!({}))) == 0);
        let mut room = Room::enter(server.stream, "shelf");
        until_codec(&mut room);
        let bytes = chunk(&mut room).1;
        if codec == "pcm" {
            assert_eq!(sides(&bytes), (-4_096, -4_096), "it came back as it was");
        }
        let shown = caller.call("Client.GetStatus", json!({ "id": "shelf" }));
        assert_eq!(shown["result"]["client"]["config"]["channels"], "mono");
    }
}

#[test]
fn a_map_that_is_none_and_a_client_that_is_none() {
    let server = server("pcm");
    let mut caller = server.controller();
    let mut call = |params: Value| caller.call("Aulos.SetChannelMap", params)["error"].to_string();
    assert!(call(json!({ "client": "x", "map": "front" })).contains("left, right or mono"));
    assert!(call(json!({ "client": "x", "map": "left" })).contains("there is no client `x`"));
    assert!(call(json!({ "map": "left" })).contains("`client`"));
}

#[test]
fn a_restarted_station_keeps_its_channel_maps() {
    let server = server("pcm");
    let mut caller = server.controller();
    let mut room = Room::enter(server.stream, "shelf");
    until_codec(&mut room);
    set(&mut caller, "right");
    until_codec(&mut room);
    server.next(resolve(&text("pcm", "chunk_ms = 10\n")));
    let reloaded = caller.call("Aulos.Reload", json!({}));
    assert_eq!(reloaded["result"]["changed"], json!(["hall"]), "{reloaded}");
    until_codec(&mut room);
    let samples = |pcm: &[u8]| {
        pcm.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect::<Vec<_>>()
    };
    // Its file is opened anew; until it is, there is silence.
    eventually(|| {
        let pcm = chunk(&mut room).1;
        assert_eq!(pcm.len(), 1_920, "10 ms");
        samples(&pcm).iter().all(|sample| *sample == -16_384)
    });
}

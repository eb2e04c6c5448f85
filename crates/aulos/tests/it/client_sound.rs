//! Sounds of clients, in a server that plays.

use std::f64::consts::PI;

use aulos_core::Db;
use serde_json::{Value, json};

use crate::common::{Controller, Heard, Playing, Room, eventually, resolve, scratch, waves};

/// Milliseconds of a client's buffer: a busy machine may stop for less.
const BUFFER: u32 = 1_500;
/// The tones of the programme: amplitude of each in 16 bits, left and right alike.
const TONES: [f64; 2] = [100.0, 3_000.0];
const AMPLITUDE: f64 = 6_000.0;

/// A second of both tones.
#[allow(clippy::cast_possible_truncation, reason = "a test signal")]
fn programme() -> Vec<i16> {
    let tone = |frame: u32, hz: f64| (2.0 * PI * hz * f64::from(frame) / 48_000.0).sin();
    let sum = |frame| TONES.iter().map(|hz| AMPLITUDE * tone(frame, *hz)).sum::<f64>();
    (0..48_000).flat_map(|frame| [sum(frame).round() as i16; 2]).collect()
}

fn text(more: &str) -> String {
    let sound = scratch().join("tones.wav");
    std::fs::write(&sound, waves(&programme(), 2)).unwrap();
    format!(
        "{more}\n[listen]\nstream = 0\ncontrol = 0\nhttp = 0\n[[station]]\nname = \"hall\"\n\
         codec = \"pcm\"\nbuffer_ms = {BUFFER}\nsources = [\"file://{}?loop=true\"]\n",
        sound.display()
    )
}

fn samples(pcm: &[u8]) -> Vec<i16> {
    pcm.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
}

/// The next chunk; panics at a codec header, which interrupts a player.
fn chunk(room: &mut Room) -> (i64, Vec<i16>) {
    loop {
        match room.hear() {
            Heard::Chunk(time, bytes) => return (time, samples(&bytes)),
            Heard::Codec(_) => panic!("the client begins anew"),
            Heard::Other(_) => {}
        }
    }
}

/// Lets a client in, and waits until it plays the programme.
fn enter(server: &Playing, id: &str) -> Room {
    let mut room = Room::enter(server.stream, id);
    while !matches!(room.hear(), Heard::Codec(_)) {}
    while chunk(&mut room).1.iter().all(|sample| *sample == 0) {}
    room
}

/// The levels of the tones in the left and right channel of a chunk, in dB over the programme's.
fn levels(chunk: &[i16]) -> [[f64; 2]; 2] {
    [0, 1].map(|channel| {
        TONES.map(|hz| {
            let (mut re, mut im) = (0.0, 0.0);
            let frames = chunk.len() / 2;
            for (frame, sample) in chunk.iter().skip(channel).step_by(2).enumerate() {
                #[allow(clippy::cast_precision_loss, reason = "a chunk is short")]
                let (sin, cos) = (2.0 * PI * hz * frame as f64 / 48_000.0).sin_cos();
                re += f64::from(*sample) * sin;
                im += f64::from(*sample) * cos;
            }
            #[allow(clippy::cast_precision_loss, reason = "a chunk is short")]
            Db::from_amplitude(re.hypot(im) * 2.0 / frames as f64 / AMPLITUDE).get()
        })
    })
}

fn near(found: [[f64; 2]; 2], expected: [[f64; 2]; 2]) -> bool {
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    pairs.into_iter().all(|(found, expected)| (found - expected).abs() < 0.05)
}

/// Hears on until the levels in the first room are these; the chunks of each room follow each other
/// without a gap or a step. A room that is not heard would fall behind.
fn until(rooms: &mut [&mut Room], expected: [[f64; 2]; 2]) {
    let mut last: Vec<Option<(i64, i16)>> = vec![None; rooms.len()];
    for _ in 0..500 {
        let mut levels_of_first = None;
        for (room, last) in rooms.iter_mut().zip(&mut last) {
            let (time, pcm) = chunk(room);
            if let Some((before, left)) = *last {
                assert_eq!(time, before + 20_000, "one timeline");
                // The steepest slope of the programme, 4 dB louder.
                let steepest = TONES.iter().sum::<f64>() * 2.0 * PI / 48_000.0 * AMPLITUDE * 1.6;
                let step = (f64::from(pcm[0]) - f64::from(left)).abs();
                assert!(step < steepest, "a step of {step}");
            }
            *last = Some((time, pcm[pcm.len() - 2]));
            levels_of_first.get_or_insert_with(|| levels(&pcm));
        }
        if levels_of_first.is_some_and(|found| near(found, expected)) {
            return;
        }
    }
    panic!("expected {expected:?} within ten seconds");
}

fn set(caller: &mut Controller, client: &str, keys: Value) -> Value {
    let mut params = keys;
    params["client"] = json!(client);
    let answer = caller.call("Aulos.SetClientSound", params);
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"].clone()
}

fn sounds(caller: &mut Controller) -> u64 {
    let status = caller.call("Aulos.GetStatus", json!({}));
    status["result"]["counters"]["client_sounds"].as_u64().unwrap()
}

const PLAIN: [[f64; 2]; 2] = [[0.0; 2]; 2];

/// Lets the rooms hear the chunks of the same times.
fn in_step(rooms: &mut [&mut Room]) -> Vec<(i64, Vec<i16>)> {
    let mut chunks: Vec<_> = rooms.iter_mut().map(|room| chunk(room)).collect();
    loop {
        let newest = chunks.iter().map(|one| one.0).max().unwrap();
        let Some(at) = chunks.iter().position(|one| one.0 < newest) else { return chunks };
        chunks[at] = chunk(rooms[at]);
    }
}

/// Where a chunk begins in the file.
fn part_of(file: &[i16], chunk: &[i16]) -> Option<usize> {
    file.windows(chunk.len()).step_by(2).position(|part| part == chunk).map(|frame| 2 * frame)
}

#[test]
fn one_client_has_its_sound_and_the_others_hear_what_they_heard() {
    let server = Playing::start(resolve(&text("")));
    let mut caller = server.controller();
    let [mut shelf, mut sofa] = ["shelf", "sofa"].map(|id| enter(&server, id));
    until(&mut [&mut shelf, &mut sofa], PLAIN);
    let bass = "Preamp: 0 dB\nChannel: L\nFilter: ON LSC Fc 500 Hz Gain -12 dB Q 0.7\n\
                Channel: R\nPreamp: -6 dB";
    let answer = set(&mut caller, "shelf", json!({ "text": bass }));
    assert_eq!(answer["warnings"], json!([]));
    // At 100 Hz the shelf is at -11.94 dB, at 3 kHz at -0.02 dB.
    let expected = [[-11.98, -0.01], [-6.0, -6.0]];
    until(&mut [&mut shelf, &mut sofa], expected);
    // The other client plays the file, sample by sample.
    let file = programme().repeat(2);
    // What it has not read yet is from the start of the station, with its fade.
    let first = in_step(&mut [&mut shelf, &mut sofa]).remove(1).1;
    let at = part_of(&file, &first).expect("a part of the file");
    for next in 1..60 {
        let place = (at + next * 1_920) % 96_000;
        assert!(chunk(&mut sofa).1 == file[place..][..1_920], "chunk {next}");
    }
    assert_eq!(sounds(&mut caller), 1);
    // Another sound for the only client of the rendition, and a second client that joins it.
    until(&mut [&mut shelf, &mut sofa], expected);
    set(&mut caller, "shelf", json!({ "preset": "voice" }));
    set(&mut caller, "sofa", json!({ "preset": "voice" }));
    eventually(|| {
        let chunks = in_step(&mut [&mut shelf, &mut sofa]);
        chunks[0] == chunks[1] && !near(levels(&chunks[0].1), PLAIN)
    });
    eventually(|| sounds(&mut caller) == 1);
    // Back to the station's own.
    for client in ["shelf", "sofa"] {
        set(&mut caller, client, json!({ "preset": "flat" }));
    }
    until(&mut [&mut shelf, &mut sofa], PLAIN);
    until(&mut [&mut sofa, &mut shelf], PLAIN);
    eventually(|| sounds(&mut caller) == 0);
    let counters = caller.call("Aulos.GetStatus", json!({}))["result"]["counters"].clone();
    assert_eq!(counters["channel_maps"], 0);
    // The end of a cross-fade has the levels of the programme before it is the programme.
    eventually(|| {
        let chunks = in_step(&mut [&mut shelf, &mut sofa]);
        chunks[0] == chunks[1]
    });
    for _ in 0..50 {
        let chunks = in_step(&mut [&mut shelf, &mut sofa]);
        assert_eq!(chunks[0], chunks[1]);
    }
    assert!(part_of(&file, &chunk(&mut shelf).1).is_some());
}

#[test]
fn a_sound_is_there_again_after_a_reconnect_and_a_reload() {
    let server = Playing::start(resolve(&text("")));
    let mut caller = server.controller();
    let mut shelf = enter(&server, "shelf");
    let chain = json!({ "preamp_db": -6.0, "both": { "bands": [] } });
    eventually(|| {
        let params = json!({ "client": "shelf", "chain": chain });
        caller.call("Aulos.SetClientSound", params).get("result").is_some()
    });
    until(&mut [&mut shelf], [[-6.0; 2]; 2]);
    // What was sent before is longer ago than a new client's first chunk.
    (0..100).for_each(|_| drop(chunk(&mut shelf)));
    drop(shelf);
    let mut shelf = enter(&server, "shelf");
    assert!(near(levels(&chunk(&mut shelf).1), [[-6.0; 2]; 2]), "from its first chunk on");
    server.next(resolve(&text("").replace("buffer_ms = 1500", "buffer_ms = 1550")));
    let reloaded = caller.call("Aulos.Reload", json!({}));
    assert_eq!(reloaded["result"]["changed"], json!(["hall"]), "{reloaded}");
    while !matches!(shelf.hear(), Heard::Codec(_)) {}
    eventually(|| near(levels(&chunk(&mut shelf).1), [[-6.0; 2]; 2]));
    let shown = caller.call("Aulos.GetClientSound", json!({ "client": "shelf" }));
    assert_eq!(shown["result"]["chain"]["preamp_db"], -6.0, "{shown}");
    assert_eq!(shown["result"]["text"], "Preamp: -6 dB\n");
}

#[test]
fn a_preview_changes_nothing_and_what_cannot_be_is_refused() {
    let server = Playing::start(resolve(&text("[clients]\nmax_sounds = 1")));
    let mut caller = server.controller();
    let [mut shelf, _sofa] = ["shelf", "sofa"].map(|id| enter(&server, id));
    let text = "Hello\nFilter 1: ON PK Fc 100 Hz Gain 3 dB Q 1";
    let shown = set(&mut caller, "shelf", json!({ "text": text, "dry_run": true }));
    assert_eq!(shown["warnings"][0]["line"], 1, "{shown}");
    assert_eq!(shown["chain"]["both"]["bands"][0]["hz"], 100.0);
    assert_eq!((&shown["preamp_db"], &shown["peak_db"]), (&json!(-3.0), &json!(0.0)));
    for list in ["hz", "left_db", "right_db"] {
        assert_eq!(shown["response"][list].as_array().map(Vec::len), Some(64));
    }
    assert_eq!(sounds(&mut caller), 0);
    assert!(near(levels(&chunk(&mut shelf).1), PLAIN));
    let mut refused = |params: Value| {
        let answer = caller.call("Aulos.SetClientSound", params);
        answer["error"].to_string()
    };
    for (params, why) in [
        (json!({ "client": "x", "preset": "bass" }), "no client `x`"),
        (json!({ "client": "shelf" }), "`chain`"),
        (json!({ "client": "shelf", "preset": "loud" }), "flat, bass"),
        (json!({ "client": "shelf", "text": "\nPreamp: x\nIf: y" }), "line 2: `Preamp` needs"),
        (json!({ "client": "shelf", "chain": { "both": { "delay_ms": 101 } } }), "0 to 100"),
        (json!({ "client": "shelf", "chain": { "boht": {} } }), "both"),
        (json!({ "client": "shelf", "chain": { "both": {}, "left": {} } }), "excludes"),
    ] {
        let found = refused(params.clone());
        assert!(found.contains(why), "{params}: {found}");
    }
    set(&mut caller, "shelf", json!({ "preset": "bass" }));
    set(&mut caller, "sofa", json!({ "preset": "bass" }));
    let second = json!({ "client": "sofa", "preset": "treble" });
    let found = caller.call("Aulos.SetClientSound", second)["error"].to_string();
    assert!(found.contains("1 different sounds are in use"), "{found}");
}

//! The sound of a client, with real snapclients that record what they play.

use std::f64::consts::PI;
use std::path::Path;
use std::time::Duration;

use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{shared_turn, wait_for};

/// The frequencies of the programme.
const TONES: [f64; 2] = [100.0, 3_000.0];

const BYTES_OF_A_SECOND: u64 = 192_000;

/// A server with two rooms that play, `near` and `far`.
fn two_rooms(client: &Path, scratch: &ScratchDir) -> (AulosServer, [Snapclient; 2]) {
    let config = "[[station]]\nname = \"default\"\ncodec = \"flac\"\n\
                  sources = [\"tone://?hz=100,3000&dbfs=-12,-12\"]\n";
    let server = AulosServer::start(scratch, config).unwrap();
    let port = server.stream.port();
    let rooms = ["near", "far"];
    let rooms = rooms.map(|id| Snapclient::start(client, port, scratch, id).unwrap());
    wait_for("both rooms play", Duration::from_secs(20), || {
        rooms.iter().all(|room| played(room) > BYTES_OF_A_SECOND)
    });
    (server, rooms)
}

fn played(room: &Snapclient) -> u64 {
    std::fs::metadata(&room.sound).map_or(0, |file| file.len())
}

/// A second of buffer, a change, and two seconds to measure.
fn play_on(rooms: &[Snapclient; 2]) {
    let now = rooms.each_ref().map(played);
    wait_for("the rooms play on", Duration::from_secs(20), || {
        rooms.iter().zip(now).all(|(room, now)| played(room) > now + 5 * BYTES_OF_A_SECOND)
    });
}

#[test]
fn a_room_plays_a_test_tone_and_the_other_one_the_programme() {
    let Some(client) = find_or_skip("snapclient") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("test-tone").unwrap();
    let (server, mut rooms) = two_rooms(&client, &scratch);
    let mut controller = Rpc::connect(server.control);
    let tone = |controller: &mut Rpc, kind: &str| {
        let params = json!({ "client": "near", "kind": kind, "seconds": 60 });
        controller.call("Aulos.TestTone", &params)["id"].clone()
    };
    // The second one takes the place of the first, which plays.
    let first = tone(&mut controller, "noise");
    assert_eq!(controller.hear("Aulos.OnAnnouncement")["state"], "began");
    let second = tone(&mut controller, "sine");
    play_on(&rooms);
    let sounds = rooms.each_mut().map(|room| room.stop().unwrap());
    let mut ended = |id: &Value| loop {
        let event = controller.hear("Aulos.OnAnnouncement");
        if event["id"] == *id && event["state"] == "ended" {
            return event;
        }
    };
    assert_eq!(ended(&first)["cause"], "cancelled");
    let params = json!({ "id": second });
    Rpc::connect(server.control).call("Aulos.CancelAnnouncement", &params);
    let end = ended(&second);
    assert_eq!((&end["cause"], &end["uri"]), (&json!("cancelled"), &json!("test-tone:sine")));
    server.stop().unwrap();
    let [near, far] = &sounds;
    assert!((level(near, 1_000.0) + 18.0).abs() < 0.2, "{}", level(near, 1_000.0));
    assert!(level(far, 1_000.0) < -80.0, "{}", level(far, 1_000.0));
    for hz in TONES {
        assert!(level(near, hz) < -60.0, "{hz} Hz: {}", level(near, hz));
        assert!((level(far, hz) + 12.0).abs() < 0.2, "{hz} Hz: {}", level(far, hz));
    }
}

#[test]
fn a_room_plays_its_sound_and_the_other_one_the_programme() {
    let Some(client) = find_or_skip("snapclient") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("client-sound").unwrap();
    let (server, mut rooms) = two_rooms(&client, &scratch);
    let mut controller = Rpc::connect(server.control);
    let text = "Preamp: 0 dB\nFilter 1: ON LSC Fc 500 Hz Gain -12 dB Q 0.7";
    let answer =
        controller.call("Aulos.SetClientSound", &json!({ "client": "near", "text": text }));
    assert_eq!(answer["warnings"], json!([]), "{answer}");
    play_on(&rooms);
    let sounds = rooms.each_mut().map(|room| room.stop().unwrap());
    server.stop().unwrap();
    // At 100 Hz the shelf is at -11.98 dB, at 3 kHz at -0.01 dB.
    for (sound, expected) in sounds.iter().zip([[-11.98, -0.01], [0.0, 0.0]]) {
        for (hz, expected) in TONES.into_iter().zip(expected) {
            let found = level(sound, hz) + 12.0;
            assert!((found - expected).abs() < 0.2, "{hz} Hz: {found} dB, not {expected}");
        }
    }
}

/// The level of a tone in the last second but one of a recording, in dBFS of a sine; in pieces of
/// 100 ms, between which a player may drop or repeat a sample to stay in sync.
#[allow(clippy::cast_precision_loss, reason = "a test signal")]
fn level(pcm: &[u8], hz: f64) -> f64 {
    let samples = pcm.as_chunks::<2>().0.iter().map(|two| f64::from(i16::from_le_bytes(*two)));
    let left: Vec<f64> = samples.step_by(2).collect();
    let second = &left[left.len() - 2 * 48_000..][..48_000];
    let amplitude = |piece: &[f64]| {
        let (mut re, mut im) = (0.0, 0.0);
        for (frame, sample) in piece.iter().enumerate() {
            let (sin, cos) = (2.0 * PI * hz * frame as f64 / 48_000.0).sin_cos();
            re += sample * sin;
            im += sample * cos;
        }
        re.hypot(im) * 2.0 / piece.len() as f64 / 32_768.0
    };
    let mut pieces: Vec<f64> = second.chunks_exact(4_800).map(amplitude).collect();
    pieces.sort_by(f64::total_cmp);
    20.0 * pieces[pieces.len() / 2].log10()
}

//! A spoken announcement from input to output: espeak-ng speaks, a real snapclient plays.

use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{text, turn, wait_for};

#[test]
fn speech_ducks_the_programme_and_restores_it() {
    let Some(client) = find_or_skip("snapclient") else { return };
    let Some(speaker) = find_or_skip("espeak-ng") else { return };
    let _turn = turn();
    let scratch = ScratchDir::new("announce").unwrap();
    let speech = scratch.join("dinner.wav");
    let mut speak = Command::new(speaker);
    assert!(speak.arg("-w").arg(&speech).arg("Dinner is ready").status().unwrap().success());
    let config = format!(
        "[streams]\nroots = [\"{}\"]\n[[station]]\nname = \"default\"\ncodec = \"flac\"\n\
         sources = [\"tone://?hz=997&dbfs=-46\"]\n",
        text(scratch.path())
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut room = Snapclient::start(&client, server.stream.port(), &scratch, "room").unwrap();
    let mut controller = Rpc::connect(server.control);
    let played = || std::fs::metadata(&room.sound).map_or(0, |file| file.len());
    wait_for("the room plays", Duration::from_secs(20), || played() > 2 * 192_000);
    let params = json!({ "station": "default", "uri": format!("file://{}", text(&speech)) });
    let mut call = Command::new(binary());
    call.args(["rpc", "Aulos.Announce", &params.to_string(), "--server"]);
    let answer = call.arg(server.control.to_string()).output().unwrap();
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let ended = loop {
        let notice = controller.read();
        if notice["method"] == "Aulos.OnAnnouncement" && notice["params"]["state"] == "ended" {
            break notice["params"].clone();
        }
    };
    assert_eq!((&ended["cause"], &ended["reason"]), (&json!("played"), &Value::Null));
    // Audio sent now is played once the client's buffer has passed.
    let now = played();
    wait_for("the room goes on", Duration::from_secs(20), || played() > now + 4 * 192_000);
    let sound = room.stop().unwrap();
    server.stop().unwrap();

    // Peaks of 10 ms: half a per cent of full scale is the tone, at -46 dBFS.
    let samples = sound.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two));
    let samples: Vec<u16> = samples.map(i16::unsigned_abs).collect();
    let peaks: Vec<u16> =
        samples.chunks(960).map(|piece| piece.iter().copied().max().unwrap_or(0)).collect();
    let spoken = |peak: &&u16| **peak > 1_000;
    let voice = peaks.iter().filter(spoken).count();
    assert!(voice > 20, "{voice} pieces of speech");
    let first = peaks.iter().position(|peak| *peak > 1_000).unwrap();
    let last = peaks.iter().rposition(|peak| *peak > 1_000).unwrap();
    assert!(last - first < 300, "one announcement, and no second one");
    let is_tone = |peak: &u16| (160..170).contains(peak);
    // In between the tone is ducked within 200 ms and restored as fast; a sentence ends in silence.
    assert!(peaks[first - 100..first - 25].iter().all(is_tone), "the programme before it");
    assert!(peaks[last + 90..last + 150].iter().all(is_tone), "the programme behind it");
}

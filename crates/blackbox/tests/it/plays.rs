//! A file in place of the programme, as a real snapclient plays it.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::capture_check::peaks_of_10_ms;
use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{SampleWidth, write_wav};
use serde_json::json;

use crate::rpc::Rpc;
use crate::{quiet_turn, text, wait_for};

/// A file with a square wave of 500 Hz.
fn write_square(path: &Path, level: i32, frames: usize) {
    let square = (0..frames).map(|n| [if n / 48 % 2 == 0 { level } else { -level }; 2]);
    let square: Vec<[i32; 2]> = square.collect();
    write_wav(BufWriter::new(File::create(path).unwrap()), &square, SampleWidth::B16).unwrap();
}

/// Two seconds of the file, between the programme and the programme; right before it the group of the
/// client has heard an announcement.
#[test]
fn a_client_plays_a_file_and_then_the_programme_again() {
    let Some(client) = find_or_skip("snapclient") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("plays").unwrap();
    let tale = scratch.join("tale.wav");
    write_square(&tale, 9_000, 96_000);
    let bell = scratch.join("bell.wav");
    write_square(&bell, 15_000, 9_600);
    let config = format!(
        "[streams]\nroots = [\"{}\"]\n[[station]]\nname = \"default\"\ncodec = \"flac\"\n\
         sources = [\"tone://?hz=997&dbfs=-46\"]\n",
        text(scratch.path())
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut room = Snapclient::start(&client, server.stream.port(), &scratch, "room").unwrap();
    let played = || std::fs::metadata(&room.sound).map_or(0, |file| file.len());
    wait_for("the room plays", Duration::from_secs(20), || played() > 2 * 192_000);
    let call = |arguments: &[&str]| {
        let mut call = Command::new(binary());
        let answer = call.args(arguments).args(["--wait", "--server"]);
        let answer = answer.arg(server.control.to_string()).output().unwrap();
        assert!(answer.status.success(), "{answer:?}");
        String::from_utf8_lossy(&answer.stdout).into_owned()
    };
    let status = Rpc::connect(server.control).call("Server.GetStatus", &json!({}));
    let group = status["server"]["groups"][0]["id"].as_str().unwrap().to_owned();
    assert!(call(&["announce", "--group", &group, text(&bell)]).ends_with("played\n"));
    let printed = call(&["client", "play", "room", text(&tale), "--title", "Tale"]);
    assert_eq!(printed, "play 2 in place of default\nplayed\n");
    let now = played();
    wait_for("the room goes on", Duration::from_secs(20), || played() > now + 2 * 192_000);
    let sound = room.stop().unwrap();
    server.stop().unwrap();

    // Half a per cent of full scale is the tone, at -46 dBFS.
    let peaks = peaks_of_10_ms(&sound);
    let is_tale = |peak: &u16| (8_900..9_400).contains(peak);
    let is_tone = |peak: &u16| (160..170).contains(peak);
    let first = peaks.iter().position(is_tale).unwrap();
    let last = peaks.iter().rposition(is_tale).unwrap();
    println!("the file plays for {} ms", (last - first) * 10);
    assert!((195..=205).contains(&(last - first)), "{}", last - first);
    assert!(peaks[first..=last].iter().all(is_tale), "nothing else is heard meanwhile");
    assert!(peaks[..first].iter().any(|peak| *peak > 11_000), "the announcement before it");
    assert!(peaks[first - 100..first - 25].iter().all(is_tone), "the programme before it");
    assert!(peaks[last + 60..last + 130].iter().all(is_tone), "the programme behind it");
}

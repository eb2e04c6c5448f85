//! A file in place of the programme, as a real snapclient plays it.

use std::fs::File;
use std::io::BufWriter;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::capture_check::peaks_of_10_ms;
use aulos_blackbox::peer::{Snapclient, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use aulos_blackbox::signal::{SampleWidth, write_wav};

use crate::{quiet_turn, text, wait_for};

/// Two seconds of the file, between the programme and the programme.
#[test]
fn a_client_plays_a_file_and_then_the_programme_again() {
    let Some(client) = find_or_skip("snapclient") else { return };
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("plays").unwrap();
    let tale = scratch.join("tale.wav");
    let square = (0..96_000).map(|n| [if n / 48 % 2 == 0 { 9_000 } else { -9_000 }; 2]);
    let square: Vec<[i32; 2]> = square.collect();
    write_wav(BufWriter::new(File::create(&tale).unwrap()), &square, SampleWidth::B16).unwrap();
    let config = format!(
        "[streams]\nroots = [\"{}\"]\n[[station]]\nname = \"default\"\ncodec = \"flac\"\n\
         sources = [\"tone://?hz=997&dbfs=-46\"]\n",
        text(scratch.path())
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut room = Snapclient::start(&client, server.stream.port(), &scratch, "room").unwrap();
    let played = || std::fs::metadata(&room.sound).map_or(0, |file| file.len());
    wait_for("the room plays", Duration::from_secs(20), || played() > 2 * 192_000);
    let mut call = Command::new(binary());
    call.args(["client", "play", "room", text(&tale), "--title", "Tale", "--wait", "--server"]);
    let answer = call.arg(server.control.to_string()).output().unwrap();
    let printed = String::from_utf8_lossy(&answer.stdout);
    assert!(answer.status.success(), "{printed} {}", String::from_utf8_lossy(&answer.stderr));
    assert_eq!(printed, "play 1 in place of default\nplayed\n");
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
    assert!(peaks[first - 100..first - 25].iter().all(is_tone), "the programme before it");
    assert!(peaks[last + 60..last + 130].iter().all(is_tone), "the programme behind it");
}

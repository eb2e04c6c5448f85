//! snapserver's own control script for mpd, unchanged, between a real mpd and this server.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::signal::{RATE, SampleWidth, tonal, write_wav};
use serde_json::json;

use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(40);

#[test]
fn the_mpd_script_of_snapserver_runs_unchanged() {
    let Some(mpd) = find_or_skip("mpd") else { return };
    let scripts = Path::new("/usr/share/snapserver/plug-ins");
    if !scripts.join("meta_mpd.py").exists() {
        return skip("snapserver");
    }
    let system = Path::new("/usr/lib/python3/dist-packages");
    if ["mpd", "musicbrainzngs", "dbus", "gi"].iter().any(|name| !system.join(name).exists()) {
        return skip("python3-mpd");
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mpd").unwrap();
    let socket = scratch.join("mpd.sock");
    let mut player = start(&mpd, &scratch, &socket);

    let config_file = scratch.join("aulos.toml");
    let config = format!(
        "[[station]]\nname = \"default\"\nsources = [\"demo://\"]\n\
         plugin = {{ script = \"meta_mpd.py\", params = \"--mpd-host={}\" }}\n",
        text(&socket)
    );
    std::fs::write(&config_file, config).unwrap();
    let server = AulosServer::start_with(&scratch, |command| {
        // Its modules are the system's, whatever other Python is installed.
        command.args(["--config", text(&config_file)]).env("PATH", "/usr/bin:/bin");
    })
    .unwrap();
    let mut rpc = Rpc::connect(server.control);
    let playing = |wanted: &str, rpc: &mut Rpc| {
        wait_for(wanted, PATIENCE, || {
            // A first update of a folder may still be in progress.
            if wanted == "playing" {
                tell(&socket, &["add one.wav", "play"]);
            }
            rpc.stream("default").unwrap()["properties"]["playbackStatus"] == wanted
        });
    };
    playing("playing", &mut rpc);
    let properties = rpc.stream("default").unwrap()["properties"].clone();
    assert_eq!(properties["canControl"], true, "{properties}");
    wait_for("metadata", PATIENCE, || {
        let properties = rpc.stream("default").unwrap()["properties"].clone();
        properties["metadata"].to_string().contains("one")
    });
    rpc.call("Stream.Control", &json!({ "id": "default", "command": "pause" }));
    playing("paused", &mut rpc);
    assert!(tell(&socket, &["status"]).contains("state: pause"));
    let shuffle = json!({ "id": "default", "property": "shuffle", "value": true });
    rpc.call("Stream.SetProperty", &shuffle);
    wait_for("shuffle", PATIENCE, || tell(&socket, &["status"]).contains("random: 1"));
    drop(server);
    player.terminate(PATIENCE).unwrap();
}

/// Starts an mpd that plays one file without output.
fn start(mpd: &Path, scratch: &ScratchDir, socket: &Path) -> Process {
    let music = scratch.join("music");
    std::fs::create_dir(&music).unwrap();
    let wav = File::create(music.join("one.wav")).unwrap();
    write_wav(wav, &tonal(60 * RATE, SampleWidth::B16), SampleWidth::B16).unwrap();
    let config = scratch.join("mpd.conf");
    let (dir, state) = (text(&music), text(scratch.path()));
    let lines = format!(
        "music_directory \"{dir}\"\ndb_file \"{state}/db\"\nstate_file \"{state}/state\"\n\
         bind_to_address \"{}\"\nzeroconf_enabled \"no\"\n\
         audio_output {{\n type \"null\"\n name \"null\"\n}}\n",
        text(socket)
    );
    std::fs::write(&config, lines).unwrap();
    let player = Process::start(
        Command::new(mpd).args(["--no-daemon", text(&config)]),
        &scratch.join("mpd.out"),
        &scratch.join("mpd.err"),
    )
    .unwrap();
    wait_for("mpd", PATIENCE, || UnixStream::connect(socket).is_ok());
    tell(socket, &["update", "add one.wav", "play"]);
    player
}

/// Sends lines to mpd, and returns its responses.
fn tell(socket: &Path, lines: &[&str]) -> String {
    let mut reader = BufReader::new(UnixStream::connect(socket).unwrap());
    reader.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    let mut said = String::new();
    reader.read_line(&mut said).unwrap();
    for line in lines {
        reader.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        loop {
            let mut answer = String::new();
            reader.read_line(&mut answer).unwrap();
            said += &answer;
            if answer.is_empty() || answer.starts_with("OK") || answer.starts_with("ACK") {
                break;
            }
        }
    }
    said
}

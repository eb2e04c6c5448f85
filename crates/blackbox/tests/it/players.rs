//! Players and encoders of the distribution that have never met this server: VLC, mpv, Liquidsoap.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::rpc::Rpc;
use crate::{shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

const TONE: &str = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440\"]\n";

/// A command of a program that refuses to run as root.
pub(crate) fn as_nobody(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command
}

/// What VLC plays of a stream in so many seconds, as a WAVE file, and what it says.
pub(crate) fn vlc_plays(
    vlc: &Path,
    url: &str,
    seconds: u32,
    scratch: &ScratchDir,
) -> (Vec<u8>, String) {
    // A folder that nobody may write to; the server's is private.
    let name = scratch.path().file_name().unwrap().to_string_lossy();
    let folder = std::env::temp_dir().join(format!("vlc-{name}"));
    std::fs::create_dir(&folder).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&folder, mode).unwrap();
    let file = folder.join("heard.wav");
    let mut command = as_nobody(vlc);
    command.env("HOME", &folder).args(["-I", "dummy", "--aout=afile"]);
    command.arg(format!("--run-time={seconds}"));
    command.arg(format!("--audiofile-file={}", file.display())).arg(url).arg("vlc://quit");
    let logs = [scratch.join("vlc.out"), scratch.join("vlc.err")];
    let mut player = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    wait_for("the end", PATIENCE, || player.ended().unwrap().is_some());
    let heard = std::fs::read(&file).unwrap_or_default();
    let said = std::fs::read_to_string(&logs[1]).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    (heard, said)
}

/// VLC stops by its position: with the station's own, it played nothing at all.
#[test]
fn vlc_plays_the_time_that_it_is_told_to() {
    let Some(vlc) = find_or_skip("vlc") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("vlc").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let url = format!("http://{}/listen/default.flac", server.http);
    let (heard, said) = vlc_plays(&vlc, &url, 3, &scratch);
    // 48 kHz, 16 bits, stereo.
    let seconds = heard.len() / 192_000;
    assert!((2..=4).contains(&seconds), "{seconds} s of 3\n{said}");
    server.stop().unwrap();
}

/// mpv shows the position in the stream.
#[test]
fn mpv_begins_at_zero() {
    let Some(mpv) = find_or_skip("mpv") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mpv").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let mut command = Command::new(mpv);
    command.args(["--no-config", "--no-video", "--ao=null", "--length=2"]);
    command.arg("--term-status-msg=at ${=time-pos} of ${=audio-pts}");
    command.arg(format!("http://{}/listen/default.flac", server.http));
    let logs = [scratch.join("mpv.out"), scratch.join("mpv.err")];
    let mut player = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    wait_for("the end", PATIENCE, || player.ended().unwrap().is_some());
    let said = logs.map(|log| std::fs::read_to_string(log).unwrap()).concat();
    let positions = said.split("at ").skip(1).filter_map(|rest| rest.split(' ').next());
    let first = positions.filter_map(|text| text.parse::<f64>().ok()).next();
    assert!(first.is_some_and(|first| first < 2.0), "{said}");
    server.stop().unwrap();
}

/// Liquidsoap's `output.shoutcast`: the stream goes to the next port, titles to the configured one,
/// with the password as it is typed.
#[test]
fn liquidsoap_streams_with_titles_as_a_shoutcast_source() {
    let Some(liquidsoap) = find_or_skip("liquidsoap") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("liquidsoap").unwrap();
    // Two ports in a row.
    let port = (20_000..30_000)
        .step_by(7)
        .find(|port| {
            let is_free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
            is_free(*port) && is_free(port + 1)
        })
        .unwrap();
    let config = format!(
        "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [{{ uri = \
         \"icecast://127.0.0.1:{port}/live?shoutcast=true\", password = \"very secret\" }}]\n"
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let script = format!(
        "set(\"init.allow_root\", true)\ns = insert_metadata(sine(440.))\n\
         thread.run(every=1., {{ s.insert_metadata([(\"artist\", \"Frozen\"), (\"title\", \
         \"Penguin\")]) }})\noutput.shoutcast(%wav, host=\"127.0.0.1\", port={port}, \
         password=\"very secret\", name=\"House\", fallible=true, s)\n"
    );
    let file = scratch.join("station.liq");
    std::fs::write(&file, script).unwrap();
    let logs = [scratch.join("liquidsoap.out"), scratch.join("liquidsoap.err")];
    let mut command = Command::new(liquidsoap);
    let mut source = Process::start(command.arg(text(&file)), &logs[0], &logs[1]).unwrap();
    let said = || logs.each_ref().map(|log| std::fs::read_to_string(log).unwrap()).concat();
    let mut state = Value::Null;
    wait_for("its title", PATIENCE, || {
        assert!(source.ended().unwrap().is_none(), "{}", said());
        state =
            rpc.call("Aulos.GetStatus", &Value::Null)["stations"][0]["sources"][0]["dj"].clone();
        state["on_air"] == true && state["title"]["title"] == "Penguin" && state["codec"] == "pcm"
    });
    assert_eq!(state["name"], "House", "{state}");
    assert_eq!(state["title"]["artist"], serde_json::json!(["Frozen"]));
    source.terminate(PATIENCE).unwrap();
    server.stop().unwrap();
}

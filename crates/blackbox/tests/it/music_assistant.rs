//! Music Assistant with this program as the snapserver that it starts.
//!
//! `music_assistant.py` makes its calls in its order, through the library that it uses.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aulos_blackbox::capture_check::{level_dbfs, tone_share};
use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::peer::{Process, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::binary;
use aulos_blackbox::signal::{Frame, SampleWidth};
use aulos_blackbox::wire::{self, HEADER, MessageHeader, kind};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{hear, script, shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

/// A queue with titles and commands in 24 bits, an announcement over it, and their ends.
#[test]
fn music_assistant_plays_a_queue_and_an_announcement() {
    let Some(python) = python_with_snapcast() else { return skip("python-packages") };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mass").unwrap();
    let (mut process, stream, control) = start_as_snapserver(&scratch, "pcm");
    let version = Command::new(scratch.join("snapserver")).arg("-v").output().unwrap();
    let shown = String::from_utf8(version.stdout).unwrap();
    assert!(version.status.success() && shown.contains("0.34.0"), "{shown}");
    let plugins = scratch.join("plug-ins");
    symlink("../outside.py", plugins.join("link.py")).unwrap();
    script(&scratch.join("outside.py"), "#!/bin/sh\n");
    script(
        &plugins.join("broken.sh"),
        "#!/bin/sh\necho 1 >> \"$(dirname \"$0\")/broken\"\necho no such module >&2\nexit 3\n",
    );

    let [out, err] = [scratch.join("driver.out"), scratch.join("driver.err")];
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/music_assistant.py");
    let mut command = Command::new(python);
    command.arg(program).arg(control.port().to_string()).arg(&plugins);
    let done = AtomicBool::new(false);
    let heard = std::thread::scope(|scope| {
        let listener = scope.spawn(|| listen(stream, &done));
        let mut driver = Process::start(&mut command, &out, &err).unwrap();
        let status = driver.wait(Duration::from_secs(30));
        done.store(true, Ordering::Relaxed);
        let heard = listener.join().unwrap();
        let shown = std::fs::read_to_string(&out).unwrap();
        println!("{shown}");
        let failed = std::fs::read_to_string(&err).unwrap();
        let log = std::fs::read_to_string(scratch.join("err")).unwrap();
        assert!(status.unwrap().success() && shown.ends_with("ok\n"), "{failed}\n{log}");
        heard
    });
    // The queue, the announcement, and the queue again, which has ended.
    let sounds: Vec<_> = heard.iter().filter_map(|part| judge(part)).collect();
    println!("{sounds:.2?}");
    assert_eq!(sounds.len(), 2, "{sounds:?}");
    for (sound, [hertz, dbfs, seconds]) in
        sounds.iter().zip([[997.0, -12.0, 2.0], [440.0, -20.0, 1.0]])
    {
        assert!((sound.dbfs - dbfs).abs() < 0.1, "{sound:?}");
        assert!((sound.seconds - seconds).abs() < 0.3, "{sound:?}");
        assert!(tone_share(&sound.middle, hertz, 48_000.0) > 0.999, "{hertz} Hz");
    }
    let log = std::fs::read_to_string(scratch.join("err")).unwrap();
    assert!(log.contains("connected to the queue"), "{log}");
    assert!(log.contains("exit status: 3; it wrote last: no such module"), "{log}");
    process.terminate(PATIENCE).unwrap();
}

/// One tone.
struct Sound {
    dbfs: f64,
    seconds: f64,
    middle: Vec<Frame>,
}

impl std::fmt::Debug for Sound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sound").field("dbfs", &self.dbfs).field("seconds", &self.seconds).finish()
    }
}

/// The sound of a part, if it has any.
fn judge(part: &[Frame]) -> Option<Sound> {
    let is_loud = |frame: &Frame| frame.iter().any(|sample| sample.abs() > 1_000);
    let (first, last) = (part.iter().position(is_loud)?, part.iter().rposition(is_loud)?);
    let sound = &part[first..=last];
    // Without what the switch fades in and out.
    let edge = (sound.len() / 4).min(12_000);
    let middle = sound[edge..sound.len() - edge].to_vec();
    let seconds = f64::from(u32::try_from(sound.len()).unwrap()) / 48_000.0;
    Some(Sound { dbfs: level_dbfs(&middle, SampleWidth::B24.full_scale()), seconds, middle })
}

/// Plays nothing, and keeps the samples of each stream of 24 bits that it is assigned to.
fn listen(server: SocketAddr, done: &AtomicBool) -> Vec<Vec<Frame>> {
    let mut socket = TcpStream::connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket.write_all(&wire::hello(3)).unwrap();
    let (mut parts, mut deep, mut waiting) = (Vec::new(), false, Vec::new());
    let mut block = vec![0; 65_536];
    while !done.load(Ordering::Relaxed) {
        match socket.read(&mut block) {
            Ok(0) => break,
            Ok(count) => waiting.extend_from_slice(&block[..count]),
            Err(_) => continue,
        }
        while let Some(header) = waiting.get(..HEADER).and_then(MessageHeader::parse) {
            let end = HEADER + header.size as usize;
            if waiting.len() < end {
                break;
            }
            let message: Vec<u8> = waiting.drain(..end).skip(HEADER).collect();
            match header.kind {
                // "pcm", then a RIFF header of 44 bytes with the width at 34.
                kind::CODEC_HEADER => {
                    assert_eq!(&message[4..7], b"pcm");
                    deep = message[11 + 34] == 24;
                    if deep {
                        parts.push(Vec::new());
                    }
                }
                // After the time (8) and the size (4).
                kind::WIRE_CHUNK if deep => {
                    let part = parts.last_mut().unwrap();
                    part.extend(SampleWidth::B24.frames(&message[12..]));
                }
                _ => {}
            }
        }
    }
    parts
}

/// The tests' Python, if it has the library.
pub(crate) fn python_with_snapcast() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = std::env::var_os("AULOS_TEST_VENV")
        .map_or_else(|| root.join("../../target/test-venv"), PathBuf::from);
    let python = venv.join("bin/python");
    let there = Command::new(&python).args(["-c", "import snapcast.control"]).output();
    there.is_ok_and(|done| done.status.success()).then_some(python)
}

/// Whether the process of this line of `starts` runs; it may wait for being reaped.
fn runs(start: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", start["pid"]));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// What Music Assistant does with the server that it starts: wait for a line, connect, and for each
/// playback add a stream, push audio into it, assign a group to it and back, and remove it.
#[test]
fn music_assistant_finds_a_snapserver() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("music-assistant").unwrap();
    let (mut process, stream, control) = start_as_snapserver(&scratch, "flac");
    let mut rpc = Rpc::connect(control);
    let mut client = ListenerClient::connect(stream, 0).unwrap();
    let mut group = None;
    wait_for("the client", PATIENCE, || {
        hear(&mut client);
        group = rpc.status()["groups"].as_array().unwrap().first().cloned();
        group.is_some()
    });
    let group = group.unwrap();
    assert_eq!(group["clients"][0]["config"]["volume"]["percent"], 20);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().count();
    let mut before = None;
    // The scripts that have been started: each writes a line.
    let scripts = || {
        let starts = std::fs::read_to_string(scratch.join("plug-ins/starts")).unwrap_or_default();
        let complete = starts.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        complete.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    for round in 0..5 {
        let is_started = || scripts().len() > round;
        play_once(&mut rpc, &mut client, &group["id"], is_started);
        // Its script ends soon after the stream.
        wait_for("the end of its script", PATIENCE, || scripts().iter().all(|start| !runs(start)));
        // A connection that has just ended may still be open.
        let before = *before.get_or_insert_with(open);
        wait_for(&format!("round {round}: {before} descriptors"), PATIENCE, || open() <= before);
    }
    assert!(!client.stats.cut);
    process.terminate(PATIENCE).unwrap();
}

/// It polls the status every five seconds, and takes a player whose `lastSeen` stands still for
/// fifteen as gone.
#[test]
fn last_seen_advances_while_a_client_is_connected() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("last-seen").unwrap();
    let (mut process, stream, control) = start_as_snapserver(&scratch, "flac");
    let mut rpc = Rpc::connect(control);
    let mut client = ListenerClient::connect(stream, 0).unwrap();
    let mut seen = Vec::new();
    wait_for("three different times", Duration::from_secs(12), || {
        client.request_time();
        hear(&mut client);
        let status = rpc.status();
        let time = &status["groups"][0]["clients"][0]["lastSeen"];
        let time = time["sec"].as_u64().zip(time["usec"].as_u64());
        if time.is_some() && seen.last() != time.as_ref() {
            seen.extend(time);
        }
        seen.len() >= 3
    });
    assert!(seen.is_sorted(), "{seen:?}");
    process.terminate(PATIENCE).unwrap();
}

/// Starts it with Music Assistant's arguments, except for the ports and the default stream; returns
/// its addresses.
fn start_as_snapserver(scratch: &ScratchDir, codec: &str) -> (Process, SocketAddr, SocketAddr) {
    let program = scratch.join("snapserver");
    symlink(binary(), &program).unwrap();
    let [out, err] = [scratch.join("out"), scratch.join("err")];
    let path = |name: &str| scratch.join(name).display().to_string();
    std::fs::write(scratch.join("snapserver.conf"), "[server]\n[http]\n[stream]\n").unwrap();
    std::fs::create_dir_all(scratch.join("plug-ins")).unwrap();
    let source = include_str!("music_assistant_control.py");
    script(&scratch.join("plug-ins/control.py"), source);
    let mut process = Process::start(
        Command::new(&program)
            .arg(format!("--config={}", path("snapserver.conf")))
            .arg(format!("--server.datadir={}", path("data")))
            .args(["--http.enabled=true", "--http.port=0"])
            .arg(format!("--http.doc_root={}", path("nothing")))
            .args(["--tcp-control.enabled=true", "--tcp-control.port=0"])
            .args(["--stream.sampleformat=48000:16:2", "--stream.buffer=1000"])
            .args(["--stream.chunk_ms=26", &format!("--stream.codec={codec}")])
            .args(["--stream.send_to_muted=false", "--streaming_client.initial_volume=20"])
            .arg(format!("--stream.plugin_dir={}", path("plug-ins")))
            .args(["--tcp-streaming.port=0", "--server.mdns_enabled=false"])
            .arg(format!("--stream.source=pipe://{}?name=default", path("fifo"))),
        &out,
        &err,
    )
    .unwrap();
    let address = |key: &str| -> Option<SocketAddr> {
        let text = std::fs::read_to_string(&out).ok()?;
        let line = text.lines().find(|line| line.trim_start().starts_with(key))?;
        let port = line.split_whitespace().nth(1)?.rsplit(':').next()?.parse().ok()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    };
    wait_for("its ports", PATIENCE, || {
        assert!(process.ended().unwrap().is_none(), "{}", std::fs::read_to_string(&err).unwrap());
        address("control").is_some() && address("stream").is_some()
    });
    let printed = std::fs::read_to_string(&out).unwrap();
    assert!(printed.contains("(Snapserver) Version 0.34.0"));
    assert!(printed.contains("no login: every peer that reaches a port"), "{printed}");
    (process, address("stream").unwrap(), address("control").unwrap())
}

/// `has_script` says whether its control script runs, which a busy machine starts late.
fn play_once(
    rpc: &mut Rpc,
    client: &mut ListenerClient,
    group: &Value,
    has_script: impl Fn() -> bool,
) {
    let uri = "tcp://127.0.0.1:0?sampleformat=48000:16:2&idle_threshold=60000\
               &controlscript=control.py&name=Music Assistant - osmc4";
    let id = "Music Assistant - osmc4";
    assert_eq!(rpc.call("Stream.AddStream", &json!({ "streamUri": uri }))["id"], id);
    let host = rpc.stream(id).unwrap()["uri"]["host"].as_str().unwrap().to_owned();
    rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": id }));
    let mut push = None;
    wait_for("its port", PATIENCE, || {
        push = TcpStream::connect(&host).ok();
        push.is_some()
    });
    let mut push = push.unwrap();
    let sound: Vec<u8> = (0..192_000_u32).map(|at| at.wrapping_mul(37).to_le_bytes()[0]).collect();
    push.write_all(&sound).unwrap();
    wait_for("sound", PATIENCE, || {
        hear(client);
        rpc.stream(id).unwrap()["status"] == "playing"
    });
    wait_for("its script", PATIENCE, || {
        hear(client);
        has_script()
    });
    drop(push);
    wait_for("idle", PATIENCE, || {
        hear(client);
        rpc.stream(id).unwrap()["status"] == "idle"
    });
    rpc.call("Group.SetStream", &json!({ "id": group, "stream_id": "default" }));
    assert_eq!(rpc.call("Stream.RemoveStream", &json!({ "id": id }))["id"], id);
    assert!(rpc.stream(id).is_none());
    // The stream's port is closed; its address can be reused.
    wait_for("the port", PATIENCE, || TcpStream::connect(&host).is_err());
}

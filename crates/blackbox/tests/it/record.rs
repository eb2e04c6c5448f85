//! Recordings, checked by ffmpeg: every frame once, complete after a kill, exact to the frame.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aulos_blackbox::peer::{Process, find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::{Value, json};

use crate::rpc::Rpc;
use crate::{long_shared_turn, script, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// The files of a folder with this extension, by name.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = paths.filter(|path| text(path).ends_with(ending)).collect();
    all.sort();
    all
}

/// All frames of a file as ffmpeg decodes them: the left channel, 16 bits.
fn decoded(ffmpeg: &Path, file: &Path) -> Vec<i16> {
    let mut command = Command::new(ffmpeg);
    // ffmpeg does not recognize the extension `.part`; it detects the format from the content.
    command.args(["-nostdin", "-v", "error", "-i", text(file), "-f", "s16le", "-ac", "1", "-"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", file.display());
    output.stdout.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
}

/// Asserts that both are equal; if not, only the position is reported.
fn same(one: &[i16], other: &[i16]) {
    let place = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!((one.len(), place), (other.len(), None));
}

/// Number of discontinuities of a sine: where a frame is missing or repeated.
fn breaks(sound: &[i16], hz: f64) -> usize {
    let turn = 2.0 * (std::f64::consts::TAU * hz / 48_000.0).cos();
    let next = |three: &[i16]| turn * f64::from(three[1]) - f64::from(three[0]);
    // Three roundings of one and a half steps each, dither included, one of them amplified by two.
    // A missing or repeated frame deviates by at least two hundred steps.
    sound.windows(3).filter(|three| (next(three) - f64::from(three[2])).abs() > 6.0).count()
}

/// The state of the server's recorder.
fn recorder(rpc: &mut Rpc) -> Value {
    rpc.call("Aulos.GetRecordings", &json!({}))["recorders"][0].clone()
}

fn config(dir: &Path, more: &str) -> String {
    format!(
        "[[station]]\nname = \"hall\"\ncodec = \"pcm\"\nsources = [\"tone://?hz=997&dbfs=-6\"]\n\
         record = {{ dir = \"{}\"{more} }}\n",
        dir.display()
    )
}

#[test]
fn the_files_of_a_recording_joined_are_the_stream() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = long_shared_turn();
    for (format, exact) in [("wav", true), ("flac", true), ("opus", false), ("mp3", false)] {
        let scratch = ScratchDir::new("record").unwrap();
        let folder = scratch.join("rec");
        let more =
            format!(", format = \"{format}\", rotate = \"1s\", file = \"{{name}}-{{index}}\"");
        let server = AulosServer::start(&scratch, &config(&folder, &more)).unwrap();
        let ending = format!(".{format}");
        wait_for("four files", PATIENCE, || files(&folder, &ending).len() >= 4);
        server.stop().unwrap();
        let all = files(&folder, &ending);
        assert_eq!(files(&folder, ".part"), Vec::<PathBuf>::new(), "{format}: all are complete");
        let mut sound = Vec::new();
        let mut start = None;
        for file in &all {
            let part = decoded(&ffmpeg, file);
            let note = std::fs::read(file.with_extension(format!("{format}.json"))).unwrap();
            let note: Value = serde_json::from_slice(&note).unwrap();
            assert_eq!(note["frames"], part.len(), "{format}: {note}");
            let first = note["start_frame"].as_u64().unwrap();
            assert!(start.is_none_or(|start| start == first), "{format}: {note}");
            start = Some(first + part.len() as u64);
            sound.extend(part);
        }
        assert!(all[..all.len() - 1].iter().all(|file| decoded(&ffmpeg, file).len() == 48_000));
        if exact {
            // The first frames are the station's silence before its source started.
            let begun = sound.iter().position(|sample| *sample != 0).unwrap();
            let faded = (begun + 4_800).min(sound.len());
            assert_eq!(breaks(&sound[faded..], 997.0), 0, "{format}");
        }
    }
}

#[test]
fn a_killed_server_leaves_playable_files_and_repairs_them_at_the_next_start() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    for format in ["wav", "flac", "opus", "mp3"] {
        let scratch = ScratchDir::new("killed").unwrap();
        let folder = scratch.join("rec");
        let config = config(&folder, &format!(", format = \"{format}\""));
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut rpc = Rpc::connect(server.control);
        let mut seconds = 0.0;
        wait_for("two seconds", PATIENCE, || {
            seconds = recorder(&mut rpc)["seconds"].as_f64().unwrap_or(0.0);
            seconds >= 2.0
        });
        // SIGKILL, the worst case.
        drop(server);
        let torn = files(&folder, ".part");
        assert_eq!(torn.len(), 1, "{format}");
        let heard = decoded(&ffmpeg, &torn[0]).len() as f64 / 48_000.0;
        assert!(heard >= seconds - 0.5, "{format}: {heard} s of {seconds} s");

        let server = AulosServer::start(&scratch, &config).unwrap();
        let whole = PathBuf::from(text(&torn[0]).strip_suffix(".part").unwrap());
        wait_for("the repair", PATIENCE, || whole.exists());
        let after = decoded(&ffmpeg, &whole).len() as f64 / 48_000.0;
        assert!((after - heard).abs() < 0.1, "{format}: {heard} s became {after} s");
        server.stop().unwrap();
    }
}

#[test]
fn recorder_commands_take_effect_on_their_exact_frame() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("toggle").unwrap();
    let folder = scratch.join("rec");
    let more = ", format = \"wav\", start = false, file = \"take-{index}\"";
    let server = AulosServer::start(&scratch, &config(&folder, more)).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("its first sound", PATIENCE, || {
        recorder(&mut rpc)["state"] == "idle"
            && rpc.call("Aulos.GetStatus", &json!({}))["stations"][0]["state"] == "playing"
    });
    std::thread::sleep(Duration::from_millis(1_500));
    let frame = |answer: &Value| answer["recorders"][0]["frame"].as_u64().unwrap();
    let begun = rpc.call("Aulos.StartRecording", &json!({ "station": "hall", "ago_s": 1 }));
    let start = frame(&begun);
    // Each at a frame in the future.
    let at = |frames: u64| json!({ "station": "hall", "frame": start + frames });
    let mut closed = at(96_000);
    closed["gap"] = json!("closed");
    for (method, params, at) in [
        ("Aulos.CutRecording", at(72_000), 72_000),
        ("Aulos.PauseRecording", closed, 96_000),
        ("Aulos.ResumeRecording", at(120_000), 120_000),
        ("Aulos.StopRecording", at(144_000), 144_000),
    ] {
        assert_eq!(frame(&rpc.call(method, &params)), start + at, "{method}");
    }
    wait_for("two files", PATIENCE, || files(&folder, ".wav").len() == 2);
    let all = files(&folder, ".wav");
    let lengths: Vec<usize> = all.iter().map(|file| decoded(&ffmpeg, file).len()).collect();
    assert_eq!(lengths, [72_000, 48_000]);
    assert_eq!(breaks(&decoded(&ffmpeg, &all[0]), 997.0), 0);
    assert_eq!(recorder(&mut rpc)["state"], "idle");
    let again = rpc.answer("Aulos.StopRecording", &json!({ "station": "hall" }));
    assert!(again["error"].to_string().contains("start it first"), "{again}");
    server.stop().unwrap();
}

#[test]
fn an_unavailable_folder_is_reported_and_so_is_its_return() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("unfolder").unwrap();
    // The path is blocked by a file: root may write anywhere, but not below a file.
    let folder = scratch.join("rec");
    std::fs::write(&folder, "no folder").unwrap();
    let (told, hook) = (scratch.join("told"), scratch.join("hook"));
    script(&hook, &format!("#!/bin/sh\ncat >> {}\n", told.display()));
    let hooks = format!("[[hook]]\nrun = \"{}\"\non = [\"recorded\"]\n", hook.display());
    let config = config(&folder, ", format = \"flac\", rotate = \"1s\"") + &hooks;
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let state = recorder(&mut rpc);
    assert_eq!(state["state"], "failed", "{state}");
    assert!(state["trouble"].as_str().unwrap().contains(text(&folder)), "{state}");
    assert_eq!(rpc.call("Aulos.GetStatus", &json!({}))["stations"][0]["name"], "hall");
    std::fs::remove_file(&folder).unwrap();
    wait_for("it records", PATIENCE, || recorder(&mut rpc)["files"].as_u64() > Some(0));
    wait_for("the hook", PATIENCE, || {
        std::fs::read_to_string(&told).is_ok_and(|told| told.contains("\"sha256\""))
    });
    let told = std::fs::read_to_string(&told).unwrap();
    assert!(told.contains("\"event\":\"recorded\"") && !told.contains("closed"), "{told}");
    server.stop().unwrap();
}

#[test]
fn the_command_records_a_source_to_its_end() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("command").unwrap();
    let record = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("record").args(arguments).current_dir(scratch.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let (out, said) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
        (output.status.code(), out.unwrap(), said.unwrap())
    };
    let original = scratch.join("song.wav");
    let made = Command::new(&ffmpeg)
        .args(["-v", "error", "-f", "lavfi", "-i", "anoisesrc=d=20:r=44100:seed=7"])
        .args(["-ac", "2", "-c:a", "pcm_s16le", text(&original)])
        .status();
    assert!(made.unwrap().success());
    let uri = format!("file://{}", original.display());
    let (code, out, said) = record(&[&uri, "copy.flac", "--no-pace"]);
    assert_eq!((code, out.ends_with("/copy.flac\n")), (Some(0), true), "{out}{said}");
    let whole = decoded(&ffmpeg, &original);
    same(&decoded(&ffmpeg, &scratch.join("copy.flac")), &whole);
    // Existing files are not overwritten.
    let (code, _, said) = record(&[&uri, "copy.flac", "--no-pace"]);
    assert_eq!(code, Some(73), "{said}");
    assert!(said.contains("never overwrites a file") && said.contains("hint: "), "{said}");
    // Rotated, ended by a signal, and joined.
    let (code, out, said) =
        record(&[&uri, "part.wav", "--no-pace", "--rotate", "3s", "--for", "10s"]);
    assert_eq!((code, out.lines().count()), (Some(0), 4), "{said}");
    let parts = files(scratch.path(), ".wav");
    let parts: Vec<&PathBuf> = parts.iter().filter(|file| text(file).contains("part-")).collect();
    let joined: Vec<i16> = parts.iter().flat_map(|file| decoded(&ffmpeg, file)).collect();
    same(&joined, &whole[..441_000]);
    for (arguments, code, words) in [
        (&[uri.as_str(), "copy.aac"][..], 2, "--format"),
        (&[uri.as_str(), "../up-%H.wav/", "--rotate", "5"], 2, "not a duration"),
        (&["file:///no/such/file.wav", "a.wav"], 66, "no such file"),
        (&[uri.as_str(), "/proc/a.wav"], 73, "/proc"),
        (&[uri.as_str(), "a.opus", "--bits", "16"], 2, "--kbps"),
    ] {
        let (got, out, said) = record(arguments);
        assert_eq!((got, out.as_str()), (Some(code), ""), "{arguments:?}: {said}");
        assert!(said.to_lowercase().contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn the_record_command_includes_the_pre_roll_and_ends_on_a_signal() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("signals").unwrap();
    let mut command = Command::new(binary());
    command.args(["record", "tone://?hz=997&dbfs=-6", "take.wav", "--pre-roll", "1s", "--json"]);
    command.current_dir(scratch.path());
    let logs = [scratch.join("out"), scratch.join("err")];
    let mut process = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    let said = |log: &Path| std::fs::read_to_string(log).unwrap_or_default();
    wait_for("it waits", PATIENCE, || said(&logs[1]).contains("waiting"));
    std::thread::sleep(Duration::from_millis(1_500));
    let signal = |name: &str, process: &Process| {
        let sent = Command::new("kill").args(["-s", name, &process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    signal("USR1", &process);
    wait_for("the file", PATIENCE, || !files(scratch.path(), ".part").is_empty());
    signal("USR1", &process);
    wait_for("the end of it", PATIENCE, || said(&logs[0]).contains("take.wav"));
    process.terminate(PATIENCE).unwrap();
    let line: Value = serde_json::from_str(said(&logs[0]).trim()).unwrap();
    let sound = decoded(&ffmpeg, &scratch.join("take.wav"));
    let seconds = line["seconds"].as_f64().unwrap();
    assert!((seconds - sound.len() as f64 / 48_000.0).abs() < 0.001, "{line}");
    assert!(sound.len() >= 48_000, "a second from before the signal: {line}");
    assert_eq!(breaks(&sound, 997.0), 0);
}

/// A radio whose samples are the time of its programme in milliseconds, from 1,000 on. It goes on
/// without listeners, and is away from 600 ms after its first listener on, for 300 ms.
fn clock_radio() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut begin = None;
        for socket in listener.incoming() {
            let begin = *begin.get_or_insert_with(Instant::now);
            // A listener that has gone is no failure of the radio.
            std::thread::spawn(move || drop(serve_clock(socket.unwrap(), begin)));
        }
    });
    port
}

fn serve_clock(mut socket: TcpStream, begin: Instant) -> std::io::Result<()> {
    let away = Duration::from_millis(600)..Duration::from_millis(900);
    let _ = socket.read(&mut [0; 4_000])?;
    let joined = begin.elapsed();
    if away.contains(&joined) {
        return Ok(());
    }
    socket.write_all(
        b"HTTP/1.0 200 OK\r\nContent-Type: audio/wav\r\n\r\n\
          RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x80\xbb\0\0\0\x77\x01\0\
          \x02\0\x10\0data\xff\xff\xff\xff",
    )?;
    let mut next = i16::try_from(joined.as_millis()).unwrap();
    while joined > away.start || begin.elapsed() < away.start {
        while i128::from(next) <= i128::try_from(begin.elapsed().as_millis()).unwrap() {
            socket.write_all(&(1_000 + next).to_le_bytes().repeat(48))?;
            next += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn what_a_radio_does_not_send_is_reported_and_is_silence_where_that_is_wanted() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("away").unwrap();
    let record = |name: &str, more: &[&str]| {
        let url = format!("http://127.0.0.1:{}/x", clock_radio());
        let mut command = Command::new(binary());
        command.args(["record", &url, name, "--sidecar", "--json"]).args(more);
        command.current_dir(scratch.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let filled = record("filled.wav", &["--fill", "--for", "2500ms"]);
    let joined = record("joined.wav", &["--for", "1200ms"]);
    for (child, name, is_filled) in [(filled, "filled.wav", true), (joined, "joined.wav", false)] {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("the source sent nothing"), "{said}");
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sidecar = std::fs::read(scratch.join(format!("{name}.json"))).unwrap();
        let sidecar: Value = serde_json::from_slice(&sidecar).unwrap();
        let [gap] = &sidecar["gaps"].as_array().unwrap()[..] else { panic!("{sidecar}") };
        assert_eq!((&gap["kind"], &gap["silence"]), (&json!("interrupted"), &json!(is_filled)));
        assert_eq!((&line["lost_frames"], &line["lost_s"]), (&gap["frames"], &gap["seconds"]));
        assert_eq!(sidecar["lost_frames"], gap["frames"], "{sidecar}");
        let sound = decoded(&ffmpeg, &scratch.join(name));
        assert_eq!(sidecar["frames"], sound.len(), "{sidecar}");
        let frame = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let (position, lost) = (frame(&gap["position"]), frame(&gap["frames"]));
        // The joint has a fade.
        let resumed = position + if is_filled { lost } else { 0 } + 480;
        if is_filled {
            let silence = &sound[position + 480..position + lost];
            assert!(silence.iter().all(|sample| sample.abs() <= 1), "{gap}");
        }
        let missing = f64::from(sound[resumed] - sound[position - 480]) - 20.0;
        let said = gap["seconds"].as_f64().unwrap() * 1e3;
        assert!((missing - said).abs() < 100.0, "{missing} ms are missing, {gap}");
    }
}

/// Path of s3s-fs, an S3-compatible server, as installed by scripts/test-setup.
pub(crate) fn s3_server() -> Option<PathBuf> {
    let tools = std::env::var_os("AULOS_TEST_TOOLS").map(PathBuf::from);
    let program = tools.map(|tools| tools.join("s3s-fs")).filter(|program| program.is_file());
    if program.is_none() {
        skip("s3s-fs");
    }
    program
}

/// Starts it with a bucket `tapes`, and returns its address.
fn start_s3(program: &Path, scratch: &ScratchDir) -> (Process, String) {
    start_s3_at(program, scratch, 0)
}

/// The same at this port; 0 is a free one.
pub(crate) fn start_s3_at(program: &Path, scratch: &ScratchDir, port: u16) -> (Process, String) {
    std::fs::create_dir_all(scratch.join("s3/tapes")).unwrap();
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--access-key", "me", "--port"]).arg(port.to_string());
    command.args(["--secret-key", "only for this test"]).arg(scratch.join("s3"));
    command.env("RUST_LOG", "s3s_fs=info");
    let logs = [scratch.join("s3.out"), scratch.join("s3.err")];
    let process = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    let mut address = None;
    wait_for("the server's address", PATIENCE, || {
        let said = std::fs::read_to_string(&logs[0]).unwrap_or_default();
        let place = said.split_once("http://").map(|(_, rest)| rest.to_owned());
        address = place.and_then(|rest| Some(rest.lines().next()?.trim().to_owned()));
        address.is_some()
    });
    (process, address.unwrap())
}

#[test]
fn what_is_recorded_gets_to_s3_whole_through_a_kill_and_is_deleted_only_then() {
    let Some(program) = s3_server() else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("away").unwrap();
    let (_s3, address) = start_s3(&program, &scratch);
    let folder = scratch.join("rec");
    let upload = format!(
        ", rotate = \"1s\", upload = {{ url = \"s3://tapes/{{station}}\", endpoint = \"http://{address}\", \
         access_key = \"me\", secret_key = \"only for this test\", keep_local = false }}"
    );
    let config = config(&folder, &upload);
    let objects = || files(&scratch.join("s3/tapes/hall"), ".flac.json");
    let server = AulosServer::start(&scratch, &config).unwrap();
    wait_for("two files are away", PATIENCE, || objects().len() >= 2);
    // In the middle of a file: one in which nothing is yet would be removed.
    std::thread::sleep(Duration::from_millis(400));
    drop(server);
    let torn = files(&folder, ".part");
    let server = AulosServer::start(&scratch, &config).unwrap();
    let later = objects().len() + 3;
    wait_for("what was torn, and more", PATIENCE, || objects().len() >= later);
    server.stop().unwrap();
    for note in objects() {
        let said: Value = serde_json::from_slice(&std::fs::read(&note).unwrap()).unwrap();
        assert!(said["state"] == "closed" || said["state"] == "repaired", "{said}");
        let object = text(&note).strip_suffix(".json").unwrap();
        let sum = Command::new("sha256sum").arg(object).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        assert_eq!(said["sha256"].as_str(), sum.split(' ').next(), "{object}");
    }
    for part in torn {
        let name = part.file_name().unwrap().to_str().unwrap().strip_suffix(".part").unwrap();
        let away = scratch.join("s3/tapes/hall").join(name);
        assert!(away.exists() || folder.join(name).exists(), "{name} is here or there");
    }
}

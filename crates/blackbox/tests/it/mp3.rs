//! MP3 as other programs hear it: ffmpeg and mpg123 play it, a real icecast2 relays it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::{AulosServer, binary};
use serde_json::{Value, json};

use crate::dj::share_of_the_tone;
use crate::radio::icecast;
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_shared_turn, script, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the system has LAME; without it the built-in encoder would be measured in its place.
fn has_lame() -> bool {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let has = folders.map(|it| it.path().join("libmp3lame.so.0")).any(|file| file.exists());
    if !has {
        skip("libmp3lame0");
    }
    has
}

/// Standard output of ffmpeg with these arguments, as samples of 16 bits.
pub(crate) fn decoded(ffmpeg: &Path, arguments: &str) -> Vec<i16> {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-loglevel", "error"]).args(arguments.split_whitespace());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{arguments}: {said}");
    output.stdout.as_chunks::<2>().0.iter().map(|two| i16::from_le_bytes(*two)).collect()
}

/// Two seconds of an address behind its first second, mono at 48 kHz.
fn heard(ffmpeg: &Path, http: SocketAddr, path: &str) -> Vec<i16> {
    let url = format!("http://{http}/listen/{path}");
    decoded(ffmpeg, &format!("-i {url} -ss 1 -t 2 -f s16le -ar 48000 -ac 1 pipe:1"))
}

pub(crate) fn level_db(samples: &[i16]) -> f64 {
    let power: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    10.0 * (power / samples.len() as f64).log10()
}

const TONES: &str = "[[station]]\nname = \"default\"\nmp3 = \"192k,builtin\"\n\
    sources = [\"tone://?hz=440&dbfs=-12\"]\n\
    [[station]]\nname = \"low\"\nmp3 = \"128k\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
    [[station]]\nname = \"cd\"\nspec = \"44100:16:2\"\nmp3 = \"192k,lame\"\n\
    sources = [\"tone://?hz=440&dbfs=-12\"]\n\
    [[station]]\nname = \"half\"\nspec = \"22050:16:1\"\nmp3 = \"builtin\"\n\
    sources = [\"tone://?hz=440&dbfs=-12\"]\n";

#[test]
fn ffmpeg_and_mpg123_hear_the_level_and_the_pitch_of_the_station() {
    retry_after_stall("mp3::ffmpeg_and_mpg123_hear_the_level_and_the_pitch_of_the_station", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let Some(mpg123) = find_or_skip("mpg123") else { return };
        if !has_lame() {
            return;
        }
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("mp3").unwrap();
        let server = AulosServer::start(&scratch, TONES).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let reference = heard(&ffmpeg, server.http, "default.flac");
        for name in ["default", "low", "cd", "half"] {
            let sound = heard(&ffmpeg, server.http, &format!("{name}.mp3"));
            let (change, share) =
                (level_db(&sound) - level_db(&reference), share_of_the_tone(&sound));
            println!("{name}: {change:+.3} dB, {share:.6} of it the tone");
            assert!(
                sound.len() > 90_000 && change.abs() < 0.1 && share > 0.9999,
                "{name}: {change}"
            );
            let file = scratch.join("heard.wav");
            let mut command = Command::new(&mpg123);
            // A hundred frames, 2.4 seconds or more.
            command.args(["-q", "-n", "100", "-w", text(&file)]);
            command.arg(format!("http://{}/listen/{name}.mp3", server.http));
            let played = command.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&played.stderr);
            assert!(played.status.success() && said.is_empty(), "{name}: {said}");
            let sound = decoded(
                &ffmpeg,
                &format!("-ss 0.5 -i {} -f s16le -ar 48000 -ac 1 pipe:1", text(&file)),
            );
            let (change, share) =
                (level_db(&sound) - level_db(&reference), share_of_the_tone(&sound));
            println!("{name}, mpg123: {change:+.3} dB, {share:.6} of it the tone, {}", sound.len());
            assert!(
                sound.len() > 48_000 && change.abs() < 0.1 && share > 0.9999,
                "{name}: {change}"
            );
        }
        server.stop().unwrap();
    });
}

/// A control script that reports a title.
const TITLE: &str = r#"#!/bin/sh
echo '{"jsonrpc":"2.0","method":"Plugin.Stream.Ready"}'
printf '{"jsonrpc":"2.0","method":"Plugin.Stream.Player.Properties","params":'
printf '{"metadata":{"title":"J\\u00f3ga","artist":["Bj\\u00f6rk"]}}}\n'
sleep 600
"#;

#[test]
fn a_real_icecast_relays_the_push_with_its_title_and_bit_rate() {
    retry_after_stall("mp3::a_real_icecast_relays_the_push_with_its_title_and_bit_rate", || {
        let Some(icecast_program) = find_or_skip("icecast2") else { return };
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("mp3-push").unwrap();
        // The web pages of the package are the judge of what directories read.
        for page in ["status-json.xsl", "xml2json.xslt"] {
            let from = Path::new("/usr/share/icecast2/web").join(page);
            std::fs::copy(&from, scratch.join(page)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut ice = icecast(&icecast_program, port, &scratch);
        let titles = scratch.join("titles");
        script(&titles, TITLE);
        let config = format!(
            "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
         push = [{{ url = \"icecast://127.0.0.1:{port}/live.mp3\", password = \"secret\", \
         format = \"mp3:192k\", name = \"House\", genre = \"Test\" }}]\n\
         plugin = {{ script = \"{}\" }}\n",
            text(&titles)
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut source = Value::Null;
        wait_for("the title in status-json.xsl", PATIENCE, || {
            let answer = String::from_utf8(get(port, "/status-json.xsl", "")).unwrap();
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let status: Value = serde_json::from_str(body).unwrap_or_default();
            source = status["icestats"]["source"].clone();
            source["title"] == "Björk - Jóga"
        });
        assert_eq!(source["server_type"], "audio/mpeg", "{source}");
        assert_eq!((&source["server_name"], &source["genre"]), (&"House".into(), &"Test".into()));
        assert_eq!(source["ice-bitrate"], 192, "{source}");
        assert!(source["audio_info"].as_str().unwrap().contains("ice-bitrate=192"), "{source}");
        // A player that requests titles gets it between the frames, as Icecast writes it there: in
        // Latin-1.
        let told = get(port, "/live.mp3", "Icy-MetaData: 1\r\n");
        let title = b"StreamTitle='Bj\xf6rk - J\xf3ga';";
        let is_told = told.windows(title.len()).any(|bytes| bytes == title);
        assert!(is_told, "no title in {} bytes", told.len());
        let url = format!("http://127.0.0.1:{port}/live.mp3");
        let sound =
            decoded(&ffmpeg, &format!("-i {url} -ss 1 -t 2 -f s16le -ar 48000 -ac 1 pipe:1"));
        let share = share_of_the_tone(&sound);
        assert!(sound.len() > 90_000 && share > 0.9999, "{share}");
        server.stop().unwrap();
        ice.terminate(PATIENCE).unwrap();
    });
}

/// The answer of a server on this machine, or what has come of an endless one.
pub(crate) fn get(port: u16, path: &str, fields: &str) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.0\r\n{fields}\r\n").unwrap();
    let mut bytes = Vec::new();
    socket.take(100_000).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Integrated loudness of a file in LUFS, by ffmpeg.
pub(crate) fn loudness(ffmpeg: &Path, file: &Path) -> f64 {
    let mut command = Command::new(ffmpeg);
    command.args(["-nostdin", "-hide_banner", "-i", text(file)]);
    command.args(["-af", "loudnorm=print_format=json", "-f", "null", "-"]);
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let value = said.split("\"input_i\" : \"").nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

#[test]
fn recordings_by_lame_have_the_loudness_and_the_length_of_those_by_flac() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let Some(ffprobe) = find_or_skip("ffprobe") else { return };
    if !has_lame() {
        return;
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mp3-loudness").unwrap();
    let record = |name: &str, more: &str| {
        let dir = text(&scratch.join("rec")).to_owned();
        format!(
            "{{ name = \"{name}\", file = \"{name}\", dir = \"{dir}\", start = false, {more} }}"
        )
    };
    let config = format!(
        "[[station]]\nname = \"hall\"\nmp3 = \"128k,lame\"\nsources = [\"demo://\"]\n\
         record = [{}, {}, {}]\n",
        record("lossless", "format = \"flac\""),
        record("low", "format = \"mp3\""),
        record("high", "format = \"mp3\", kbps = 192"),
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    std::thread::sleep(Duration::from_secs(2));
    let begun = rpc.call("Aulos.StartRecording", &json!({ "station": "hall" }));
    let start = begun["recorders"][0]["frame"].as_u64().unwrap();
    assert!((0..3).all(|at| begun["recorders"][at]["frame"] == start), "{begun}");
    let end = json!({ "station": "hall", "frame": start + 480_001 });
    rpc.call("Aulos.StopRecording", &end);
    let file = |name: &str, ending: &str| scratch.join("rec").join(format!("{name}.{ending}"));
    let files = [file("lossless", "flac"), file("low", "mp3"), file("high", "mp3")];
    wait_for("three files", PATIENCE, || files.iter().all(|file| file.exists()));
    let reference = loudness(&ffmpeg, &files[0]);
    for path in &files[1..] {
        let change = loudness(&ffmpeg, path) - reference;
        println!("{}: {change:+.2} LU of {reference} LUFS", path.display());
        assert!(change.abs() < 0.05, "{}: {change} LU", path.display());
        let sound = decoded(&ffmpeg, &format!("-i {} -f s16le -ac 1 pipe:1", text(path)));
        assert_eq!(sound.len(), 480_001, "{}", path.display());
        let mut command = Command::new(&ffprobe);
        command.args(["-v", "error", "-show_entries", "format=duration:format_tags", text(path)]);
        let report = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let title = format!("TAG:title={}", path.file_stem().unwrap().display());
        let tags = ["duration=10.0", &title, "TAG:date=20", "TAG:TIME_REFERENCE="];
        assert!(tags.iter().all(|line| report.contains(line)), "{report}");
    }
    server.stop().unwrap();
}

/// What `aulos check` prints.
fn checked(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// `mp3` of the first station in the status.
fn mp3_status(server: &AulosServer) -> Value {
    let status = Rpc::connect(server.control).call("Aulos.GetStatus", &json!({}));
    status["stations"][0]["mp3"].clone()
}

/// LAME writes its name where a frame has room, so that each stream and file says what encoded it.
#[test]
fn lame_encodes_where_the_system_has_it_and_the_status_says_so() {
    if !has_lame() {
        return;
    }
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mp3-lame").unwrap();
    let push = TcpListener::bind("127.0.0.1:0").unwrap();
    for (mp3, is_lame) in [("128k", true), ("128k,builtin", false)] {
        let folder = scratch.join(mp3);
        std::fs::create_dir(&folder).unwrap();
        let config = format!(
            "[[station]]\nname = \"default\"\nmp3 = \"{mp3}\"\n\
             sources = [\"tone://?hz=440&dbfs=-12\"]\n\
             push = [{{ url = \"icecast://{}/live\", password = \"secret\", format = \"mp3\" }}]\n\
             record = [{{ dir = \"{}\", file = \"a\", format = \"mp3\" }}]\n",
            push.local_addr().unwrap(),
            text(&folder)
        );
        let file = folder.join("aulos.toml");
        std::fs::write(&file, &config).unwrap();
        let said = checked(Command::new(binary()).arg("check").arg("--config").arg(&file));
        assert_eq!(said.contains("mp3=\"lame 3."), is_lame, "{said}");
        let server = AulosServer::start(&scratch, &config).unwrap();
        let pushed = accept_push(&push);
        let status = mp3_status(&server);
        assert_eq!(status["kbps"], 128, "{status}");
        let name = status["encoder"].as_str().unwrap();
        assert_eq!(name.starts_with("lame 3."), is_lame, "{status}");
        let heard = get(server.http.port(), "/listen/default.mp3", "");
        server.stop().unwrap();
        let recorded = std::fs::read(folder.join("a.mp3")).unwrap();
        for (what, bytes) in [("stream", &heard), ("push", &pushed), ("file", &recorded)] {
            assert_eq!(names_lame(bytes), is_lame, "{what} of {} bytes, {mp3}", bytes.len());
        }
    }
    let out = scratch.join("out.mp3");
    let mut record = Command::new(binary());
    record.args(["record", "tone://?hz=440&dbfs=-12", text(&out), "--for", "3s"]);
    let record = record.output().unwrap();
    assert!(record.status.success(), "{}", String::from_utf8_lossy(&record.stderr));
    assert!(names_lame(&std::fs::read(&out).unwrap()), "record");
}

fn names_lame(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|name| name == b"LAME3.")
}

/// Answers a source client and returns the beginning of what it sends.
fn accept_push(listener: &TcpListener) -> Vec<u8> {
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    socket.take(50_000).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The linker finds a file of this name that is no library.
#[test]
fn without_lame_the_check_warns_and_the_station_plays_on() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("mp3-missing").unwrap();
    let folder = scratch.join("lib");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("libmp3lame.so.0"), "no library").unwrap();
    let file = scratch.join("lame.toml");
    let config = "[[station]]\nname = \"default\"\nmp3 = \"128k,lame\"\n\
                  sources = [\"tone://?hz=440&dbfs=-12\"]\n";
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(binary());
    command.arg("check").arg("--config").arg(&file).env("LD_LIBRARY_PATH", &folder);
    let said = checked(&mut command);
    assert!(said.contains("lame.toml:3:7: ") && said.contains("package libmp3lame0"), "{said}");
    assert!(said.contains("the built-in encoder is used instead"), "{said}");
    assert!(said.contains("mp3=\"built-in\""), "{said}");
    let server = AulosServer::start_with(&scratch, |command| {
        command.arg("--config").arg(&file).env("LD_LIBRARY_PATH", &folder);
    })
    .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(mp3_status(&server), json!({ "kbps": 128, "encoder": "built-in" }));
    let share = share_of_the_tone(&heard(&ffmpeg, server.http, "default.mp3"));
    assert!(share > 0.9999, "{share}");
    let printed = server.printed().unwrap();
    assert!(printed.contains("libmp3lame0"), "the start says nothing: {printed}");
    server.stop().unwrap();
}

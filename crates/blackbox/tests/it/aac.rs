//! AAC as other programs decode it: listeners, a mount that encodes, a real icecast2.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::dj::share_of_the_tone;
use crate::mp3::{decoded, get, level_db, loudness};
use crate::radio::icecast;
use crate::retry::retry_after_stall;
use crate::rpc::Rpc;
use crate::{long_shared_turn, shared_turn, text, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Two seconds of an address behind its first second, mono at 48 kHz.
fn heard(ffmpeg: &Path, url: &str) -> Vec<i16> {
    decoded(ffmpeg, &format!("-i {url} -ss 1 -t 2 -f s16le -ar 48000 -ac 1 pipe:1"))
}

#[test]
fn ffmpeg_hears_the_level_and_the_pitch_of_the_station() {
    retry_after_stall("aac::ffmpeg_hears_the_level_and_the_pitch_of_the_station", || {
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = long_shared_turn();
        let scratch = ScratchDir::new("aac").unwrap();
        let tone = "sources = [\"tone://?hz=440&dbfs=-12\"]";
        let config = format!(
            "[[station]]\nname = \"default\"\n{tone}\n\
             [[station]]\nname = \"high\"\naac = \"256k\"\n{tone}\n\
             [[station]]\nname = \"cd\"\nspec = \"44100:16:2\"\naac = \"64k\"\n{tone}\n\
             [[station]]\nname = \"voice\"\nspec = \"22050:16:1\"\naac = \"32k\"\n{tone}\n\
             [[mount]]\nname = \"live.aac\"\nstation = \"cd\"\nencoder = \"aac:96k\"\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let url = |path: &str| format!("http://{}/{path}", server.http);
        let reference = level_db(&heard(&ffmpeg, &url("listen/default.flac")));
        let streams = ["default", "high", "cd", "voice"].map(|name| format!("listen/{name}.aac"));
        for path in streams.iter().map(String::as_str).chain(["live.aac"]) {
            let sound = heard(&ffmpeg, &url(path));
            let (change, share) = (level_db(&sound) - reference, share_of_the_tone(&sound));
            println!("{path}: {change:+.3} dB, {share:.6} of it the tone");
            assert!(
                sound.len() > 90_000 && change.abs() < 0.1 && share > 0.9999,
                "{path}: {change} dB, {share}"
            );
        }
        let head = get(server.http.port(), "/listen/default.aac", "");
        let head = String::from_utf8_lossy(&head[..200]).to_ascii_lowercase();
        assert!(head.contains("content-type: audio/aac"), "{head}");
        server.stop().unwrap();
    });
}

#[test]
fn a_real_icecast_relays_the_push() {
    retry_after_stall("aac::a_real_icecast_relays_the_push", || {
        let Some(icecast_program) = find_or_skip("icecast2") else { return };
        let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
        let _turn = shared_turn();
        let scratch = ScratchDir::new("aac-push").unwrap();
        for page in ["status-json.xsl", "xml2json.xslt"] {
            let from = Path::new("/usr/share/icecast2/web").join(page);
            std::fs::copy(&from, scratch.join(page)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut ice = icecast(&icecast_program, port, &scratch);
        let config = format!(
            "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
             push = [{{ url = \"icecast://127.0.0.1:{port}/live.aac\", password = \"secret\", \
             format = \"aac:96k\" }}]\n"
        );
        let server = AulosServer::start(&scratch, &config).unwrap();
        let mut source = Value::Null;
        wait_for("the push in status-json.xsl", PATIENCE, || {
            let answer = String::from_utf8(get(port, "/status-json.xsl", "")).unwrap();
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let status: Value = serde_json::from_str(body).unwrap_or_default();
            source = status["icestats"]["source"].clone();
            source["server_type"] == "audio/aac"
        });
        assert_eq!(source["ice-bitrate"], 96, "{source}");
        let sound = heard(&ffmpeg, &format!("http://127.0.0.1:{port}/live.aac"));
        let share = share_of_the_tone(&sound);
        assert!(sound.len() > 90_000 && share > 0.9999, "{share}");
        server.stop().unwrap();
        ice.terminate(PATIENCE).unwrap();
    });
}

#[test]
fn recordings_have_the_loudness_and_the_length_of_those_by_flac() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let Some(ffprobe) = find_or_skip("ffprobe") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("aac-loudness").unwrap();
    let dir = text(&scratch.join("rec")).to_owned();
    let record = |name: &str, more: &str| {
        format!(
            "{{ name = \"{name}\", file = \"{name}\", dir = \"{dir}\", start = false, {more} }}"
        )
    };
    let config = format!(
        "[[station]]\nname = \"hall\"\naac = \"96k\"\nsources = [\"demo://\"]\n\
         record = [{}, {}, {}]\n",
        record("lossless", "format = \"flac\""),
        record("low", "format = \"m4a\""),
        record("high", "format = \"m4a\", kbps = 192"),
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    std::thread::sleep(Duration::from_secs(2));
    let begun = rpc.call("Aulos.StartRecording", &json!({ "station": "hall" }));
    let start = begun["recorders"][0]["frame"].as_u64().unwrap();
    let end = json!({ "station": "hall", "frame": start + 480_001 });
    rpc.call("Aulos.StopRecording", &end);
    let file = |name: &str, ending: &str| scratch.join("rec").join(format!("{name}.{ending}"));
    let files = [file("lossless", "flac"), file("low", "m4a"), file("high", "m4a")];
    wait_for("three files", PATIENCE, || files.iter().all(|file| file.exists()));
    let reference = loudness(&ffmpeg, &files[0]);
    for (path, kbps) in files[1..].iter().zip([96.0, 192.0]) {
        let change = loudness(&ffmpeg, path) - reference;
        let bytes = std::fs::metadata(path).unwrap().len();
        let rate = bytes as f64 * 8.0 / 10_000.0;
        println!("{}: {change:+.2} LU of {reference} LUFS, {rate:.0} kbit/s", path.display());
        assert!(change.abs() < 0.1, "{}: {change} LU", path.display());
        // Fragments and index take some 6 kbit/s.
        assert!((0.9 * kbps..1.05 * kbps + 8.0).contains(&rate), "{rate} of {kbps} kbit/s");
        let sound = decoded(&ffmpeg, &format!("-i {} -f s16le -ac 1 pipe:1", text(path)));
        // ffmpeg does not cut the padding off the last access unit.
        assert!((480_001..481_025).contains(&sound.len()), "{}", sound.len());
        let mut command = Command::new(&ffprobe);
        command.args(["-v", "error", "-show_entries", "format=duration:format_tags", text(path)]);
        let report = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let title = format!("TAG:title={}", path.file_stem().unwrap().display());
        let tags = ["duration=10.0", &title, "TAG:date=20", "TAG:TIME_REFERENCE="];
        assert!(tags.iter().all(|line| report.contains(line)), "{report}");
    }
    server.stop().unwrap();
}

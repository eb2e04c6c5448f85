//! HLS as packed audio, which old players need, as ffmpeg and GStreamer play it.

use std::fs;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::http;
use aulos_blackbox::peer::{Process, find_or_skip};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;

use crate::hls::{has_tone, text_at};
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

const TONE: &str = "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
    hls = { renditions = [\"aac:128k\"], packed = true, segment = \"1.92s\", window = \"60s\" }\n";

#[test]
fn packed_audio_is_played_without_a_gap() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let Some(ffprobe) = find_or_skip("ffprobe") else { return };
    let Some(launch) = find_or_skip("gst-launch-1.0") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-packed").unwrap();
    let server = AulosServer::start(&scratch, TONE).unwrap();
    let list = || text_at(server.http, "/hls/default/aac/index.m3u8").unwrap_or_default();
    let names = || list().lines().filter(|line| line.ends_with(".aac")).count();
    wait_for("segments", PATIENCE, || names() >= 4);
    assert!(list().starts_with("#EXTM3U\n#EXT-X-VERSION:3\n"), "{}", list());
    let url = format!("http://{}/hls/default/index.m3u8", server.http);
    let output = Command::new(&ffmpeg)
        .args(["-nostdin", "-v", "warning", "-live_start_index", "0", "-i", &url])
        .args(["-t", "6", "-f", "s16le", "-ac", "2", "-ar", "48000", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && has_tone(&output.stdout), "{said}");
    assert_eq!(output.stdout.len(), 6 * 192_000, "{said}");
    // A segment by itself has the time, and as many frames as its duration.
    let name = list().lines().find(|line| line.ends_with(".aac")).unwrap().to_owned();
    let (_, segment) = http::get(server.http, &format!("/hls/default/aac/{name}")).unwrap();
    let file = scratch.join("segment.aac");
    fs::write(&file, segment).unwrap();
    let entries = "format_tags:stream=codec_name,profile,nb_read_packets";
    let probe = Command::new(&ffprobe)
        .args(["-v", "warning", "-count_packets", "-of", "flat", "-show_entries", entries])
        .arg(&file)
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&probe.stdout).into_owned();
    let owner = "id3v2_priv_com_apple_streaming_transportStreamTimestamp";
    assert!(found.replace(['.', '"'], "_").contains(owner), "{found}");
    assert!(found.contains("nb_read_packets=\"90\""), "{found}");
    assert!(found.contains("profile=\"LC\""), "{found}");
    let file = scratch.join("heard.raw");
    let mut command = Command::new(launch);
    command.args(["uridecodebin3", &format!("uri={url}")]);
    command.args("! audioconvert ! audio/x-raw,format=S16LE,channels=2 ! filesink".split(' '));
    command.arg(format!("location={}", file.display()));
    let logs = [scratch.join("gst.out"), scratch.join("gst.err")];
    let mut player = Process::start(&mut command, &logs[0], &logs[1]).unwrap();
    wait_for("four seconds of sound", PATIENCE, || {
        let said = || fs::read_to_string(&logs[1]).unwrap();
        assert!(player.ended().unwrap().is_none(), "GStreamer has given up: {}", said());
        fs::metadata(&file).is_ok_and(|file| file.len() >= 4 * 192_000)
    });
    drop(player);
    assert!(has_tone(&fs::read(&file).unwrap()));
    server.stop().unwrap();
}

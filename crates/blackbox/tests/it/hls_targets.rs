//! HLS in a folder and in a storage: what a web server, rsync or a CDN finds there at any moment,
//! also when the server is killed, the disk is full or the storage is gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aulos_blackbox::http;
use aulos_blackbox::peer::{find_or_skip, skip};
use aulos_blackbox::ports::free_port;
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::Value;

use crate::record::{s3_server, start_s3_at};
use crate::rpc::Rpc;
use crate::state::{fill, on_a_disk_of_its_own, remount};
use crate::{shared_turn, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// The shortest segments and window.
fn config(target: &str) -> String {
    format!(
        "[[station]]\nname = \"default\"\nsources = [\"tone://?hz=440&dbfs=-12\"]\n\
         hls = {{ renditions = [\"flac\", \"opus:64k\"], segment = \"1s\", window = \"3s\", {target} }}\n"
    )
}

/// What is reported of the first target.
fn target(rpc: &mut Rpc) -> Value {
    let status = rpc.call("Aulos.GetStatus", &Value::Null);
    status["stations"][0]["hls"]["targets"][0].clone()
}

/// The files that a playlist names, after it was looked at that they are there.
fn named(folder: &Path, rendition: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(folder.join(rendition).join("index.m3u8")).unwrap_or_default();
    let lines = text.lines().map(|line| {
        line.strip_prefix("#EXT-X-MAP:URI=\"").map_or(line, |map| map.trim_end_matches('"'))
    });
    let names: BTreeSet<_> =
        lines.filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    for name in &names {
        assert!(folder.join(rendition).join(name).exists(), "{rendition}/{name} is not there");
    }
    names
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_folder_has_what_the_server_sends_through_a_kill() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-folder").unwrap();
    let folder = scratch.join("srv/hls");
    let config = config(&format!("folder = \"{}\"", folder.display()));
    let server = AulosServer::start(&scratch, &config).unwrap();
    wait_for("a full playlist", PATIENCE, || named(&folder, "flac").len() == 4);
    let path = folder.join("flac/index.m3u8");
    let output = Command::new(&ffmpeg)
        .args(["-nostdin", "-v", "warning", "-allowed_extensions", "ALL", "-live_start_index", "0"])
        .arg("-i")
        .arg(&path)
        .args(["-t", "2", "-f", "s16le", "-ac", "2", "-ar", "48000", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout.len() == 2 * 192_000, "{said}");
    let samples = output.stdout.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
    assert!((8_000..8_500).contains(&samples.max().unwrap()), "{said}");
    for rendition in ["flac", "opus-64k"] {
        // What has left the window in this moment is not compared.
        let compared = named(&folder, rendition).into_iter().filter(|name| {
            let file = fs::read(folder.join(rendition).join(name)).unwrap();
            let sent = http::get(server.http, &format!("/hls/default/{rendition}/{name}"));
            let Ok((200, sent)) = sent else { return false };
            assert!(file == sent, "{rendition}/{name} differs");
            true
        });
        assert!(compared.count() >= 3);
    }
    let master = fs::read_to_string(folder.join("index.m3u8")).unwrap();
    assert!(master.contains("\nflac/index.m3u8\n"), "{master}");
    let before = named(&folder, "flac");
    // A kill.
    drop(server);
    assert_eq!(named(&folder, "flac").len(), 4, "what is there can be played");
    fs::write(folder.join("flac/99.m4s.new"), "half").unwrap();
    fs::write(folder.join("flac/cover.jpg"), "not ours").unwrap();
    let server = AulosServer::start(&scratch, &config).unwrap();
    let map = |name: &&String| name.starts_with("init-");
    wait_for("the old segments are removed", PATIENCE, || {
        named(&folder, "opus-64k");
        let (named, files) = (named(&folder, "flac"), files(&folder.join("flac")));
        named.len() == 4
            && before.iter().filter(|name| !map(name)).all(|name| !files.contains(name))
    });
    let left = files(&folder.join("flac"));
    assert!(left.contains("cover.jpg") && !left.contains("99.m4s.new"), "{left:?}");
    assert!(left.len() <= 12, "{left:?}");
    let state = target(&mut Rpc::connect(server.control));
    assert_eq!((&state["kind"], &state["error"]), (&"folder".into(), &Value::Null), "{state}");
    assert!(
        state["segments"].as_u64() >= Some(6) && state["removed"].as_u64() >= Some(6),
        "{state}"
    );
    assert_eq!((&state["failures"], &state["dropped_segments"]), (&0.into(), &0.into()), "{state}");
    server.stop().unwrap();
}

#[test]
fn a_full_disk_is_named_and_counted_and_the_station_plays_on() {
    let _turn = shared_turn();
    let scratch = ScratchDir::new("hls-full").unwrap();
    fs::create_dir(scratch.join("state")).unwrap();
    let folder = scratch.join("state/hls");
    let config = config(&format!("folder = \"{}\"", folder.display()));
    let Some(server) = on_a_disk_of_its_own(&scratch, &config) else {
        return skip("mount namespaces");
    };
    let mut rpc = Rpc::connect(server.control);
    wait_for("segments", PATIENCE, || target(&mut rpc)["segments"].as_u64() >= Some(4));
    // The test is outside the server's mounts.
    fill(Path::new(&format!("/proc/{}/root{}", server.id(), scratch.join("state/x").display())));
    wait_for("the failure", PATIENCE, || target(&mut rpc)["error"].is_string());
    let failed = target(&mut rpc);
    assert!(failed["error"].as_str().unwrap().contains("No space left"), "{failed}");
    wait_for("a loss", PATIENCE, || target(&mut rpc)["dropped_segments"].as_u64() > Some(0));
    let metrics = String::from_utf8(http::get(server.http, "/metrics").unwrap().1).unwrap();
    let failing = "aulos_hls_target_failing{station=\"default\",target=\"folder\"} 1";
    assert!(metrics.contains(failing), "{metrics}");
    // Whoever listens over HTTP has the newest segment all the same.
    let newest = || {
        let body = http::get(server.http, "/hls/default/flac/index.m3u8").unwrap().1;
        String::from_utf8(body).unwrap().lines().last().unwrap().to_owned()
    };
    let before = newest();
    wait_for("the next segment", PATIENCE, || newest() != before);
    remount(&server, &scratch.join("state"), "size=4m");
    wait_for("it is written again", PATIENCE, || target(&mut rpc)["error"].is_null());
    let state = target(&mut rpc);
    assert!(state["failures"].as_u64() > Some(0) && state["age_s"].as_i64() <= Some(3), "{state}");
    let log = server.printed().unwrap();
    assert!(log.contains("HLS cannot be written") && log.contains("HLS is written again"), "{log}");
    server.stop().unwrap();
}

/// A station that others pass on, and its port.
fn start_origin(scratch: &ScratchDir) -> (AulosServer, u16) {
    let (port, file) = (free_port().unwrap(), scratch.join("origin.toml"));
    let config = "[[station]]\nname = \"default\"\ncodec = \"flac\"\nsources = [\"demo://\"]\n";
    fs::write(&file, config).unwrap();
    let server = AulosServer::start_with(scratch, |command| {
        let port = format!("listen.stream=127.0.0.1:{port}");
        command.arg("--config").arg(&file).args(["--set", &port]);
    });
    (server.unwrap(), port)
}

/// One of two servers that pass it on and write to one bucket.
fn paired(origin: u16, storage: u16) -> String {
    format!(
        "[[station]]\nname = \"default\"\ncodec = \"flac\"\nbuffer_ms = 600\n\
         sources = [\"snapcast://127.0.0.1:{origin}?pass=true\"]\n\
         hls = {{ renditions = [\"flac\"], segment = \"1s\", window = \"4s\", paired = true, \
         upload = {{ url = \"s3://tapes/hls/{{station}}\", endpoint = \"http://127.0.0.1:{storage}\", \
         access_key = \"me\", secret_key = \"only for this test\" }} }}\n"
    )
}

/// The numbers in the playlist, none of which is below one that was there.
fn numbers(folder: &Path, highest: &mut u64) -> BTreeSet<u64> {
    let names = named(folder, "flac").into_iter();
    let numbers: BTreeSet<u64> =
        names.filter_map(|name| name.strip_suffix(".m4s")?.parse().ok()).collect();
    if let Some(last) = numbers.last() {
        assert!(last >= highest, "{last} after {highest}");
        *highest = *last;
    }
    numbers
}

#[test]
fn two_servers_write_to_one_bucket_which_is_gone_for_a_while() {
    let Some(program) = s3_server() else { return };
    let _turn = shared_turn();
    let scratches =
        ["hls-s3", "hls-s3-one", "hls-s3-two"].map(|name| ScratchDir::new(name).unwrap());
    let port = free_port().unwrap();
    let (s3, _) = start_s3_at(&program, &scratches[0], port);
    let (origin, origin_port) = start_origin(&scratches[0]);
    let edge = paired(origin_port, port);
    let folder = scratches[0].join("s3/tapes/hls/default");
    let one = AulosServer::start(&scratches[1], &edge).unwrap();
    let two = AulosServer::start(&scratches[2], &edge).unwrap();
    let mut highest = 0;
    wait_for("a full playlist", PATIENCE, || numbers(&folder, &mut highest).len() == 4);
    let before = highest;
    // Either server has the same bytes.
    let compared = named(&folder, "flac").into_iter().filter(|name| {
        let object = fs::read(folder.join("flac").join(name)).unwrap();
        let path = format!("/hls/default/flac/{name}");
        let sent = [&one, &two].map(|server| http::get(server.http, &path).unwrap());
        sent.into_iter().filter(|(status, _)| *status == 200).all(|(_, sent)| sent == object)
    });
    assert_eq!(compared.count(), 5);
    drop(s3);
    let mut rpcs = [&one, &two].map(|server| Rpc::connect(server.control));
    wait_for("the failure", PATIENCE, || {
        rpcs.iter_mut().all(|rpc| target(rpc)["error"].is_string())
    });
    let failed = target(&mut rpcs[0]);
    assert!(failed["error"].as_str().unwrap().contains("reached"), "{failed}");
    assert_eq!(
        (&failed["kind"], &failed["target"]),
        (&"s3".into(), &"s3://tapes/hls/default".into())
    );
    let (s3, _) = start_s3_at(&program, &scratches[0], port);
    let mut reach = |number: u64| {
        wait_for("the playlist", PATIENCE, || {
            numbers(&folder, &mut highest).last().is_some_and(|last| *last > number)
        });
        highest
    };
    let back = reach(before + 3);
    drop(one);
    reach(back + 4);
    wait_for("old segments are removed", PATIENCE, || {
        !files(&folder.join("flac")).contains(&format!("{before}.m4s"))
    });
    let state = target(&mut rpcs[1]);
    assert_eq!(state["error"], Value::Null, "{state}");
    two.stop().unwrap();
    origin.stop().unwrap();
    drop(s3);
}

//! Two hundred clients need no further thread and no growing memory, and lose no frame; and many
//! listeners of a mount.

use std::time::Duration;

use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::load::{LoadPhase, LoadTest};
use aulos_blackbox::peer::find_or_skip;
use aulos_blackbox::process_usage::{ProcessUsage, read};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use aulos_blackbox::stream_load::StreamLoad;
use serde_json::{Value, json};

use crate::hostile::counter;
use crate::mounts::{on_air, tone_file};
use crate::rpc::Rpc;
use crate::{long_or_short, quiet_turn, soak, text, turn, wait_for};

#[test]
fn two_hundred_clients_receive_everything() {
    let _turn = turn();
    for codec in ["pcm", "flac", "opus"] {
        hear(codec);
    }
}

#[test]
fn the_status_shows_each_clients_health_and_slow_clients() {
    let _turn = quiet_turn();
    let scratch = ScratchDir::new("health").unwrap();
    let config = "[[station]]\nname = \"default\"\ncodec = \"pcm\"\nsources = [\"demo://\"]\n";
    let server = AulosServer::start(&scratch, config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    let mut health = |number: usize| {
        let status = rpc.call("Aulos.GetStatus", &json!({}));
        let id = format!("02:00:00:00:00:{number:02x}");
        let mut clients = status["stations"][0]["clients"].as_array().unwrap().iter();
        clients.find(|one| one["id"] == id).map(|one| one["health"].clone()).unwrap_or_default()
    };
    let mut buffer = vec![0; 65_536];
    let mut hear = |client: &mut ListenerClient| client.read(&mut buffer, &mut |_, _| ());
    let patience = Duration::from_secs(30);
    let mut good = ListenerClient::connect(server.stream, 1).unwrap();
    let mut slow = ListenerClient::connect(server.stream, 2).unwrap();
    wait_for("health", patience, || {
        hear(&mut good);
        hear(&mut slow);
        health(1).is_object() && health(2).is_object()
    });
    let well = health(1);
    assert!((0..=1_100).contains(&well["ahead_ms"].as_i64().unwrap()), "{well}");
    // On loopback it may be less than the displayed resolution.
    assert!((0.0..1_000.0).contains(&well["round_trip_ms"].as_f64().unwrap()), "{well}");
    assert!(
        (&well["skipped_chunks"], &well["skipped_s_ago"]) == (&json!(0), &Value::Null),
        "{well}"
    );
    // It reads nothing until the queued data is seconds old, and then continues.
    wait_for("bytes that wait", patience, || {
        hear(&mut good);
        health(2)["ahead_ms"].as_i64().unwrap() < -1_000
    });
    assert!(health(2)["unsent_bytes"].as_u64().unwrap() > 0);
    wait_for("chunks that are left out", patience, || {
        hear(&mut good);
        hear(&mut slow);
        health(2)["skipped_chunks"].as_u64().unwrap() > 0
    });
    assert!(health(2)["skipped_s_ago"].is_u64());
    assert_eq!(health(1)["skipped_chunks"], 0);
    drop(slow);
    wait_for("its end", patience, || {
        hear(&mut good);
        health(2).is_null()
    });
    server.stop().unwrap();
}

fn hear(codec: &str) {
    let scratch = ScratchDir::new("crowd").unwrap();
    let config =
        format!("[[station]]\nname = \"default\"\ncodec = \"{codec}\"\nsources = [\"demo://\"]\n");
    let server = AulosServer::start(&scratch, &config).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let id = server.id();
    let alone = read(id).unwrap();
    let (mut begin, mut end) = (ProcessUsage::default(), ProcessUsage::default());
    let load = LoadTest {
        server: server.stream,
        clients: 200,
        settle: Duration::from_secs(2),
        listen: long_or_short(60, 4),
    };
    let report = load
        .run(|mark| {
            *(if mark == LoadPhase::Begin { &mut begin } else { &mut end }) = read(id).unwrap();
        })
        .unwrap();
    // To this machine the kernel copies in any case, so zero-copy sends are not used.
    let counted = |name| counter(server.http, name);
    assert_eq!((counted("zero_copy_sends"), counted("bytes_sent") > 0), (0, true));
    server.stop().unwrap();
    let json = report.json();
    println!("{codec}: {json:#}");
    assert_eq!((report.gaps(), report.cut()), (0, 0), "{json:#}");
    assert!(report.listeners.iter().all(|h| h.strange == 0 && h.early == 0), "{json:#}");
    // 20 ms per chunk, unless the codec has another duration: every client got all chunks of the
    // time.
    let fewest = report.listeners.iter().map(|h| h.chunks).min().unwrap_or(0);
    assert!(fewest + 50 >= 50 * long_or_short(60, 4).as_secs(), "{fewest} chunks: {json:#}");
    assert_eq!((alone.threads, begin.threads), (end.threads, end.threads), "threads");
    // One-time allocations of the kernel or the allocator are not growth; a few bytes per chunk
    // would be.
    let grown = end.resident.saturating_sub(begin.resident);
    println!(
        "{codec}: resident {} kB, grown by {} kB; {} threads",
        end.resident >> 10,
        grown >> 10,
        end.threads
    );
    assert!(grown < 1 << 20, "grown by {grown} bytes");
}

/// Ten thousand in the soak: none is cut, and the memory for each is bounded.
#[test]
fn every_listener_of_a_mount_gets_the_whole_stream() {
    let Some(ffmpeg) = find_or_skip("ffmpeg") else { return };
    let _turn = turn();
    let listeners = if soak() { 10_000 } else { 300 };
    let scratch = ScratchDir::new("mount-crowd").unwrap();
    let file = tone_file(&ffmpeg, &scratch, 440, "-c:a libmp3lame -b:a 128k");
    let config = format!(
        "[limits]\nsessions_per_address = 100000\nconnections_per_second = 100000\n\
         [[mount]]\nname = \"live.mp3\"\nsources = [\"file://{}?loop=true\"]\n",
        text(&file)
    );
    let server = AulosServer::start(&scratch, &config).unwrap();
    let mut rpc = Rpc::connect(server.control);
    wait_for("frames that are passed", Duration::from_secs(30), || on_air(&mut rpc).1);
    // The burst is complete by then.
    std::thread::sleep(Duration::from_secs(5));
    let id = server.id();
    let alone = read(id).unwrap();
    let (mut begin, mut end) = (ProcessUsage::default(), ProcessUsage::default());
    let load = StreamLoad {
        server: server.http,
        path: "/live.mp3",
        listeners,
        bytes_per_second: 16_000,
        settle: Duration::from_secs(3),
        listen: long_or_short(3_600, 5),
    };
    let report = load
        .run(|mark| {
            *(if mark == LoadPhase::Begin { &mut begin } else { &mut end }) = read(id).unwrap();
        })
        .unwrap();
    server.stop().unwrap();
    let seconds = report.elapsed.as_secs_f64();
    let grown = end.resident.saturating_sub(alone.resident) / listeners as u64;
    println!(
        "{listeners} listeners for {seconds:.0} s: {:.1} % of a core, {} kB resident, {grown} bytes \
         for each, {} threads; {report:?}",
        (end.cpu - begin.cpu).as_secs_f64() / seconds * 100.0,
        end.resident >> 10,
        end.threads
    );
    assert_eq!(report.cut, 0, "{report:?}");
    // Pieces are under way at both ends.
    assert!(report.least as f64 > 8_000.0 * seconds, "{report:?}");
    assert_eq!(alone.threads, end.threads, "threads");
    assert!(grown < 4_096 + (2 << 20) / listeners as u64, "{grown} bytes for each");
}

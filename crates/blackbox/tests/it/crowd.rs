//! Two hundred clients need no further thread and no growing memory, and lose no frame.

use std::time::Duration;

use aulos_blackbox::client::ListenerClient;
use aulos_blackbox::load::{LoadPhase, LoadTest};
use aulos_blackbox::process_usage::{ProcessUsage, read};
use aulos_blackbox::scratch::ScratchDir;
use aulos_blackbox::server::AulosServer;
use serde_json::{Value, json};

use crate::hostile::counter;
use crate::rpc::Rpc;
use crate::{long_or_short, quiet_turn, turn, wait_for};

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

//! The built server with real peers. One program, so that everything is linked once.
//!
//! Tests in real time mostly wait, so they run side by side as far as they do not disturb each
//! other ([`shared_turn`], [`quiet_turn`], [`timed_turn`]). One that measures microseconds, loads
//! the machine or needs one of its ports has the machine alone ([`turn`]).
//!
//! `AULOS_SOAK=1` (`make soak`) runs the long forms, and `AULOS_SOAK_SECONDS` limits each of them.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests are tests; clippy sees only functions that are marked as such"
)]

mod aac;
mod activation;
mod airplay;
mod announce;
mod bits;
mod calls;
mod capture;
mod children;
mod cli;
mod client_sound;
mod cluster;
mod cluster_control;
mod command_faults;
mod controllers;
mod crowd;
mod dj;
mod encoders;
mod fallback;
mod fifo;
mod history;
mod hls;
mod hls_packed;
mod hls_source;
mod hls_targets;
mod home_assistant;
mod hostile;
mod idle_stations;
mod insert;
mod integrations;
mod log;
mod logger;
mod logger_http;
mod loudness_filter;
mod markers;
mod mdns;
mod metrics;
mod mount_admin;
mod mount_sources;
mod mounts;
mod mp3;
mod mpd;
mod mqtt;
mod music_assistant;
mod nats;
mod page;
mod page_client_sound;
mod page_hours;
mod page_logs;
mod page_operation;
mod page_pictures;
mod page_proxy;
mod page_sounds;
mod page_talk;
mod page_views;
mod pass_through;
mod peers;
mod pipewire;
mod play;
mod play_devices;
mod play_network;
mod players;
mod plays;
mod push;
mod radio;
mod record;
mod relay;
mod reload;
mod retry;
mod rpc;
mod schedule;
mod sendspin;
mod sendspin_artwork;
mod sendspin_mdns;
mod sendspin_sound;
mod sendspin_source;
mod sipp;
mod snapcast_source;
mod snapweb;
mod srt;
mod state;
mod station_chain;
mod station_rtp;
mod sync_proof;
mod title_position;
mod tls;
mod trunk;
mod turns;
mod veth;
mod wave_recording;
mod web_player;

use std::path::Path;
use std::time::{Duration, Instant};

use aulos_blackbox::client::ListenerClient;
use serde_json::Value;

use rpc::Rpc;
use turns::{
    long_quiet_turn, long_shared_turn, long_timed_turn, quiet_turn, shared_turn, timed_turn, turn,
};

/// Whether the long forms run.
fn soak() -> bool {
    std::env::var_os("AULOS_SOAK").is_some()
}

/// The duration of the long or of the short form.
fn long_or_short(long: u64, short: u64) -> Duration {
    let most = std::env::var("AULOS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(if soak() { long.min(most.unwrap_or(u64::MAX)) } else { short })
}

/// Waits until a condition is true.
fn wait_for(what: &str, limit: Duration, mut it_is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !it_is() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Reads what a client has been sent; true, so that a condition can begin with it.
fn hear(client: &mut ListenerClient) -> bool {
    client.read(&mut vec![0; 65_536], &mut |_, _| ());
    true
}

/// The id of the only client of the server's first group, once it is connected.
fn id_of(client: &mut ListenerClient, rpc: &mut Rpc, limit: Duration) -> Value {
    let mut id = Value::Null;
    wait_for("the client", limit, || {
        hear(client);
        id = rpc.status()["groups"][0]["clients"][0]["id"].clone();
        id.is_string()
    });
    id
}

/// Writes an executable script to `path`.
fn script(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the scratch folder can be written to");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, open).expect("it is ours");
}

/// A path in a configuration or a URI.
fn text(path: &Path) -> &str {
    path.to_str().expect("the scratch folder has a plain name")
}

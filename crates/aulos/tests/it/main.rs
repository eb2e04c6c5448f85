//! The command line and the control plane, from outside. One program, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of tests fails as a test does; clippy excepts only test functions"
)]

mod announce;
mod announce_url;
mod book;
mod channel_map;
mod client_sound;
mod clients;
mod command_line;
mod common;
mod control_tcp;
mod djs;
mod fallback;
mod halt;
mod hooks;
mod http;
mod listen;
mod meta;
mod meter;
mod names;
mod normalize;
mod notices;
mod now_playing;
mod operator;
mod playlist;
mod plays;
mod proxied;
mod pushes;
mod python_snapcast;
mod relays;
mod reload;
mod rpc;
mod scan;
mod scan_tag;
mod scan_warnings;
mod security;
mod state;
mod steady;
mod streams;
mod systemd;
mod talk;
mod titles;
mod websocket;

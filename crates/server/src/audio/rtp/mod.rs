//! RTP sources and outputs of stations: opens their sockets, and retries those that fail.
//!
//! They all share one thread, separate from the relays' threads: a thousand relayed streams on the
//! same thread would add jitter to what a station sends.

use std::net::SocketAddr;

mod handles;
mod input;
mod interfaces;
mod output;
mod service;

pub(super) use handles::StationRtpOutput;
pub(super) use input::open;
pub(super) use interfaces::follow_interfaces;
pub(super) use output::{change, end, open_outputs, start};
pub(super) use service::RtpService;

/// The error where there is no interface for packets to or from `address`.
fn missing_interface(wanted: Option<&str>, address: SocketAddr) -> String {
    match wanted {
        Some(wanted) => format!("no network interface {wanted}; `ip address` lists them"),
        None => format!("rtp://{address}: no network interface leads there"),
    }
}

//! Checks mounts: each is there once, and its port is no other listener's.

use std::collections::HashMap;

use crate::model::Config;
use crate::names::{Endpoint, endpoint};
use crate::problem::{ConfigLocation, Problems};
use crate::source::icecast::MOUNT_SECRET_HINT;
use crate::station::StationSettings;

/// The message for a mount that is open to the network.
pub const OPEN_MOUNT_HINT: &str =
    "without a password only this machine may push: icecast://127.0.0.1";

/// Reports invalid mounts.
pub(crate) fn check(config: &Config, all: &[StationSettings], problems: &Problems) {
    let has_program = config.http.stream_auth.is_some();
    let mut seen: HashMap<(Endpoint, String), String> = HashMap::new();
    for (config, station) in config.station.iter().zip(all) {
        for entry in &config.sources {
            let mut sources = station.sources.iter();
            let source = sources.find(|source| source.uri == entry.uri.value);
            let Some(mount) = source.and_then(|source| source.config.mount()) else { continue };
            let is_open = entry.password.is_none() && !has_program;
            if mount.is_open_to_network() && is_open {
                let message =
                    format!("the mount at {} accepts any client of the network", mount.address);
                let hint = format!("{MOUNT_SECRET_HINT}; {OPEN_MOUNT_HINT}");
                problems.add_with_hint(entry.uri.at, message, hint);
            }
            let (key, name) = ((mount.address.clone(), mount.path.clone()), station.name.clone());
            if let Some(other) = seen.insert(key, name) {
                let message = format!("duplicate mount `{}` at {}", mount.path, mount.address);
                let hint = format!("station `{other}` has it: give each source its own mount");
                problems.add_with_hint(entry.uri.at, message, hint);
            }
        }
    }
    check_ports(config, &seen, problems);
}

/// Checks that ports of mounts are not used by other listeners.
fn check_ports(config: &Config, seen: &HashMap<(Endpoint, String), String>, problems: &Problems) {
    let listen = &config.listen;
    let host = listen.address.value.as_str();
    let ours = [("stream", &listen.stream), ("control", &listen.control), ("http", &listen.http)];
    for (key, text) in ours {
        let Some(ours) = endpoint(&text.value.0, Some(host), None) else { continue };
        if ours.port != 0 && seen.keys().any(|(address, _)| address.port == ours.port) {
            let at = if text.at == ConfigLocation::Default {
                mount_location(config, ours.port)
            } else {
                text.at
            };
            let message = format!("port {} is both `listen.{key}` and that of a mount", ours.port);
            problems.add_with_hint(at, message, "give mounts a port of their own; 8000 is usual");
        }
    }
}

fn mount_location(config: &Config, port: u16) -> ConfigLocation {
    let mut entries = config.station.iter().flat_map(|station| &station.sources);
    let number = format!(":{port}/");
    let entry = entries.find(|entry| entry.uri.value.contains(&number));
    entry.map_or(ConfigLocation::Default, |entry| entry.uri.at)
}

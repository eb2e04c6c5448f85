//! `icecast://HOST:PORT/MOUNT`: mounts for live sources; the passwords of these and of
//! `snapcast://USER@HOST`.
//!
//! The password is a key of its own and not part of the URI, because URIs are shown on the page, in
//! the status and in logs. A mount without a password must listen on loopback, so that a forgotten
//! line does not open a station to the network.

use std::collections::HashMap;

use crate::env::Environment;
use crate::limits::{MIN_MOUNT_PASSWORD, MIN_PASSWORD};
use crate::model::{Config, SourceEntry};
use crate::names::{Endpoint, endpoint};
use crate::problem::{ConfigLocation, Problems};
use crate::security::secrets::{RedactedDebug, SecretConfig};
use crate::security::users::SecretDigest;
use crate::source::uri::{MOUNT_SECRET_HINT, SNAPCAST_SECRET_HINT};
use crate::source::{Mount, SnapcastSource, SourceConfig};
use crate::station::Station;

/// The message for a mount that is open to the network.
pub const OPEN_MOUNT_HINT: &str =
    "without a password only this machine may push: icecast://127.0.0.1";

/// Sets the password of every mount, and reports invalid mounts.
pub(crate) fn complete(
    config: &Config,
    all: &mut [Station],
    env: &Environment,
    problems: &Problems,
) {
    let mut seen: HashMap<(Endpoint, String), String> = HashMap::new();
    for (config, station) in config.station.iter().zip(all) {
        for entry in &config.sources {
            let mut sources = station.sources.iter_mut();
            let source = sources.find(|source| source.uri == entry.uri.value);
            let mount = match source.map(|source| &mut source.config) {
                Some(SourceConfig::Icecast(mount)) => mount,
                Some(SourceConfig::Snapcast(source)) => {
                    complete_login(source, entry, env, problems);
                    continue;
                }
                _ => {
                    check_idle(entry, problems);
                    continue;
                }
            };
            mount.password =
                entry.password.as_ref().and_then(|secret| digest(secret, env, problems));
            check(mount, entry, problems);
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

/// The digest of a mount's password. A short one is permitted: what a source client has been set up
/// with for years should not keep a station off the air.
fn digest(secret: &SecretConfig, env: &Environment, problems: &Problems) -> Option<SecretDigest> {
    let text = secret.text(MIN_MOUNT_PASSWORD, env, problems)?;
    if text.len() < MIN_PASSWORD {
        let message = format!("a mount password of {} bytes can be guessed", text.len());
        problems.warn(secret.location(), message, format!("use at least {MIN_PASSWORD} bytes"));
    }
    Some(SecretDigest::new(&text))
}

fn check(mount: &Mount, entry: &SourceEntry, problems: &Problems) {
    if mount.is_open_to_network() && entry.password.is_none() {
        let message = format!("the mount at {} accepts any client of the network", mount.address);
        let hint = format!("{MOUNT_SECRET_HINT}; {OPEN_MOUNT_HINT}");
        problems.add_with_hint(entry.uri.at, message, hint);
    }
}

/// Sets the password for another Snapcast server.
fn complete_login(
    source: &mut SnapcastSource,
    entry: &SourceEntry,
    env: &Environment,
    problems: &Problems,
) {
    let password = entry.password.as_ref().and_then(|secret| secret.text(1, env, problems));
    if source.user.is_some() != entry.password.is_some() {
        let message = "a login on another server has a user and a password";
        problems.add_with_hint(entry.uri.at, message, SNAPCAST_SECRET_HINT);
    }
    source.password = RedactedDebug(password);
}

fn check_idle(entry: &SourceEntry, problems: &Problems) {
    let uri = entry.uri.value.to_ascii_lowercase();
    if entry.password.is_some()
        && !["icecast:", "snapcast:"].iter().any(|with| uri.starts_with(with))
    {
        let hint = "leave it out: only icecast: and snapcast: sources have a password";
        let message = "`password` requires an icecast: or snapcast: source";
        problems.add_with_hint(entry.uri.at, message, hint);
    }
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

//! `icecast://HOST:PORT/MOUNT`: mounts for live sources, and their passwords.
//!
//! The password is a key of its own and not part of the URI, because URIs are shown on the page, in
//! the status and in logs. A mount without a password must listen on loopback, so that a forgotten
//! line does not open a station to the network.

use std::collections::HashMap;
use std::net::IpAddr;

use super::env::Environment;
use super::limits::{MAX_MOUNT, MAX_NAME, MIN_PASSWORD};
use super::model::{Config, SourceEntry};
use super::problem::{ConfigLocation, Problems};
use super::resolve::{Endpoint, Station, endpoint};
use super::security;
use super::source::{SourceConfig, UriQuery};
use crate::users::SecretDigest;

/// A mount for one live source at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The address to listen on; several mounts may share it.
    pub address: Endpoint,
    /// The path with its leading slash.
    pub path: String,
    /// The user name of the live source.
    pub user: String,
    /// The password; none means no authentication.
    pub password: Option<SecretDigest>,
}

impl Mount {
    /// Whether other machines can use it without a password.
    #[must_use]
    pub fn is_open_to_network(&self) -> bool {
        self.password.is_none() && !is_loopback(&self.address.host)
    }

    /// Whether both are the same mount.
    #[must_use]
    pub fn is_same_mount(&self, other: &Self) -> bool {
        self.address == other.address && self.path == other.path
    }
}

/// The message for a mount that is open to the network.
pub const OPEN_MOUNT_HINT: &str =
    "without a password only this machine may push: icecast://127.0.0.1";

/// Parses the URI; [`complete`] adds the password.
pub(super) fn parse(query: &mut UriQuery<'_>) -> Option<Mount> {
    let uri = query.uri;
    let user = uri.user.clone().unwrap_or_else(|| DEFAULT_USER.to_owned());
    if user.contains(':') || query.text("password").is_some() {
        query.refuse("a password does not stand in an address".to_owned(), SECRET_HINT);
        return None;
    }
    if user.is_empty() || user.len() > MAX_NAME || user.chars().any(char::is_control) {
        query.refuse("this cannot be a DJ's name".to_owned(), "`source` is usual: leave it out");
        return None;
    }
    let authority = uri.authority();
    let Some(address) = endpoint(&authority, Some("0.0.0.0"), Some(DEFAULT_PORT)) else {
        let message = format!("\"{authority}\" is not HOST:PORT");
        query.refuse(message, "as in icecast://127.0.0.1:8000/live");
        return None;
    };
    let path = uri.path.clone();
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '?';
    if path.len() < 2 || path.len() > MAX_MOUNT || path.contains(odd) || path.starts_with("/admin/")
    {
        let hint = format!("a mount has 1 to {MAX_MOUNT} letters, as in icecast://{address}/live");
        query.refuse(format!("\"{}\" cannot be a mount", path.escape_debug()), &hint);
        return None;
    }
    Some(Mount { address, path, user, password: None })
}

/// Sets the password of every mount, and reports invalid mounts.
pub(super) fn complete(
    config: &Config,
    all: &mut [Station],
    env: &Environment,
    problems: &Problems,
) {
    let mut seen: HashMap<(Endpoint, String), String> = HashMap::new();
    for (config, station) in config.stations.iter().zip(all) {
        for entry in &config.sources {
            let mut sources = station.sources.iter_mut();
            let source = sources.find(|source| source.uri == entry.uri.value);
            let Some(SourceConfig::Icecast(mount)) = source.map(|source| &mut source.config) else {
                check_idle(entry, problems);
                continue;
            };
            mount.password = entry
                .password
                .as_ref()
                .and_then(|secret| security::secret(secret, MIN_PASSWORD, env, problems));
            check(mount, entry, problems);
            let (key, name) = ((mount.address.clone(), mount.path.clone()), station.name.clone());
            if let Some(other) = seen.insert(key, name) {
                let message = format!("`{}` at {} is there twice", mount.path, mount.address);
                let hint = format!("it is station `{other}`'s already: give each its own mount");
                problems.add_with_hint(entry.uri.at, message, hint);
            }
        }
    }
    check_ports(config, &seen, problems);
}

fn check(mount: &Mount, entry: &SourceEntry, problems: &Problems) {
    if mount.is_open_to_network() && entry.password.is_none() {
        let message = format!("whoever reaches {} could go on air", mount.address);
        let hint = format!("{SECRET_HINT}; {OPEN_MOUNT_HINT}");
        problems.add_with_hint(entry.uri.at, message, hint);
    }
}

fn check_idle(entry: &SourceEntry, problems: &Problems) {
    if entry.password.is_some() && !entry.uri.value.to_ascii_lowercase().starts_with("icecast:") {
        let hint = "leave it out: only who comes to icecast:// is asked for one";
        problems.add_with_hint(entry.uri.at, "this source takes no password", hint);
    }
}

/// Checks that ports of mounts are not used by other listeners.
fn check_ports(config: &Config, seen: &HashMap<(Endpoint, String), String>, problems: &Problems) {
    let listen = &config.listen;
    let host = listen.address.value.as_str();
    let ours = [("stream", &listen.stream), ("control", &listen.control), ("http", &listen.http)];
    for (key, text) in ours {
        let Some(ours) = endpoint(&text.value, Some(host), None) else { continue };
        if ours.port != 0 && seen.keys().any(|(address, _)| address.port == ours.port) {
            let at = if text.at == ConfigLocation::Default {
                mount_location(config, ours.port)
            } else {
                text.at
            };
            let message = format!("port {} is both `{key}` and that of a mount", ours.port);
            problems.add_with_hint(at, message, "DJs need a port of their own; 8000 is usual");
        }
    }
}

fn mount_location(config: &Config, port: u16) -> ConfigLocation {
    let mut entries = config.stations.iter().flat_map(|station| &station.sources);
    let number = format!(":{port}/");
    let entry = entries.find(|entry| entry.uri.value.contains(&number));
    entry.map_or(ConfigLocation::Default, |entry| entry.uri.at)
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback())
}

/// The user name of Icecast's source clients.
const DEFAULT_USER: &str = "source";

/// Icecast's default port.
const DEFAULT_PORT: u16 = 8000;

const SECRET_HINT: &str =
    "write { uri = \"icecast://0.0.0.0:8000/live\", password_file = \"FILE\" }";

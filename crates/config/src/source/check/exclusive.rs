//! Sources that need something for themselves: a FIFO has one reader, and a TCP port one listener.
//!
//! Two readers of a FIFO get half of its samples each, and the second listener of a port never
//! opens; both would only show at run time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use crate::model::Config;
use crate::names::Endpoint;
use crate::problem::Problems;
use crate::settings::ListenEndpoints;
use crate::source::LocalPath;
use crate::station::StationSettings;

/// Reports FIFOs and TCP ports that two sources, or a source and another listener, would open.
pub(crate) fn check(
    config: &Config,
    all: &[StationSettings],
    listen: &ListenEndpoints,
    problems: &Problems,
) {
    let mut fifos: HashMap<&Path, &str> = HashMap::new();
    let mut ports = occupied_ports(all, listen);
    for (config, station) in config.station.iter().zip(all) {
        for entry in &config.sources {
            let mut sources = station.sources.iter();
            let Some(source) = sources.find(|source| source.uri == entry.uri.value) else {
                continue;
            };
            let name = station.name.as_str();
            let (what, user) = if let Some(address) = source.config.listen_address() {
                if address.port == 0 {
                    continue;
                }
                let same = ports.entry(address.port).or_default();
                let overlap = same.iter().find(|(other, _)| overlaps(&other.host, &address.host));
                let other = overlap.map(|(_, user)| user.clone());
                same.push((address, format!("station `{name}`")));
                (format!("TCP port {}", address.port), other)
            } else {
                let path = match source.config.local_path() {
                    // A device, such as /dev/zero, may have many readers.
                    Some(LocalPath::NewFifo(path) | LocalPath::Fifo(path))
                        if !path.starts_with("/dev") =>
                    {
                        path
                    }
                    _ => continue,
                };
                let other = fifos.insert(path, name).map(|other| format!("station `{other}`"));
                (format!("the FIFO {}", path.display()), other)
            };
            if let Some(user) = user {
                let hint = "give each source its own; to play a station in another one, use meta:";
                problems.add_with_hint(entry.uri.at, format!("{what} is used by {user}"), hint);
            }
        }
    }
}

type OccupiedPorts<'a> = HashMap<u16, Vec<(&'a Endpoint, String)>>;

/// The ports of the server itself and of mounts, which are checked against each other elsewhere.
fn occupied_ports<'a>(
    all: &'a [StationSettings],
    listen: &'a ListenEndpoints,
) -> OccupiedPorts<'a> {
    let mut ports = OccupiedPorts::new();
    let ListenEndpoints { stream, control, http } = listen;
    for (key, address) in [("stream", stream), ("control", control), ("http", http)] {
        ports.entry(address.port).or_default().push((address, format!("`listen.{key}`")));
    }
    for station in all {
        for source in &station.sources {
            if let Some(mount) = source.config.mount() {
                let user = format!("a mount of station `{}`", station.name);
                ports.entry(mount.address.port).or_default().push((&mount.address, user));
            }
        }
    }
    ports
}

/// Whether one port cannot be opened on both hosts.
fn overlaps(one: &str, other: &str) -> bool {
    let is_any = |host: &str| host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified());
    one == other || is_any(one) || is_any(other)
}

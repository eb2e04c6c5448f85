//! All metrics, by section of the reference.

use super::table::Metric;
use super::{clients, hls, nats, server, sources, stations};

/// All metrics, by section of the reference.
pub(super) const SECTIONS: [(&str, &[Metric]); 11] = [
    ("Server", server::SERVER),
    ("Connections and requests", server::CONNECTIONS),
    ("NATS", nats::NATS),
    ("Stations", stations::STATIONS),
    ("Sources", sources::SOURCES),
    ("Clients", clients::CLIENTS),
    ("Recorders and uploads", stations::RECORDERS),
    ("HLS in folders and storages", hls::TARGETS),
    ("Pushes, RTP outputs and relays", stations::OUTPUTS),
    ("Hooks", server::HOOKS),
    ("Process", server::PROCESS),
];

/// All metrics, in the order of the text.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    SECTIONS.iter().flat_map(|(_, metrics)| *metrics)
}

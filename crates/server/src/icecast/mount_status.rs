//! `/status-json.xsl` on a port for source clients, from which butt shows the number of listeners.

use aulos_config::Endpoint;
use aulos_control::access::Role;
use aulos_control::{Control, count, mounts, set_icecast_sources};
use aulos_session::live_source::LiveResponse;
use serde_json::{Value, json};

use crate::http::is_our_host;

/// The response with the mounts of a port: each is a source with the figures of its station.
///
/// `role` is the client's; the permission is that of the HTTP port.
pub(super) fn response(
    address: &Endpoint,
    host: Option<&str>,
    role: Role,
    control: &Control,
) -> String {
    if !is_our_host(host, &control.config().http.names) {
        count(&control.counters.http_wrong_host);
        return LiveResponse::Misdirected.text();
    }
    if role < Role::Listen {
        return LiveResponse::Unauthorized.text();
    }
    let base = format!("http://{}", host.unwrap_or("localhost"));
    let mut status = control.views().icecast().status(&base, None);
    let stations = match status["icestats"]["source"].take() {
        Value::Array(stations) => stations,
        station => vec![station],
    };
    let all = control.stations();
    let own = mounts(&all).filter(|(_, mount)| mount.address == *address);
    let sources = own.filter_map(|(name, mount)| {
        let mut source = stations.iter().find(|one| one["server_name"] == name)?.clone();
        source["listenurl"] = json!(format!("{base}{}", mount.path));
        Some(source)
    });
    set_icecast_sources(&mut status, sources.collect());
    LiveResponse::status(&status.to_string())
}

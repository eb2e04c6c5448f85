//! mDNS announcement of the server's ports.
//!
//! Ports on loopback are not announced: by default the server announces nothing, and has no thread
//! for it.

use std::net::SocketAddr;

use aulos_config::MdnsSettings;
use aulos_control::HostInfo;
use aulos_io::mdns::{Announcer, MdnsEvent, Service};
use aulos_proto::sendspin::{CLIENT_SERVICE, PATH, SERVER_SERVICE};

/// The open ports.
#[derive(Clone, Debug)]
pub struct AnnouncedPorts {
    /// Of Snapcast clients.
    pub stream: Option<SocketAddr>,
    /// Of controllers.
    pub control: SocketAddr,
    /// Of the page.
    pub http: SocketAddr,
    /// Of Sendspin players that connect.
    pub sendspin: Option<SocketAddr>,
    /// Of sources that wait for Sendspin servers.
    pub players: Vec<AnnouncedPlayer>,
    /// Whether connections without TLS are accepted.
    pub plain: bool,
    /// Whether TLS is available with a configured certificate. A self-signed one is not announced:
    /// browsers would warn about it.
    pub secure: bool,
}

/// A source that waits for Sendspin servers.
#[derive(Clone, Debug)]
pub struct AnnouncedPlayer {
    /// Its name.
    pub name: String,
    /// Its port.
    pub listen: SocketAddr,
    /// The path of its WebSocket.
    pub path: String,
}

/// Announces the configured ports that other machines can reach. A failure is only a warning: the
/// server works without.
pub fn start(mdns: &MdnsSettings, ports: AnnouncedPorts) -> Option<Announcer> {
    let services = services(mdns, ports);
    if services.is_empty() {
        return None;
    }
    match Announcer::start(&mdns.name, &host_label(&HostInfo::of_machine().name), &services) {
        Ok(announcer) => Some(announcer),
        Err(error) => {
            tracing::warn!(
                %error,
                hint = "stop the program that uses port 5353 exclusively, or disable mDNS with \
                        --set mdns.enabled=false",
                "cannot announce the server over mDNS"
            );
            None
        }
    }
}

/// Logs events, each one once.
pub fn report(announcer: &mut Announcer, reported: &mut Vec<MdnsEvent>) {
    for event in announcer.poll_events() {
        if reported.contains(&event) || reported.len() == MAX_REPORTED {
            continue;
        }
        match &event {
            MdnsEvent::Renamed(name) => {
                tracing::warn!(name, "mDNS name conflict; announced under another name");
            }
            MdnsEvent::Failed(error) => tracing::warn!(%error, "mDNS announcement failed"),
        }
        reported.push(event);
    }
}

/// Service types as snapserver announces them, without TXT records, as there.
fn services(mdns: &MdnsSettings, ports: AnnouncedPorts) -> Vec<Service> {
    let AnnouncedPorts { plain, secure, .. } = ports;
    let all = [
        ("_snapcast._tcp", mdns.stream && plain, ports.stream),
        ("_snapcast-ctrl._tcp", mdns.control && plain, Some(ports.control)),
        ("_snapcast-http._tcp", mdns.http && plain, Some(ports.http)),
        ("_snapcast-https._tcp", mdns.https && secure, Some(ports.http)),
        (SERVER_SERVICE, true, ports.sendspin),
    ];
    let reached = |listen: &SocketAddr| !listen.ip().to_canonical().is_loopback();
    let service = |(kind, wished, listen): (_, bool, Option<SocketAddr>)| {
        let listen = listen.filter(reached).filter(|_| wished)?;
        let path = (kind == SERVER_SERVICE).then(|| PATH.to_owned());
        Some(Service { service_type: kind, listen, path, name: None })
    };
    let players = ports.players.iter().filter(|player| reached(&player.listen));
    let players = players.map(|player| Service {
        service_type: CLIENT_SERVICE,
        listen: player.listen,
        path: Some(player.path.clone()),
        name: Some(player.name.clone()),
    });
    all.into_iter().filter_map(service).chain(players).collect()
}

/// A host label of its own: the machine's may belong to avahi, which would yield it if this server
/// answered for it.
fn host_label(machine: &str) -> String {
    let first = machine.split('.').next().unwrap_or(machine);
    let plain: String = first
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(MAX_HOST_LABEL)
        .collect();
    match plain.trim_matches('-') {
        "" => "aulos".to_owned(),
        plain => format!("{plain}-aulos"),
    }
}

/// Part of the machine's name that is used: a label has at most 63 bytes, and `-aulos-2` must fit
/// after it.
const MAX_HOST_LABEL: usize = 48;
/// Maximum number of logged events: a network where names change all the time must not fill the
/// log.
const MAX_REPORTED: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: fn() -> MdnsSettings = || MdnsSettings {
        name: "Snapcast".to_owned(),
        stream: true,
        control: true,
        http: true,
        https: true,
    };

    fn ports([stream, control, http]: [&str; 3]) -> AnnouncedPorts {
        let [stream, control, http] = [stream, control, http].map(|text| text.parse().unwrap());
        AnnouncedPorts {
            stream: Some(stream),
            control,
            http,
            sendspin: None,
            players: Vec::new(),
            plain: true,
            secure: false,
        }
    }

    fn kinds_of(mdns: &MdnsSettings, ports: AnnouncedPorts) -> Vec<&'static str> {
        services(mdns, ports).iter().map(|service| service.service_type).collect()
    }

    fn kinds(mdns: &MdnsSettings, open: [&str; 3]) -> Vec<&'static str> {
        kinds_of(mdns, ports(open))
    }

    #[test]
    fn what_only_this_machine_reaches_is_not_announced() {
        let local = ["127.0.0.1:1704", "[::1]:1705", "[::ffff:127.0.0.1]:1780"];
        assert!(kinds(&ALL(), local).is_empty());
        let mixed = ["0.0.0.0:1704", "127.0.0.1:1705", "[::]:1780"];
        assert_eq!(kinds(&ALL(), mixed), ["_snapcast._tcp", "_snapcast-http._tcp"]);
    }

    #[test]
    fn what_is_switched_off_is_not_announced() {
        let open = ["0.0.0.0:1704", "192.168.1.5:1705", "[::]:1780"];
        let mdns = MdnsSettings { stream: false, ..ALL() };
        assert_eq!(kinds(&mdns, open), ["_snapcast-ctrl._tcp", "_snapcast-http._tcp"]);
    }

    #[test]
    fn a_port_is_announced_on_the_networks_that_it_serves() {
        let ports = |plain, secure| AnnouncedPorts { plain, secure, ..ports(["0.0.0.0:1704"; 3]) };
        assert_eq!(kinds_of(&ALL(), ports(true, true)).len(), 4);
        assert_eq!(kinds_of(&ALL(), ports(false, true)), ["_snapcast-https._tcp"]);
        let mdns = MdnsSettings { https: false, ..ALL() };
        assert!(kinds_of(&mdns, ports(false, true)).is_empty());
    }

    #[test]
    fn every_machine_has_a_label() {
        assert_eq!(host_label("Kitchen.example.org"), "kitchen-aulos");
        assert_eq!(host_label("küche_2"), "k-che-2-aulos");
        assert_eq!(host_label(""), "aulos");
        assert!(host_label(&"x".repeat(200)).len() + 2 <= 63);
    }
}

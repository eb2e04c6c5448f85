//! A validated configuration as values.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use aulos_session::radio::{HostRule, IpNetwork};

use crate::cluster::ClusterSettings;
use crate::hooks::{Hook, Webhook};
use crate::mqtt::MqttSettings;
use crate::names::Endpoint;
use crate::relay::RelaySettings;
use crate::security::SecuritySettings;
use crate::station::StationSettings;

/// A validated configuration, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedConfig {
    /// The state directory.
    pub state_dir: PathBuf,
    /// Ports to listen on.
    pub listen: ListenEndpoints,
    /// HTTP settings.
    pub http: HttpSettings,
    /// Metrics.
    pub metrics: MetricsSettings,
    /// History of loudness.
    pub history: HistorySettings,
    /// Limits for streams that controllers add.
    pub streams: StreamSettings,
    /// Volumes of clients.
    pub clients: ClientSettings,
    /// mDNS announcements.
    pub mdns: MdnsSettings,
    /// Sendspin players; none unless it is enabled.
    pub sendspin: Option<SendspinSettings>,
    /// TLS, users, permissions and limits.
    pub security: SecuritySettings,
    /// Stations; at least one.
    pub stations: Vec<StationSettings>,
    /// Hooks for station events.
    pub hooks: Vec<Hook>,
    /// Relays.
    pub relays: Vec<RelaySettings>,
    /// NATS.
    pub cluster: Option<ClusterSettings>,
    /// MQTT.
    pub mqtt: Option<MqttSettings>,
    /// What should be written in another way, as lines with locations.
    pub warnings: Vec<String>,
    /// The keys that are set, without secrets.
    pub written: WrittenConfig,
}

/// A configuration as it is written, as JSON without secrets. Two forms of the same configuration
/// are equal.
#[derive(Clone, Debug, Default)]
pub struct WrittenConfig(pub serde_json::Value);

impl PartialEq for WrittenConfig {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl ResolvedConfig {
    /// Sets the state directory, and the paths that lie in it.
    pub fn set_state_dir(&mut self, dir: PathBuf) {
        for station in &mut self.stations {
            for source in &mut station.sources {
                if let Some(titles) = source.config.titles_mut() {
                    // Station names have no slash, so the file lies in the directory and is unique.
                    titles.fifo = dir.join(format!("titles.{}.{}", station.name, source.name));
                }
            }
        }
        self.state_dir = dir;
    }

    /// The folder of the sounds that users upload, which can be announced. Its path is absolute, as
    /// that of a source URI.
    #[must_use]
    pub fn uploads(&self) -> PathBuf {
        let uploads = self.state_dir.join("sounds");
        std::path::absolute(&uploads).unwrap_or(uploads)
    }
}

/// Ports to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenEndpoints {
    /// Snapcast's stream port.
    pub stream: Endpoint,
    /// Snapcast's control port.
    pub control: Endpoint,
    /// The page and the API.
    pub http: Endpoint,
}

/// HTTP settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// A folder whose files are served at `/`.
    pub doc_root: Option<PathBuf>,
    /// Accepted host names, in lower case.
    pub names: Vec<String>,
    /// Proxies whose word about their clients is taken.
    pub trusted_proxies: Vec<IpNetwork>,
    /// The access log of web listeners.
    pub access_log: Option<PathBuf>,
    /// Networks whose web listeners are refused.
    pub deny: Vec<IpNetwork>,
    /// Patterns of programs (`User-Agent`) that are refused, in lower case.
    pub deny_agents: Vec<String>,
    /// The value of `Access-Control-Allow-Origin` for streams; none sends no such header.
    pub allow_origin: Option<Arc<str>>,
    /// Whether web listeners may listen is asked there.
    pub listener_auth: Option<ListenerAuth>,
    /// Whether source clients without a mount's own password may use it is asked there.
    pub stream_auth: Option<Webhook>,
}

impl HttpSettings {
    /// Whether this peer is a proxy whose word about its clients is taken.
    #[must_use]
    pub fn is_trusted_proxy(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(peer))
    }

    /// Whether a web listener is refused by its address or its program.
    #[must_use]
    pub fn denies(&self, from: IpAddr, agent: &str) -> bool {
        let agent = agent.to_ascii_lowercase();
        self.deny.iter().any(|network| network.contains(from))
            || self.deny_agents.iter().any(|pattern| matches_pattern(pattern, &agent))
    }
}

/// Metrics for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Number of connected clients up to which each of them has series.
    pub per_client_limit: usize,
}

/// History of the stations' loudness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    /// Whether one is kept.
    pub enabled: bool,
    /// Days for which the coarsest tier is kept.
    pub keep_days: u32,
    /// Seconds that a crash may lose, at most 60.
    pub max_loss_s: u32,
}

/// The URLs of a program that decides about web listeners, as of Icecast's `url` authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAuth {
    /// Is asked about each listener.
    pub add: Webhook,
    /// Is told of each listener that has left.
    pub remove: Option<Webhook>,
}

/// Volumes of clients, 0 to 100, and their sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The volume of a new client.
    pub initial_volume: u8,
    /// Upper limit of all volumes.
    pub volume_cap: u8,
    /// How many different sounds clients can have at the same time.
    pub max_sounds: u16,
}

/// Sendspin players.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendspinSettings {
    /// The port for players that connect.
    pub listen: Endpoint,
    /// Whether players are searched for.
    pub discover: bool,
    /// Players to connect to.
    pub connect: Vec<Endpoint>,
    /// Whether all players may speak without encryption.
    pub all_legacy: bool,
    /// Those that may.
    pub legacy: Vec<String>,
}

/// mDNS announcements. Ports that other machines cannot reach are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdnsSettings {
    /// The service name.
    pub name: String,
    /// Whether the stream port is announced.
    pub stream: bool,
    /// Whether the control port is announced.
    pub control: bool,
    /// Whether the HTTP port is announced.
    pub http: bool,
    /// Whether the HTTP port is also announced for TLS.
    pub https: bool,
}

/// Limits for streams that controllers add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Allowed schemes.
    pub schemes: Vec<String>,
    /// Names of ALSA devices that a call may use besides those of sound cards.
    pub alsa_devices: Vec<String>,
    /// Folders for `pipe:` and `file:`.
    pub roots: Vec<PathBuf>,
    /// Hosts from which announcements may be fetched.
    pub announce_hosts: Vec<HostRule>,
    /// The folder of control scripts.
    pub plugin_dir: PathBuf,
    /// Whether calls from this machine may name a script of `plugin_dir`.
    pub plugins_by_rpc: bool,
}

/// Whether a text is like a pattern, in which `*` stands for any characters. Each part is looked
/// for behind the one before, so the work grows with the length of both only.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(at) = text.find(part) else { return false };
        text = text.get(at + part.len()..).unwrap_or_default();
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_any_characters_for_a_star() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "abc"),
            ("abc", "abc"),
            ("a*", "a"),
            ("a*c", "abc"),
            ("*bot*", "a badbot/1.0"),
            ("a*b*b", "a bb"),
        ] {
            assert!(matches_pattern(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("abc", "abcd"), ("a*a", "a"), ("a*b*b", "a b"), ("*b", "a")]
        {
            assert!(!matches_pattern(pattern, text), "{pattern} {text}");
        }
    }
}

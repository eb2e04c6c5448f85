//! Validates a configuration and turns it into [`ResolvedConfig`].

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use aulos_session::radio::{HostRule, InvalidHostRule, IpNetwork};

use crate::env::Environment;
use crate::hooks::{self, Webhook, resolve_url};
use crate::limits::{MAX_SERVICE_NAME, MAX_STATIONS};
use crate::model::{Config, HttpConfig, ListenConfig, MdnsConfig, StationConfig, StreamsConfig};
use crate::names::{Endpoint, absolute_path, endpoint, report_duplicate, without_brackets};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::security::{self, SecurityTables};
use crate::settings::{
    ClientSettings, HistorySettings, HttpSettings, ListenEndpoints, ListenerAuth, MdnsSettings,
    MetricsSettings, ResolvedConfig, StreamSettings,
};
use crate::source::check;
use crate::source::{RemoteUse, Scheme};
use crate::station::StationSettings;
use crate::station::output::StationOutput;
use crate::station::{logger, mount, push, record, rtp};
use crate::{cluster, mqtt, relay, sendspin, station};

/// Validates the whole configuration. The result is valid only if no problems were added.
pub(crate) fn resolve(config: &Config, env: &Environment, problems: &Problems) -> ResolvedConfig {
    let mut config = config.clone();
    config.station.extend(config.mount.iter().map(mount::as_station));
    let config = &config;
    let state_dir = match &config.state_dir {
        Some(dir) if dir.value.is_empty() => {
            problems.add_with_hint(dir.at, "`state_dir` is empty", "leave it out for the default");
            PathBuf::new()
        }
        Some(dir) => PathBuf::from(&dir.value),
        None => env.state_dir(),
    };
    if let Some(station) = config.station.get(MAX_STATIONS) {
        let message = format!("there are more than {MAX_STATIONS} stations");
        problems.add(station.at, message);
    }
    if config.station.is_empty() && problems.is_empty() {
        let hint = "leave `station` out for the built-in one";
        problems.add_with_hint(ConfigLocation::Default, "no station is configured", hint);
    }
    check_unique_names(&config.station, problems);
    check_single_stdin(&config.station, problems);
    let names = config.station.iter().filter_map(|station| Some(&*station.name.as_ref()?.value));
    let names: Vec<&str> = names.collect();
    let Config { tls, user: users, access, limits, .. } = config;
    let listen = listen(&config.listen, problems);
    let stations = stations(config, env, problems);
    check_published(config, &stations, problems);
    check::check_exclusive(config, &stations, &listen, problems);
    let mut resolved = ResolvedConfig {
        listen,
        http: http(&config.http, problems),
        metrics: MetricsSettings { per_client_limit: config.metrics.per_client_limit as usize },
        history: HistorySettings {
            enabled: config.history.enabled,
            keep_days: config.history.keep_days,
            max_loss_s: config.history.max_loss_s,
        },
        streams: streams(&config.streams, problems),
        clients: ClientSettings {
            initial_volume: config.clients.initial_volume,
            volume_cap: config.clients.volume_cap,
            max_sounds: config.clients.max_sounds,
        },
        mdns: mdns(&config.mdns, problems),
        sendspin: sendspin::resolve(&config.sendspin, &config.listen.address.value, problems),
        security: security::resolve(SecurityTables { tls, users, access, limits }, env, problems),
        stations,
        hooks: hooks::resolve(&config.hook, &names, env, problems),
        relays: relay::resolve(&config.relay, problems),
        cluster: config.cluster.as_ref().map(|config| cluster::resolve(config, env, problems)),
        mqtt: config.mqtt.as_ref().and_then(|config| mqtt::resolve(config, env, problems)),
        warnings: Vec::new(),
        written: crate::settings::WrittenConfig::default(),
        state_dir: PathBuf::new(),
    };
    resolved.set_state_dir(state_dir);
    resolved
}

fn stations(config: &Config, env: &Environment, problems: &Problems) -> Vec<StationSettings> {
    let mut all: Vec<StationSettings> =
        config.station.iter().map(|config| station::resolve(config, problems)).collect();
    let hls = config.station.iter().filter_map(|station| station.hls.as_ref());
    station::hls::check_folders(hls, problems);
    check::check_loops(&config.station, &all, problems);
    check::set_passwords(config, &mut all, env, problems);
    check::check_mounts(config, &all, problems);
    let (mut pushed, mut sent, mut recorders) = (HashMap::new(), HashMap::new(), Vec::new());
    for (config, station) in config.station.iter().zip(&mut all) {
        let output = StationOutput {
            name: station.name.clone(),
            codec: station.codec,
            codecs: station.codecs.clone(),
            spec: station.spec,
            chunk_ms: station.chunk_ms,
            sources: station.sources.iter().map(|source| source.name.clone()).collect(),
        };
        if let (Some(config), Some(hls)) = (&config.hls, &mut station.hls) {
            hls.upload = station::hls::resolve_upload(config, &station.name, env, problems);
        }
        station.pushes = push::resolve(&config.push, &output, &mut pushed, env, problems);
        station.rtp = rtp::resolve(&config.rtp, &output, &mut sent, problems);
        station.records = record::resolve(&config.record.0, &output, &mut recorders, env, problems);
        let logger = config.logger.as_ref();
        let logger =
            logger.and_then(|it| logger::resolve(it, &output, &mut recorders, env, problems));
        station.records.extend(logger);
    }
    let hls = config.station.iter().zip(&all);
    let hls =
        hls.filter_map(|(config, station)| Some((config.hls.as_ref()?, station.hls.as_ref()?)));
    station::hls::check_uploads(hls, problems);
    // Mounts are the last stations.
    for (config, station) in config.mount.iter().rev().zip(all.iter_mut().rev()) {
        station.mount = Some(mount::resolve(config, problems));
    }
    all
}

fn listen(config: &ListenConfig, problems: &Problems) -> ListenEndpoints {
    let address = &config.address.value;
    let host = without_brackets(address);
    if host.is_empty() || (host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err()) {
        let message = format!("`address` is \"{address}\": it must be a host without a port");
        problems.add_with_hint(
            config.address.at,
            message,
            "\"0.0.0.0\" is every network, \"::\" IPv6 too",
        );
    }
    let mut used: HashMap<Endpoint, &str> = HashMap::new();
    let [stream, control, http] =
        [("stream", &config.stream), ("control", &config.control), ("http", &config.http)].map(
            |(key, text)| {
                let Some(endpoint) = endpoint(&text.value.0, Some(host), None) else {
                    let text_value = &text.value.0;
                    let port = text_value.rsplit(':').next().unwrap_or_default();
                    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
                    let (wanted, hint) = if is_number && !port.is_empty() {
                        ("a port from 0 to 65535", "0 is any free port")
                    } else {
                        ("an address", "\"HOST:PORT\", \":PORT\" or a port alone")
                    };
                    let message = format!("`{key}` is \"{text_value}\": it must be {wanted}");
                    problems.add_with_hint(text.at, message, hint);
                    return Endpoint { host: host.to_owned(), port: 0 };
                };
                if endpoint.port != 0
                    && let Some(other) = used.insert(endpoint.clone(), key)
                {
                    let message = format!("`{key}` and `{other}` are both {endpoint}");
                    problems.add_with_hint(text.at, message, "give each its own port");
                }
                endpoint
            },
        );
    ListenEndpoints { stream, control, http }
}

fn http(config: &HttpConfig, problems: &Problems) -> HttpSettings {
    let names = config.names.iter().map(|name| {
        if name.value.is_empty() || name.value.contains([':', '/', ' ']) {
            let message = format!("\"{}\" is not a host name", name.value);
            problems.add_with_hint(
                name.at,
                message,
                "names = [\"radio.example.org\"], without a port",
            );
        }
        name.value.to_ascii_lowercase()
    });
    HttpSettings {
        doc_root: config.doc_root.as_ref().map(|dir| absolute_path("doc_root", dir, problems)),
        names: names.collect(),
        trusted_proxies: trusted_proxies(&config.trusted_proxies, problems),
        deny: networks("deny", &config.deny, problems),
        deny_agents: config.deny_agents.iter().map(|text| text.to_ascii_lowercase()).collect(),
        allow_origin: allow_origin(&config.allow_origin, problems),
        access_log: config
            .access_log
            .as_ref()
            .map(|file| absolute_path("access_log", file, problems)),
        listener_auth: listener_auth(config, problems),
        stream_auth: auth_url("stream_auth", &config.stream_auth, problems),
    }
}

fn trusted_proxies(listed: &[ConfigValue<String>], problems: &Problems) -> Vec<IpNetwork> {
    for text in listed {
        if text.value.parse::<IpNetwork>().is_ok_and(|network| network.prefix == 0) {
            let message = format!("`{}` in `trusted_proxies` trusts every address", text.value);
            let hint = "list the addresses of the proxies: any client could give itself an address";
            problems.add_with_hint(text.at, message, hint);
        }
    }
    networks("trusted_proxies", listed, problems)
}

fn networks(key: &str, listed: &[ConfigValue<String>], problems: &Problems) -> Vec<IpNetwork> {
    let network = |text: &ConfigValue<String>| match text.value.parse::<IpNetwork>() {
        Ok(network) => Some(network),
        Err(error) => {
            let message = format!("`{}` in `{key}` is no address", text.value);
            problems.add_with_hint(text.at, message, error.to_string());
            None
        }
    };
    listed.iter().filter_map(network).collect()
}

/// The origin of pages that may read streams; an empty one sends no header.
fn allow_origin(text: &ConfigValue<String>, problems: &Problems) -> Option<Arc<str>> {
    if !text.value.chars().all(|c| c.is_ascii_graphic()) {
        let message = format!("`{}` is no origin", text.value.escape_debug());
        problems.add_with_hint(text.at, message, "as in https://radio.example.org, or * for all");
    }
    (!text.value.is_empty()).then(|| text.value.as_str().into())
}

fn listener_auth(config: &HttpConfig, problems: &Problems) -> Option<ListenerAuth> {
    let resolve = |key, url| auth_url(key, url, problems);
    let remove = resolve("listener_remove", &config.listener_remove);
    if let (None, Some(url)) = (&config.listener_add, &config.listener_remove) {
        let message = "`listener_remove` without `listener_add` is never told";
        problems.add_with_hint(url.at, message.to_owned(), "add listener_add = \"https://...\"");
    }
    Some(ListenerAuth { add: resolve("listener_add", &config.listener_add)?, remove })
}

/// The URL of a program that decides.
fn auth_url(key: &str, url: &Option<ConfigValue<String>>, problems: &Problems) -> Option<Webhook> {
    resolve_url(key, url.as_ref()?, "use a secret path or query", problems)
}

fn mdns(config: &MdnsConfig, problems: &Problems) -> MdnsSettings {
    let name = &config.name.value;
    if name.is_empty() || name.len() > MAX_SERVICE_NAME || name.chars().any(char::is_control) {
        let message = format!("`{}` is not a valid service name", name.escape_debug());
        let hint = format!("1 to {MAX_SERVICE_NAME} bytes on one line");
        problems.add_with_hint(config.name.at, message, hint);
    }
    let announced = |port| config.enabled && port;
    MdnsSettings {
        name: name.clone(),
        stream: announced(config.stream),
        control: announced(config.control),
        http: announced(config.http),
        https: announced(config.https),
    }
}

fn streams(config: &StreamsConfig, problems: &Problems) -> StreamSettings {
    let allowed = config.schemes.as_ref().map(|schemes| {
        for scheme in schemes {
            if Scheme::names_for(RemoteUse::Never).any(|name| name == scheme.value) {
                let message = format!("`{}` starts a program", scheme.value);
                let hint = "write such a source into a [[station]]: controllers must not start one";
                problems.add_with_hint(scheme.at, message, hint);
            }
        }
        schemes.iter().map(|scheme| scheme.value.to_ascii_lowercase()).collect()
    });
    let by_default = || Scheme::names_for(RemoteUse::Allowed).map(str::to_owned).collect();
    StreamSettings {
        schemes: allowed.unwrap_or_else(by_default),
        alsa_devices: config.alsa_devices.clone(),
        roots: config.roots.iter().map(|dir| absolute_path("roots", dir, problems)).collect(),
        announce_hosts: announce_hosts(config.announce_hosts.as_deref(), problems),
        plugin_dir: absolute_path("plugin_dir", &config.plugin_dir, problems),
        plugins_by_rpc: config.plugins_by_rpc,
    }
}

fn announce_hosts(listed: Option<&[ConfigValue<String>]>, problems: &Problems) -> Vec<HostRule> {
    let Some(listed) = listed else { return vec![HostRule::Lan] };
    let rule = |text: &ConfigValue<String>| match text.value.parse() {
        Ok(rule) => Some(rule),
        Err(InvalidHostRule) => {
            let message = format!("`{}` in `announce_hosts` is no host", text.value);
            problems.add_with_hint(text.at, message, InvalidHostRule.to_string());
            None
        }
    };
    listed.iter().filter_map(rule).collect()
}

fn check_unique_names(stations: &[StationConfig], problems: &Problems) {
    let mut seen: Vec<&str> = Vec::new();
    for name in stations.iter().filter_map(|station| station.name.as_ref()) {
        if seen.contains(&name.value.as_str()) {
            report_duplicate("station", name, problems);
        }
        seen.push(&name.value);
    }
}

/// Reports a station that is published without a cluster, or whose chunks are not its own: their
/// stream header can change, and the record of a published stream has one.
fn check_published(config: &Config, stations: &[StationSettings], problems: &Problems) {
    for (config_of_station, station) in config.station.iter().zip(stations) {
        let publish = &config_of_station.publish;
        if !publish.value {
            continue;
        }
        if config.cluster.is_none() {
            let message = "`publish` requires the table `cluster`";
            problems.add_with_hint(publish.at, message, "[cluster] with url = \"nats://HOST\"");
        }
        if station.sources.iter().any(|source| source.config.is_passed()) {
            let message = "`publish` and a source with `pass=true` exclude each other";
            problems.add_with_hint(
                publish.at,
                message,
                "leave `pass` out: the station then encodes",
            );
        }
    }
}

fn check_single_stdin(stations: &[StationConfig], problems: &Problems) {
    let all = stations.iter().flat_map(|station| &station.sources);
    let stdin = |entry: &&crate::model::SourceEntry| {
        entry.uri.value.to_ascii_lowercase().starts_with("stdin:")
    };
    let places: Vec<ConfigLocation> = all.filter(stdin).map(|entry| entry.uri.at).collect();
    for at in places.into_iter().skip(1) {
        problems.add_with_hint(
            at,
            "standard input has two sources",
            "only one source can read it: use pipe://",
        );
    }
}

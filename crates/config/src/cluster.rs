//! `cluster`: the NATS servers through which stations are published to other servers and played
//! from there.
//!
//! Every build reads this table, so that a server without the feature `nats` reports the missing
//! feature instead of an unknown key.

use std::path::PathBuf;

use aulos_core::Span;
use aulos_proto::nats::MAX_SUBJECT_NAME;

use crate::env::Environment;
use crate::keys::keys;
use crate::keys::values::OneOrMore;
use crate::limits::{CLUSTER_REPLICAS, LEASE_TTL_MS};
use crate::names::{Endpoint, absolute_path, endpoint};
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::security::secrets::{RedactedDebug, SecretConfig};

keys! {
    /// NATS, through which servers in several places play each other's stations.
    pub(crate) struct ClusterConfig {
        /// NATS servers of one cluster: `nats://HOST`, or `tls://HOST` with TLS; the default port
        /// is 4222.
        url: OneOrMore<ConfigValue<String>>, required "url = \"nats://nats.example\"";
        /// Name of the site, a part of every subject.
        site: ConfigValue<String> = "default";
        /// Name of this server, unique in the site.
        node: Option<ConfigValue<String>>, default_doc "this host's name";
        /// Lease of a published station: another server that publishes it takes over within twice
        /// this time after the one that sends has failed.
        lease_ttl_ms: u32 = 2_000, range LEASE_TTL_MS, "milliseconds";
        /// Share the settings of clients with the other servers of the site that do: name, volume,
        /// mute, latency, volume limit and group. A client that moves to another one keeps them.
        share_settings: bool = false;
        /// Copies of the records and leases in the `JetStream` of a NATS cluster. With three they
        /// survive the loss of a NATS server. Fewer are raised to this number, more are left.
        replicas: Option<u32>, range CLUSTER_REPLICAS, "servers", default_doc "3 where the cluster permits, 1 elsewhere";
        /// User name.
        user: Option<ConfigValue<String>>;
        /// Password of the user.
        password: Option<SecretConfig>;
        /// Token, in place of user and password.
        token: Option<SecretConfig>;
        /// Seed of an nkey, which begins with `SU`, in place of user and password.
        nkey: Option<SecretConfig>;
        /// File with the certificates, in PEM, of the authorities that are trusted.
        ca: Option<ConfigValue<String>>, default_doc "the system's";
    }
}

/// A validated `cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The servers; at least one.
    pub servers: Vec<NatsServer>,
    /// The site.
    pub site: String,
    /// This server's name; none means this host's.
    pub node: Option<String>,
    /// For how long the lease of a published station lasts.
    pub lease_ttl: Span,
    /// Whether the settings of clients are shared with other nodes.
    pub share_settings: bool,
    /// Copies of records and leases; none means as many as the NATS cluster permits, up to three.
    pub replicas: Option<u32>,
    /// The login; it is sent to these servers only.
    pub login: NatsLogin,
    /// Certificates of the authorities that are trusted; none means the system's.
    pub ca: Option<PathBuf>,
}

/// A NATS server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatsServer {
    /// The address to connect to; the port is never 0.
    pub address: Endpoint,
    /// Whether the connection must use TLS.
    pub tls: bool,
}

/// How a client of NATS logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a client handles all")]
pub enum NatsLogin {
    /// Not at all.
    #[default]
    Anonymous,
    /// With user and password.
    User(String, RedactedDebug<String>),
    /// With a token.
    Token(RedactedDebug<String>),
    /// With the seed of an nkey, which signs a challenge and is not sent.
    NKey(RedactedDebug<String>),
}

/// The site of a server without `cluster`.
pub const DEFAULT_SITE: &str = "default";

/// Validates the table.
pub(crate) fn resolve(
    config: &ClusterConfig,
    env: &Environment,
    problems: &Problems,
) -> ClusterSettings {
    check_build(config.at, problems);
    let servers: Vec<_> = config.url.0.iter().filter_map(|url| server(url, problems)).collect();
    if config.url.0.len() > MAX_SERVERS {
        let message = format!("`url` has more than {MAX_SERVERS} servers");
        problems.add_with_hint(config.at, message, "some of the servers of a cluster are enough");
    }
    for (key, name) in [("site", Some(&config.site)), ("node", config.node.as_ref())] {
        let Some(ConfigValue { value, at }) = name else { continue };
        if value.is_empty() || value.len() > MAX_SUBJECT_NAME || value.contains(char::is_control) {
            let hint = format!("1 to {MAX_SUBJECT_NAME} bytes without line breaks");
            problems.add_with_hint(*at, format!("`{key}` is not valid"), hint);
        }
    }
    ClusterSettings {
        servers,
        site: config.site.value.clone(),
        node: config.node.as_ref().map(|node| node.value.clone()),
        lease_ttl: Span::from_millis(config.lease_ttl_ms.into()),
        share_settings: config.share_settings,
        replicas: config.replicas,
        login: login(config, env, problems),
        ca: config.ca.as_ref().map(|file| absolute_path("ca", file, problems)),
    }
}

/// Reports a build that cannot connect to NATS.
pub(crate) fn check_build(at: ConfigLocation, problems: &Problems) {
    if !cfg!(feature = "nats") {
        let hint = "build with --features nats, or leave it out";
        problems.add_with_hint(at, "NATS requires a build with the feature `nats`", hint);
    }
}

/// `HOST` and port, `nats` or `tls`.
fn server(url: &ConfigValue<String>, problems: &Problems) -> Option<NatsServer> {
    let ConfigValue { value, at } = url;
    let refuse = |fact: &str| {
        let hint = "as in nats://nats.example or tls://192.0.2.7:4222";
        problems.add_with_hint(*at, format!("`url` {fact}"), hint);
        None
    };
    let (tls, authority) = match value.split_once("://") {
        Some(("nats", authority)) => (false, authority),
        Some(("tls", authority)) => (true, authority),
        _ => return refuse("does not begin with nats:// or tls://"),
    };
    if authority.contains('@') {
        // The text may contain a password, so it is not printed.
        return refuse(
            "must not contain a login: write `user` and `password_file`, or `nkey_file`",
        );
    }
    let address = endpoint(authority.trim_end_matches('/'), None, Some(NATS_PORT));
    match address.filter(|address| address.port != 0) {
        Some(address) => Some(NatsServer { address, tls }),
        None => refuse("is not HOST:PORT"),
    }
}

fn login(config: &ClusterConfig, env: &Environment, problems: &Problems) -> NatsLogin {
    let ways = [config.user.is_some(), config.token.is_some(), config.nkey.is_some()];
    if ways.into_iter().filter(|is_set| *is_set).count() > 1 {
        let message = "`cluster` has several logins";
        problems.add_with_hint(config.at, message, "keep one of `user`, `token` and `nkey`");
    }
    if config.user.is_some() != config.password.is_some() {
        let message = "a login has a user and a password";
        problems.add_with_hint(config.at, message, "user = \"NAME\", password_file = \"FILE\"");
    }
    let secret = |secret: &SecretConfig| secret.text(1, env, problems).unwrap_or_default();
    if let Some(key) = &config.nkey {
        let seed = secret(key);
        if !seed.starts_with("SU") {
            let hint = "the line that `nsc` or `nk -gen user` writes; it begins with SU";
            problems.add_with_hint(key.location(), "`nkey` is not the seed of a user", hint);
        }
        return NatsLogin::NKey(RedactedDebug(seed));
    }
    match (&config.token, &config.user, &config.password) {
        (Some(token), ..) => NatsLogin::Token(RedactedDebug(secret(token))),
        (None, Some(user), Some(password)) => {
            NatsLogin::User(user.value.clone(), RedactedDebug(secret(password)))
        }
        _ => NatsLogin::Anonymous,
    }
}

/// The port of NATS.
pub(crate) const NATS_PORT: u16 = 4222;

/// More servers than a cluster of NATS has in one place.
const MAX_SERVERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::table_of;
    use crate::source::{self, SourceConfig};
    use crate::{parse_source, tree};

    /// The problems of a `cluster`, but for a build without NATS, or the validated table.
    fn check(keys: &str) -> Result<ClusterSettings, Vec<String>> {
        let problems = Problems::default();
        let root = tree::parse(&format!("[cluster]\n{keys}"), &ConfigLocation::File, &problems);
        let config = table_of(root.get("cluster").unwrap(), "cluster", &problems);
        let cluster = resolve(&config, &Environment::default(), &problems);
        let found = messages(problems);
        if found.is_empty() { Ok(cluster) } else { Err(found) }
    }

    fn messages(problems: Problems) -> Vec<String> {
        let all = problems.into_errors().into_iter().map(|problem| problem.message);
        all.filter(|message| !message.contains("requires a build")).collect()
    }

    #[test]
    fn a_url_alone_is_enough() {
        let cluster = check("url = \"nats://a\"").unwrap();
        let [server] = &cluster.servers[..] else { panic!("{cluster:?}") };
        assert_eq!((server.address.to_string().as_str(), server.tls), ("a:4222", false));
        assert_eq!((cluster.site.as_str(), cluster.node), (DEFAULT_SITE, None));
        assert_eq!(cluster.login, NatsLogin::Anonymous);
        assert_eq!((cluster.lease_ttl, cluster.replicas), (Span::from_secs(2), None));
        assert_eq!(check("url = \"nats://a\"\nreplicas = 5").unwrap().replicas, Some(5));
        let two = check("url = [\"tls://[::1]:9\", \"tls://b/\"]").unwrap();
        assert!(two.servers.iter().all(|server| server.tls));
        assert_eq!(two.servers[0].address.to_string(), "[::1]:9");
    }

    #[test]
    fn there_is_one_login_and_no_message_shows_it() {
        let user = check("url = \"nats://a\"\nuser = \"u\"\npassword = \"hush\"").unwrap();
        assert_eq!(user.login, NatsLogin::User("u".into(), RedactedDebug("hush".into())));
        let token = check("url = \"nats://a\"\ntoken = \"hush\"").unwrap();
        assert_eq!(token.login, NatsLogin::Token(RedactedDebug("hush".into())));
        let key = check("url = \"nats://a\"\nnkey = \"SUAhush\"").unwrap();
        assert_eq!(key.login, NatsLogin::NKey(RedactedDebug("SUAhush".into())));
        for cluster in [user, token, key] {
            assert!(!format!("{cluster:?}").contains("hush"));
        }
        for (keys, message) in [
            ("user = \"u\"", "a login has a user and a password"),
            ("password = \"hush\"", "a login has a user and a password"),
            ("nkey = \"hush\"", "`nkey` is not the seed of a user"),
            ("nkey = \"SUAhush\"\ntoken = \"hush\"", "`cluster` has several logins"),
        ] {
            let found = check(&format!("url = \"nats://a\"\n{keys}")).unwrap_err();
            assert_eq!(found, [message], "{keys}");
        }
    }

    #[test]
    fn what_is_no_server_or_no_name_is_refused() {
        for (keys, message) in [
            ("", "`cluster` has no `url`"),
            ("url = \"a:4222\"", "`url` does not begin with nats:// or tls://"),
            ("url = \"nats://a:0\"", "`url` is not HOST:PORT"),
            ("url = \"nats://\"", "`url` is not HOST:PORT"),
            (
                "url = \"nats://a\"\nlease_ttl_ms = 199",
                "`lease_ttl_ms` is 199: it must be 200 to 60000 milliseconds",
            ),
            ("url = \"nats://a\"\nreplicas = 6", "`replicas` is 6: it must be 1 to 5 servers"),
            ("url = \"nats://a\"\nsite = \"\"", "`site` is not valid"),
            ("url = \"nats://a\"\nnode = \"a\\nb\"", "`node` is not valid"),
            ("url = \"nats://a\"\nca = \"b\"", "`ca` is \"b\": it must be an absolute path"),
        ] {
            assert_eq!(check(keys).unwrap_err(), [message], "{keys}");
        }
        let found = check("url = \"nats://u:hush@a\"").unwrap_err();
        assert!(found[0].contains("must not contain a login") && !found[0].contains("hush"));
    }

    #[test]
    fn a_source_has_a_station_and_perhaps_a_server() {
        let parse = |uri: &str| {
            let problems = Problems::default();
            let parsed = source::parse(&ConfigValue::default_value(uri.to_owned()), &problems);
            match (parsed.map(|(sources, _)| sources), messages(problems)) {
                (Some(sources), found) if found.is_empty() => Ok(sources),
                (_, found) => Err(found),
            }
        };
        let nats = |uri: &str| match parse(uri).unwrap().pop() {
            Some(SourceConfig::Nats(source)) => source,
            other => panic!("{other:?}"),
        };
        let own = nats("nats:///Radio%201");
        assert_eq!((own.server, own.site, own.station.as_str()), (None, None, "Radio 1"));
        assert!(!own.pass && nats("nats:///a?pass=true").pass);
        assert_eq!(nats("nats:///a?latency=-2.25").latency, Span::from_micros(-2_250));
        let other = nats("nats://b:9/radio?site=home&tls=true");
        let server = other.server.unwrap();
        assert_eq!((server.address.to_string().as_str(), server.tls), ("b:9", true));
        assert_eq!((other.site.as_deref(), other.station.as_str()), (Some("home"), "radio"));
        for uri in ["nats://b", "nats:///", "nats://b:0/a", "nats://u@b/a", "nats:///a?site="] {
            assert_eq!(parse(uri).unwrap_err().len(), 1, "{uri}");
        }
        let problems = parse_source("nats:///a").unwrap_err();
        let needs =
            |problem: &crate::Problem| problem.message.contains("requires a running server");
        assert!(problems.iter().any(needs), "{problems:?}");
    }

    #[test]
    fn a_published_station_needs_a_cluster() {
        let station = "[[station]]\nname = \"a\"\npublish = true\nsources = [\"demo://\"]\n";
        let load = |text: &str| {
            let file = crate::ConfigFile { name: "aulos.toml", text };
            crate::load(Some(file), &[], &Environment::default()).map_err(|error| error.to_string())
        };
        assert!(load(station).unwrap_err().contains("`publish` requires the table `cluster`"));
        for uri in ["snapcast://a?pass=true", "nats://a/b?pass=true"] {
            let passed = station.replace("demo://", uri);
            assert!(load(&passed).unwrap_err().contains("exclude each other"));
        }
        let complete = load(&format!("{station}[cluster]\nurl = \"nats://a\"\n"));
        if cfg!(feature = "nats") {
            let resolved = complete.unwrap();
            assert!(resolved.stations[0].publish && resolved.cluster.is_some());
        } else {
            assert!(complete.unwrap_err().contains("requires a build with the feature `nats`"));
        }
    }
}

//! `mqtt`: the broker through which home automation sees the server and controls it.

use std::path::PathBuf;

use aulos_proto::uri::percent_decode;

use crate::env::Environment;
use crate::keys::keys;
use crate::names::{Endpoint, absolute_path, endpoint};
use crate::problem::{ConfigValue, Problems};
use crate::security::secrets::{RedactedDebug, SecretConfig};

keys! {
    /// MQTT, through which home automation sees the server and controls it.
    pub(crate) struct MqttConfig {
        /// Broker: `mqtt://HOST`, or `mqtts://HOST` with TLS, also with a login, as in
        /// `mqtts://USER:PASSWORD@HOST:PORT`; the default ports are 1883 and 8883.
        url: ConfigValue<String>, required "url = \"mqtt://broker.local\"";
        /// User name.
        user: Option<ConfigValue<String>>;
        /// Password of the user.
        password: Option<SecretConfig>;
        /// File with the certificates, in PEM, of the authorities that are trusted.
        ca: Option<ConfigValue<String>>, default_doc "the system's";
        /// First part of all topics.
        base: ConfigValue<String> = "aulos";
        /// Second part of all topics, unique at the broker.
        name: Option<ConfigValue<String>>, default_doc "this host's name";
        /// First part of the topics by which Home Assistant discovers the entities; empty for no
        /// discovery.
        discovery_prefix: ConfigValue<String> = "homeassistant";
        /// Also publish the clients, 256 at most.
        clients: bool = true;
    }
}

/// A validated `mqtt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttSettings {
    /// The broker; the port is never 0.
    pub broker: Endpoint,
    /// Whether the connection uses TLS.
    pub tls: bool,
    /// User and password.
    pub login: Option<(String, RedactedDebug<String>)>,
    /// Certificates of the authorities that are trusted; none means the system's.
    pub ca: Option<PathBuf>,
    /// The first part of all topics.
    pub base: String,
    /// The second part; none means this host's name.
    pub name: Option<String>,
    /// The prefix of discovery; none for no discovery.
    pub discovery: Option<String>,
    /// Whether clients are published.
    pub has_clients: bool,
}

/// Validates the table.
pub(crate) fn resolve(
    config: &MqttConfig,
    env: &Environment,
    problems: &Problems,
) -> Option<MqttSettings> {
    for (key, topic) in [
        ("base", Some(&config.base)),
        ("name", config.name.as_ref()),
        ("discovery_prefix", Some(&config.discovery_prefix)),
    ] {
        let Some(ConfigValue { value, at }) = topic else { continue };
        let may_be_empty = key == "discovery_prefix";
        if value.is_empty() && !may_be_empty
            || value.len() > MAX_TOPIC_PART
            || value.contains(['+', '#', '\0'])
            || value.starts_with(['/', '$'])
            || value.ends_with('/')
        {
            let hint = format!("1 to {MAX_TOPIC_PART} bytes without `+`, `#` and outer slashes");
            problems.add_with_hint(*at, format!("`{key}` is not a part of a topic"), hint);
        }
    }
    let prefix = &config.discovery_prefix.value;
    let (broker, tls, url_login) = broker(&config.url, problems)?;
    Some(MqttSettings {
        broker,
        tls,
        login: login(config, url_login, env, problems),
        ca: config.ca.as_ref().map(|file| absolute_path("ca", file, problems)),
        base: config.base.value.clone(),
        name: config.name.as_ref().map(|name| name.value.clone()),
        discovery: (!prefix.is_empty()).then(|| prefix.clone()),
        has_clients: config.clients,
    })
}

type Login = (String, RedactedDebug<String>);

/// The address of a broker, whether it has TLS, and the login in the URL.
fn broker(
    url: &ConfigValue<String>,
    problems: &Problems,
) -> Option<(Endpoint, bool, Option<Login>)> {
    let ConfigValue { value, at } = url;
    // The text may contain a password, so it is not printed.
    let refuse = |fact: &str| {
        let hint = "as in mqtt://broker.local or mqtts://USER:PASSWORD@192.0.2.7:8883";
        problems.add_with_hint(*at, format!("`url` {fact}"), hint);
    };
    let (tls, authority) = match value.split_once("://") {
        Some(("mqtt", authority)) => (false, authority),
        Some(("mqtts", authority)) => (true, authority),
        _ => {
            refuse("does not begin with mqtt:// or mqtts://");
            return None;
        }
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    // The last one: a password may have an `@` that is not encoded.
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, authority),
    };
    let login = login.map(|login| {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        (percent_decode(user), RedactedDebug(percent_decode(password)))
    });
    let port = if tls { MQTTS_PORT } else { MQTT_PORT };
    let address = endpoint(host, None, Some(port)).filter(|address| address.port != 0);
    if address.is_none() {
        refuse("is not HOST:PORT");
    }
    Some((address?, tls, login))
}

fn login(
    config: &MqttConfig,
    url_login: Option<Login>,
    env: &Environment,
    problems: &Problems,
) -> Option<Login> {
    let keys = [
        config.user.as_ref().map(|user| user.at),
        config.password.as_ref().map(SecretConfig::location),
    ];
    if let (true, Some(at)) = (url_login.is_some(), keys.into_iter().flatten().next()) {
        let message = "`mqtt` has two logins";
        problems.add_with_hint(at, message, "keep that of `url`, or `user` and `password`");
    }
    if let (None, Some(password)) = (&config.user, &config.password) {
        let message = "`password` has no `user`";
        problems.add_with_hint(password.location(), message, "user = \"NAME\"");
    }
    let password = config.password.as_ref().and_then(|secret| secret.text(1, env, problems));
    let own = config
        .user
        .as_ref()
        .map(|user| (user.value.clone(), RedactedDebug(password.unwrap_or_default())));
    url_login.or(own)
}

/// The registered ports.
const MQTT_PORT: u16 = 1883;
const MQTTS_PORT: u16 = 8883;

/// Longest part of a topic that is configured; with the rest it is far below MQTT's 65,535 bytes.
const MAX_TOPIC_PART: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::table_of;
    use crate::problem::ConfigLocation;
    use crate::tree;

    /// The problems, or the validated table.
    fn check(keys: &str) -> Result<MqttSettings, String> {
        let problems = Problems::default();
        let root = tree::parse(&format!("[mqtt]\n{keys}"), &ConfigLocation::File, &problems);
        let config: MqttConfig = table_of(root.get("mqtt").unwrap(), "mqtt", &problems);
        let mqtt = resolve(&config, &Environment::default(), &problems);
        let errors = problems.into_errors().into_iter().map(|problem| problem.message);
        let errors: Vec<String> = errors.collect();
        if errors.is_empty() { Ok(mqtt.unwrap()) } else { Err(errors.join("\n")) }
    }

    #[test]
    fn a_broker_is_an_address_with_or_without_tls_and_login() {
        let login = |user: &str, password: &str| {
            Some((user.to_owned(), RedactedDebug(password.to_owned())))
        };
        for (url, host, port, tls, expected) in [
            ("mqtt://broker.local", "broker.local", 1883, false, None),
            ("mqtts://192.0.2.7/", "192.0.2.7", 8883, true, None),
            ("mqtt://u:p@[::1]:1884", "::1", 1884, false, login("u", "p")),
            ("mqtt://u%40x:p@%2Fq@host", "host", 1883, false, login("u@x", "p@/q")),
            ("mqtt://u@host", "host", 1883, false, login("u", "")),
        ] {
            let mqtt = check(&format!("url = \"{url}\"")).unwrap();
            assert_eq!(
                (&*mqtt.broker.host, mqtt.broker.port, mqtt.tls),
                (host, port, tls),
                "{url}"
            );
            assert_eq!(mqtt.login, expected, "{url}");
        }
        let mqtt = check("url = \"mqtt://a\"\nuser = \"u\"\npassword = \"hush\"").unwrap();
        assert_eq!(mqtt.login, login("u", "hush"));
        assert!(!format!("{mqtt:?}").contains("hush"));
        assert_eq!(
            (mqtt.base.as_str(), mqtt.discovery.as_deref()),
            ("aulos", Some("homeassistant"))
        );
        let mqtt = check("url = \"mqtt://a\"\ndiscovery_prefix = \"\"").unwrap();
        assert_eq!(mqtt.discovery, None);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (keys, expected) in [
            ("url = \"http://u:hush@a\"", "`url` does not begin with mqtt:// or mqtts://"),
            ("url = \"mqtt://u:hush@a:0\"", "`url` is not HOST:PORT"),
            ("url = \"mqtt://u:hush@\"", "`url` is not HOST:PORT"),
            ("url = \"mqtt://u:hush@a\"\nuser = \"x\"", "`mqtt` has two logins"),
            ("url = \"mqtt://a\"\npassword = \"hush\"", "`password` has no `user`"),
            ("url = \"mqtt://a\"\nbase = \"a/#\"", "`base` is not a part of a topic"),
            ("url = \"mqtt://a\"\nname = \"\"", "`name` is not a part of a topic"),
            ("", "has no `url`"),
        ] {
            let error = check(keys).unwrap_err();
            assert!(error.contains(expected) && !error.contains("hush"), "{keys}: {error}");
        }
    }
}

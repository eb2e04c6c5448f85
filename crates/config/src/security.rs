//! `[tls]`, `[[user]]`, `[access]` and `[limits]`: TLS, users, permissions and limits.
//!
//! Secrets are read here, from a file, the environment or the configuration itself, and only their
//! digests are kept. Certificates are read here too, so that `aulos check` finds errors that would
//! prevent a start.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use aulos_io::reactor::AddressLimits;

use super::env::Environment;
use super::limits::{
    CONNECTIONS_PER_SECOND, DEFAULT_LOGIN_ATTEMPTS, LOGIN_ATTEMPTS, MAX_NAME, MAX_SECRET,
    MAX_USERS, MIN_PASSWORD, MIN_TOKEN, SESSIONS_PER_ADDRESS,
};
use super::problem::{ConfigLocation, ConfigValue, Problems};
use super::read::{TableReader, report_missing};
use super::tree::{Node, Value};
use crate::certificates::{self, Identity};
use crate::users::{Role, Rules, SecretDigest, User};

/// The four tables as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecurityConfig {
    /// `[tls]`.
    pub tls: TlsConfig,
    /// `[[user]]`.
    pub users: Vec<UserConfig>,
    /// The role of callers without a login; the default depends on whether users exist.
    pub anonymous: Option<ConfigValue<String>>,
    /// Sessions per address.
    pub sessions_per_address: Option<u32>,
    /// Connections per second per address.
    pub connections_per_second: Option<u32>,
    /// Failed logins per minute per address.
    pub failed_logins_per_minute: Option<u32>,
}

/// `[tls]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsConfig {
    /// Whether TLS is accepted; by default yes.
    pub enabled: Option<ConfigValue<bool>>,
    /// The certificate with its chain; by default a self-signed one is made.
    pub cert: Option<ConfigValue<String>>,
    /// Its private key.
    pub key: Option<ConfigValue<String>>,
    /// The CA of client certificates.
    pub client_ca: Option<ConfigValue<String>>,
    /// The role of clients with a certificate of that CA.
    pub client_role: Option<ConfigValue<String>>,
    /// Whether connections without TLS are refused.
    pub require: bool,
}

/// `[[user]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserConfig {
    /// Location of the table.
    pub at: ConfigLocation,
    /// Required.
    pub name: Option<ConfigValue<String>>,
    /// Required.
    pub role: Option<ConfigValue<String>>,
    /// The source of the password.
    pub password: Option<SecretConfig>,
    /// The source of the token.
    pub token: Option<SecretConfig>,
}

/// The source of a secret.
#[derive(Clone, PartialEq)]
pub enum SecretConfig {
    /// The configuration itself.
    Inline(ConfigValue<String>),
    /// A file.
    File(ConfigValue<String>),
    /// An environment variable.
    Variable(ConfigValue<String>),
}

impl std::fmt::Debug for SecretConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Here"),
            Self::File(path) => write!(f, "File({:?})", path.value),
            Self::Variable(name) => write!(f, "Variable({:?})", name.value),
        }
    }
}

/// TLS, users, permissions and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecuritySettings {
    /// TLS.
    pub tls: TlsSettings,
    /// Users and roles.
    pub access: Rules,
    /// Limits per address.
    pub limits: AddressLimits,
}

/// TLS settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whether TLS is accepted.
    pub enabled: bool,
    /// Certificate and key; none means that a self-signed one is made.
    pub identity: Option<Identity>,
    /// The CA of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether connections without TLS are refused.
    pub require: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self { enabled: true, identity: None, client_ca: None, require: false }
    }
}

impl TlsSettings {
    /// Whether another setting needs TLS.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        self.require || self.identity.is_some() || self.client_ca.is_some()
    }
}

/// Reads the four tables.
pub(super) fn read(root: &mut TableReader<'_>, problems: &Problems) -> SecurityConfig {
    let mut config = SecurityConfig::default();
    if let Some(node) = root.node("tls") {
        config.tls = read_tls(TableReader::new(node, "[tls]", problems));
    }
    match root.node("user") {
        Some(Node { value: Value::List(items), .. }) => {
            config.users = items.iter().map(|node| read_user(node, problems)).collect();
        }
        Some(node) => {
            let message = format!("`user` is {}: it must be a list of tables", node.kind());
            problems.add_with_hint(node.at, message, "write [[user]] with two brackets");
        }
        None => {}
    }
    if let Some(node) = root.node("access") {
        let mut table = TableReader::new(node, "[access]", problems);
        config.anonymous = table.text("anonymous");
        table.finish();
    }
    if let Some(node) = root.node("limits") {
        let mut table = TableReader::new(node, "[limits]", problems);
        let mut read = |key, unit, range| table.number(key, unit, range).map(|at| at.value);
        config.sessions_per_address =
            read("sessions_per_address", "sessions", SESSIONS_PER_ADDRESS);
        config.connections_per_second =
            read("connections_per_second", "connections a second", CONNECTIONS_PER_SECOND);
        config.failed_logins_per_minute =
            read("failed_logins_per_minute", "logins a minute", LOGIN_ATTEMPTS);
        table.finish();
    }
    config
}

fn read_tls(mut table: TableReader<'_>) -> TlsConfig {
    let at = table.node("enabled").map(|node| node.at);
    let tls = TlsConfig {
        enabled: table.flag("enabled").zip(at).map(|(value, at)| ConfigValue { value, at }),
        cert: table.text("cert"),
        key: table.text("key"),
        client_ca: table.text("client_ca"),
        client_role: table.text("client_role"),
        require: table.flag("require").unwrap_or(false),
    };
    table.finish();
    tls
}

fn read_user(node: &Node, problems: &Problems) -> UserConfig {
    let mut table = TableReader::new(node, "a user", problems);
    let mut user = UserConfig {
        at: node.at,
        name: table.text("name"),
        role: table.text("role"),
        ..Default::default()
    };
    user.password =
        read_secret(&mut table, ["password", "password_file", "password_env"], "user", problems);
    user.token = read_secret(&mut table, ["token", "token_file", "token_env"], "user", problems);
    for (key, absent) in [("name", user.name.is_none()), ("role", user.role.is_none())] {
        if absent && node.get(key).is_none() {
            report_missing(problems, node.at, key, "a user", EXAMPLE);
        }
    }
    table.finish();
    user
}

/// Reads a secret from one of three keys.
pub(super) fn read_secret(
    table: &mut TableReader<'_>,
    keys: [&'static str; 3],
    owner: &str,
    problems: &Problems,
) -> Option<SecretConfig> {
    let kinds = [SecretConfig::Inline, SecretConfig::File, SecretConfig::Variable];
    let mut found: Option<SecretConfig> = None;
    for (key, kind) in keys.into_iter().zip(kinds) {
        let Some(text) = table.text(key) else { continue };
        let at = text.at;
        if found.replace(kind(text)).is_some() {
            let [here, file, variable] = keys;
            let message = format!("one {owner} has two of `{here}`, `{file}` and `{variable}`");
            problems.add_with_hint(at, message, "keep the one that holds the secret");
        }
    }
    found
}

/// Validates the four tables, and reads their secrets and certificates.
pub(super) fn resolve(
    config: &SecurityConfig,
    env: &Environment,
    problems: &Problems,
) -> SecuritySettings {
    if let Some(user) = config.users.get(MAX_USERS) {
        problems.add(user.at, format!("there are more than {MAX_USERS} users"));
    }
    let mut users: Vec<User> = Vec::new();
    for entry in &config.users {
        let user = resolve_user(entry, config.tls.client_ca.is_some(), env, problems);
        if users.iter().any(|other| other.name == user.name) {
            let message = format!("two users are called `{}`", user.name);
            problems.add_with_hint(entry.at, message, "give one of them another name");
        }
        users.push(user);
    }
    let tls = resolve_tls(&config.tls, problems);
    let named = !users.is_empty() || tls.client_ca.is_some();
    let default = if named { Role::Nobody } else { Role::Admin };
    let defaults = AddressLimits::default();
    SecuritySettings {
        access: Rules {
            users,
            anonymous: role(config.anonymous.as_ref(), "anonymous", true, problems)
                .unwrap_or(default),
            certified: role(config.tls.client_role.as_ref(), "client_role", false, problems)
                .unwrap_or(Role::Listen),
            guesses: config.failed_logins_per_minute.unwrap_or(DEFAULT_LOGIN_ATTEMPTS),
        },
        tls,
        limits: AddressLimits {
            per_address: config.sessions_per_address.unwrap_or(defaults.per_address),
            per_second: config.connections_per_second.unwrap_or(defaults.per_second),
        },
    }
}

fn resolve_tls(config: &TlsConfig, problems: &Problems) -> TlsSettings {
    let path =
        |text: &Option<ConfigValue<String>>| text.as_ref().map(|text| PathBuf::from(&text.value));
    let identity = match (path(&config.cert), path(&config.key)) {
        (Some(cert), Some(key)) => Some(Identity { cert, key }),
        _ => None,
    };
    for (one, other, name) in
        [(&config.cert, &config.key, "key"), (&config.key, &config.cert, "cert")]
    {
        if let (Some(one), None) = (one, other) {
            problems.add_with_hint(
                one.at,
                format!("[tls] has no `{name}`"),
                "it takes `cert` and `key`",
            );
        }
    }
    if let (None, Some(role)) = (&config.client_ca, &config.client_role) {
        let hint = "client_ca = \"clients.pem\" says whose certificates count";
        problems.add_with_hint(
            role.at,
            "`client_role` without `client_ca` is given to nobody",
            hint,
        );
    }
    let enabled = config.enabled.as_ref().is_none_or(|enabled| enabled.value);
    if let Some(off) = config.enabled.as_ref().filter(|enabled| !enabled.value)
        && (config.require || config.client_ca.is_some())
    {
        let hint = "leave `enabled` out, or `require` and `client_ca`";
        problems.add_with_hint(off.at, "TLS is off and needed", hint);
    }
    let tls = TlsSettings {
        enabled,
        identity,
        client_ca: path(&config.client_ca),
        require: config.require,
    };
    let checked = match &tls.identity {
        Some(_) => certificates::load(&tls).map(drop),
        None => certificates::check_client_ca(&tls),
    };
    if let Err(error) = checked {
        let text = match error.key {
            "key" => &config.key,
            "client_ca" => &config.client_ca,
            _ => &config.cert,
        };
        let at = text.as_ref().map_or(ConfigLocation::Default, |text| text.at);
        let message = format!("`{}` cannot be used: {error}", error.key);
        problems.add_with_hint(
            at,
            message,
            "PEM files (-----BEGIN ...) are wanted, readable by the server",
        );
    }
    tls
}

fn resolve_user(
    config: &UserConfig,
    certificates: bool,
    env: &Environment,
    problems: &Problems,
) -> User {
    let name = config.name.as_ref().map_or("", |name| &name.value);
    if let Some(ConfigValue { value, at }) = &config.name
        && (value.is_empty()
            || value.len() > MAX_NAME
            || value.contains(':')
            || value.chars().any(char::is_control))
    {
        let message = format!("`{}` cannot be a user's name", value.escape_debug());
        problems.add_with_hint(*at, message, format!("1 to {MAX_NAME} bytes without a colon"));
    }
    if config.password.is_none() && config.token.is_none() && !certificates {
        let hint = "give him a `password` or a `token`, or set `client_ca` of [tls]";
        problems.add_with_hint(config.at, format!("user `{name}` cannot log in"), hint);
    }
    User {
        name: name.to_owned(),
        role: role(config.role.as_ref(), "role", false, problems).unwrap_or_default(),
        password: config.password.as_ref().and_then(|one| secret(one, MIN_PASSWORD, env, problems)),
        token: config.token.as_ref().and_then(|one| secret(one, MIN_TOKEN, env, problems)),
    }
}

fn role(
    text: Option<&ConfigValue<String>>,
    key: &str,
    or_none: bool,
    problems: &Problems,
) -> Option<Role> {
    let ConfigValue { value, at } = text?;
    match value.parse::<Role>().ok().filter(|role| or_none || *role > Role::Nobody) {
        Some(role) => Some(role),
        None => {
            let none = if or_none { "none, " } else { "" };
            let message = format!("`{key}` is \"{value}\", which is no role");
            problems.add_with_hint(
                *at,
                message,
                format!("there is {none}listen, control and admin"),
            );
            None
        }
    }
}

pub(super) fn secret(
    config: &SecretConfig,
    shortest: usize,
    env: &Environment,
    problems: &Problems,
) -> Option<SecretDigest> {
    secret_text(config, shortest, env, problems).map(|text| SecretDigest::new(&text))
}

/// A secret as text, for use with other servers; a digest would not do.
pub(super) fn secret_text(
    config: &SecretConfig,
    shortest: usize,
    env: &Environment,
    problems: &Problems,
) -> Option<String> {
    let (at, text) = match config {
        SecretConfig::Inline(text) => (text.at, Ok(text.value.clone())),
        SecretConfig::File(ConfigValue { value: path, at }) => {
            (*at, read_file(path).map_err(|error| format!("{path}: {error}")))
        }
        SecretConfig::Variable(ConfigValue { value: name, at }) => {
            let value = env.variables.0.get(name).cloned();
            (*at, value.ok_or_else(|| format!("there is no variable `{name}`")))
        }
    };
    let checked = text.and_then(|text| match text.len() {
        length if length < shortest => Err(format!("a secret of {length} bytes is too short")),
        length if length > MAX_SECRET => Err(format!("a secret of {length} bytes is too long")),
        _ => Ok(text),
    });
    match checked {
        Ok(text) => Some(text),
        Err(message) => {
            problems.add_with_hint(
                at,
                message,
                format!("{shortest} to {MAX_SECRET} bytes in one line"),
            );
            None
        }
    }
}

/// The first line of a file.
fn read_file(path: &str) -> io::Result<String> {
    let mut text = String::new();
    // The longest secret may be followed by a line break.
    File::open(path)?.take(MAX_SECRET as u64 + 3).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

const EXAMPLE: &str = "[[user]] name = \"kitchen\", role = \"listen\", password_file = \"FILE\"";

//! `[tls]`, `[[user]]`, `[access]` and `[limits]`: TLS, users, permissions and limits.
//!
//! Certificates are read here, so that `aulos check` finds errors that would prevent a start.

pub mod certificates;
pub(crate) mod secrets;
pub mod users;
pub(crate) mod x509;

use std::path::PathBuf;
use std::time::SystemTime;

use aulos_io::reactor::AddressLimits;

use crate::env::Environment;
use crate::keys::{NamedEnum, keys};
use crate::limits::{
    CONNECTIONS_PER_SECOND, DEFAULT_LOGIN_ATTEMPTS, LOGIN_ATTEMPTS, MAX_NAME, MAX_USERS,
    MIN_PASSWORD, MIN_TOKEN, SESSIONS_PER_ADDRESS,
};
use crate::names::report_duplicate;
use crate::problem::{ConfigLocation, ConfigValue, Problems};
use crate::security::certificates::{CertificateFiles, Identity, TlsSettings};
use crate::security::secrets::SecretConfig;
use crate::security::users::{AccessPolicy, Role, User};

keys! {
    /// TLS, which every port accepts.
    pub(crate) struct TlsConfig {
        /// Whether TLS is accepted.
        enabled: ConfigValue<bool> = true;
        /// Certificate with its chain, a PEM file.
        cert: Option<ConfigValue<String>>, default_doc "a self-signed certificate in `state_dir`";
        /// Private key of `cert`, a PEM file.
        key: Option<ConfigValue<String>>;
        /// CA of client certificates, a PEM file. The common name of a certificate is the user.
        client_ca: Option<ConfigValue<String>>;
        /// Role of clients whose certificate names no user.
        client_role: Option<ConfigValue<Option<UserRole>>>, default_doc "`listen`";
        /// Refuse connections without TLS.
        require: bool = false;
    }

    /// A user.
    pub(crate) struct UserConfig {
        /// Unique name without a colon.
        name: Option<ConfigValue<String>>, required "name = \"kitchen\"";
        /// Permissions; each role includes the ones before it.
        role: Option<UserRole>, required "role = \"listen\"";
        /// May search, listen to, export and hold logs (`logger` of a station); no role includes it.
        log: bool = false;
        /// Password, at least 8 bytes.
        password: Option<SecretConfig>;
        /// Token, at least 16 bytes; no other user has the same.
        token: Option<SecretConfig>;
    }

    /// Access without a login.
    pub(crate) struct AccessConfig {
        /// Role of clients without a login.
        anonymous: Option<Role>, default_doc "`admin`; with users or `client_ca` `none`";
    }

    /// Limits for each address.
    pub(crate) struct LimitsConfig {
        /// Concurrent sessions.
        sessions_per_address: u32 = AddressLimits::default().per_address, range SESSIONS_PER_ADDRESS, "sessions";
        /// New connections, after a burst.
        connections_per_second: u32 = AddressLimits::default().per_second, range CONNECTIONS_PER_SECOND, "connections/s";
        /// Failed logins, as a burst and per minute.
        failed_logins_per_minute: u32 = DEFAULT_LOGIN_ATTEMPTS, range LOGIN_ATTEMPTS, "logins/min";
    }
}

impl NamedEnum for Role {
    fn values() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|role| (role.name(), role)).to_vec()
    }
}

/// The role of a client that has logged in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UserRole(Role);

impl NamedEnum for UserRole {
    fn values() -> Vec<(&'static str, Self)> {
        let all = Role::values().into_iter().filter(|(_, role)| *role != Role::None);
        all.map(|(name, role)| (name, Self(role))).collect()
    }
}

/// TLS, users, permissions and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecuritySettings {
    /// TLS.
    pub tls: TlsSettings,
    /// Users and roles.
    pub access: AccessPolicy,
    /// Limits per address.
    pub limits: AddressLimits,
}

/// The tables that belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecurityTables<'a> {
    pub(crate) tls: &'a TlsConfig,
    pub(crate) users: &'a [UserConfig],
    pub(crate) access: &'a AccessConfig,
    pub(crate) limits: &'a LimitsConfig,
}

/// Validates the four tables, and reads their secrets and certificates.
pub(crate) fn resolve(
    config: SecurityTables<'_>,
    env: &Environment,
    problems: &Problems,
) -> SecuritySettings {
    if let Some(user) = config.users.get(MAX_USERS) {
        problems.add(user.at, format!("there are more than {MAX_USERS} users"));
    }
    let mut users: Vec<User> = Vec::new();
    for entry in config.users {
        let user = resolve_user(entry, config.tls.client_ca.is_some(), env, problems);
        if users.iter().any(|other| other.name == user.name) {
            let name = ConfigValue { value: user.name.clone(), at: entry.at };
            report_duplicate("user", &name, problems);
        }
        check_own_token(entry, &user, &users, problems);
        users.push(user);
    }
    let tls = resolve_tls(config.tls, problems);
    let has_users = !users.is_empty() || tls.client_ca.is_some();
    let default = if has_users { Role::None } else { Role::Admin };
    SecuritySettings {
        access: AccessPolicy {
            users,
            anonymous: config.access.anonymous.unwrap_or(default),
            certificate_role: config
                .tls
                .client_role
                .and_then(|role| role.value)
                .map_or(Role::Listen, |role| role.0),
            failed_logins_per_minute: config.limits.failed_logins_per_minute,
        },
        tls,
        limits: AddressLimits {
            per_address: config.limits.sessions_per_address,
            per_second: config.limits.connections_per_second,
        },
    }
}

/// Reports a token that another user has: a token is a login by itself, so it could be either user.
fn check_own_token(entry: &UserConfig, user: &User, others: &[User], problems: &Problems) {
    let (Some(token), Some(written)) = (&user.token, &entry.token) else { return };
    if let Some(other) = others.iter().find(|other| other.token.as_ref() == Some(token)) {
        let message = format!("users `{}` and `{}` have the same token", other.name, user.name);
        problems.add_with_hint(written.location(), message, "give each user a token of its own");
    }
}

fn resolve_tls(config: &TlsConfig, problems: &Problems) -> TlsSettings {
    let path =
        |text: &Option<ConfigValue<String>>| text.as_ref().map(|text| PathBuf::from(&text.value));
    let identity = match (path(&config.cert), path(&config.key)) {
        (Some(cert), Some(key)) => Some(Identity { cert, key }),
        _ => None,
    };
    for (one, other, [name, missing]) in
        [(&config.cert, &config.key, ["cert", "key"]), (&config.key, &config.cert, ["key", "cert"])]
    {
        if let (Some(one), None) = (one, other) {
            let message = format!("`tls.{name}` requires `tls.{missing}`");
            problems.add_with_hint(one.at, message, "set both, or none for a self-signed one");
        }
    }
    if let (None, Some(role)) = (&config.client_ca, &config.client_role) {
        let message = "`tls.client_role` requires `tls.client_ca`";
        problems.add_with_hint(role.at, message, "client_ca = \"clients.pem\"");
    }
    let enabled = config.enabled.value;
    for (key, needs) in [("require", config.require), ("client_ca", config.client_ca.is_some())] {
        if needs && !enabled {
            let message = format!("`tls.{key}` is set but TLS is disabled");
            problems.add_with_hint(
                config.enabled.at,
                message,
                format!("remove `enabled` or `{key}`"),
            );
        }
    }
    let mut tls = TlsSettings {
        enabled,
        identity,
        client_ca: path(&config.client_ca),
        require: config.require,
        expires: None,
    };
    let checked = match &tls.identity {
        Some(_) if !tls.enabled => Ok(None),
        Some(identity) => CertificateFiles::read(identity)
            .and_then(|files| files.configure(&tls).map(|_| Some(files))),
        None => certificates::check_client_ca(&tls).map(|()| None),
    };
    if let (Ok(Some(files)), Some(cert)) = (&checked, &config.cert) {
        let report = files.inspect(SystemTime::now());
        tls.expires = report.expires;
        for (fact, hint) in report.notes {
            problems.warn(cert.at, fact, hint.to_owned());
        }
    }
    if let Err(error) = checked {
        let text = match error.key {
            "key" => &config.key,
            "client_ca" => &config.client_ca,
            _ => &config.cert,
        };
        let at = text.as_ref().map_or(ConfigLocation::Default, |text| text.at);
        let message = format!("`tls.{}` cannot be used: {error}", error.key);
        problems.add_with_hint(at, message, error.hint);
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
        let message = format!("`{}` is not a valid user name", value.escape_debug());
        problems.add_with_hint(*at, message, format!("1 to {MAX_NAME} bytes without a colon"));
    }
    if config.password.is_none() && config.token.is_none() && !certificates {
        let hint = "set `password` or `token` of the user, or `client_ca` of [tls]";
        problems.add_with_hint(config.at, format!("user `{name}` cannot log in"), hint);
    }
    let secret = |secret: &Option<SecretConfig>, shortest| {
        secret.as_ref().and_then(|secret| secret.digest(shortest, env, problems))
    };
    User {
        name: name.to_owned(),
        role: config.role.map_or(Role::None, |UserRole(role)| role),
        has_log: config.log,
        password: secret(&config.password, MIN_PASSWORD),
        token: secret(&config.token, MIN_TOKEN),
    }
}

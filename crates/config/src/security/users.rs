//! Users, their secrets and their roles, as the configuration states them.

mod secret;

use std::fmt;
use std::sync::Arc;

pub use secret::SecretDigest;

/// A user's permissions; each role includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// No access, except to log in.
    #[default]
    None,
    /// Listen, and see what plays and how loud.
    Listen,
    /// Change volumes, groups and their streams.
    Control,
    /// Add and remove streams and clients, and reload the configuration.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Self; 4] = [Self::None, Self::Listen, Self::Control, Self::Admin];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Listen => "listen",
            Self::Control => "control",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Users, and the roles of clients without a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPolicy {
    /// Users with unique names and unique tokens.
    pub users: Vec<User>,
    /// Role without a login.
    pub anonymous: Role,
    /// Role of clients with a valid certificate that names no user.
    pub certificate_role: Role,
    /// Failed logins allowed per address, as a burst and per minute.
    pub failed_logins_per_minute: u32,
}

impl Default for AccessPolicy {
    /// Without users, every client has every permission.
    fn default() -> Self {
        let failed_logins_per_minute = crate::limits::DEFAULT_LOGIN_ATTEMPTS;
        Self {
            users: Vec::new(),
            anonymous: Role::Admin,
            certificate_role: Role::Listen,
            failed_logins_per_minute,
        }
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Unique.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Whether it has the permission for logs.
    pub has_log: bool,
    /// Password, used with the name.
    pub password: Option<SecretDigest>,
    /// Token, used alone.
    pub token: Option<SecretDigest>,
}

impl AccessPolicy {
    /// Whether clients must log in to get any access.
    #[must_use]
    pub fn requires_login(&self) -> bool {
        self.anonymous < Role::Listen
    }

    /// The permissions of a user.
    #[must_use]
    pub fn login_of(&self, name: &str) -> Option<Login> {
        self.users.iter().find(|user| user.name == name).map(User::login)
    }

    /// The permissions of a client without a login. Only where there are no users, who may do
    /// everything may do so with logs too.
    #[must_use]
    pub fn anonymous_login(&self) -> Login {
        let has_log = self.users.is_empty() && self.anonymous == Role::Admin;
        Login { role: self.anonymous, has_log, user: None }
    }
}

impl User {
    /// Its permissions.
    #[must_use]
    pub fn login(&self) -> Login {
        Login { role: self.role, has_log: self.has_log, user: Some(self.name.as_str().into()) }
    }
}

/// Who a client is, and what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// Its role.
    pub role: Role,
    /// Whether it may search, listen to, export and hold logs. No role includes this permission:
    /// what was sent weeks ago is for few of those who run a station today.
    pub has_log: bool,
    /// The user; `None` without a login.
    pub user: Option<Arc<str>>,
}

impl Login {
    /// The permissions of both, as the user of `self` where it has one.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            role: self.role.max(other.role),
            has_log: self.has_log || other.has_log,
            user: self.user.or(other.user),
        }
    }
}

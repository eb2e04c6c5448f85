//! Users, their secrets and their roles, as the configuration states them.

mod secret;

use std::fmt;
use std::str::FromStr;

pub use secret::SecretDigest;

/// A user's permissions; each role includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// No access, except to log in.
    #[default]
    Nobody,
    /// Listen, and see what plays and how loud.
    Listen,
    /// Change volumes, groups and their streams.
    Control,
    /// Add and remove streams and clients, and reload the configuration.
    Admin,
}

impl Role {
    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "none",
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

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let all = [Self::Nobody, Self::Listen, Self::Control, Self::Admin];
        all.into_iter().find(|role| role.name() == text).ok_or(UnknownRole)
    }
}

/// Not `none`, `listen`, `control` or `admin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRole;

/// The users and their roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Users with unique names.
    pub users: Vec<User>,
    /// Role without a login.
    pub anonymous: Role,
    /// Role of clients with a valid certificate that names no user.
    pub certified: Role,
    /// Failed logins allowed per address, as a burst and per minute.
    pub guesses: u32,
}

impl Default for Rules {
    /// Without users, every client has every permission.
    fn default() -> Self {
        let guesses = crate::limits::DEFAULT_LOGIN_ATTEMPTS;
        Self { users: Vec::new(), anonymous: Role::Admin, certified: Role::Listen, guesses }
    }
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Unique.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Password, used with the name.
    pub password: Option<SecretDigest>,
    /// Token, used alone.
    pub token: Option<SecretDigest>,
}

impl Rules {
    /// Whether clients must log in to get any access.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.anonymous < Role::Listen
    }

    /// The role of a user.
    #[must_use]
    pub fn role_of(&self, name: &str) -> Option<Role> {
        self.users.iter().find(|user| user.name == name).map(|user| user.role)
    }
}

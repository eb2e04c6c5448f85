//! Users, their secrets and their roles, as the configuration states them.

mod secret;

use std::fmt;
use std::str::FromStr;

pub use secret::SecretDigest;

/// What somebody may do; each holds what stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Nothing but to say who he is.
    #[default]
    Nobody,
    /// Hear, and see what is played how loud.
    Listen,
    /// Change volumes, groups and what they play.
    Control,
    /// Add and remove streams and clients, and read the configuration again.
    Admin,
}

impl Role {
    /// Its word in a configuration.
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

/// There are `none`, `listen`, `control` and `admin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRole;

/// Who there is, and what they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Each with a name of its own.
    pub users: Vec<User>,
    /// What those may who do not say who they are.
    pub anonymous: Role,
    /// What those may who show a good certificate that names no user.
    pub certified: Role,
    /// Wrong guesses from one address, at once and a minute.
    pub guesses: u32,
}

impl Default for Rules {
    /// Nobody has been named, so everybody may do everything.
    fn default() -> Self {
        let guesses = crate::limits::DEFAULT_LOGIN_ATTEMPTS;
        Self { users: Vec::new(), anonymous: Role::Admin, certified: Role::Listen, guesses }
    }
}

/// Somebody who can say who he is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Unique.
    pub name: String,
    /// What he may.
    pub role: Role,
    /// With the name.
    pub password: Option<SecretDigest>,
    /// By itself.
    pub token: Option<SecretDigest>,
}

impl Rules {
    /// Whether somebody has to say who he is before he is let in at all.
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

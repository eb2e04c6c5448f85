//! Access control: users, their secrets, and the three roles.
//!
//! A role includes the ones before it: listening, controlling, administering. The permission for
//! logs is beside them, and none includes it. The required role of
//! a call is in the table of methods, that of a path in the HTTP server; this module only knows the
//! users' roles. Secrets are kept as digests and compared in constant time. Failed logins are
//! counted per address: an address with too many is rejected without a comparison for a while.

mod address_buckets;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_core::{Instant, Span};
use aulos_proto::http::decode_text;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::watch;

pub(crate) use address_buckets::AddressBuckets;
pub use aulos_config::users::{AccessPolicy, Login, Role, SecretDigest, User};

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and its password.
    Password(String, String),
    /// A token.
    Token(String),
    /// Credentials in an unknown form.
    Unreadable,
}

impl fmt::Debug for Credentials {
    /// Prints them without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password(user, _) => write!(f, "Password({user:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::Unreadable => f.write_str("Unreadable"),
        }
    }
}

impl Credentials {
    /// Parses a scheme and its parameter, as in Snapcast's `Auth` and `Server.Authenticate`:
    /// `Basic` (base64 of `user:password`), `Plain` (`user:password`), and `Bearer` (a token).
    #[must_use]
    pub fn parse(scheme: &str, param: &str) -> Self {
        let pair = |text: &str| {
            let (user, password) = text.split_once(':')?;
            Some(Self::Password(user.to_owned(), password.to_owned()))
        };
        let known = match scheme.to_ascii_lowercase().as_str() {
            "plain" => pair(param),
            "basic" => BASE64_STANDARD
                .decode(param.trim())
                .ok()
                // Old programs encode it in Latin-1; RFC 7617, 2 leaves the charset open.
                .and_then(|bytes| pair(&decode_text(&bytes))),
            "bearer" => Some(Self::Token(param.trim().to_owned())),
            _ => None,
        };
        known.unwrap_or(Self::Unreadable)
    }

    /// Parses the value of HTTP's `Authorization` (RFC 9110, 11.6.2).
    #[must_use]
    pub fn from_header(value: &str) -> Self {
        match value.trim().split_once(' ') {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("plain") => Self::Unreadable,
            Some((scheme, param)) => Self::parse(scheme, param),
            None => Self::Unreadable,
        }
    }

    /// Name and password, if the credentials are those.
    #[must_use]
    pub fn name_and_password(&self) -> Option<(&str, &str)> {
        match self {
            Self::Password(name, password) => Some((name, password)),
            Self::Token(_) | Self::Unreadable => None,
        }
    }
}

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// Unknown user, or wrong secret.
    WrongCredentials,
    /// The address has too many failed logins: rejected without a comparison for now.
    RateLimited,
}

/// Every user is compared, so that the time reveals nothing.
fn check(rules: &AccessPolicy, credentials: &Credentials) -> Option<Login> {
    let (name, given) = match credentials {
        Credentials::Password(name, password) => (Some(name), SecretDigest::new(password)),
        Credentials::Token(token) => (None, SecretDigest::new(token)),
        Credentials::Unreadable => return None,
    };
    let mut found = None;
    for user in &rules.users {
        let kept = if name.is_some() { &user.password } else { &user.token };
        let fits = kept.as_ref().is_some_and(|kept| kept.matches(&given));
        if fits & name.is_none_or(|name| *name == user.name) {
            found = Some(user);
        }
    }
    found.map(User::login)
}

/// The rules in force, and the failed logins.
#[derive(Debug)]
pub struct AccessControl {
    rules: Mutex<Arc<AccessPolicy>>,
    failed_logins: Mutex<AddressBuckets>,
    /// Calls before a login.
    calls: Mutex<AddressBuckets>,
    changes: watch::Sender<()>,
}

impl AccessControl {
    /// Creates it with these rules.
    #[must_use]
    pub fn new(rules: AccessPolicy) -> Self {
        let failed_logins = Mutex::new(AddressBuckets::per_minute(rules.failed_logins_per_minute));
        let calls = Mutex::new(AddressBuckets::new(CALLS_BEFORE_LOGIN, CALL_REFILL_INTERVAL));
        Self {
            rules: Mutex::new(Arc::new(rules)),
            failed_logins,
            calls,
            changes: watch::Sender::default(),
        }
    }

    /// Replaces the rules.
    pub fn replace(&self, rules: AccessPolicy) {
        lock(&self.failed_logins).set_per_minute(rules.failed_logins_per_minute);
        *lock(&self.rules) = Arc::new(rules);
        self.changes.send_replace(());
    }

    /// The rules in force.
    #[must_use]
    pub fn rules(&self) -> Arc<AccessPolicy> {
        Arc::clone(&lock(&self.rules))
    }

    /// Notifies of each change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The permissions of a client from this address with these credentials; never less than
    /// without any.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn login(
        &self,
        from: IpAddr,
        credentials: &Credentials,
        now: Instant,
    ) -> Result<Login, LoginError> {
        let rules = self.rules();
        // Without users there is no wrong login: clients that send another server's credentials are
        // accepted as before.
        if rules.users.is_empty() {
            return Ok(rules.anonymous_login());
        }
        if !lock(&self.failed_logins).has(from, now) {
            return Err(LoginError::RateLimited);
        }
        match check(&rules, credentials) {
            Some(login) => Ok(login.or(rules.anonymous_login())),
            None => {
                lock(&self.failed_logins).take(from, now);
                Err(LoginError::WrongCredentials)
            }
        }
    }

    /// Whether one more call from this address is allowed without a login; counts the call.
    pub fn may_call(&self, from: IpAddr, now: Instant) -> bool {
        lock(&self.calls).take(from, now)
    }

    /// The same for a secret that belongs to no user and has been compared already.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn check_guess(&self, from: IpAddr, right: bool, now: Instant) -> Result<(), LoginError> {
        let mut failed_logins = lock(&self.failed_logins);
        match (failed_logins.has(from, now), right) {
            (false, _) => Err(LoginError::RateLimited),
            (true, true) => Ok(()),
            (true, false) => {
                failed_logins.take(from, now);
                Err(LoginError::WrongCredentials)
            }
        }
    }
}

/// Burst of calls without a login from one address: many controllers that reconnect after a reload.
const CALLS_BEFORE_LOGIN: u32 = 512;

/// Interval of further calls.
const CALL_REFILL_INTERVAL: Span = Span::from_millis(20);

/// The data is consistent at every moment, so a poisoned lock is usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

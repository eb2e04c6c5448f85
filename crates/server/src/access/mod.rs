//! Who may do what: users, their secrets, and the three roles.
//!
//! A role holds everything that the ones before it hold: listening, controlling, administering. What
//! is asked for stands beside what asks ([`crate::control`] for calls, [`crate::http`] for paths);
//! here is only who has which. Secrets are kept as digests and compared in constant time. Guesses are
//! counted per address: whoever is wrong too often is not even compared any more for a while.

mod address_buckets;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_core::{Instant, Span};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::sync::watch;

pub(crate) use address_buckets::AddressBuckets;
pub use aulos_config::users::{Role, Rules, SecretDigest, UnknownRole, User};

/// What somebody says to show who he is.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A name and its password.
    Password(String, String),
    /// A token.
    Token(String),
    /// Something that nobody can be known by.
    Unreadable,
}

impl fmt::Debug for Credentials {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password(user, _) => write!(f, "Password({user:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::Unreadable => f.write_str("Unreadable"),
        }
    }
}

impl Credentials {
    /// From a scheme and its parameter, as Snapcast's `Auth` and `Server.Authenticate` have them:
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
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .and_then(|text| pair(&text)),
            "bearer" => Some(Self::Token(param.trim().to_owned())),
            _ => None,
        };
        known.unwrap_or(Self::Unreadable)
    }

    /// From the value of HTTP's `Authorization` (RFC 9110, 11.6.2).
    #[must_use]
    pub fn from_header(value: &str) -> Self {
        match value.trim().split_once(' ') {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("plain") => Self::Unreadable,
            Some((scheme, param)) => Self::parse(scheme, param),
            None => Self::Unreadable,
        }
    }
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// There is nobody of this name, or his secret is another one.
    WrongCredentials,
    /// His address has been wrong too often: nothing is compared until later.
    RateLimited,
}

/// Every user is looked at, so that the time it takes says nothing.
fn check(rules: &Rules, credentials: &Credentials) -> Option<Role> {
    let (name, said) = match credentials {
        Credentials::Password(name, password) => (Some(name), SecretDigest::new(password)),
        Credentials::Token(token) => (None, SecretDigest::new(token)),
        Credentials::Unreadable => return None,
    };
    let mut found = None;
    for user in &rules.users {
        let kept = if name.is_some() { &user.password } else { &user.token };
        let fits = kept.as_ref().is_some_and(|kept| kept.matches(&said));
        if fits & name.is_none_or(|name| *name == user.name) {
            found = Some(user.role);
        }
    }
    found
}

/// The rules that hold, and what has been guessed.
#[derive(Debug)]
pub struct AccessControl {
    rules: Mutex<Arc<Rules>>,
    guesses: Mutex<AddressBuckets>,
    /// Calls before a login.
    calls: Mutex<AddressBuckets>,
    changes: watch::Sender<()>,
}

impl AccessControl {
    /// These rules hold from the start.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let guesses = Mutex::new(AddressBuckets::per_minute(rules.guesses));
        let calls = Mutex::new(AddressBuckets::new(CALLS_BEFORE_LOGIN, CALL_REFILL_INTERVAL));
        Self {
            rules: Mutex::new(Arc::new(rules)),
            guesses,
            calls,
            changes: watch::Sender::default(),
        }
    }

    /// Others hold from now on.
    pub fn replace(&self, rules: Rules) {
        lock(&self.guesses).set_per_minute(rules.guesses);
        *lock(&self.rules) = Arc::new(rules);
        self.changes.send_replace(());
    }

    /// The rules that hold.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&lock(&self.rules))
    }

    /// Tells of each change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// What somebody from this address may who says this; never less than those who say nothing.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn login(
        &self,
        from: IpAddr,
        credentials: &Credentials,
        now: Instant,
    ) -> Result<Role, LoginError> {
        let rules = self.rules();
        // Where there is nobody to be, nobody can be wrong: clients that send what another server
        // wanted are let in as they always were.
        if rules.users.is_empty() {
            return Ok(rules.anonymous);
        }
        if !lock(&self.guesses).has(from, now) {
            return Err(LoginError::RateLimited);
        }
        match check(&rules, credentials) {
            Some(role) => Ok(role.max(rules.anonymous)),
            None => {
                lock(&self.guesses).take(from, now);
                Err(LoginError::WrongCredentials)
            }
        }
    }

    /// Whether one more call may come from this address without a login. The call is counted.
    pub fn may_call(&self, from: IpAddr, now: Instant) -> bool {
        lock(&self.calls).take(from, now)
    }

    /// The same for a secret that is no user's and has been compared already.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_guess(&self, from: IpAddr, right: bool, now: Instant) -> Result<(), LoginError> {
        let mut guesses = lock(&self.guesses);
        match (guesses.has(from, now), right) {
            (false, _) => Err(LoginError::RateLimited),
            (true, true) => Ok(()),
            (true, false) => {
                guesses.take(from, now);
                Err(LoginError::WrongCredentials)
            }
        }
    }
}

/// Calls without a login that one address may make at once: a house full of controllers that come
/// again after a reload.
const CALLS_BEFORE_LOGIN: u32 = 512;

/// Then it may make one more every this long.
const CALL_REFILL_INTERVAL: Span = Span::from_millis(20);

/// What is guarded is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

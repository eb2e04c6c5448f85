//! Callers and their roles.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use aulos_core::{Instant, Span, TokenBucket};

use crate::access::{Login, Role};
use crate::peers::PeerId;
use crate::peers::subscription::Subscription;

/// The origin and permissions of a call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The caller's connection, if it receives notifications.
    pub peer: Option<PeerId>,
    /// The caller's address.
    pub from: IpAddr,
    /// The caller's role; a login raises it.
    pub role: Role,
    /// Whether the caller may search, listen to, export and hold logs.
    pub has_log: bool,
    /// The user that has logged in.
    pub user: Option<Arc<str>>,
    /// Whether the caller has given valid credentials or a trusted certificate.
    pub has_logged_in: bool,
    /// What the caller's connection is sent; `None` where it cannot carry a feed.
    pub subscription: Option<Subscription>,
    /// Rate limit for calls before a login, where one is required.
    pub(crate) login_budget: TokenBucket,
}

impl Caller {
    /// A caller at this address.
    #[must_use]
    pub const fn new(from: IpAddr, role: Role) -> Self {
        let login_budget = TokenBucket::new(CALLS_BEFORE_LOGIN, CALL_INTERVAL, Instant::ZERO);
        Self {
            peer: None,
            from,
            role,
            has_log: false,
            user: None,
            has_logged_in: false,
            subscription: None,
            login_budget,
        }
    }

    /// A caller at this address with the permissions of a login.
    #[must_use]
    pub fn with_login(from: IpAddr, login: Login) -> Self {
        let mut caller = Self::new(from, Role::None);
        caller.grant(login);
        caller
    }

    /// Adds the permissions of a login.
    pub fn grant(&mut self, login: Login) {
        let own = Login { role: self.role, has_log: self.has_log, user: self.user.take() };
        Login { role: self.role, has_log: self.has_log, user: self.user } = login.or(own);
    }

    /// The caller in notes of exports: the user with its address, or the address.
    #[must_use]
    pub fn name(&self) -> String {
        self.user
            .as_ref()
            .map_or_else(|| self.from.to_string(), |user| format!("{user}@{}", self.from))
    }

    /// The server itself, which may do everything.
    #[must_use]
    pub const fn internal() -> Self {
        let mut caller = Self::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Role::Admin);
        caller.has_log = true;
        caller
    }
}

/// Burst of calls before a login: a controller requests the version and the list of methods and
/// logs in, possibly more than once.
const CALLS_BEFORE_LOGIN: u32 = 16;

/// Interval at which one more call before a login is allowed.
const CALL_INTERVAL: Span = Span::from_millis(100);

pub(crate) const UNAUTHORIZED: (i64, &str) = (401, "Unauthorized");
pub(crate) const FORBIDDEN: (i64, &str) = (403, "Forbidden");

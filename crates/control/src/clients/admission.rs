//! Admission: clients are checked by their Hello, other connections by certificate or credentials.

use std::net::IpAddr;

use aulos_core::Span;
use aulos_io::SystemClock;

use crate::access::{AddressBuckets, Credentials, LoginError, Role};
use crate::backend::{Hello, KickReason, SessionCommand, SessionId};
use crate::control::counters::count;
use crate::control::state::{Control, ControlState};

impl Control {
    /// Checks that a client may listen.
    pub(crate) fn authorize_client(&self, from: IpAddr, hello: &Hello) -> Result<(), KickReason> {
        let granted = match &hello.auth {
            // Credentials that are given must be correct, even where none are required.
            Some(credentials) => self.login(from, credentials),
            None => Ok(self.access.rules().anonymous),
        };
        match granted {
            Ok(role) if role >= Role::Listen || hello.preauthenticated => Ok(()),
            Ok(_) | Err(LoginError::WrongCredentials) => Err(KickReason::Unauthorized),
            Err(LoginError::RateLimited) => Err(KickReason::RateLimited),
        }
    }

    /// Checks the rate limit for unknown clients: ids are free to invent, and each one is
    /// remembered.
    pub(crate) fn check_new_client(
        &self,
        inner: &mut ControlState,
        from: IpAddr,
        hello: &Hello,
    ) -> Result<(), KickReason> {
        if inner.registry.table.is_known(hello) || inner.new_clients.take(from, SystemClock::now())
        {
            return Ok(());
        }
        count(&self.counters.clients_refused_new);
        Err(KickReason::RateLimited)
    }

    pub(crate) fn reject_session(
        &self,
        inner: &mut ControlState,
        session: SessionId,
        cause: KickReason,
    ) {
        inner.outbox.push(SessionCommand::Kick { session, cause });
        inner.outbox.flush(&*self.backend);
    }

    /// The role for these credentials. A failure is counted.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn login(&self, from: IpAddr, credentials: &Credentials) -> Result<Role, LoginError> {
        let role = self.access.login(from, credentials, SystemClock::now());
        role.inspect_err(|denied| {
            self.count_denied(*denied);
            self.log_refused_login(
                from,
                match denied {
                    LoginError::WrongCredentials => "wrong user, password or token",
                    LoginError::RateLimited => "too many wrong logins from this address",
                },
            );
        })
    }

    /// Records a login attempt from this address that was checked elsewhere, and is logged there.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn record_login_attempt(&self, from: IpAddr, right: bool) -> Result<(), LoginError> {
        let result = self.access.check_guess(from, right, SystemClock::now());
        result.inspect_err(|denied| self.count_denied(*denied))
    }

    fn count_denied(&self, denied: LoginError) {
        count(match denied {
            LoginError::WrongCredentials => &self.counters.logins_failed,
            LoginError::RateLimited => &self.counters.logins_slowed,
        });
    }
}

/// Rate limit for unknown clients, per address. Known clients reconnect as often as the connection
/// limits allow.
pub(crate) fn new_client_buckets() -> AddressBuckets {
    AddressBuckets::new(NEW_CLIENTS, NEW_CLIENT_INTERVAL)
}

/// Burst of new clients from one address: more than the players of a building behind one router,
/// which may all connect at once after installation.
const NEW_CLIENTS: u32 = 1_024;

/// Interval at which one more new client is allowed. Replacing all remembered clients takes two
/// hours.
const NEW_CLIENT_INTERVAL: Span = Span::from_secs(1);

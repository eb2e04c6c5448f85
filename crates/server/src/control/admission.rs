//! Who is let in: players by their Hello, everybody else by what he shows or says.

use std::net::IpAddr;

use aulos_core::Span;
use aulos_io::SystemClock;
use rustls::pki_types::CertificateDer;

use super::{Control, ControlState, count};
use crate::access::{AddressBuckets, Credentials, LoginError, Role};
use crate::backend::{Hello, KickReason, SessionCommand, SessionId};
use crate::tls;

impl Control {
    /// Whether a client may hear anything.
    pub(super) fn authorize_client(&self, from: IpAddr, hello: &Hello) -> Result<(), KickReason> {
        let granted = match &hello.auth {
            // Whoever says who he is has to be right, also where he need not say it.
            Some(credentials) => self.login(from, credentials),
            None => Ok(self.access.rules().anonymous),
        };
        match granted {
            Ok(role) if role >= Role::Listen || hello.preauthenticated => Ok(()),
            Ok(_) | Err(LoginError::WrongCredentials) => Err(KickReason::Unauthorized),
            Err(LoginError::RateLimited) => Err(KickReason::RateLimited),
        }
    }

    /// Whether a client may be one that is not known: ids cost nothing, and each is remembered.
    pub(super) fn check_new_client(
        &self,
        inner: &mut ControlState,
        from: IpAddr,
        hello: &Hello,
    ) -> Result<(), KickReason> {
        if inner.registry.is_known(hello) || inner.new_clients.take(from, SystemClock::now()) {
            return Ok(());
        }
        count(&self.counters.clients_refused_new);
        Err(KickReason::RateLimited)
    }

    pub(super) fn reject_session(
        &self,
        inner: &mut ControlState,
        session: SessionId,
        cause: KickReason,
    ) {
        inner.outbox.push(SessionCommand::Kick { session, cause });
        inner.outbox.flush(&*self.backend);
    }

    /// What somebody may before he has said anything, by the certificate that he has shown.
    #[must_use]
    pub(crate) fn initial_role(&self, certificate: Option<&CertificateDer<'_>>) -> Role {
        let rules = self.access.rules();
        let shown = certificate.map(|certificate| tls::role_of(certificate, &rules));
        rules.anonymous.max(shown.unwrap_or_default())
    }

    /// What somebody from this address may who says this. What goes wrong is counted.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn login(&self, from: IpAddr, credentials: &Credentials) -> Result<Role, LoginError> {
        let role = self.access.login(from, credentials, SystemClock::now());
        role.inspect_err(|denied| self.count_denied(*denied))
    }

    /// Whether somebody from this address may whose secret was right or was not.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn record_login_attempt(&self, from: IpAddr, right: bool) -> Result<(), LoginError> {
        let may = self.access.check_guess(from, right, SystemClock::now());
        may.inspect_err(|denied| self.count_denied(*denied))
    }

    fn count_denied(&self, denied: LoginError) {
        count(match denied {
            LoginError::WrongCredentials => &self.counters.logins_failed,
            LoginError::RateLimited => &self.counters.logins_slowed,
        });
    }
}

/// New clients by address. Clients that are known come back as often and as fast as the limits of
/// connections allow.
pub(super) fn new_client_buckets() -> AddressBuckets {
    AddressBuckets::new(NEW_CLIENTS, NEW_CLIENT_INTERVAL)
}

/// New clients from one address at once: a building behind one router has fewer players, and all of
/// them may come at once when the server is installed.
const NEW_CLIENTS: u32 = 1_024;

/// Then one more every this long. Replacing all that can be remembered takes two hours.
const NEW_CLIENT_INTERVAL: Span = Span::from_secs(1);

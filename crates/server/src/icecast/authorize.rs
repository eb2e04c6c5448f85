//! Whether a source client may use a mount, and the log of those that may not.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use aulos_config::{Endpoint, Mount};
use aulos_control::access::{Credentials, LoginError, SecretDigest};
use aulos_control::{Control, RefusalFilter, count, mounts};
use aulos_core::{Span, TokenBucket};
use aulos_io::SystemClock;
use aulos_session::live_source::LiveResponse;

use crate::http::is_our_host;
use crate::url_auth::{UrlAuthorizer, form, host_and_port};

/// What a client says about its right to a mount.
#[derive(Default)]
pub(super) struct MountClaim {
    /// The mount; empty when the client has named none.
    pub(super) mount: String,
    /// Whether it is for a title only.
    pub(super) is_title: bool,
    /// A password without a user name.
    pub(super) password: Option<String>,
    /// The value of `Authorization`.
    pub(super) authorization: Option<String>,
    /// The value of `Host`.
    pub(super) host: Option<String>,
}

/// A station and its mount.
pub(super) type MountPlace = (String, Mount);

/// Notes an attempt; the error is the response to one that fails.
fn note_attempt(from: IpAddr, is_right: bool, control: &Control) -> Result<(), LiveResponse> {
    control.record_login_attempt(from, is_right).map_err(|error| match error {
        LoginError::WrongCredentials => LiveResponse::Unauthorized,
        LoginError::RateLimited => LiveResponse::TooManyAttempts,
    })
}

/// What is known of a client's right to a mount.
enum Authorization {
    Granted(MountPlace),
    /// It does not have the mount's own password: a program decides about this user and password.
    Asks(MountPlace, [String; 2]),
}

impl MountClaim {
    /// The mount of an address and its station, if the client at `from` is authorized for it.
    ///
    /// # Errors
    /// The response to a client that is not.
    pub(super) async fn authorize(
        &self,
        from: IpAddr,
        address: &Endpoint,
        control: &Control,
        programs: &UrlAuthorizer,
    ) -> Result<MountPlace, LiveResponse> {
        let (place, [user, password]) = match self.check(from, address, control)? {
            Authorization::Granted(place) => return Ok(place),
            Authorization::Asks(place, credentials) => (place, credentials),
        };
        let config = control.config();
        let Some(program) = &config.http.stream_auth else {
            return Err(LiveResponse::Unauthorized);
        };
        let form = self.form(from, &place.1, [&user, &password]);
        let answer = programs.ask(program, form).await.map_err(|error| {
            let to = program.origin();
            tracing::warn!(target: "live_source", to, %error, "cannot ask about a live source");
            LiveResponse::CannotAsk
        })?;
        note_attempt(from, answer.is_permitted, control).map(|()| place)
    }

    /// The form of a question, as Icecast 2.4 fills it in.
    fn form(&self, from: IpAddr, mount: &Mount, [user, password]: [&str; 2]) -> String {
        let (server, port) = host_and_port(self.host.as_deref().unwrap_or_default());
        let from = from.to_canonical().to_string();
        let mut fields = vec![
            ("mount", mount.path.as_str()),
            ("ip", &from),
            ("server", server),
            ("port", port),
            ("user", user),
            ("pass", password),
        ];
        if self.is_title {
            fields.push(("admin", "1"));
        }
        form("stream_auth", &fields)
    }

    fn check(
        &self,
        from: IpAddr,
        address: &Endpoint,
        control: &Control,
    ) -> Result<Authorization, LiveResponse> {
        let has_program = control.config().http.stream_auth.is_some();
        let stations = control.stations();
        let here = mounts(&stations).filter(|(_, mount)| mount.address == *address);
        let mut here: Vec<_> =
            here.map(|(station, mount)| (station.to_owned(), mount.clone())).collect();
        let is_only = here.len() == 1;
        if let Some(password) = &self.password {
            let digest = SecretDigest::new(password);
            // Without a password of its own, a mount on loopback is open to every program.
            let fits = |mount: &Mount| match &mount.password {
                Some(password) => password.matches(&digest),
                None => is_only,
            };
            let named = |mount: &Mount| self.mount.is_empty() || mount.path == self.mount;
            here.retain(|(_, mount)| named(mount));
            let only = if has_program && here.len() == 1 { here.first().cloned() } else { None };
            here.retain(|(_, mount)| fits(mount) && (mount.password.is_some() || !has_program));
            let found = if here.len() == 1 { here.pop() } else { None };
            if let (None, Some(only)) = (&found, only) {
                let user = only.1.user.clone();
                return Ok(Authorization::Asks(only, [user, password.clone()]));
            }
            let found = found.map(Authorization::Granted);
            return match control.record_login_attempt(from, found.is_some()) {
                Ok(()) => found.ok_or(LiveResponse::InvalidPassword),
                Err(LoginError::WrongCredentials) => Err(LiveResponse::InvalidPassword),
                Err(LoginError::RateLimited) => Err(LiveResponse::TooManyAttempts),
            };
        }
        let is_it = |mount: &Mount| {
            mount.path == self.mount || (self.mount.is_empty() && self.is_title && is_only)
        };
        let Some((station, mount)) = here.into_iter().find(|(_, mount)| is_it(mount)) else {
            count(&control.counters.djs_refused_unknown);
            return Err(LiveResponse::NoMount);
        };
        if !has_program || self.has_password_of(&mount) {
            self.check_password(from, &mount, control)?;
            return Ok(Authorization::Granted((station, mount)));
        }
        // libshout first sends a request without credentials, to learn the scheme.
        let said = self.authorization.as_deref().ok_or(LiveResponse::Unauthorized)?;
        let Credentials::Password(user, password) = Credentials::from_header(said) else {
            return Err(LiveResponse::Unauthorized);
        };
        Ok(Authorization::Asks((station, mount), [user, password]))
    }

    fn check_password(
        &self,
        from: IpAddr,
        mount: &Mount,
        control: &Control,
    ) -> Result<(), LiveResponse> {
        if mount.password.is_none() {
            // A page whose own name resolves to this machine (DNS rebinding) sends no `Origin`. If
            // there is a password, the page does not know it.
            if is_our_host(self.host.as_deref(), &control.config().http.names) {
                return Ok(());
            }
            count(&control.counters.http_wrong_host);
            return Err(LiveResponse::Misdirected);
        }
        if self.authorization.is_none() {
            return Err(LiveResponse::Unauthorized);
        }
        note_attempt(from, self.has_password_of(mount), control)
    }

    /// Whether the client has the password of a mount that has one.
    fn has_password_of(&self, mount: &Mount) -> bool {
        let said = self.authorization.as_deref().map(Credentials::from_header);
        match (&mount.password, said) {
            (Some(password), Some(Credentials::Password(user, said))) => {
                // Some programs set titles as Icecast's administrator.
                let is_user = user == mount.user || (self.is_title && user == "admin");
                password.matches(&SecretDigest::new(&said)) & is_user
            }
            _ => false,
        }
    }
}

/// Logs refusals of source clients: each once for an address, until something else happens there.
/// A client that is refused tries again every few seconds.
#[derive(Debug)]
pub(super) struct RefusalLog {
    last: RefusalFilter<LiveResponse>,
    /// Bounds what many addresses, or one with changing requests, write into the log.
    budget: Mutex<TokenBucket>,
}

impl Default for RefusalLog {
    fn default() -> Self {
        let budget = TokenBucket::new(LOG_BURST, LOG_INTERVAL, SystemClock::now());
        Self { last: RefusalFilter::default(), budget: Mutex::new(budget) }
    }
}

impl RefusalLog {
    /// Logs a response to a client at `from`, if it is a refusal and a new one.
    pub(super) fn report(
        &self,
        from: IpAddr,
        address: &Endpoint,
        claim: &MountClaim,
        response: LiveResponse,
    ) {
        let Some(reason) = response.refusal() else { return self.forget(from) };
        let is_question = response == LiveResponse::Unauthorized && claim.authorization.is_none();
        // A title between two programmes is no fault of the configuration.
        if is_question || response == LiveResponse::NotOnAir || !self.is_new(from, response) {
            return;
        }
        let mount: String = claim.mount.chars().filter(|c| !c.is_control()).take(80).collect();
        tracing::warn!(target: "live_source", %from, port = %address, mount, "live source refused: {reason}");
    }

    /// A client at this address was accepted.
    pub(super) fn forget(&self, from: IpAddr) {
        self.last.forget(from);
    }

    fn is_new(&self, from: IpAddr, response: LiveResponse) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        self.last.is_new(from, response) && budget.try_take(SystemClock::now())
    }
}

/// Refusals that are logged at once, and the interval at which one more is.
const LOG_BURST: u32 = 16;
const LOG_INTERVAL: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn many_refusals_are_limited() {
        let log = RefusalLog::default();
        let from = |number| IpAddr::V4(Ipv4Addr::new(192, 0, 2, number));
        assert!(log.is_new(from(1), LiveResponse::NoMount));
        assert!(!log.is_new(from(1), LiveResponse::NoMount));
        let logged = (0..255).filter(|number| log.is_new(from(*number), LiveResponse::NoMount));
        assert!(logged.count() <= LOG_BURST as usize);
    }
}

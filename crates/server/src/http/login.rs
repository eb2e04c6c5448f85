//! Authentication of HTTP requests.
//!
//! A browser is asked for name and password (`Basic`, RFC 7617) and then sends them with every
//! request: page, events, player and calls. Cookies would add sessions that must be stored, expired
//! and protected from other sites. Programs send a token (`Bearer`, RFC 6750).

use std::net::IpAddr;
use std::sync::Arc;

use aulos_config::HttpSettings;
use aulos_control::access::{Credentials, Login, LoginError, Role};
use aulos_control::{Caller, Control};
use aulos_io::reactor::{AddressPermit, MediaSocket};
use aulos_proto::http::{InvalidHead, ReceivedHead};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rustls::pki_types::CertificateDer;

use super::forwarded::forwarded_client;
use crate::connections::{ConnectionPermit, SlotError};
use crate::tls::{self, ClientStream, PeerWatch};

/// What identifies the peer of a connection. Its role is determined for each request, because the
/// rules can change during the connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionIdentity {
    /// The client; behind a trusted proxy, that proxy's word.
    pub(super) from: IpAddr,
    /// Whether the client uses TLS, to this server or to the proxy.
    pub(super) is_https: bool,
    /// The watch of the peer, for what waits on its behalf.
    pub(super) watch: PeerWatch,
    slot: Arc<ConnectionPermit>,
    certificate: Option<Arc<CertificateDer<'static>>>,
    /// The client is one of a trusted proxy.
    is_forwarded: bool,
}

impl ConnectionIdentity {
    pub(super) fn new(stream: &ClientStream, slot: Arc<ConnectionPermit>) -> Self {
        let certificate = stream.certificate().cloned().map(Arc::new);
        let (from, is_https, watch) = (stream.peer_ip(), stream.is_tls(), stream.watch());
        Self { from, is_https, watch, slot, certificate, is_forwarded: false }
    }

    /// The identity of the client that a trusted proxy names in these fields of a request's head;
    /// of any other peer, its own.
    ///
    /// # Errors
    /// [`SlotError`], when the client holds its share of the port's connections.
    pub(super) fn behind_proxy<'a>(
        mut self,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        http: &HttpSettings,
    ) -> Result<Self, SlotError> {
        if http.is_trusted_proxy(self.from) {
            let client = forwarded_client(self.from, fields, http);
            self.slot.set_client(client.address)?;
            self.from = client.address;
            self.is_https = client.is_https.unwrap_or(self.is_https);
            self.is_forwarded = true;
        }
        Ok(self)
    }

    /// The client behind a trusted proxy, if it is one.
    pub(super) fn proxied_client(&self) -> Option<IpAddr> {
        self.is_forwarded.then_some(self.from)
    }

    /// Gives a socket its client, where a trusted proxy has opened it.
    pub(super) fn mark_forwarded(&self, socket: MediaSocket, permit: AddressPermit) -> MediaSocket {
        if self.is_forwarded { socket.forwarded(self.from, self.is_https, permit) } else { socket }
    }

    /// The caller for a request with this `Authorization` value.
    ///
    /// # Errors
    /// [`LoginError`], when the credentials are wrong.
    pub(super) fn caller(
        &self,
        authorization: Option<&str>,
        control: &Control,
    ) -> Result<Caller, LoginError> {
        let mut caller = Caller::with_login(self.from, self.login(authorization, control)?);
        let has_users = !control.access.rules().users.is_empty();
        caller.has_logged_in = self.certificate.is_some() || (authorization.is_some() && has_users);
        Ok(caller)
    }

    /// Makes the connection's slot permanent after a permitted request; false when the slots for
    /// connections without a login are taken.
    pub(super) fn establish(&self, caller: &Caller) -> bool {
        caller.role == Role::None || self.slot.establish(caller.has_logged_in).is_ok()
    }

    /// The permissions for this `Authorization` value. Wrong credentials are an error even where
    /// none are required.
    pub(super) fn login(
        &self,
        authorization: Option<&str>,
        control: &Control,
    ) -> Result<Login, LoginError> {
        let login = tls::initial_login(&control.access, self.certificate.as_deref());
        let Some(authorization) = authorization else { return Ok(login) };
        Ok(control.login(self.from, &Credentials::from_header(authorization))?.or(login))
    }

    /// Checks that the sender of this request head may listen; the error is the response.
    pub(super) fn authorize_listener(
        &self,
        head: &[u8],
        control: &Control,
    ) -> Result<(), &'static [u8]> {
        match self.login(header(head, "authorization").as_deref(), control) {
            Ok(login) if login.role >= Role::Listen => Ok(()),
            Ok(_) | Err(LoginError::WrongCredentials) => Err(UNAUTHORIZED),
            Err(LoginError::RateLimited) => Err(TOO_MANY),
        }
    }
}

/// The page that makes a browser ask for credentials.
pub(super) const LOGIN_PATH: &str = "/login";

/// Why a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// It needs a login, or its credentials are wrong.
    Unauthorized,
    /// Its login is right, and its role has no permission.
    Forbidden,
    /// Its address has tried too many wrong credentials.
    RateLimited,
}

impl From<LoginError> for Denied {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::WrongCredentials => Self::Unauthorized,
            LoginError::RateLimited => Self::RateLimited,
        }
    }
}

impl Denied {
    /// The reason for a caller whose role is too low for a request of this path.
    pub(super) fn for_role(caller: &Caller, path: &str) -> Self {
        // The browser is to ask for a login there, whatever certificate it has shown.
        if caller.has_logged_in && path != LOGIN_PATH {
            Self::Forbidden
        } else {
            Self::Unauthorized
        }
    }
}

/// The value of `Authorization`. An unreadable value counts as wrong, not as absent.
pub(super) fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or_default())
}

/// The response to a denied request.
pub(super) fn denied_response(denied: Denied) -> Response {
    match denied {
        Denied::Unauthorized => {
            let text = "login required\n";
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, CHALLENGE)], text).into_response()
        }
        Denied::Forbidden => {
            (StatusCode::FORBIDDEN, "the role of this login has no permission\n").into_response()
        }
        Denied::RateLimited => {
            let text = "too many failed logins; try again in a minute\n";
            (StatusCode::TOO_MANY_REQUESTS, text).into_response()
        }
    }
}

/// The value of a header, by its name in lower case. What cannot be read is wrong, not absent: an
/// invalid head has every header, with an empty value.
pub(crate) fn header(head: &[u8], name: &str) -> Option<String> {
    let text = |value: &[u8]| str::from_utf8(value).unwrap_or_default().to_owned();
    ReceivedHead::parse(head)
        .map_or_else(|InvalidHead| Some(String::new()), |head| head.field(name).map(text))
}

const CHALLENGE: &str = "Basic realm=\"aulos\", charset=\"UTF-8\"";
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\n\
    WWW-Authenticate: Basic realm=\"aulos\", charset=\"UTF-8\"\r\n\
    Content-Type: text/plain\r\nContent-Length: 15\r\nConnection: close\r\n\r\n\
    login required\n";
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\n\
    Content-Type: text/plain\r\nContent-Length: 46\r\nConnection: close\r\n\r\n\
    too many failed logins; try again in a minute\n";

#[cfg(test)]
mod tests {
    use aulos_proto::http::{MAX_FIELDS, head_length};

    use super::*;

    #[test]
    fn a_line_of_a_head_is_found_by_its_name_alone() {
        let head = b"GET /listen/Authorization: HTTP/1.1\r\nHost: a\r\n\
            AUTHORIZATION:Basic abc \r\nX: authorization: b\r\n\r\nauthorization: c";
        assert_eq!(header(head, "authorization").as_deref(), Some("Basic abc"));
        assert_eq!(header(head, "host").as_deref(), Some("a"));
        assert_eq!(header(head, "cookie"), None);
        assert_eq!(header(b"GET / HTTP/1.1\r\n\r\nauthorization: c\r\n", "authorization"), None);
        assert_eq!(
            header(b"GET /\r\nAuthorization: \xff\r\n\r\n", "authorization").as_deref(),
            Some("")
        );
        let has_head = |head| head_length(head).is_some();
        assert!(has_head(head) && has_head(b"GET / \n\n") && !has_head(b"GET / \r\nA: b\r\n"));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_FIELDS + 1));
        assert_eq!(header(many.as_bytes(), "host").as_deref(), Some(""));
    }

    #[test]
    fn responses_have_their_declared_length() {
        for answer in [UNAUTHORIZED, TOO_MANY] {
            let text = std::str::from_utf8(answer).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{text}");
        }
    }
}

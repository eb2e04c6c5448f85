//! Whether a web listener may listen, decided by a program of the station.
//!
//! The program is asked as by Icecast's `url` authentication, because such programs exist: a POST
//! with a form, and a header of the response that permits. It is told when the listener has left.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aulos_config::{ListenerAuth, Webhook};
use aulos_control::access::Credentials;
use aulos_control::backend::ListenerSession;
use aulos_control::hooks::DeliveryError;
use aulos_proto::http::ReceivedHead;
use aulos_proto::uri::percent_encode_url;
use hyper::HeaderMap;
use tokio::time::{sleep, timeout};

use super::login::ConnectionIdentity;
use crate::dial::Dialer;
use crate::post::{PostBody, post};

/// Asks about listeners.
#[derive(Debug, Default)]
pub(super) struct ListenerAuthorizer {
    dialer: Dialer,
    /// The number of the last listener, by which the program tells them apart.
    last: AtomicU64,
}

/// A permitted listener.
#[derive(Debug)]
pub(super) struct Permission {
    auth: ListenerAuth,
    form: String,
    limit: Option<Duration>,
}

/// Why a listener is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The program's reason, on one line, and whether the listener has shown credentials.
    Denied { reason: String, had_credentials: bool },
    /// The program cannot be asked.
    Unreachable(DeliveryError),
}

impl ListenerAuthorizer {
    /// Asks about the listener of a request.
    ///
    /// # Errors
    /// [`Refusal`]; a program that does not answer within [`ANSWER_TIMEOUT`] permits nothing.
    pub(super) async fn ask(
        &self,
        auth: ListenerAuth,
        head: &[u8],
        identity: &ConnectionIdentity,
    ) -> Result<Permission, Refusal> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (form, had_credentials) = form(head, identity, number);
        let headers = self.post(&auth.add, format!("action=listener_add{form}")).await;
        let headers = match headers {
            Ok(headers) => headers,
            Err(DeliveryError::Status(_)) => HeaderMap::new(),
            Err(error) => return Err(Refusal::Unreachable(error)),
        };
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if text("icecast-auth-user") != Some("1") {
            let reason = text("icecast-auth-message").unwrap_or("not permitted").to_owned();
            return Err(Refusal::Denied { reason, had_credentials });
        }
        let limit = text("icecast-auth-timelimit").and_then(|seconds| seconds.trim().parse().ok());
        Ok(Permission { auth, form, limit: limit.map(Duration::from_secs) })
    }

    /// Ends a listener whose time is over, and tells the program when it has left.
    pub(super) async fn follow(&self, permission: Permission, session: Weak<ListenerSession>) {
        let Permission { auth, form, limit } = permission;
        let start = Instant::now();
        while session.strong_count() > 0 {
            if limit.is_some_and(|limit| start.elapsed() >= limit)
                && let Some(session) = session.upgrade()
            {
                session.cut();
            }
            sleep(WATCH_INTERVAL).await;
        }
        let Some(to) = &auth.remove else { return };
        let seconds = start.elapsed().as_secs();
        let form = format!("action=listener_remove{form}&duration={seconds}");
        if let Err(error) = self.post(to, form).await {
            tracing::warn!(to = to.origin(), %error, "cannot notify the server of listeners of a listener's end");
        }
    }

    async fn post(&self, to: &Webhook, text: String) -> Result<HeaderMap, DeliveryError> {
        let content_type = "application/x-www-form-urlencoded";
        let sent = post(&self.dialer, to, PostBody { content_type, id: None, text });
        let limit = ANSWER_TIMEOUT;
        let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        timeout(limit, sent).await.unwrap_or(Err(DeliveryError::TimedOut(seconds)))
    }
}

impl Refusal {
    /// The HTTP response.
    pub(super) fn response(&self) -> String {
        let (status, challenge, text) = match self {
            Self::Denied { reason, had_credentials: false } => {
                ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"aulos\"\r\n", reason.as_str())
            }
            Self::Denied { reason, .. } => ("403 Forbidden", "", reason.as_str()),
            Self::Unreachable(_) => {
                ("503 Service Unavailable", "", "permission to listen cannot be checked now")
            }
        };
        format!(
            "HTTP/1.1 {status}\r\n{challenge}Content-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{text}\n",
            text.len() + 1
        )
    }
}

/// Whether a request is for sound, and not for a playlist or the head of a response alone.
pub(super) fn is_for_sound(head: &[u8]) -> bool {
    let Ok(head) = ReceivedHead::parse(head) else { return false };
    let Some((method, target, _)) = head.request_line() else { return false };
    let path = target.split('?').next().unwrap_or_default();
    method == "GET" && !PLAYLISTS.iter().any(|ending| path.ends_with(ending))
}

/// The fields of the form behind `action`, and whether the request had credentials.
fn form(head: &[u8], identity: &ConnectionIdentity, number: u64) -> (String, bool) {
    let parsed = ReceivedHead::parse(head).ok();
    let field = |name: &str| {
        let value = parsed.as_ref().and_then(|head| head.field(name)).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let target = parsed.as_ref().and_then(|head| head.request_line()).map(|(_, target, _)| target);
    let credentials = Credentials::from_header(&field("authorization"));
    let (user, password) = credentials.name_and_password().unwrap_or_default();
    let host = field("host");
    let (server, port) = host.rsplit_once(':').unwrap_or((&host, "80"));
    let from = identity.from.to_canonical().to_string();
    let number = number.to_string();
    let agent = field("user-agent");
    let fields = [
        ("server", server),
        ("port", port),
        ("client", &number),
        ("mount", target.unwrap_or_default()),
        ("user", user),
        ("pass", password),
        ("ip", &from),
        ("agent", &agent),
    ];
    let encoded = fields.map(|(name, value)| format!("&{name}={}", percent_encode_url(value)));
    (encoded.concat(), !user.is_empty())
}

/// Time for an answer; the listener waits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is checked whether a listener is still there.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

const PLAYLISTS: [&str; 2] = [".m3u", ".pls"];

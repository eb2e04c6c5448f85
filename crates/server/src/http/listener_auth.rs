//! Whether a web listener may listen, decided by a program of the station.
//!
//! The program is told when the listener has left.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aulos_config::ListenerAuth;
use aulos_control::access::Credentials;
use aulos_control::backend::ListenerSession;
use aulos_control::hooks::DeliveryError;
use aulos_proto::http::ReceivedHead;
use tokio::time::sleep;

use super::login::ConnectionIdentity;
use crate::url_auth::{UrlAnswer, UrlAuthorizer, form, host_and_port};

/// Asks about listeners.
#[derive(Debug, Default)]
pub(super) struct ListenerAuthorizer {
    program: UrlAuthorizer,
    /// The number of the last listener, by which the program tells them apart.
    last: AtomicU64,
}

/// A permitted listener.
#[derive(Debug)]
pub(super) struct Permission {
    auth: ListenerAuth,
    /// The fields of the form, without those that only an action has.
    fields: Vec<(&'static str, String)>,
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
    /// [`Refusal`]; a program that does not answer within some seconds permits nothing.
    pub(super) async fn ask(
        &self,
        auth: ListenerAuth,
        head: &[u8],
        identity: &ConnectionIdentity,
    ) -> Result<Permission, Refusal> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (fields, had_credentials) = fields(head, identity, number);
        let answer = self.program.ask(&auth.add, encode("listener_add", &fields)).await;
        match answer.map_err(Refusal::Unreachable)? {
            UrlAnswer { is_permitted: true, limit, .. } => Ok(Permission { auth, fields, limit }),
            UrlAnswer { message, .. } => {
                let reason = message.unwrap_or_else(|| "not permitted".to_owned());
                Err(Refusal::Denied { reason, had_credentials })
            }
        }
    }

    /// Ends a listener whose time is over, and tells the program when it has left.
    pub(super) async fn follow(&self, permission: Permission, session: Weak<ListenerSession>) {
        let Permission { auth, mut fields, limit } = permission;
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
        fields.push(("duration", start.elapsed().as_secs().to_string()));
        if let Err(error) = self.program.send(to, encode("listener_remove", &fields)).await {
            tracing::warn!(to = to.origin(), %error, "cannot notify the server of listeners of a listener's end");
        }
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

/// The fields of the form, and whether the request had credentials.
fn fields(
    head: &[u8],
    identity: &ConnectionIdentity,
    number: u64,
) -> (Vec<(&'static str, String)>, bool) {
    let parsed = ReceivedHead::parse(head).ok();
    let field = |name: &str| {
        let value = parsed.as_ref().and_then(|head| head.field(name)).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let target = parsed.as_ref().and_then(|head| head.request_line()).map(|(_, target, _)| target);
    let credentials = Credentials::from_header(&field("authorization"));
    let (user, password) = credentials.name_and_password().unwrap_or_default();
    let host = field("host");
    let (server, port) = host_and_port(&host);
    let fields = vec![
        ("server", server.to_owned()),
        ("port", port.to_owned()),
        ("client", number.to_string()),
        ("mount", target.unwrap_or_default().to_owned()),
        ("user", user.to_owned()),
        ("pass", password.to_owned()),
        ("ip", identity.from.to_canonical().to_string()),
        ("agent", field("user-agent")),
    ];
    (fields, !user.is_empty())
}

fn encode(action: &str, fields: &[(&'static str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    form(action, &fields)
}

/// How often it is checked whether a listener is still there.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

const PLAYLISTS: [&str; 2] = [".m3u", ".pls"];

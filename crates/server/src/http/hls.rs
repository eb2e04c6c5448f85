//! `/hls/NAME/`: playlists and segments of stations.
//!
//! ```text
//!  /hls/NAME/index.m3u8                 multivariant playlist
//!  /hls/NAME/RENDITION/index.m3u8       media playlist
//!  /hls/NAME/RENDITION/init-TAG.mp4     init segment
//!  /hls/NAME/RENDITION/NUMBER.m4s       media segment
//! ```
//!
//! The bytes are those of the window, shared by all clients; a request copies nothing.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aulos_control::backend::ListenerSession;
use aulos_control::count;
use aulos_proto::uri::percent_encode_url;
use aulos_session::hls::{HlsBody, HlsObject, HlsWindow};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG,
    HeaderName, REFERER, RETRY_AFTER, USER_AGENT, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::app_state::AppState;
use super::host::permit_other_sites;
use super::listener_auth::ListenerAuthorizer;
use super::login::ConnectionIdentity;
use super::web::is_known;
use crate::hls::sessions::{HlsSessions, SESSION_TIMEOUT, SessionKey};

/// What the requests of HLS share.
#[derive(Clone, Debug, Default)]
pub(super) struct HlsState {
    sessions: Arc<HlsSessions>,
    authorizer: Arc<ListenerAuthorizer>,
}

impl HlsState {
    pub(super) fn new(authorizer: Arc<ListenerAuthorizer>) -> Self {
        Self { sessions: Arc::default(), authorizer }
    }

    /// Ends sessions without requests, until the future is dropped.
    pub(super) async fn end_idle_sessions(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.sessions.end_idle(Instant::now());
        }
    }
}

/// Serves all addresses below `/hls/`.
pub(super) async fn serve(
    State(app): State<AppState>,
    Extension(hls): Extension<HlsState>,
    Extension(identity): Extension<ConnectionIdentity>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    let (request, _) = request.into_parts();
    let mut response = match request.method {
        Method::GET | Method::HEAD => answer(&app, &hls, &identity, &path, &request).await,
        // A page of another site asks before it sends a `Range`.
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD, OPTIONS")]).into_response(),
    };
    if !permit_other_sites(&mut response, &app.control) {
        return response;
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Range"),
        (ACCESS_CONTROL_EXPOSE_HEADERS, "ETag, Aulos-Filled"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn answer(
    app: &AppState,
    hls: &HlsState,
    identity: &ConnectionIdentity,
    path: &str,
    request: &Parts,
) -> Response {
    let Some((station, rest)) = path.split_once('/') else { return not_found() };
    let Some(window) = app.sink.hls_window(station) else { return not_found() };
    let headers = &request.headers;
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    if app.control.config().http.denies(identity.from, agent.unwrap_or_default()) {
        count(&app.control.counters.http_listeners_denied);
        return (StatusCode::FORBIDDEN, "denied by address or agent\n").into_response();
    }
    let (found, is_paired) = NamedResource::of(rest, &window);
    // A multivariant playlist alone begins no session: many players load it twice.
    let session = match &found {
        NamedResource::Found(HlsObject::Multivariant, _)
        | NamedResource::NotYet
        | NamedResource::Nothing => None,
        NamedResource::Found(..) => match session(app, hls, identity, station, request).await {
            Ok(session) => Some(session),
            Err(refusal) => return refusal,
        },
    };
    let response = match &found {
        NamedResource::Found(object, body) if is_segment(object) => match body.is_filled {
            true if is_paired => {
                let text = "a part of this segment has not arrived here; ask the other server\n";
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], text).into_response()
            }
            _ => segment(object, body, headers),
        },
        NamedResource::Found(object, body) => playlist(object, body, headers),
        NamedResource::NotYet => {
            let text = "the first segments are being made; try again in some seconds\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "3")], text).into_response()
        }
        NamedResource::Nothing => not_found(),
    };
    if let (Some(session), true) = (session, request.method == Method::GET)
        && response.status() == StatusCode::OK
        && let NamedResource::Found(object, body) = &found
        && is_segment(object)
    {
        session.begin();
        session.add_sent(body.bytes.len() as u64);
    }
    response
}

/// What an address names.
enum NamedResource {
    Found(HlsObject, HlsBody),
    NotYet,
    Nothing,
}

impl NamedResource {
    /// And whether another server makes the same segments.
    fn of(path: &str, window: &Mutex<HlsWindow>) -> (Self, bool) {
        let window = window.lock().unwrap_or_else(PoisonError::into_inner);
        let is_paired = window.config().first_listed > 1;
        let Some(object) = HlsObject::parse(path) else { return (Self::Nothing, is_paired) };
        let is_known = match object.rendition() {
            Some(rendition) => window.renditions().iter().any(|known| **known == *rendition),
            None => true,
        };
        let found = match window.object(&object).cloned() {
            Some(body) => Self::Found(object, body),
            None if is_known && !is_segment(&object) => Self::NotYet,
            None => Self::Nothing,
        };
        (found, is_paired)
    }
}

/// Whether it is an init segment or a media segment.
const fn is_segment(object: &HlsObject) -> bool {
    matches!(object, HlsObject::Init { .. } | HlsObject::Segment { .. })
}

/// The session of a request; the error is the refusal.
async fn session(
    app: &AppState,
    hls: &HlsState,
    identity: &ConnectionIdentity,
    station: &str,
    request: &Parts,
) -> Result<Arc<ListenerSession>, Response> {
    let text = |name: HeaderName| {
        let value = request.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let query = request.uri.query().unwrap_or_default();
    let id = query.split('&').find_map(|pair| pair.strip_prefix("id="));
    let mut client = id.map_or_else(|| text(USER_AGENT), |id| format!("id={id}"));
    let end = (0..=MAX_CLIENT.min(client.len())).rev().find(|at| client.is_char_boundary(*at));
    client.truncate(end.unwrap_or(0));
    let key = SessionKey { station: station.to_owned(), from: identity.from, client };
    let now = Instant::now();
    if let Some(session) = hls.sessions.find(&key, now) {
        if session.is_cut() {
            return Err((StatusCode::FORBIDDEN, "the session was ended\n").into_response());
        }
        return Ok(session);
    }
    // As the request of a listener, without what only this request has.
    let (name, agent, referer) = (percent_encode_url(station), text(USER_AGENT), text(REFERER));
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    let head = format!(
        "GET /hls/{name}/index.m3u8{query} HTTP/1.1\r\nUser-Agent: {agent}\r\nReferer: {referer}\r\n\r\n"
    );
    let config = app.control.config();
    let permission = match &config.http.listener_auth {
        Some(auth) => {
            let asked = hls.authorizer.ask(auth.clone(), head.as_bytes(), identity).await;
            Some(asked.map_err(|refusal| {
                tracing::info!(target: "listener", from = %identity.from, ?refusal, "refused");
                (StatusCode::FORBIDDEN, "not permitted\n").into_response()
            })?)
        }
        None => None,
    };
    let session = app.control.register_listener(head.as_bytes(), Some(station), identity.from);
    if let Some(permission) = permission {
        let (authorizer, session) = (Arc::clone(&hls.authorizer), Arc::downgrade(&session));
        tokio::spawn(async move { authorizer.follow(permission, session).await });
    }
    Ok(hls.sessions.add(key, session, now))
}

fn playlist(object: &HlsObject, body: &HlsBody, headers: &HeaderMap) -> Response {
    let given = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let is_packed = given.is_some_and(|accepted| {
        accepted.split(',').any(|coding| coding.split(';').next().map(str::trim) == Some("gzip"))
    });
    let tag = format!("\"{:016x}{}\"", body.tag, if is_packed { "-gzip" } else { "" });
    let common = [
        (ETAG, tag.clone()),
        (CACHE_CONTROL, object.cache_control().to_owned()),
        (VARY, "Accept-Encoding".to_owned()),
        (CONTENT_TYPE, object.media_type().to_owned()),
    ];
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    if is_packed {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        if let Ok(bytes) = packed.write_all(&body.bytes).and_then(|()| packed.finish()) {
            return (common, [(CONTENT_ENCODING, "gzip")], bytes).into_response();
        }
    }
    (common, shared(body)).into_response()
}

fn segment(object: &HlsObject, body: &HlsBody, headers: &HeaderMap) -> Response {
    let tag = format!("\"{:016x}\"", body.tag);
    let mut common = HeaderMap::new();
    common.insert(CACHE_CONTROL, HeaderValue::from_static(object.cache_control()));
    common.insert(CONTENT_TYPE, HeaderValue::from_static(object.media_type()));
    if body.is_filled {
        common.insert(FILLED, HeaderValue::from_static("1"));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        common.insert(ETAG, tag);
    }
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    (common, shared(body)).into_response()
}

/// The bytes without a copy.
fn shared(body: &HlsBody) -> Bytes {
    Bytes::from_owner(Arc::clone(&body.bytes))
}

fn not_found() -> Response {
    let text = "no such station, rendition or segment\n";
    (StatusCode::NOT_FOUND, [(CACHE_CONTROL, NOT_FOUND_CACHE)], text).into_response()
}

/// A segment may exist a moment later.
const NOT_FOUND_CACHE: &str = "max-age=1";

/// The segment has audio that was filled in.
const FILLED: HeaderName = HeaderName::from_static("aulos-filled");

/// The longest part of a `User-Agent` that tells sessions apart, in bytes.
const MAX_CLIENT: usize = 200;

/// How often sessions are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(SESSION_TIMEOUT.as_secs() / 9);

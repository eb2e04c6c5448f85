//! What is where.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use aulos_proto::snap::control::MAX_LINE;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, LOCATION,
    ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio::time::timeout;

use super::events::Feed;
use crate::control::{Control, count};

/// How long the body of a call may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct App {
    control: Arc<Control>,
    feed: Feed,
}

/// The router of everything but `/listen`.
pub(super) fn router(control: Arc<Control>, feed: Feed) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(async || "ok\n"))
        .route("/api/v1/status", get(status))
        .route("/api/v1/events", get(events))
        .route("/jsonrpc", post(call))
        .route("/listen/{*name}", any(listen_again))
        .fallback(async || (StatusCode::NOT_FOUND, "there is nothing here\n"))
        .layer(from_fn(guard))
        .with_state(App { control, feed })
}

const PAGE: &str = include_str!("page.html");

/// The page's one script and style are named by a nonce, so that nothing else can run in it.
async fn page() -> Response {
    let seed = || RandomState::new().hash_one(0);
    let nonce = format!("{:016x}{:016x}", seed(), seed());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; media-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let html = PAGE.replace("NONCE", &nonce);
    let headers =
        [(CONTENT_TYPE, "text/html; charset=utf-8".to_owned()), (CONTENT_SECURITY_POLICY, policy)];
    (headers, html).into_response()
}

async fn status(State(app): State<App>) -> Response {
    json(app.control.status().to_string())
}

async fn events(State(app): State<App>) -> Response {
    let body = Body::from_stream(app.feed.subscribe(&app.control));
    // Nginx would hold events back.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), "no");
    ([(CONTENT_TYPE, "text/event-stream"), unbuffered], body).into_response()
}

async fn call(State(app): State<App>, headers: HeaderMap, body: Body) -> Response {
    if is_cross_site(&headers) {
        count(&app.control.counters.http_cross_site);
        return (StatusCode::FORBIDDEN, "this call came from another site's page\n")
            .into_response();
    }
    let Ok(read) = timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_LINE)).await else {
        return (StatusCode::REQUEST_TIMEOUT, "the body did not come\n").into_response();
    };
    let Ok(line) = read else {
        let text = format!("a call has at most {MAX_LINE} bytes\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    };
    match app.control.request(None, &line) {
        Some(answer) => json(answer),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// A listener that came on a connection that had another request before: it is sent to a new one,
/// whose first line says what it is.
async fn listen_again(request: Request) -> Response {
    if request.method() != "GET" && request.method() != "HEAD" {
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]).into_response();
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let Ok(target) = HeaderValue::from_str(target) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let close = HeaderValue::from_static("close");
    (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, target), (CONNECTION, close)]).into_response()
}

/// What every response says, unless it says better.
async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// A browser says which page a call comes from. Programs do not, and may call.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or(""));
    if text(HeaderName::from_static("sec-fetch-site")) == Some("cross-site") {
        return true;
    }
    let Some(origin) = text(ORIGIN) else { return false };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority != text(HOST) || authority.is_none()
}

fn json(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

//! What monitoring systems ask: `/metrics`, `/healthz` and `/readyz`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aulos_control::access::Role;
use aulos_control::{Caller, Control};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};

use crate::metrics::{ProcessStatistics, RequestCount, Scrape, TextFormat, render};

/// The state of these routes, and the count of all requests.
#[derive(Clone, Debug)]
pub(super) struct Monitoring {
    control: Arc<Control>,
    /// By route and status code; both come from fixed sets.
    requests: Arc<Mutex<BTreeMap<(String, u16), u64>>>,
}

impl Monitoring {
    pub(super) fn new(control: &Arc<Control>) -> Self {
        Self { control: Arc::clone(control), requests: Arc::default() }
    }

    pub(super) fn routes<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(health))
            .route("/readyz", get(readiness))
            .with_state(self.clone())
    }

    fn counts(&self) -> Vec<RequestCount> {
        // A poisoned lock is taken all the same: each change is a single step.
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = requests.iter().map(|((route, code), count)| RequestCount {
            route: route.clone(),
            code: *code,
            count: *count,
        });
        counts.collect()
    }
}

/// Counts a request and its response.
pub(super) async fn count_request(
    State(monitoring): State<Monitoring>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let key = (route, response.status().as_u16());
    let mut requests = monitoring.requests.lock().unwrap_or_else(PoisonError::into_inner);
    *requests.entry(key).or_default() += 1;
    drop(requests);
    response
}

/// The values come from what has been published; no station is waited for.
async fn metrics(State(monitoring): State<Monitoring>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = TextFormat::for_accept(accept.unwrap_or_default());
    let control = &monitoring.control;
    let scrape = Scrape {
        server: control.views().snapshot(control.config().metrics.per_client_limit),
        process: ProcessStatistics::read(),
        requests: monitoring.counts(),
    };
    let headers = [(CONTENT_TYPE, format.content_type()), (VARY, "Accept")];
    (headers, render(&scrape, format)).into_response()
}

/// Whether the process should go on; it does not depend on sources.
async fn health(State(monitoring): State<Monitoring>) -> Response {
    if monitoring.control.views().is_alive().await {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the control plane does not respond\n").into_response()
    }
}

/// Whether clients should be sent here. A caller that may not listen learns no names of stations.
async fn readiness(
    State(monitoring): State<Monitoring>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Response {
    let is_strict =
        |query: &str| query.split('&').any(|pair| matches!(pair, "strict" | "strict=1"));
    let reasons = monitoring.control.views().unready_reasons(uri.query().is_some_and(is_strict));
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let text = if caller.role >= Role::Listen {
        // A reason may contain what a file or a server said.
        reasons.iter().map(|reason| reason.replace(char::is_control, " ") + "\n").collect()
    } else {
        "not ready\n".to_owned()
    };
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

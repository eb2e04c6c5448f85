//! The routes, and the checks in front of them.

use std::sync::Arc;
use std::time::Duration;

use aulos_control::access::Role;
use aulos_control::backend::{ListenSink, MediaSocket};
use aulos_control::{Caller, Control, count, is_call_for_everyone, openrpc};
use aulos_io::descriptors::DescriptorUse;
use aulos_proto::snap::control::MAX_LINE;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    LOCATION, REFERRER_POLICY, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use hyper::upgrade::OnUpgrade;
use tokio::sync::Semaphore;

use super::api::log::{self, LogExports};
use super::api::waveform::Waveforms;
use super::app_state::{AppState, json_response, too_many_connections};
use super::events::EventFeed;
use super::forwarded::ProxiedClients;
use super::hls::{self, HlsState};
use super::large_body::answer_response;
use super::login::{self, ConnectionIdentity, Denied};
use super::monitoring::{self, Monitoring};
use super::pages::{self, FileServer, Pages};
use super::system_probe::SystemProbe;
use super::web::{WEB_DIR_VARIABLE, WebFiles};
use super::{host, icecast_admin, listen_index, websocket};
use crate::connections::ConnectionSlots;
use crate::http::api;
use crate::tcp::{MAX_CONTROLLERS, max_line_length};

/// Time limit for the body of a call.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The router of everything but `/listen`.
pub(super) fn router(
    control: Arc<Control>,
    feed: EventFeed,
    sink: Arc<dyn ListenSink>,
    proxied: Arc<ProxiedClients>,
    hls_state: HlsState,
) -> Router {
    let doc_root = control.config().http.doc_root.clone();
    let monitoring = Monitoring::new(&control);
    let router = Router::new()
        .route("/aulos", get(page))
        .route("/aulos/{*name}", get(page_file))
        .route("/meter/{name}", get(meter))
        .merge(monitoring.routes())
        // Relative, so that it leads to the page behind a path prefix too.
        .route(login::LOGIN_PATH, get(async || Redirect::to("./")))
        .merge(api::routes())
        .merge(icecast_admin::routes())
        .route("/openrpc.json", get(async || json_response(openrpc().to_owned())))
        .route("/jsonrpc", post(call).get(control_socket))
        .route("/stream", get(stream))
        .route("/nowplaying/{station}", get(api::now_playing::get).post(api::now_playing::post))
        .route("/nowplaying/{station}/events", get(api::title_events::get))
        .route("/rtp/{*name}", get(description))
        .route("/__image_cache", get(picture))
        .route("/hls/{*path}", any(hls::serve))
        .route(log::LOG_ROUTE, any(log::serve))
        .route("/listen/", get(listen_index))
        .route("/listen/{*name}", any(redirect_listener));
    let sockets = ConnectionSlots::new(MAX_CONTROLLERS);
    let web = WebFiles::new(std::env::var_os(WEB_DIR_VARIABLE).map(Into::into));
    let recordings = FileServer::new("the folder of a recorder", Arc::clone(&control));
    let sounds = FileServer::new("the folder of sounds", Arc::clone(&control));
    let control_state = Arc::clone(&control);
    let app = AppState {
        control: control_state,
        feed,
        system: SystemProbe::default(),
        recordings,
        waveforms: Waveforms::default(),
        sounds,
        title_followers: Arc::new(Semaphore::new(api::title_events::MAX_FOLLOWERS)),
        upload_turn: Arc::new(Semaphore::new(1)),
        talks: Arc::new(Semaphore::new(api::talk::MAX_TALKS)),
        sink,
        sockets,
        web,
        proxied,
    };
    let router = match doc_root {
        Some(dir) => {
            let pages = Pages::new(dir, Arc::clone(&control));
            let front = pages.clone();
            let front = get(async move |State(app): State<AppState>, request: Request| {
                front_page(app, front, request).await
            });
            let folder = Router::new().fallback(pages::serve).with_state(pages);
            let folder = folder.layer(map_response(set_page_headers));
            router.route("/", front).fallback_service(folder)
        }
        None => {
            router.route("/", get(page)).fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        }
    };
    let router = router.layer(from_fn_with_state(app.clone(), check_request));
    let router = router.layer(Extension(hls_state)).layer(Extension(LogExports::default()));
    let router = router.with_state(app);
    router.layer(from_fn_with_state(monitoring, monitoring::count_request))
}

/// The page at `/`: that of `doc_root`, or the built-in one while there is no such folder.
async fn front_page(app: AppState, pages: Pages, request: Request) -> Response {
    if pages.is_missing().await {
        return app.web.index(request.headers()).await;
    }
    set_page_headers(pages::serve(State(pages), request).await).await
}

/// Headers for the files of `doc_root`: a foreign page (Snapweb) has its own scripts and players.
async fn set_page_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("frame-ancestors 'self'"));
    response
}

async fn page(State(app): State<AppState>, headers: HeaderMap) -> Response {
    app.web.index(&headers).await
}

async fn meter(State(app): State<AppState>, headers: HeaderMap) -> Response {
    app.web.meter(&headers).await
}

async fn page_file(
    State(app): State<AppState>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    app.web.file(&name, &headers).await
}

async fn listen_index(State(app): State<AppState>) -> Response {
    let html = listen_index::page(&app.control.stations());
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

async fn call(
    State(app): State<AppState>,
    Extension(mut caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Some(refusal) = app.refuse_cross_site(&headers) {
        return refusal;
    }
    let limit = max_line_length(&caller);
    let line = match app.read_body(body, limit, BODY_TIMEOUT).await {
        Ok(line) => line,
        Err(refusal) => return refusal,
    };
    if caller.role == Role::None && !is_call_for_everyone(&line) {
        return login::denied_response(Denied::for_role(&caller, "/jsonrpc"));
    }
    match app.control.request(&mut caller, &line).await {
        Some(answer) => answer_response(&app.control, answer),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// A picture at Snapcast's URL.
async fn picture(State(app): State<AppState>, uri: Uri) -> Response {
    let name = uri.query().and_then(|query| query.strip_prefix("name=")).unwrap_or_default();
    match app.control.views().picture(name) {
        // The name is a hash of the contents.
        Some((media, bytes)) => {
            ([(CONTENT_TYPE, media), (CACHE_CONTROL, "max-age=86400")], bytes).into_response()
        }
        None => (StatusCode::NOT_FOUND, "unknown picture\n").into_response(),
    }
}

/// The SDP of a station's RTP output: `/rtp/STATION.sdp`, and `?output=2` for the second output.
async fn description(State(app): State<AppState>, Path(name): Path<String>, uri: Uri) -> Response {
    let query = uri.query().and_then(|query| query.strip_prefix("output="));
    let output = query.map_or(Ok(1), str::parse::<usize>).ok().and_then(|at| at.checked_sub(1));
    let found = name.strip_suffix(".sdp").zip(output);
    match found.and_then(|(station, output)| app.control.views().description(station, output)) {
        Some(text) => ([(CONTENT_TYPE, "application/sdp")], text).into_response(),
        None => {
            let text = "no station of that name goes there over RTP: /rtp/STATION.sdp, or \
                        /rtp/STATION.sdp?output=2\n";
            (StatusCode::NOT_FOUND, text).into_response()
        }
    }
}

/// The control API with notifications, over a WebSocket.
async fn control_socket(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(identity): Extension<ConnectionIdentity>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match (upgrade, app.refuse_cross_site(&headers)) {
        (_, Some(refusal)) => refusal,
        (Ok(upgrade), None) => {
            let permits = match app.admit_socket(&caller, &identity) {
                Ok(permits) => permits,
                Err(refusal) => return refusal,
            };
            let upgrade = upgrade.max_message_size(MAX_LINE).max_frame_size(MAX_LINE);
            upgrade.on_upgrade(move |socket| async move {
                let connection = (permits, identity.watch);
                websocket::serve_control(socket, app.control, app.feed, caller, connection).await;
            })
        }
        (Err(_), None) => {
            let text = "use POST or a WebSocket for control calls\n";
            (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")], text).into_response()
        }
    }
}

/// Audio for Snapweb and for snapclient with `ws://`.
async fn stream(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(identity): Extension<ConnectionIdentity>,
    mut request: Request,
) -> Response {
    if DescriptorUse::Sound.check_next().is_err() {
        count(&app.control.counters.http_refused);
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let listens = caller.role >= Role::Listen;
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    if let Some(refusal) = app.refuse_cross_site(request.headers()) {
        return refusal;
    }
    let Ok(permit) = app.proxied.admit(identity.proxied_client(), &app.control.counters) else {
        return too_many_connections();
    };
    let adopt =
        move |socket: MediaSocket| identity.mark_forwarded(socket, permit).authorized(listens);
    websocket::stream(request.headers(), upgrade, adopt, app.sink)
}

impl AppState {
    /// Replaces the identity of a trusted proxy by that of its client; the response if that client
    /// has too many connections.
    fn identify_proxied(&self, request: &mut Request) -> Option<Response> {
        let identity = request.extensions_mut().remove::<ConnectionIdentity>()?;
        let fields =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let config = self.control.config();
        let Ok(identity) = identity.behind_proxy(fields, &config.http) else {
            count(&self.control.counters.control_refused_same_address);
            return Some(too_many_connections());
        };
        request.extensions_mut().insert(identity);
        None
    }

    /// The caller of a request, if it may make requests at all.
    fn identify(&self, request: &Request) -> Result<Caller, Denied> {
        // Every connection has an identity; a request without one has no rights.
        let identity =
            request.extensions().get::<ConnectionIdentity>().ok_or(Denied::Unauthorized)?;
        let caller = identity.caller(login::authorization(request.headers()), &self.control)?;
        let is_denied = requires_log(request) && !caller.has_log;
        if is_denied || caller.role < required_role(request) {
            return Err(Denied::for_role(&caller, request.uri().path()));
        }
        Ok(caller)
    }

    /// The response to a connection that gets no permanent slot.
    fn refuse_slot(&self, request: &Request, caller: &Caller) -> Option<Response> {
        let identity = request.extensions().get::<ConnectionIdentity>();
        if identity.is_some_and(|identity| identity.establish(caller)) {
            return None;
        }
        count(&self.control.counters.http_refused);
        let text = "too many connections without a login; log in or try again later\n";
        Some((StatusCode::SERVICE_UNAVAILABLE, [(CONNECTION, "close")], text).into_response())
    }

    pub(super) fn refuse_cross_site(&self, headers: &HeaderMap) -> Option<Response> {
        let resolved = self.control.config();
        host::is_cross_site(headers, &resolved.http.names).then(|| {
            count(&self.control.counters.http_cross_site);
            let text =
                "cross-site call refused; to allow the page, add its host to `names` of [http]\n";
            (StatusCode::FORBIDDEN, text).into_response()
        })
    }
}

/// The role that a request requires, before the calls in its body are looked at.
fn required_role(request: &Request) -> Role {
    let route = request.extensions().get::<MatchedPath>();
    if let Some(role) = route.and_then(|route| api::required_role(route.as_str())) {
        return role;
    }
    match request.uri().path() {
        "/healthz" | "/readyz" => Role::None,
        // Addresses of listeners are personal data.
        path if path.starts_with("/admin/") => Role::Admin,
        // Where the page is open to everyone, a browser has no other way to log in.
        login::LOGIN_PATH if !request.headers().contains_key(AUTHORIZATION) => Role::Admin,
        // Some methods are for everyone; `call` refuses the others.
        "/jsonrpc" if request.method() == Method::POST => Role::None,
        // A caller can still log in over the WebSocket.
        "/jsonrpc" | "/stream"
            if request.method() == Method::GET && request.headers().contains_key(UPGRADE) =>
        {
            Role::None
        }
        _ => Role::Listen,
    }
}

/// Whether a request requires the permission for logs.
fn requires_log(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>();
    route.is_some_and(|route| route.as_str() == log::LOG_ROUTE)
}

/// Redirects a listener on a reused connection to a new one, whose first line identifies it.
async fn redirect_listener(request: Request) -> Response {
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

/// Checks host, credentials and slot of a request, and sets default headers of the response.
async fn check_request(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    let ours = host::has_server_host(request.headers(), &app.control.config().http.names);
    let mut response = if let Some(refusal) = app.identify_proxied(&mut request) {
        refusal
    } else if let Some(permission) = host::preflight_response(&request, &app.control) {
        permission
    } else if ours {
        match app.identify(&request) {
            Ok(caller) => match app.refuse_slot(&request, &caller) {
                Some(refusal) => refusal,
                None => {
                    request.extensions_mut().insert(caller);
                    match app.control.mounts().at_path(request.uri().path().as_bytes()) {
                        Some(_) => redirect_listener(request).await,
                        None => run_while_open(request, next).await,
                    }
                }
            },
            Err(denied) => login::denied_response(denied),
        }
    } else {
        count(&app.control.counters.http_wrong_host);
        let text = "unknown host name; to allow it, add it to `names` of [http]\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    };
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

/// Runs a request unless its sender has gone before. Hyper drops it only where no further request
/// is in front of the end of the stream.
async fn run_while_open(request: Request, next: Next) -> Response {
    let identity = request.extensions().get::<ConnectionIdentity>();
    let Some(watch) = identity.map(|identity| identity.watch.clone()) else {
        return next.run(request).await;
    };
    let response = watch.while_open(next.run(request)).await;
    watch.complete_input();
    // This response is not read; it ends the connection.
    response
        .unwrap_or_else(|| (StatusCode::REQUEST_TIMEOUT, [(CONNECTION, "close")]).into_response())
}

#[cfg(test)]
mod tests {
    use aulos_config::OWN_PATHS;

    /// The name of a mount must not hide a page.
    #[test]
    fn the_configuration_knows_every_path_of_the_router() {
        let sources = [
            include_str!("routes.rs"),
            include_str!("icecast_admin.rs"),
            include_str!("monitoring.rs"),
            include_str!("api/log.rs"),
            include_str!("login.rs"),
            include_str!("api/mod.rs"),
        ];
        let marks = [".route(\"/", "path: \"/", "_PATH: &str = \"/", "_ROUTE: &str = \"/"];
        let mut found: Vec<_> = sources
            .iter()
            .flat_map(|source| marks.iter().flat_map(|mark| source.split(*mark).skip(1)))
            .filter_map(|rest| rest.split(['"', '/']).next())
            // The front page, and the marks above.
            .filter(|path| !path.is_empty() && *path != ",")
            .filter(|path| path.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)))
            .collect();
        found.sort_unstable();
        found.dedup();
        let mut known = OWN_PATHS.to_vec();
        known.sort_unstable();
        assert_eq!(found, known);
    }
}

//! Icecast's interfaces on the HTTP port: its statistics, and its calls for administrators.
//!
//! The calls are `GET`, as Icecast has them, although they change something. So a request of
//! another site's page is refused (see `host`), and they need the role of administrators.

use std::sync::Arc;

use aulos_config::StationSettings;
use aulos_control::{icecast_response, mounts};
use aulos_proto::icecast::parse_title_query;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};

use super::app_state::{AppState, json_response};
use super::host::permit_other_sites;
use super::login::ConnectionIdentity;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/status-json.xsl", get(status))
        .route("/admin/stats", get(statistics))
        .route("/admin/stats.xml", get(statistics))
        .route("/admin/listmounts", get(statistics))
        .route("/admin/listclients", get(statistics))
        .route("/admin/killclient", get(kill_client))
        .route("/admin/killsource", get(kill_source))
        .route("/admin/metadata", get(set_title))
        .route("/admin/moveclients", get(move_clients))
        .route("/admin/fallbacks", get(check_fallback))
}

/// Icecast's status, for directories and widgets; `?mount=/listen/NAME` limits it to one source.
async fn status(
    State(app): State<AppState>,
    Extension(identity): Extension<ConnectionIdentity>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let status = app
        .control
        .views()
        .icecast()
        .status(&base_url(&identity, &headers), mount(&uri).as_deref());
    let mut response = json_response(status.to_string());
    permit_other_sites(&mut response, &app.control);
    response
}

/// Icecast's figures for administrators, as XML.
async fn statistics(
    State(app): State<AppState>,
    Extension(identity): Extension<ConnectionIdentity>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let (base, mount) = (base_url(&identity, &headers), mount(&uri));
    let view = app.control.views().icecast();
    let found = match uri.path() {
        "/admin/listclients" => mount.as_deref().and_then(|mount| view.clients(mount)),
        path => Some(view.stats(&base, mount.as_deref(), path == "/admin/listmounts")),
    };
    found.map_or_else(unknown_mount, xml)
}

/// Disconnects a web listener: `?mount=/live.mp3&id=7`, with the `ID` of `/admin/listclients`.
async fn kill_client(State(app): State<AppState>, request: Request) -> Response {
    let station = match admin_call(&app, &request) {
        Ok(station) => station,
        Err(refusal) => return refusal,
    };
    let id = parameter(request.uri(), "id").unwrap_or_default();
    let is_cut = id.parse().is_ok_and(|id| app.control.listeners.cut(&station.name, id));
    let message =
        if is_cut { format!("Client {id} removed") } else { format!("Client {id} not found") };
    xml(icecast_response(&message, is_cut))
}

/// Disconnects the source clients of a station or a mount: `?mount=/live.mp3`.
async fn kill_source(State(app): State<AppState>, request: Request) -> Response {
    let station = match admin_call(&app, &request) {
        Ok(station) => station,
        Err(refusal) => return refusal,
    };
    let count = mounts(std::slice::from_ref(&station))
        .filter(|(station, mount)| app.sink.disconnect_source(station, mount))
        .count();
    let message = if count > 0 { "Source Removed" } else { "There is no source client" };
    xml(icecast_response(message, count > 0))
}

/// Sets the title of the source clients on air: `?mount=/live.mp3&mode=updinfo&song=...`.
async fn set_title(State(app): State<AppState>, request: Request) -> Response {
    let station = match admin_call(&app, &request) {
        Ok(station) => station,
        Err(refusal) => return refusal,
    };
    let Ok(Some(title)) = parse_title_query(request.uri().query().unwrap_or_default()) else {
        let text = "expected mode=updinfo, and song, or artist and title\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let count = mounts(std::slice::from_ref(&station))
        .filter(|(station, mount)| {
            app.sink.set_live_title(station, mount, title.decode(mount.charset))
        })
        .count();
    let message =
        if count > 0 { "Metadata update successful" } else { "There is no source client" };
    xml(icecast_response(message, count > 0))
}

/// Moves the listeners of a mount to another one of its format:
/// `?mount=/a.mp3&destination=/b.mp3`.
async fn move_clients(State(app): State<AppState>, request: Request) -> Response {
    let from = match admin_call(&app, &request) {
        Ok(station) => station,
        Err(refusal) => return refusal,
    };
    let Some(to) = station_of(&app, request.uri(), "destination") else { return unknown_mount() };
    if from.name == to.name || !app.sink.move_listeners(&from.name, &to.name) {
        let message = "Listeners move between two mounts of one codec, sample rate and layout";
        return xml(icecast_response(message, false));
    }
    let count = app.control.listeners.move_to(&from.name, &to.name);
    tracing::info!(target: "listener", from = from.name, to = to.name, count, "moved");
    let message = format!("Clients moved from /{} to /{}", from.name, to.name);
    xml(icecast_response(&message, true))
}

/// Whether a mount falls back as this call of Icecast wants it: `?mount=/a.mp3&fallback=/listen/b`.
/// The fallbacks of a mount are its sources, so nothing is changed.
async fn check_fallback(State(app): State<AppState>, request: Request) -> Response {
    let mount = match admin_call(&app, &request) {
        Ok(station) => station,
        Err(refusal) => return refusal,
    };
    let wanted = station_of(&app, request.uri(), "fallback");
    let wanted = wanted.map(|station| format!("meta:///{}", station.name));
    if mount.sources.iter().any(|source| Some(&source.uri) == wanted.as_ref()) {
        return xml(icecast_response("Fallback configured", true));
    }
    let sources: Vec<_> = mount.sources.iter().map(|source| source.name.as_str()).collect();
    let sources = sources.join(", ");
    xml(icecast_response(&format!("Fallbacks are the sources, in this order: {sources}"), false))
}

/// The station or mount of a call that changes something.
#[allow(clippy::result_large_err, reason = "it is made once a request")]
fn admin_call(app: &AppState, request: &Request) -> Result<Arc<StationSettings>, Response> {
    if let Some(refusal) = app.refuse_cross_site(request.headers()) {
        return Err(refusal);
    }
    station_of(app, request.uri(), "mount").ok_or_else(unknown_mount)
}

/// The station or mount whose path a parameter has.
fn station_of(app: &AppState, uri: &Uri, name: &str) -> Option<Arc<StationSettings>> {
    app.control.views().station_at(&path(uri, name)?)
}

fn unknown_mount() -> Response {
    (StatusCode::NOT_FOUND, "unknown mount; /admin/listmounts lists all\n").into_response()
}

fn xml(text: String) -> Response {
    ([(CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response()
}

/// The URL at which a client has reached this server. The host has been checked, so it is safe to
/// repeat.
fn base_url(identity: &ConnectionIdentity, headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    format!("{}://{host}", if identity.is_https { "https" } else { "http" })
}

fn mount(uri: &Uri) -> Option<String> {
    path(uri, "mount")
}

/// A path of a query. Its slashes may be encoded; what is encoded in the path stays so.
fn path(uri: &Uri, name: &str) -> Option<String> {
    let mount = parameter(uri, name)?;
    let mount = mount.replace("%2F", "/").replace("%2f", "/").replace("%25", "%");
    Some(if mount.starts_with('/') { mount } else { format!("/{mount}") })
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

//! Streams on pages of other sites (CORS): `Access-Control-Allow-Origin`, and preflight requests.
//!
//! A player on a page of another site may read a stream only if the response allows its origin. A
//! browser that is to send more than plain headers, such as `Icy-MetaData`, asks before.

use aulos_control::Control;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ORIGIN,
};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// The response to the preflight request of a listener, if it is one.
pub(super) fn preflight_response(request: &Request, control: &Control) -> Option<Response> {
    let path = request.uri().path();
    let is_stream = path.starts_with("/listen/")
        || path == "/status-json.xsl"
        || control.mounts().at_path(path.as_bytes()).is_some();
    if request.method() != Method::OPTIONS || !is_stream || !request.headers().contains_key(ORIGIN)
    {
        return None;
    }
    let config = control.config();
    let origin = config.http.allow_origin.as_deref()?;
    let headers = [
        (ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Icy-MetaData, Range"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    Some(
        (StatusCode::NO_CONTENT, headers.map(|(name, value)| (name, value.to_owned())))
            .into_response(),
    )
}

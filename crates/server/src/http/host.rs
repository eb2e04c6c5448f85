//! Accepted host names, and protection from other sites' pages.
//!
//! An attacker's page can point its own host name to our address (DNS rebinding), so that the
//! browser takes its calls as same-site. The name in `Host` reveals this, because it is a public
//! one. An attacker cannot own IP addresses or names of local networks; other names must be
//! configured (`[http] names`).
//!
//! Streams, titles and the statistics are for pages of other sites too (CORS): a browser asks before it
//! sends more than plain headers, such as `Icy-MetaData`.

use aulos_control::Control;
use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, HOST, ORIGIN,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// Suffixes that cannot be registered publicly (RFC 6761, 6762, 8375, and what routers use).
const LOCAL: [&str; 8] =
    [".localhost", ".local", ".lan", ".home", ".home.arpa", ".internal", ".localdomain", ".test"];

/// Whether a request's `Host` header is one of our names.
pub(super) fn has_server_host(headers: &HeaderMap, names: &[String]) -> bool {
    is_our_host(text(headers, &HOST), names)
}

/// Whether this value of `Host` is one of our names.
pub(crate) fn is_our_host(host: Option<&str>, names: &[String]) -> bool {
    // HTTP/1.0 has no `Host`, and no browser uses it.
    host.is_none_or(|host| is_server_name(host_of(host), names))
}

/// Whether a call comes from another site's page. Programs send no `Origin` and may call.
pub(super) fn is_cross_site(headers: &HeaderMap, names: &[String]) -> bool {
    let origin = text(headers, &ORIGIN);
    let authority = origin.map(|origin| origin.split_once("://").map_or("", |(_, rest)| rest));
    if authority.is_some_and(|place| names.iter().any(|name| *name == host_of(place))) {
        return false;
    }
    if text(headers, &HeaderName::from_static("sec-fetch-site")) == Some("cross-site") {
        return true;
    }
    authority
        .is_some_and(|authority| authority.is_empty() || text(headers, &HOST) != Some(authority))
}

/// Lets the pages of the permitted origin read a response; false if none is permitted.
pub(super) fn permit_other_sites(response: &mut Response, control: &Control) -> bool {
    let config = control.config();
    let origin = config.http.allow_origin.as_deref();
    let Some(origin) = origin.and_then(|origin| HeaderValue::from_str(origin).ok()) else {
        return false;
    };
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    true
}

/// The response to the preflight request of a listener, if it is one.
pub(super) fn preflight_response(request: &Request, control: &Control) -> Option<Response> {
    let path = request.uri().path();
    let is_stream = path.starts_with("/listen/")
        || path.starts_with("/nowplaying/")
        || path == "/status-json.xsl"
        || control.mounts().at_path(path.as_bytes()).is_some();
    if request.method() != Method::OPTIONS || !is_stream || !request.headers().contains_key(ORIGIN)
    {
        return None;
    }
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Icy-MetaData, Range"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    let mut response = (StatusCode::NO_CONTENT, headers).into_response();
    permit_other_sites(&mut response, control).then_some(response)
}

fn is_server_name(name: String, names: &[String]) -> bool {
    let name = name.strip_suffix('.').unwrap_or(&name);
    let address = name.parse::<std::net::Ipv4Addr>().is_ok() || name.starts_with('[');
    address
        || (!name.is_empty() && !name.contains('.'))
        || LOCAL.iter().any(|end| name.ends_with(end))
        || names.iter().any(|own| own == name)
}

/// The host of `HOST:PORT`, in lower case.
fn host_of(authority: &str) -> String {
    let end = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    end.to_ascii_lowercase()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair =
            |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_foreign_host_name_is_rejected() {
        let names = ["radio.example.org".to_owned()];
        for host in [
            "127.0.0.1:1780",
            "[::1]:1780",
            "[fe80::1]",
            "localhost",
            "LocalHost:1780",
            "musicbox",
            "musicbox.local:1780",
            "box.fritz.box.lan",
            "radio.example.org",
            "Radio.Example.org:443",
            "nas.home.arpa.",
        ] {
            assert!(has_server_host(&headers(&[("host", host)]), &names), "{host}");
        }
        for host in ["evil.example:1780", "127.0.0.1.evil.example", "", "local.evil.com", "a.b:80"]
        {
            assert!(!has_server_host(&headers(&[("host", host)]), &names), "{host}");
        }
        assert!(has_server_host(&headers(&[]), &names));
    }

    #[test]
    fn only_pages_of_this_server_may_call() {
        let names = ["radio.example.org".to_owned()];
        let cross = |pairs: &[_]| is_cross_site(&headers(pairs), &names);
        assert!(!cross(&[("host", "x:1")]));
        assert!(!cross(&[("host", "x:1"), ("origin", "http://x:1")]));
        assert!(!cross(&[("host", "x:1"), ("origin", "https://radio.example.org")]));
        assert!(cross(&[("host", "x:1"), ("origin", "http://x:2")]));
        assert!(cross(&[("host", "x:1"), ("origin", "null")]));
        assert!(cross(&[("host", "x:1"), ("sec-fetch-site", "cross-site")]));
    }
}

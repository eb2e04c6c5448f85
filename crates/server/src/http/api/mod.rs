//! The resources of `/api/v1`.
//!
//! A resource is a row of [`RESOURCES`] and a handler. Its route, the role that it requires, the
//! check of its query and the `OpenAPI` document all come from the row, so none of them can be
//! forgotten. A library that derives the document from types was rejected: most answers are
//! rendered as text and have no type.

pub(super) mod history;
pub(super) mod log;
pub(super) mod now_playing;
pub(super) mod recordings;
pub(super) mod resource;
pub(super) mod sounds;
pub(super) mod system;
pub(super) mod talk;
pub(super) mod title_events;
pub(super) mod waveform;

use std::sync::LazyLock;

use aulos_control::access::Role;
use aulos_control::{
    Caller, Control, EVENT_KINDS, EVENT_LIMITS, EVENT_LIST_MEMBERS, EVENT_SEVERITIES, EventQuery,
    STATUS_MEMBERS,
};
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::{Map, Value, json};

use crate::http::api::resource::{
    Change, Content, Parameter, ParameterKind as Kind, Query, Resource,
};
use crate::http::app_state::{AppState, json_response};
use crate::http::large_body::answer_response;

const EVENTS: &[Parameter] = &[
    Parameter {
        name: "after",
        kind: Kind::Integer(0, u64::MAX),
        about: "only events with a greater id, the oldest first; without it the newest",
    },
    Parameter { name: "station", kind: Kind::Text, about: "only events of this station" },
    Parameter { name: "kind", kind: Kind::Word(EVENT_KINDS), about: "only events of this kind" },
    Parameter {
        name: "severity",
        kind: Kind::Word(EVENT_SEVERITIES),
        about: "only events of at least this severity",
    },
    Parameter {
        name: "limit",
        kind: Kind::Integer(1, EVENT_LIMITS.1 as u64),
        about: "at most this many events; 200 without it",
    },
];

/// All resources, by path.
pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        path: "/api/v1/configuration",
        role: Role::Admin,
        about: "Return the keys that are set in the configuration, without secrets",
        parameters: &[],
        changes: &[],
        contents: &[Content::Members(&[
            ("configuration", "object"),
            ("read_at", "string"),
            ("is_current", "boolean"),
            ("warnings", "array"),
        ])],
        route: || get(system::configuration),
    },
    Resource {
        path: "/api/v1/configuration/reference",
        role: Role::Listen,
        about: "Return the reference of all keys of the configuration",
        parameters: &[],
        changes: &[],
        contents: &[Content::Media("text/markdown", "the reference page of the configuration")],
        route: || get(async || text_response("text/markdown", aulos_config::reference())),
    },
    Resource {
        path: "/api/v1/diagnostics",
        role: Role::Admin,
        about: "Return versions, configuration without secrets, status and events as one document",
        parameters: &[],
        changes: &[],
        contents: &[Content::Members(&[
            ("system", "object"),
            ("configuration", "object"),
            ("status", "object"),
            ("events", "object"),
        ])],
        route: || get(system::diagnostics),
    },
    Resource {
        path: "/api/v1/events",
        role: Role::Listen,
        about: "Return the newest events of the server with a query or `Accept: application/json`; \
                otherwise stream status and levels as server-sent events",
        parameters: EVENTS,
        changes: &[],
        contents: &[
            Content::Members(EVENT_LIST_MEMBERS),
            Content::Media("text/event-stream", "events `status` and `levels`, without an end"),
        ],
        route: || get(events),
    },
    Resource {
        path: "/api/v1/openapi.json",
        role: Role::Listen,
        about: "Return this document",
        parameters: &[],
        changes: &[],
        contents: &[Content::Members(&[("openapi", "string"), ("paths", "object")])],
        route: || get(async || json_response(openapi().to_owned())),
    },
    Resource {
        path: "/api/v1/recordings",
        role: Role::Control,
        about: "List the complete files of recorders, the newest first",
        parameters: recordings::LIST,
        changes: &[],
        contents: &[Content::Members(&[("recorders", "array")])],
        route: || get(recordings::list),
    },
    Resource {
        path: "/api/v1/recordings/{station}/{recorder}/{*file}",
        role: Role::Control,
        about: "Return a complete file of a recorder, or its waveform; a range of bytes can be requested",
        parameters: recordings::FILE,
        changes: &[],
        contents: &[
            Content::Media("audio/*", "the file; with a range, a part of it"),
            Content::Members(&[
                ("state", "string"),
                ("seconds", "number|null"),
                ("points", "array"),
            ]),
        ],
        route: || get(recordings::file),
    },
    Resource {
        path: "/api/v1/sounds",
        role: Role::Control,
        about: "List the sounds that can be announced, the uploaded ones first",
        parameters: &[],
        changes: &[],
        contents: &[Content::Members(&[("sounds", "array"), ("more", "boolean")])],
        route: || get(sounds::list),
    },
    Resource {
        path: "/api/v1/sounds/{name}",
        role: Role::Control,
        about: "Return an uploaded sound",
        parameters: sounds::SOUND,
        changes: &[
            Change { method: "put", about: "Store a sound, whose bytes are the body" },
            Change { method: "delete", about: "Delete an uploaded sound" },
        ],
        contents: &[Content::Media("audio/*", "the file; with a range, a part of it")],
        route: || get(sounds::file).put(sounds::store).delete(sounds::delete),
    },
    Resource {
        path: "/api/v1/stations/{name}/history",
        role: Role::Listen,
        about: "Return the loudness of a station over a time, in columns of points",
        parameters: history::PARAMETERS,
        changes: &[],
        contents: &[Content::Members(&[
            ("station", "string"),
            ("now", "integer"),
            ("from", "integer"),
            ("to", "integer"),
            ("target_lufs", "number|null"),
            ("tier", "string"),
            ("start", "integer"),
            ("step_s", "integer"),
            ("flags", "array"),
            ("columns", "object"),
        ])],
        route: || get(history::respond),
    },
    Resource {
        path: "/api/v1/status",
        role: Role::Listen,
        about: "Return stations, their sources, levels, clients and counters, as `Aulos.GetStatus`",
        parameters: &[],
        changes: &[],
        contents: &[Content::Members(STATUS_MEMBERS)],
        route: || get(status),
    },
    Resource {
        path: "/api/v1/system",
        role: Role::Listen,
        about: "Return version, uptime, threads, memory, connections and counters; at most a \
                second old",
        parameters: &[],
        changes: &[],
        contents: &[Content::Members(&[
            ("version", "string"),
            ("host", "object"),
            ("started", "string"),
            ("uptime_s", "integer"),
            ("log_level", "string"),
            ("features", "array"),
            ("process", "object"),
            ("threads", "array"),
            ("connections", "object"),
            ("counters", "object"),
        ])],
        route: || get(system::system),
    },
    Resource {
        path: "/api/v1/talk",
        role: Role::Control,
        about: "Speak to rooms: a WebSocket for the frames of a microphone",
        parameters: &[],
        changes: &[],
        contents: &[Content::Media(
            "application/octet-stream",
            "a WebSocket, which docs/reference/http-api.md describes",
        )],
        route: || get(talk::talk),
    },
];

/// The routes of all resources.
pub(super) fn routes() -> Router<AppState> {
    RESOURCES.iter().fold(Router::new(), |router, one| router.route(one.path, (one.route)()))
}

/// The role that the resource of a route requires; `None` if it is no resource of this API.
pub(super) fn required_role(route: &str) -> Option<Role> {
    RESOURCES.iter().find(|one| one.path == route).map(|one| one.role)
}

/// The `OpenAPI` document of all resources.
fn openapi() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi_document().to_string());
    &DOCUMENT
}

fn openapi_document() -> Value {
    let paths = RESOURCES.iter().map(|one| (one.path.replace("{*", "{"), one.openapi_operations()));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "aulos",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Resources that are read, and sounds that are stored. Other changes are made by \
                            the control API, which /openrpc.json describes. `x-role` is the role that a resource requires.",
        },
        // Relative to this document, so that a path prefix of a reverse proxy is kept.
        "servers": [{ "url": "../.." }],
        "security": [{}, { "password": [] }, { "token": [] }],
        "paths": paths.collect::<Map<_, _>>(),
        "components": { "securitySchemes": {
            "password": { "type": "http", "scheme": "basic" },
            "token": { "type": "http", "scheme": "bearer" },
        } },
    })
}

async fn status(State(app): State<AppState>, Extension(caller): Extension<Caller>) -> Response {
    answer_response(&app.control, app.control.status_after_long_calls(caller.from).await)
}

/// The event history, or the stream of status and levels, which had this path first.
async fn events(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_query = uri.query().is_some_and(|query| !query.is_empty());
    if accept.contains("text/event-stream") || !is_query && !accept.contains("application/json") {
        let body = Body::from_stream(app.feed.subscribe(&app.control, caller.from));
        // Nginx would buffer the events.
        let unbuffered = (HeaderName::from_static("x-accel-buffering"), "no");
        return ([(CONTENT_TYPE, "text/event-stream"), unbuffered], body).into_response();
    }
    match Query::parse(EVENTS, &uri) {
        Ok(query) => json_response(event_list(&app.control, &caller, &query).to_string()),
        Err(refusal) => refusal,
    }
}

fn event_list(control: &Control, caller: &Caller, query: &Query) -> Value {
    let limit = query.integer("limit").and_then(|limit| usize::try_from(limit).ok());
    control.events.find(&EventQuery {
        role: caller.role,
        after: query.integer("after"),
        station: query.text("station"),
        kind: query.text("kind"),
        severity: query.text("severity"),
        limit: limit.unwrap_or(EVENT_LIMITS.0),
    })
}

fn text_response(media: &'static str, text: String) -> Response {
    ([(CONTENT_TYPE, format!("{media}; charset=utf-8"))], text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    fn refusal(query: &str) -> Option<StatusCode> {
        let uri: Uri = format!("/api/v1/events?{query}").parse().unwrap();
        Query::parse(EVENTS, &uri).err().map(|response| response.status())
    }

    #[test]
    fn a_query_has_known_parameters_in_their_range() {
        for query in ["", "after=0&limit=1000", "kind=login&severity=error&station=a+b%20c", "&&"] {
            assert_eq!(refusal(query), None, "{query}");
        }
        for query in ["limit=0", "limit=1001", "after=-1", "after=", "kind=noise", "x=1", "path"] {
            assert_eq!(refusal(query), Some(StatusCode::BAD_REQUEST), "{query}");
        }
        let uri = "/api/v1/events?station=a+b%20c".parse().unwrap();
        assert_eq!(Query::parse(EVENTS, &uri).unwrap().text("station"), Some("a b c"));
    }

    const PAGE: &str = include_str!("../../../../../docs/reference/http-api.md");

    /// A route beside the table would need no role and be in no document.
    #[test]
    fn every_route_of_the_api_is_a_row_of_the_table() {
        let mut paths: Vec<&str> = RESOURCES.iter().map(|one| one.path).collect();
        let document = openapi_document();
        assert_eq!(document["paths"].as_object().unwrap().len(), paths.len());
        assert!(paths.is_sorted());
        paths.dedup();
        assert_eq!(paths.len(), RESOURCES.len());
        for path in &paths {
            assert!(path.starts_with("/api/v1/") && required_role(path).is_some(), "{path}");
            // Each part in braces is a parameter, and no other parameter is in the path.
            let resource = RESOURCES.iter().find(|one| one.path == *path).unwrap();
            let in_braces: Vec<&str> = path
                .split('{')
                .skip(1)
                .map(|part| part.split('}').next().unwrap().trim_start_matches('*'))
                .collect();
            let declared: Vec<&str> = resource
                .parameters
                .iter()
                .filter(|one| one.is_in_path())
                .map(|one| one.name)
                .collect();
            assert_eq!(declared, in_braces, "{path}");
            let in_words = in_braces.iter().fold((*path).to_owned(), |text, name| {
                let word = name.to_uppercase();
                text.replace(&format!("{{{name}}}"), &word).replace(&format!("{{*{name}}}"), &word)
            });
            let row = format!("| `{in_words}` | `{}` |", resource.role.name());
            assert!(PAGE.contains(&row), "docs/reference/http-api.md has no row `{row}`");
        }
        for (name, text) in [
            ("routes.rs", include_str!("../routes.rs")),
            ("monitoring.rs", include_str!("../monitoring.rs")),
            ("mod.rs", include_str!("../mod.rs")),
            ("web.rs", include_str!("../web.rs")),
        ] {
            let begin = concat!("\"/", "api/");
            assert!(!text.contains(begin), "{name} has a path of the API beside the table");
        }
        assert_eq!(required_role("/api/v1/nothing"), None);
    }
}

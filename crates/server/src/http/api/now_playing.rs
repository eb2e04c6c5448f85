//! What a station plays: `/nowplaying/STATION`.
//!
//! Automation reports a title with GET or POST, in the query, a form or JSON: what the programs of
//! radio stations can send. Without a title the present one and those before it are returned. Both
//! are calls of the control API, with its rights.

use std::time::Duration;

use aulos_control::access::Role;
use aulos_control::{Caller, Control};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::resource::{Parameter, ParameterKind as Kind, Query};
use crate::history::unix_now;
use crate::http::app_state::{AppState, json_response};
use crate::http::host::permit_other_sites;

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "station", kind: Kind::Path, about: "the station" },
    Parameter { name: "title", kind: Kind::Text, about: "the title that plays now" },
    Parameter { name: "artist", kind: Kind::Text, about: "its performer" },
    Parameter { name: "album", kind: Kind::Text, about: "its album" },
    Parameter { name: "duration", kind: Kind::Integer(0, 86_400), about: "its length in seconds" },
    Parameter {
        name: "from",
        kind: Kind::Time,
        about: "titles from this time on: Unix time, or relative to now if it is not positive",
    },
    Parameter { name: "to", kind: Kind::Time, about: "titles up to this time, in the same way" },
    Parameter { name: "next", kind: Kind::Text, about: "what follows, in one line" },
    Parameter {
        name: "format",
        kind: Kind::Word(&["json", "csv", "report"]),
        about: "json without it; report is a table with the end of each title and its listeners",
    },
];

/// A title from a query, or the titles.
pub(in crate::http) async fn get(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Path(station): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let query = match Query::parse(PARAMETERS, &uri) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    if query.text("title").is_some() || query.text("artist").is_some() {
        return report(&app, caller, &headers, station, fields(&query)).await;
    }
    let now = i64::from(unix_now());
    let time =
        |name| query.time(name).map(|time| if time > 0 { time } else { now.saturating_add(time) });
    let (from, to) = (time("from").unwrap_or(0), time("to").unwrap_or(i64::MAX));
    let params = json!({ "station": station, "from": from, "to": to });
    let titles = match call(&app.control, caller, "Aulos.GetNowPlaying", params).await {
        Ok(titles) => titles,
        Err(refusal) => return refusal,
    };
    let table = |text: String| ([(CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response();
    let mut response = match query.text("format") {
        Some("csv") => table(csv(&titles)),
        Some("report") => table(report_csv(&titles)),
        _ => json_response(titles.to_string()),
    };
    permit_other_sites(&mut response, &app.control);
    response
}

/// A title from the body: an object of JSON, or a form.
pub(in crate::http) async fn post(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Path(station): Path<String>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Response {
    let body = match app.read_body(body, MAX_BODY, BODY_TIMEOUT).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let text = String::from_utf8_lossy(&body);
    let fields = match text.trim() {
        "" => Query::parse(PARAMETERS, &uri).map(|query| fields(&query)),
        text if text.starts_with('{') => {
            match serde_json::from_str(text) {
                Ok(Value::Object(fields)) => Ok(fields),
                _ => Err((StatusCode::BAD_REQUEST, "the body is not an object of JSON\n")
                    .into_response()),
            }
        }
        form => match format!("/?{form}").parse() {
            Ok(uri) => Query::parse(PARAMETERS, &uri).map(|query| fields(&query)),
            Err(_) => Err((StatusCode::BAD_REQUEST, "the body is not a form\n").into_response()),
        },
    };
    match fields {
        Ok(fields) => report(&app, caller, &headers, station, fields).await,
        Err(refusal) => refusal,
    }
}

fn fields(query: &Query) -> Map<String, Value> {
    let text = |name: &str| Some((name.to_owned(), json!(query.text(name)?)));
    let duration = query.integer("duration").map(|span| ("duration".to_owned(), json!(span)));
    ["title", "artist", "album", "next"].into_iter().filter_map(text).chain(duration).collect()
}

async fn report(
    app: &AppState,
    caller: Caller,
    headers: &HeaderMap,
    station: String,
    mut params: Map<String, Value>,
) -> Response {
    if let Some(refusal) = app.refuse_cross_site(headers) {
        return refusal;
    }
    if caller.role < Role::Control {
        let text = "the role of this login has no permission\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if let Some(duration) = params.remove("duration") {
        params.insert("duration_s".to_owned(), duration);
    }
    params.insert("station".to_owned(), json!(station));
    match call(&app.control, caller, "Aulos.SetNowPlaying", params.into()).await {
        Ok(answer) => json_response(answer.to_string()),
        Err(refusal) => refusal,
    }
}

/// The result of a call, or the response that says why there is none.
async fn call(
    control: &Control,
    mut caller: Caller,
    method: &str,
    params: Value,
) -> Result<Value, Response> {
    let line = json!({ "id": 1, "jsonrpc": "2.0", "method": method, "params": params }).to_string();
    let answer = control.request(&mut caller, line.as_bytes()).await;
    let mut answer: Value =
        answer.and_then(|answer| serde_json::from_str(&answer).ok()).unwrap_or_default();
    let error = &answer["error"];
    if error.is_null() {
        return Ok(answer["result"].take());
    }
    let text = [&error["data"], &error["message"]].into_iter().find_map(Value::as_str);
    Err((StatusCode::BAD_REQUEST, format!("{}\n", text.unwrap_or("the call failed")))
        .into_response())
}

/// The titles in the form of RFC 4180, with times in UTC.
fn csv(titles: &Value) -> String {
    let mut text = String::from("time,artist,title,album,duration_s\r\n");
    for one in titles["played"].as_array().into_iter().flatten() {
        let at = one["at"].as_u64().unwrap_or(0);
        text += &aulos_core::Utc::from_unix(at).to_string();
        text += &texts(one);
        let duration = one["duration_s"].as_f64().map(|span| span.to_string());
        text += &format!(",{}\r\n", duration.unwrap_or_default());
    }
    text
}

/// The titles as collecting societies want them: with the time for which each was played, and the
/// web listeners at its beginning.
fn report_csv(titles: &Value) -> String {
    let mut text = String::from("start,end,played_s,artist,title,album,duration_s,listeners\r\n");
    let time = |at: u64| aulos_core::Utc::from_unix(at).to_string();
    for one in titles["played"].as_array().into_iter().flatten() {
        let start = one["at"].as_u64().unwrap_or(0);
        let end = one["end"].as_u64();
        let played = end.map(|end| end.saturating_sub(start).to_string());
        text += &format!(
            "{},{},{}",
            time(start),
            end.map(time).unwrap_or_default(),
            played.unwrap_or_default()
        );
        text += &texts(one);
        for name in ["duration_s", "listeners"] {
            let value = Some(&one[name]).filter(|value| value.is_number());
            text += &format!(",{}", value.map(Value::to_string).unwrap_or_default());
        }
        text += "\r\n";
    }
    text
}

/// The columns of performer, title and album.
fn texts(title: &Value) -> String {
    let column = |name: &str| {
        let value = title[name].as_str().unwrap_or_default();
        // A spreadsheet takes what begins so for a formula.
        let guard = if value.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
        format!(",\"{guard}{}\"", value.replace('"', "\"\""))
    };
    ["artist", "title", "album"].map(column).concat()
}

/// A title and what belongs to it.
const MAX_BODY: usize = 16 * 1_024;

const BODY_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_csv_cannot_end_its_column_or_become_a_formula() {
        let titles = json!({ "played": [
            { "at": 1_764_324_000, "title": "Say \"hi\", twice", "artist": "=1+1", "duration_s": 2.5 },
            { "at": 0, "title": null, "artist": "B" },
        ] });
        let lines = csv(&titles);
        let lines: Vec<&str> = lines.split("\r\n").collect();
        assert_eq!(lines[1], "2025-11-28T10:00:00Z,\"'=1+1\",\"Say \"\"hi\"\", twice\",\"\",2.5");
        assert_eq!(lines[2], "1970-01-01T00:00:00Z,\"B\",\"\",\"\",");
    }

    #[test]
    fn a_report_has_the_time_for_which_each_title_was_played() {
        let titles = json!({ "played": [
            { "at": 1_764_324_000, "end": 1_764_324_215, "title": "Rain", "artist": "Alma",
              "duration_s": 220.5, "listeners": 12 },
            { "at": 1_764_324_215, "end": null, "title": "B" },
        ] });
        let text = report_csv(&titles);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(
            lines[1],
            "2025-11-28T10:00:00Z,2025-11-28T10:03:35Z,215,\"Alma\",\"Rain\",\"\",220.5,12"
        );
        assert_eq!(lines[2], "2025-11-28T10:03:35Z,,,\"\",\"B\",\"\",,");
    }
}

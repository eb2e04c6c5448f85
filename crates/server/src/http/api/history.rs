//! The history of a station's loudness: `/api/v1/stations/NAME/history`.

use aulos_control::HistoryError;
use aulos_files::history::{HistoryFlags, HistoryRange, HistoryRecord, MAX_POINTS, Series};
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::resource::{Parameter, ParameterKind as Kind, Query};
use crate::history::unix_now;
use crate::http::app_state::{AppState, json_response};

/// The span of a query that says nothing else: an hour until now.
const DEFAULT_SPAN_S: i64 = 3_600;

/// Points of an answer, if the query has no number.
const DEFAULT_POINTS: u32 = 600;

pub(crate) const PARAMETERS: &[Parameter] = &[
    Parameter { name: "name", kind: Kind::Path, about: "the station" },
    Parameter {
        name: "from",
        kind: Kind::Time,
        about: "the begin in Unix time, or relative to now if it is not positive; an hour before \
                `to` without it",
    },
    Parameter { name: "to", kind: Kind::Time, about: "the end, in the same way; now without it" },
    Parameter {
        name: "points",
        kind: Kind::Integer(1, MAX_POINTS as u64),
        about: "as many points, or one more; 600 without it",
    },
];

/// Answers a query.
pub(crate) async fn respond(
    State(app): State<AppState>,
    Path(station): Path<String>,
    uri: Uri,
) -> Response {
    let (control, now) = (&app.control, unix_now());
    let query = match Query::parse(PARAMETERS, &uri) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    let range = match range(&query, now) {
        Ok(range) => range,
        Err(problem) => return (StatusCode::BAD_REQUEST, problem + "\n").into_response(),
    };
    match control.query_history(&station, range).await {
        Ok((station, series)) => {
            let target =
                station.sound.normalize.as_ref().map(|normalize| normalize.settings.target);
            let head = json!({
                "station": station.name,
                "now": now,
                "from": range.from(),
                "to": range.to(),
                "target_lufs": target.map(|target| target.get()),
            });
            json_response(answer(head, &series))
        }
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &HistoryError) -> Response {
    match error {
        HistoryError::UnknownStation => (StatusCode::NOT_FOUND, "unknown station\n".to_owned()),
        HistoryError::Disabled => {
            (StatusCode::NOT_FOUND, "no history is kept: `history.enabled` is false\n".to_owned())
        }
        HistoryError::Busy => {
            (StatusCode::SERVICE_UNAVAILABLE, "the disk of the history is too slow\n".to_owned())
        }
        HistoryError::Io(error) => {
            let text = format!("cannot read the history: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
    .into_response()
}

/// The range of a query; times that are not positive are relative to now.
fn range(query: &Query, now: u32) -> Result<HistoryRange, String> {
    let absolute = |time: i64| if time <= 0 { i64::from(now).saturating_add(time) } else { time };
    let to = absolute(query.time("to").unwrap_or(0));
    let default = to.saturating_sub(DEFAULT_SPAN_S);
    let from = query.time("from").map_or(default, absolute);
    let points = query.integer("points").and_then(|points| u32::try_from(points).ok());
    let time = |name: &str, time: i64| {
        u32::try_from(time).map_err(|_| format!("`{name}` is outside of 1970 to 2106"))
    };
    let to = time("to", to)?;
    HistoryRange::new(time("from", from)?, to, points.unwrap_or(DEFAULT_POINTS))
        .map_err(|error| error.to_string())
}

fn answer(mut head: Value, series: &Series) -> String {
    let figures = HistoryRecord::FIGURE_NAMES.iter().enumerate();
    let mut columns: Map<String, Value> = figures
        .map(|(place, name)| ((*name).to_owned(), series.figures(place).collect()))
        .collect();
    columns.insert("flags".to_owned(), series.flags().map(|flags| flags.0).collect());
    let share = |share: &f32| (f64::from(*share) * 1e3).round() / 1e3;
    columns.insert("measured".to_owned(), series.measured.iter().map(share).collect());
    head["tier"] = series.tier.name().into();
    head["start"] = series.start.into();
    head["step_s"] = series.step_s.into();
    head["flags"] = HistoryFlags::NAMES.iter().map(|(name, _)| *name).collect();
    head["columns"] = columns.into();
    head.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str, now: u32) -> Result<HistoryRange, String> {
        let uri = format!("/api/v1/stations/a/history?{query}").parse().unwrap();
        let query = Query::parse(PARAMETERS, &uri).map_err(|refusal| refusal.status().to_string());
        range(&query?, now)
    }

    #[test]
    fn a_query_is_absolute_or_relative_to_now() {
        let now = 1_000_000;
        let range = |from, to, points| HistoryRange::new(from, to, points).unwrap();
        for (query, expected) in [
            ("", range(996_400, now, 600)),
            ("from=-60", range(999_940, now, 600)),
            ("from=500000&to=500100&points=7", range(500_000, 500_100, 7)),
            ("to=-100", range(996_300, 999_900, 600)),
        ] {
            assert_eq!(parse(query, now), Ok(expected), "{query}");
        }
        for query in ["from=x", "from", "form=1", "points=0", "points=-1", "points=2001"] {
            assert_eq!(parse(query, now), Err("400 Bad Request".to_owned()), "{query}");
        }
        for (query, problem) in [
            ("from=5&to=5", "`from` has to be before `to`"),
            ("from=-99999999", "`from` is outside of 1970 to 2106"),
            ("from=1&to=4294967295", "the range is longer than"),
            ("to=9223372036854775807", "`to` is outside of 1970 to 2106"),
            ("from=-9223372036854775808", "`from` is outside of 1970 to 2106"),
        ] {
            let found = parse(query, now).unwrap_err();
            assert!(found.starts_with(problem), "{query}: {found}");
        }
    }
}

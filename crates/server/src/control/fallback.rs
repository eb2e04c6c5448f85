//! Source selection: `Aulos.SetSource`, notifications of switches, and their status.
//!
//! A preferred source is not kept across a restart: it was chosen for a moment, and a server that
//! restarts unattended has to find the best source by itself.

use aulos_config::Station;
use aulos_core::Span;
use serde_json::{Map, Value, json};

use super::methods::{MethodResult, invalid_param, text_param};
use super::{CallContext, Control, ControlState};
use crate::backend::{Latency, OnAir, SourceCondition};
use crate::hooks::Observation;
use crate::registry::NotFound;

/// `Aulos.SetSource {station, source, for_s?}`: `source` is a name or a number; null or `auto`
/// returns to automatic selection.
pub(super) fn set_source(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let name = text_param(params, "station")?;
    let (number, slot) = state.inner.slot(name).ok_or(NotFound::Station)?;
    let sources = &slot.station.sources;
    let named = |name: &str| sources.iter().position(|source| source.name == name);
    let source = match &params["source"] {
        Value::Null => None,
        Value::String(name) => match (named(name), name.as_str()) {
            (None, "auto") => None,
            (found, _) => Some(found),
        },
        other => {
            let index = other.as_u64().and_then(|index| usize::try_from(index).ok());
            Some(index.filter(|index| *index < sources.len()))
        }
    };
    let source = source.map(|found| {
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let list = names.join(", ");
        found.ok_or_else(|| {
            invalid_param("source", &format!("one of {list}, its number from 0, or auto"))
        })
    });
    let source = source.transpose()?;
    let span = parse_duration(&params["for_s"])?;
    let answer = json!({
        "station": name,
        "source": source.and_then(|index| sources.get(index)).map(|source| &source.name),
        "for_s": source.and(span).map(Span::as_secs_f64),
    });
    state.control.backend.set_preferred_source(number, source.map(|index| (index, span)));
    Ok(answer)
}

fn parse_duration(value: &Value) -> Result<Option<Span>, aulos_proto::snap::control::RpcError> {
    if value.is_null() {
        return Ok(None);
    }
    let given =
        value.as_f64().filter(|seconds| (MIN_DURATION_S..=MAX_DURATION_S).contains(seconds));
    // In range: far below 2^63 nanoseconds.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let span = given.map(|seconds| Span::from_nanos((seconds * 1e9) as i64));
    span.map(Some).ok_or_else(|| {
        invalid_param(
            "for_s",
            &format!("a number of seconds from {MIN_DURATION_S} to {MAX_DURATION_S}"),
        )
    })
}

/// Range of `for_s`: at least a few quanta; a day or longer needs no limit.
const MIN_DURATION_S: f64 = 0.1;
const MAX_DURATION_S: f64 = 86_400.0;

impl Control {
    /// Notifies controllers and hooks of source switches.
    pub(super) fn notify_switches(&self, inner: &mut ControlState) {
        for (number, switched) in self.backend.switch_events() {
            self.observe_station(inner, number, Observation::Switched(switched));
            let Some(slot) = inner.slots.get(number).and_then(Option::as_ref) else { continue };
            let station = &slot.station;
            let name = |index: Option<usize>| {
                index.and_then(|index| station.sources.get(index)).map(|source| &source.name)
            };
            let params = json!({
                "station": station.name,
                "from": name(switched.from),
                "to": name(switched.to),
                "cause": switched.cause,
            });
            self.notify(inner, None, "Aulos.OnSwitch", &params);
            self.bump_revision();
        }
    }
}

/// The active source and the reason, as JSON.
pub(super) fn on_air(station: &Station, on_air: &OnAir) -> Value {
    let preferred = on_air.preferred.and_then(|index| station.sources.get(index));
    let tenths = |millis: i64| (millis / 100) as f64 / 10.0;
    json!({
        "output": on_air.output,
        "cause": on_air.cause,
        "since_s": tenths(on_air.since_ms),
        "preferred": preferred.map(|source| &source.name),
        "preferred_for_s": on_air.preferred_for.map(|left| tenths(left.as_millis())),
        "switches": counts_json(&on_air.switches),
        "dead_air_ms": on_air.dead_air_ms,
        "last_resort_ms": on_air.last_resort_ms,
    })
}

/// The condition of a source, as JSON.
pub(super) fn condition(condition: &SourceCondition) -> Value {
    json!({
        "state": condition.health,
        "fault": condition.reason,
        "standby": condition.standby,
        "failures": counts_json(&condition.failures),
        "last_fault": condition.last_failure,
    })
}

/// The parts of the latency and their sum, as JSON.
pub(super) fn latency(latency: Latency) -> Value {
    let Latency { input_ms, look_ahead_ms, client_ms } = latency;
    json!({
        "input": input_ms,
        "look_ahead": look_ahead_ms,
        "client": client_ms,
        "total": input_ms + look_ahead_ms + client_ms,
    })
}

fn counts_json(counts: &[(&'static str, u64)]) -> Value {
    let pairs = counts.iter().filter(|(_, count)| *count > 0);
    let name = |name: &str| name.replace(' ', "_");
    Value::Object(pairs.map(|(key, count)| (name(key), json!(count))).collect::<Map<_, _>>())
}

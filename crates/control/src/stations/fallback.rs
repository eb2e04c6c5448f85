//! Source selection: `Aulos.SetSource`, notifications of switches, and their status.
//!
//! A preferred source is not kept across a restart: it was chosen for a moment, and a server that
//! restarts unattended has to find the best source by itself.

use aulos_config::{Station, StationSource};
use aulos_core::Span;
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};

use crate::backend::{
    FailureCounts, InputFault, Latency, OnAir, SourceCondition, SourceHealth, SourceState,
    SourceSwitch, Standby, StationOutput, SwitchCause,
};
use crate::control::context::CallContext;
use crate::control::state::{Control, ControlState};
use crate::hooks::{Observation, cause_name};
use crate::methods::params::Params;
use crate::methods::rpc::MethodResult;

/// `Aulos.SetSource`.
pub(crate) fn set_source(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let (number, slot) = context.station_param(params)?;
    let sources = &slot.station.sources;
    let source = parse_source(sources, params)?;
    let span = params.optional_number("for_s")?.map(seconds);
    let answer = json!({
        "station": slot.station.name,
        "source": source.and_then(|index| sources.get(index)).map(|source| &source.name),
        "for_s": source.and(span).map(Span::as_secs_f64),
    });
    context.control.backend.set_preferred_source(number, source.map(|index| (index, span)));
    Ok(answer)
}

/// The index of the selected source; `None` for automatic selection.
fn parse_source(sources: &[StationSource], params: &Params<'_>) -> Result<Option<usize>, RpcError> {
    let found = match params.value("source")? {
        Value::Null => return Ok(None),
        Value::String(name) => match sources.iter().position(|source| source.name == *name) {
            None if name == "auto" => return Ok(None),
            found => found,
        },
        other => {
            let index = other.as_u64().and_then(|index| usize::try_from(index).ok());
            index.filter(|index| *index < sources.len())
        }
    };
    found.map(Some).ok_or_else(|| {
        let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
        let expected = format!("one of {}, its number from 0, or auto", names.join(", "));
        params.invalid("source", &expected)
    })
}

/// Seconds of a parameter whose range is far below 2^63 nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
pub(crate) fn seconds(seconds: f64) -> Span {
    Span::from_nanos((seconds * 1e9) as i64)
}

/// Range of `for_s`: at least a few quanta; a day or longer needs no limit.
pub(crate) const MIN_DURATION_S: f64 = 0.1;
pub(crate) const MAX_DURATION_S: f64 = 86_400.0;

impl Control {
    /// Notifies controllers and hooks of a source switch.
    pub(crate) fn notify_switch(
        &self,
        inner: &mut ControlState,
        number: usize,
        switch: SourceSwitch,
    ) {
        self.observe_station(inner, number, Observation::Switched(switch));
        let Some(slot) = inner.slots.get(number).and_then(Option::as_ref) else { return };
        let station = &slot.station;
        self.log_switch(station, switch);
        let name = |index: Option<usize>| {
            index.and_then(|index| station.sources.get(index)).map(|source| &source.name)
        };
        let params = json!({
            "station": station.name,
            "from": name(switch.from),
            "to": name(switch.to),
            "cause": cause_name(switch.cause),
        });
        self.notify(inner, None, "Aulos.OnSwitch", &params);
        self.bump_revision();
    }
}

/// The active source and the reason, as JSON.
pub(crate) fn on_air(station: &Station, on_air: &OnAir) -> Value {
    let preferred = on_air.preferred.and_then(|index| station.sources.get(index));
    let tenths = |millis: i64| (millis / 100) as f64 / 10.0;
    json!({
        "output": on_air.output.map_or("", |output| match output {
            StationOutput::Active => "active",
            StationOutput::Fade => "fade",
            StationOutput::LastResort => "last resort",
        }),
        "cause": on_air.cause.map(cause_name),
        "since_s": tenths(on_air.since_ms),
        "preferred": preferred.map(|source| &source.name),
        "preferred_for_s": on_air.preferred_for.map(|left| tenths(left.as_millis())),
        "switches": counts_json(SwitchCause::ALL.map(cause_name).into_iter().zip(on_air.switches)),
        "dead_air_ms": on_air.dead_air_ms,
        "last_resort_ms": on_air.last_resort_ms,
    })
}

/// The name of a source's health, and its fault. One that cannot be opened has failed, although the
/// switch still waits for its first audio.
pub(crate) fn health(
    condition: &SourceCondition,
    state: &SourceState,
) -> (&'static str, Option<InputFault>) {
    match condition.health {
        SourceHealth::Connecting if matches!(state, SourceState::Failed(_)) => {
            ("failed", Some(InputFault::Error))
        }
        SourceHealth::Disabled => ("disabled", None),
        SourceHealth::Connecting => ("connecting", None),
        SourceHealth::Priming => ("priming", None),
        SourceHealth::Healthy => ("healthy", None),
        SourceHealth::Suspect(fault) => ("suspect", Some(fault)),
        SourceHealth::Failed(fault) => ("failed", Some(fault)),
        SourceHealth::Backoff => ("backoff", None),
    }
}

/// The condition of a source, as JSON.
pub(crate) fn condition(condition: &SourceCondition, state: &SourceState) -> Value {
    let (state, fault) = health(condition, state);
    let fault_name = |fault: InputFault| cause_name(fault.into());
    let FailureCounts { late, silent, dc, dead_channel, error, flaps, last } = condition.failures;
    let counts = [
        (fault_name(InputFault::Late), late),
        (fault_name(InputFault::Silent), silent),
        (fault_name(InputFault::Dc), dc),
        (fault_name(InputFault::DeadChannel), dead_channel),
        (fault_name(InputFault::Error), error),
        ("flap", flaps),
    ];
    json!({
        "state": state,
        "fault": fault.map(fault_name),
        "standby": match condition.standby {
            Standby::Hot => "hot",
            Standby::Warm => "warm",
            Standby::Cold => "cold",
        },
        "failures": counts_json(counts),
        "has_started": condition.has_started,
        "last_fault": last.map(fault_name),
    })
}

/// The parts of the latency and their sum, as JSON.
pub(crate) fn latency(latency: Latency) -> Value {
    let Latency { input_ms, look_ahead_ms, client_ms } = latency;
    json!({
        "input": input_ms,
        "look_ahead": look_ahead_ms,
        "client": client_ms,
        "total": input_ms + look_ahead_ms + client_ms,
    })
}

/// Counts above 0, by name.
fn counts_json(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Value {
    let pairs = counts.into_iter().filter(|(_, count)| *count > 0);
    Value::Object(pairs.map(|(name, count)| (name.replace(' ', "_"), json!(count))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_cannot_be_opened_is_failed_and_not_connecting() {
        let waiting = SourceCondition {
            health: SourceHealth::Connecting,
            standby: Standby::Hot,
            failures: FailureCounts::NONE,
            has_started: false,
        };
        let failed = condition(&waiting, &SourceState::Failed("no such file".to_owned()));
        assert_eq!((&failed["state"], &failed["fault"]), (&json!("failed"), &json!("error")));
        assert_eq!(condition(&waiting, &SourceState::Waiting)["state"], "connecting");
    }
}

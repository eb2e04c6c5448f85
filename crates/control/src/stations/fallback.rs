//! The status of source selection, as JSON.

use aulos_config::Station;
use serde_json::{Value, json};

use crate::backend::{
    FailureCounts, InputFault, Latency, OnAir, SourceCondition, SourceHealth, SourceState, Standby,
    StationOutput, SwitchCause,
};
use crate::hooks::cause_name;

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

//! The status of source selection, as JSON.

use aulos_config::StationSettings;
use aulos_core::Frames;
use serde_json::{Value, json};

use crate::backend::{
    FailureCounts, InputFault, InputHealth, InputState, Latency, SourceState, Standby,
    StationOutput, StationReport, StationState, SwitchCause,
};

/// The active source and the reason, as JSON.
pub(crate) fn on_air(station: &StationSettings, report: &StationReport) -> Value {
    let machine = &report.machine;
    let preference = machine.preference;
    let preferred = preference.and_then(|preference| station.sources.get(preference.input));
    let scheduled = machine.scheduled.and_then(|input| station.sources.get(input));
    let until = preference.and_then(|preference| preference.until);
    let tenths = |millis: i64| (millis / 100) as f64 / 10.0;
    let millis = |frames| station.spec.rate.span(Frames(frames)).as_millis();
    let switches = SwitchCause::ALL.map(SwitchCause::name).into_iter().zip(machine.switches_by);
    json!({
        "output": match (report.state, machine.output) {
            (StationState::Stopped, _) => "",
            (_, StationOutput::Active(_)) => "active",
            (_, StationOutput::Fade { .. }) => "fade",
            (_, StationOutput::LastResort) => "last resort",
        },
        "cause": machine.cause.map(SwitchCause::name),
        "since_s": tenths((report.at - machine.since).as_millis()),
        "preferred": preferred.map(|source| &source.name),
        "scheduled": scheduled.map(|source| &source.name),
        "preferred_for_s": until.map(|until| tenths((until - report.at).as_millis())),
        "switches": counts_json(switches),
        "dead_air_ms": millis(machine.silent_frames),
        "last_resort_ms": millis(machine.last_resort_frames),
    })
}

/// The name of an input's health, and its fault. One whose source cannot be opened has failed,
/// although the switch still waits for its first audio.
pub(crate) fn health(
    input: &InputState,
    state: &SourceState,
) -> (&'static str, Option<InputFault>) {
    match input.health {
        InputHealth::Connecting if matches!(state, SourceState::Failed(_)) => {
            ("failed", Some(InputFault::Error))
        }
        InputHealth::Disabled => ("disabled", None),
        InputHealth::Connecting => ("connecting", None),
        InputHealth::Priming { .. } => ("priming", None),
        InputHealth::Healthy { .. } => ("healthy", None),
        InputHealth::Suspect(fault) => ("suspect", Some(fault)),
        InputHealth::Failed(fault) => ("failed", Some(fault)),
        InputHealth::Backoff => ("backoff", None),
    }
}

/// The condition of a source, as JSON.
pub(crate) fn condition(input: &InputState, state: &SourceState) -> Value {
    let (state, fault) = health(input, state);
    let fault_name = |fault: InputFault| SwitchCause::from(fault).name();
    let FailureCounts { late, silent, dc, dead_channel, error, flaps, last } = input.failures;
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
        "standby": match input.standby {
            Standby::Hot => "hot",
            Standby::Warm => "warm",
            Standby::Cold => "cold",
        },
        "failures": counts_json(counts),
        "has_started": input.has_started,
        "last_fault": last.map(fault_name),
    })
}

/// The parts of the latency and their sum, as JSON.
pub(crate) fn latency(latency: Latency) -> Value {
    let Latency { input_ms, insert_ms, look_ahead_ms, client_ms } = latency;
    let mut parts = json!({
        "input": input_ms,
        "look_ahead": look_ahead_ms,
        "client": client_ms,
        "total": input_ms + insert_ms + look_ahead_ms + client_ms,
    });
    if insert_ms > 0 {
        parts["insert"] = json!(insert_ms);
    }
    parts
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
        let failed = condition(&InputState::NEW, &SourceState::Failed("no such file".to_owned()));
        assert_eq!((&failed["state"], &failed["fault"]), (&json!("failed"), &json!("error")));
        assert_eq!(condition(&InputState::NEW, &SourceState::Waiting)["state"], "connecting");
    }
}

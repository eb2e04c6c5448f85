//! The log of stations: what changes between two statuses, switches and silence, in the log of the
//! process and in the history.

use aulos_config::StationSettings;

use crate::backend::{InputChange, StationReport};
use crate::events::EventLog;
use crate::events::history::{EventSeverity, NewEvent};
use crate::events::targets::STATION;
use crate::hooks::HookEvent;
use crate::stations::event_log::{hook_event, output_changes, switch_event};
use crate::stations::slot::StationSlot;

/// Logs a switch of a station's source.
pub(super) fn log_switch(events: &EventLog, station: &StationSettings, switched: InputChange) {
    log_source_events(events, &station.name, switch_event(station, switched));
}

/// Logs what has changed since the status that was shown last.
pub(super) fn log_changes(events: &EventLog, slot: &mut StationSlot, now: &StationReport) {
    let (station, before) = (&slot.station, &slot.shown);
    let changes = slot.logged_failures.changes(station, before, now);
    log_source_events(events, &station.name, changes);
    for event in output_changes(station, before, now) {
        events.add(NewEvent { station: Some(station.name.clone()), ..event });
    }
}

/// Logs an event of hooks that is no change of status: silence and its end, the insert, and entries
/// of the schedule.
pub(super) fn log_hook_event(events: &EventLog, station: &str, event: &HookEvent) {
    match event {
        HookEvent::Silence { .. } | HookEvent::InsertBypassed { .. } => {
            tracing::warn!(target: STATION, station, "{}", event.text());
        }
        HookEvent::Sound { .. }
        | HookEvent::InsertRecovered { .. }
        | HookEvent::ScheduleBegan { .. }
        | HookEvent::ScheduleEnded { .. } => {
            tracing::info!(target: STATION, station, "{}", event.text());
        }
        _ => {}
    }
    if let Some(event) = hook_event(event) {
        events.add(NewEvent { station: Some(station.to_owned()), ..event });
    }
}

fn log_source_events(
    events: &EventLog,
    station: &str,
    changes: impl IntoIterator<Item = NewEvent>,
) {
    for event in changes {
        let (source, text) = (&event.subject, &event.text);
        if event.severity == EventSeverity::Info {
            tracing::info!(target: STATION, station, source, "{text}");
        } else {
            tracing::warn!(target: STATION, station, source, "{text}");
        }
        events.add(NewEvent { station: Some(station.to_owned()), ..event });
    }
}

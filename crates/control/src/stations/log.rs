//! The log of stations: what changes between two statuses, switches and silence, in the log of the
//! process and in the history.

use aulos_config::Station;

use crate::backend::{SourceSwitch, StationStatus};
use crate::control::state::{Control, ControlState};
use crate::events::history::{EventSeverity, NewEvent};
use crate::hooks::HookEvent;
use crate::stations::event_log::{STATION, hook_event, output_changes, switch_event};

impl Control {
    /// Adds an event to the history.
    pub(crate) fn add_event(&self, event: NewEvent) {
        self.events.add(event);
    }

    /// Logs a switch of a station's source.
    pub(crate) fn log_switch(&self, station: &Station, switched: SourceSwitch) {
        self.log_source_events(&station.name, switch_event(station, switched));
    }

    /// Logs what has changed since the last status of a station.
    pub(crate) fn log_station_changes(
        &self,
        inner: &mut ControlState,
        number: usize,
        now: &StationStatus,
    ) {
        let slot = inner.slots.get_mut(number).and_then(Option::as_mut);
        let (Some(slot), Some(before)) = (slot, inner.last_shown.get(number)) else { return };
        let station = &slot.station;
        let changes = slot.logged_failures.changes(station, before, now);
        self.log_source_events(&station.name, changes);
        for event in output_changes(station, before, now) {
            self.add_event(NewEvent { station: Some(station.name.clone()), ..event });
        }
    }

    /// Logs an event of hooks that is no change of status: silence, and its end.
    pub(crate) fn log_hook_event(&self, station: &str, event: &HookEvent) {
        match event {
            HookEvent::Silence { .. } => {
                tracing::warn!(target: STATION, station, "{}", event.text());
            }
            HookEvent::Sound { .. } => {
                tracing::info!(target: STATION, station, "{}", event.text());
            }
            _ => {}
        }
        if let Some(event) = hook_event(event) {
            self.add_event(NewEvent { station: Some(station.to_owned()), ..event });
        }
    }

    fn log_source_events(&self, station: &str, events: impl IntoIterator<Item = NewEvent>) {
        for event in events {
            let (source, text) = (&event.subject, &event.text);
            if event.severity == EventSeverity::Info {
                tracing::info!(target: STATION, station, source, "{text}");
            } else {
                tracing::warn!(target: STATION, station, source, "{text}");
            }
            self.add_event(NewEvent { station: Some(station.to_owned()), ..event });
        }
    }
}

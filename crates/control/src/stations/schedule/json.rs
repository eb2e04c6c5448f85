//! The status of a schedule, as JSON.

use aulos_config::StationSettings;
use serde_json::{Value, json};

use super::SchedulePlan;
use super::occurrence::{Occurrence, rfc3339};

/// The active entry and the next ones; null without a schedule.
pub(crate) fn schedule_json(station: &StationSettings, plan: Option<&SchedulePlan>) -> Value {
    let Some((settings, plan)) = station.schedule.as_ref().zip(plan) else { return Value::Null };
    let entry = |occurrence: &Occurrence| {
        let entry = settings.entries.get(occurrence.entry)?;
        Some(json!({
            "source": station.sources.get(entry.source)?.name,
            "at": entry.at.text,
            "from": rfc3339(settings, occurrence.from),
            "until": rfc3339(settings, occurrence.until),
        }))
    };
    json!({
        "timezone": settings.zone.iana_name(),
        "active": plan.active.as_ref().and_then(entry),
        "next": plan.upcoming.iter().filter_map(entry).collect::<Vec<_>>(),
    })
}

//! The status of a schedule, as JSON.

use aulos_config::StationSettings;
use serde_json::{Value, json};

use super::SchedulePlan;
use super::occurrence::rfc3339;
use super::order::PlannedSwitch;

/// The active entry and the next ones; null without a schedule.
pub(crate) fn schedule_json(station: &StationSettings, plan: Option<&SchedulePlan>) -> Value {
    let Some((settings, plan)) = station.schedule.as_ref().zip(plan) else { return Value::Null };
    let entry = |planned: &PlannedSwitch| {
        let (source, at) = plan.describe(station, settings, *planned)?;
        Some(json!({
            "source": source,
            "at": at,
            "from": rfc3339(settings, planned.from),
            "until": planned.until.map(|until| rfc3339(settings, until)),
        }))
    };
    json!({
        "timezone": settings.zone.iana_name(),
        "active": plan.active.as_ref().and_then(entry),
        "next": plan.upcoming.iter().filter_map(entry).collect::<Vec<_>>(),
    })
}

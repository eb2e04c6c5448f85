//! The status of a schedule, as JSON.

use aulos_config::StationSettings;
use serde_json::{Value, json};

use super::SchedulePlan;
use super::occurrence::rfc3339;
use super::order::{PlannedItem, PlannedSwitch};

/// The active entry and the next ones; null without a schedule.
pub(crate) fn schedule_json(station: &StationSettings, plan: Option<&SchedulePlan>) -> Value {
    let Some((settings, plan)) = station.schedule.as_ref().zip(plan) else { return Value::Null };
    let entry = |planned: &PlannedSwitch| {
        let (source, at) = match planned.item {
            PlannedItem::Entry(entry) => {
                let entry = settings.entries.get(entry)?;
                (Some(station.sources.get(entry.source)?.name.as_str()), entry.at.text.clone())
            }
            PlannedItem::Order(_) => {
                let order = plan.order(*planned)?;
                (order.source.as_deref(), rfc3339(settings, order.from))
            }
        };
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

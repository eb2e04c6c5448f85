//! Which relays drop packets. Their threads only count, because they may not log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::events::history::{EventKind, EventSeverity, NewEvent};

/// What is known of each relay.
#[derive(Debug, Default)]
pub(crate) struct RelayWatch {
    checked_at: Option<Instant>,
    relays: BTreeMap<String, DropState>,
}

/// The packets that a relay has not forwarded.
#[derive(Debug, Default)]
struct DropState {
    count: u64,
    /// The count before packets were dropped, and when the last of them were.
    ongoing: Option<(u64, Instant)>,
}

impl RelayWatch {
    /// Whether the relays are to be looked at now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = |before: Instant| now.saturating_duration_since(before) >= CHECK_INTERVAL;
        let is_due = self.checked_at.is_none_or(due);
        if is_due {
            self.checked_at = Some(now);
        }
        is_due
    }

    /// The events of a summary of all relays.
    pub(crate) fn events(&mut self, now: Instant, summary: &Value) -> Vec<NewEvent> {
        let mut events = Vec::new();
        let relays = summary.as_array().map(Vec::as_slice).unwrap_or_default();
        let name_of = |relay: &Value| relay["name"].as_str().unwrap_or_default().to_owned();
        self.relays.retain(|name, _| relays.iter().any(|relay| name_of(relay) == *name));
        for relay in relays {
            let (name, count) = (name_of(relay), relay["dropped"].as_u64().unwrap_or(0));
            let state = self.relays.entry(name.clone()).or_default();
            let mut add = |severity, text| {
                let (kind, subject) = (EventKind::Relay, name.clone());
                events.push(NewEvent { kind, severity, station: None, subject, text });
            };
            if count > state.count {
                let text = format!("packets are not forwarded: {}", count - state.count);
                let before = state.ongoing.map(|(before, _)| before);
                if before.is_none() {
                    add(EventSeverity::Warning, text);
                }
                state.ongoing = Some((before.unwrap_or(state.count), now));
            } else if let Some((before, last)) = state.ongoing
                && now.saturating_duration_since(last) >= RECOVERY_TIME
            {
                let lost = count.saturating_sub(before);
                let text = format!("all packets are forwarded again; {lost} were not");
                add(EventSeverity::Info, text);
                state.ongoing = None;
            }
            state.count = count;
        }
        events
    }
}

/// How often the counters of relays are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// A relay without a dropped packet for this long forwards all again.
const RECOVERY_TIME: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_relay_that_drops_packets_has_one_event_until_it_forwards_all_again() {
        let (mut watch, start) = (RelayWatch::default(), Instant::now());
        let mut texts = Vec::new();
        for (second, dropped) in [(0, 0), (5, 3), (10, 4), (15, 4), (70, 4), (75, 4), (80, 6)] {
            let now = start + Duration::from_secs(second);
            let summary = json!([{ "name": "trunk", "dropped": dropped }]);
            assert!(watch.is_due(now));
            assert!(!watch.is_due(now + Duration::from_secs(4)));
            let events = watch.events(now, &summary);
            texts.extend(events.into_iter().map(|event| (second, event.subject, event.text)));
        }
        let text = |second, text: &str| (second, "trunk".to_owned(), text.to_owned());
        assert_eq!(
            texts,
            [
                text(5, "packets are not forwarded: 3"),
                text(70, "all packets are forwarded again; 4 were not"),
                text(80, "packets are not forwarded: 2"),
            ]
        );
        assert!(watch.events(start, &json!([])).is_empty() && watch.relays.is_empty());
    }
}

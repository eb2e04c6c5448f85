//! What a connection subscribes to.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::access::Role;

/// What a connection is sent besides the notifications that every controller gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The status of the server, now and whenever it changes.
    pub status: bool,
    /// Meters.
    pub meters: Option<MeterSubscription>,
    /// Events that a reader of this role sees, as they happen.
    pub events: Option<Role>,
}

/// Which meters a connection is sent, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterSubscription {
    /// The stations, in the order of the server; all of them without a list.
    stations: Option<Arc<[String]>>,
    /// One frame in this many ticks.
    every: u64,
}

/// Range of the rate of frames. Stations publish their meters ten times a second.
pub(crate) const MIN_HZ: f64 = 0.1;
pub(crate) const MAX_HZ: f64 = 10.0;

impl Subscription {
    pub(crate) fn json(&self) -> Value {
        let meters = self.meters.as_ref().map(|meters| {
            json!({
                "stations": meters.stations.as_deref(),
                "hz": MAX_HZ / meters.every as f64,
            })
        });
        let mut json = json!({ "status": self.status, "meters": meters });
        if self.events.is_some() {
            json["events"] = json!(true);
        }
        json
    }
}

impl MeterSubscription {
    /// `hz` is between [`MIN_HZ`] and [`MAX_HZ`].
    pub(crate) fn new(stations: Option<Arc<[String]>>, hz: f64) -> Self {
        // The range of `hz` is checked: 1 to 100 ticks.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
        let every = (MAX_HZ / hz).round() as u64;
        Self { stations, every }
    }

    /// One frame is sent in this many ticks; at least 1.
    pub(crate) const fn every(&self) -> u64 {
        self.every
    }

    pub(crate) fn includes(&self, station: &str) -> bool {
        self.stations.as_ref().is_none_or(|names| names.iter().any(|name| name == station))
    }
}

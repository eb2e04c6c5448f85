//! What a player reports about itself: an extension of `ClientInfo`, for servers that ask for it.

use aulos_core::{Ppm, Span};
use serde_json::{Map, Value, json};

use crate::json::integer;

/// How well a player is in time. Times are whole microseconds on the wire, within +-[`MAX_TIME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayerReport {
    /// How far the sound is ahead of its time by the clocks that the player knows; `None` while it
    /// plays nothing.
    pub sync_error: Option<Span>,
    /// Error of the player's estimate of the server's clock, exceeded about once in twenty times.
    pub clock_error: Option<Span>,
    /// How much faster than the server's clock the device's clock runs.
    pub drift: Ppm,
    /// From writing a frame to the device until it sounds.
    pub device_delay: Option<Span>,
    /// Corrections at once, each an audible fade.
    pub cuts: u64,
    /// Interruptions: nothing was there to play, or the server's timestamps jumped.
    pub underruns: u64,
    /// Interruptions that the device has counted: the player's machine was not in time.
    pub device_underruns: u64,
    /// Chunks that came too late or could not be decoded.
    pub lost: u64,
}

impl PlayerReport {
    /// Reads a report; values that are missing or of another type are unknown or 0.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let number = |key: &str| map.get(key).and_then(integer);
        let limit = MAX_TIME.as_micros();
        let time = |key| number(key).map(|us| Span::from_micros(us.clamp(-limit, limit)));
        let count = |key| number(key).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let ppb = number("drift_ppb").unwrap_or(0);
        Some(Self {
            sync_error: time("sync_error_us"),
            clock_error: time("clock_error_us"),
            drift: Ppm::from_ppb(i32::try_from(ppb).unwrap_or(0)),
            device_delay: time("device_delay_us"),
            cuts: count("cuts"),
            underruns: count("underruns"),
            device_underruns: count("device_underruns"),
            lost: count("lost"),
        })
    }

    pub(super) fn to_json(self) -> Value {
        let mut map = Map::new();
        let times = [
            ("sync_error_us", self.sync_error),
            ("clock_error_us", self.clock_error),
            ("device_delay_us", self.device_delay),
        ];
        for (key, span) in times {
            if let Some(span) = span {
                map.insert(key.into(), span.as_micros().into());
            }
        }
        map.insert("drift_ppb".into(), json!(self.drift.as_ppb()));
        for (key, count) in [
            ("cuts", self.cuts),
            ("underruns", self.underruns),
            ("device_underruns", self.device_underruns),
            ("lost", self.lost),
        ] {
            map.insert(key.into(), count.into());
        }
        Value::Object(map)
    }
}

/// Longest time in a report; more is cut to it.
pub const MAX_TIME: Span = Span::from_secs(100);

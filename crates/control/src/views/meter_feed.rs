//! The binary frames of meters.
//!
//! A page with twenty stations reads 14 kB of JSON per update of its meters; the same as integers
//! is 650 bytes, and a browser reads it in a fifth of the time. Stations are numbered by a layout
//! that is sent as a notification before the first frame and whenever it changes, so frames have no
//! names. `docs/reference/page.md` has the layout of a frame.

use std::sync::Arc;
use std::time::Duration;

use aulos_config::StationSettings;
use aulos_core::Db;
use serde_json::json;

use crate::backend::{Loudness, StationReport, StationState};
use crate::peers::subscription::MeterSubscription;

/// Meters of all stations at one moment.
#[derive(Debug, Default)]
pub struct MeterSnapshot {
    /// Number of the tick at which they were read.
    tick: u64,
    /// Microseconds since the server started.
    at_us: u64,
    readings: Vec<MeterReading>,
}

/// The meter of one station.
#[derive(Debug)]
struct MeterReading {
    station: String,
    figures: [i16; FIGURES],
    flags: u16,
    levels: Vec<i16>,
}

/// The frames of one connection.
#[derive(Debug, Default)]
pub struct MeterFrames {
    /// Number of the layouts that were sent.
    revision: u32,
    /// Name and number of channels of each station.
    layout: Vec<(String, usize)>,
}

/// The first byte of a frame of meters.
const KIND: u8 = 1;
const VERSION: u8 = 1;
/// Bytes before the records: kind, version, record size (`u16`), layout revision (`u32`), time
/// (`u64`).
const HEAD: usize = 16;
/// Figures of a record; flags, reserved words and levels follow.
const FIGURES: usize = 11;
/// Words of a record before its levels.
const WORDS_BEFORE_LEVELS: usize = 14;
/// A figure that has no value, or a level of silence.
const NONE: i16 = i16::MIN;

/// Flags of a record; the two lowest bits are the state: stopped, silent, playing.
mod flag {
    pub(crate) const LAST_RESORT: u16 = 1 << 2;
    pub(crate) const BYPASSED: u16 = 1 << 3;
}

impl MeterSnapshot {
    /// The meters of these stations. `tick` counts the snapshots, `at` is the time since the start.
    pub(crate) fn new(
        tick: u64,
        at: Duration,
        stations: &[(Arc<StationSettings>, StationReport)],
    ) -> Self {
        let readings = stations.iter().map(|(station, status)| MeterReading::new(station, status));
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        Self { tick, at_us, readings: readings.collect() }
    }
}

impl MeterReading {
    fn new(station: &StationSettings, status: &StationReport) -> Self {
        let Loudness { momentary, short_term, integrated, range, .. } = status.machine.loudness;
        let all = &status.machine.loudness;
        let input = status.machine.active.and_then(|index| status.inputs().get(index));
        let normalizer = status.machine.normalizer.as_ref();
        let lufs = |value: Option<aulos_core::Lufs>| value.map_or(NONE, |value| word(value.get()));
        let db = |value: Option<Db>| value.map_or(NONE, |value| word(value.get()));
        let gain = normalizer.map(|normalizer| match normalizer.bypassed {
            true => normalizer.matching_gain,
            false => normalizer.programme_stats.gain,
        });
        let figures = [
            lufs(momentary),
            lufs(short_term),
            lufs(integrated),
            db(range),
            db(all.current_true_peak),
            db(all.true_peak),
            db(gain),
            db(normalizer.map(|normalizer| normalizer.reduction)),
            lufs(input.and_then(|input| input.loudness.momentary)),
            lufs(all.max_momentary),
            lufs(all.max_short_term),
        ];
        let state = match status.state {
            StationState::Stopped => 0,
            StationState::Silent => 1,
            StationState::Playing => 2,
        };
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = state
            | flag(status.is_on_last_resort(), flag::LAST_RESORT)
            | flag(normalizer.is_some_and(|normalizer| normalizer.bypassed), flag::BYPASSED);
        let levels = status.machine.level.peaks().iter().map(|level| word(level.get())).collect();
        Self { station: station.name.clone(), figures, flags, levels }
    }
}

/// A value in hundredths.
fn word(value: f64) -> i16 {
    // The value is limited to the range of the type.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    let hundredths = |value: f64| (value * 100.0).round().clamp(-32_767.0, 32_767.0) as i16;
    if value.is_finite() { hundredths(value) } else { NONE }
}

impl MeterFrames {
    /// The next frame for a connection: a notification of the layout if it has changed, and the
    /// frame. Nothing at a tick that the subscription skips.
    #[must_use]
    pub fn next(
        &mut self,
        snapshot: &MeterSnapshot,
        wanted: &MeterSubscription,
    ) -> Option<(Option<String>, Vec<u8>)> {
        if !snapshot.tick.is_multiple_of(wanted.every()) {
            return None;
        }
        let readings = || snapshot.readings.iter().filter(|one| wanted.includes(&one.station));
        let layout = || readings().map(|one| (one.station.as_str(), one.levels.len()));
        let known = self.layout.iter().map(|(name, channels)| (name.as_str(), *channels));
        let is_known = self.revision > 0 && layout().eq(known);
        let notification = if is_known {
            None
        } else {
            self.layout = layout().map(|(name, channels)| (name.to_owned(), channels)).collect();
            self.revision = self.revision.wrapping_add(1).max(1);
            Some(self.layout_notification())
        };
        let channels = self.layout.iter().map(|(_, channels)| *channels).max().unwrap_or(0);
        // A multiple of four bytes, so that a reader may use words of four.
        let record = (WORDS_BEFORE_LEVELS + channels.max(2)).next_multiple_of(2) * 2;
        let mut frame = Vec::with_capacity(HEAD + record * self.layout.len());
        frame.extend([KIND, VERSION]);
        frame.extend(u16::try_from(record).unwrap_or(u16::MAX).to_le_bytes());
        frame.extend(self.revision.to_le_bytes());
        frame.extend(snapshot.at_us.to_le_bytes());
        for reading in readings() {
            let end = frame.len() + record;
            frame.extend(reading.figures.iter().flat_map(|word| word.to_le_bytes()));
            frame.extend(reading.flags.to_le_bytes());
            frame.resize(end - record + WORDS_BEFORE_LEVELS * 2, 0);
            frame.extend(reading.levels.iter().flat_map(|word| word.to_le_bytes()));
            while frame.len() < end {
                frame.extend(NONE.to_le_bytes());
            }
        }
        Some((notification, frame))
    }

    fn layout_notification(&self) -> String {
        let stations = self.layout.iter();
        let stations: Vec<_> = stations
            .map(|(name, channels)| json!({ "name": name, "channels": channels }))
            .collect();
        let params = json!({ "revision": self.revision, "stations": stations });
        json!({ "jsonrpc": "2.0", "method": "Aulos.OnMeterLayout", "params": params }).to_string()
    }
}

/// The notification of a subscribed status, as JSON.
#[must_use]
pub fn status_notification(status: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"Aulos.OnStatus\",\"params\":{status}}}")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::peers::subscription::{MAX_HZ, MIN_HZ};

    fn reading(station: &str, channels: usize) -> MeterReading {
        let mut figures = [NONE; FIGURES];
        figures[..5].copy_from_slice(&[-2_304, -2_300, -2_310, 512, -98]);
        let levels = (0..channels).map(|at| -1_200 - i16::try_from(at).unwrap()).collect();
        MeterReading { station: station.to_owned(), figures, flags: 2 | flag::BYPASSED, levels }
    }

    fn snapshot(tick: u64, readings: Vec<MeterReading>) -> MeterSnapshot {
        MeterSnapshot { tick, at_us: 0x0102_0304, readings }
    }

    fn all(every: f64) -> MeterSubscription {
        MeterSubscription::new(None, MAX_HZ / every)
    }

    #[test]
    fn a_frame_of_one_stereo_station_is_48_bytes_in_the_documented_order() {
        let mut frames = MeterFrames::default();
        let (layout, frame) = frames.next(&snapshot(0, vec![reading("a", 2)]), &all(1.0)).unwrap();
        let expected = json!({
            "jsonrpc": "2.0", "method": "Aulos.OnMeterLayout",
            "params": { "revision": 1, "stations": [{ "name": "a", "channels": 2 }] },
        });
        assert_eq!(serde_json::from_str::<Value>(&layout.unwrap()).unwrap(), expected);
        let text: Vec<String> = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text.join(""),
            "0101200001000000\
             0403020100000000\
             00f704f7faf600029eff\
             008000800080008000800080\
             0a00\
             00000000\
             50fb4ffb"
        );
    }

    #[test]
    fn a_layout_is_sent_before_the_first_frame_and_when_it_changes() {
        let mut frames = MeterFrames::default();
        let mut revision = |readings| {
            let (layout, frame) = frames.next(&snapshot(0, readings), &all(1.0)).unwrap();
            (layout.is_some(), u32::from_le_bytes(frame[4..8].try_into().unwrap()))
        };
        assert_eq!(revision(Vec::new()), (true, 1));
        assert_eq!(revision(vec![reading("a", 2)]), (true, 2));
        assert_eq!(revision(vec![reading("a", 2)]), (false, 2));
        assert_eq!(revision(vec![reading("a", 1)]), (true, 3));
        assert_eq!(revision(vec![reading("b", 1)]), (true, 4));
    }

    #[test]
    fn records_have_the_size_of_the_station_with_the_most_channels() {
        let mut frames = MeterFrames::default();
        let (_, frame) =
            frames.next(&snapshot(0, vec![reading("a", 1), reading("b", 5)]), &all(1.0)).unwrap();
        assert_eq!(u16::from_le_bytes([frame[2], frame[3]]), 40);
        assert_eq!(frame.len(), HEAD + 2 * 40);
        // Missing channels have no level.
        assert_eq!(frame[HEAD + 30..HEAD + 32], NONE.to_le_bytes());
        assert_eq!(frame[HEAD + 40 + 36..HEAD + 40 + 38], (-1_204_i16).to_le_bytes());
    }

    #[test]
    fn a_subscription_selects_stations_and_ticks() {
        let mut frames = MeterFrames::default();
        let wanted = MeterSubscription::new(Some(["b".to_owned()].into()), 2.0);
        let both = || vec![reading("a", 2), reading("b", 2)];
        assert!(frames.next(&snapshot(4, both()), &wanted).is_none());
        let (layout, frame) = frames.next(&snapshot(5, both()), &wanted).unwrap();
        assert!(layout.unwrap().contains("[{\"channels\":2,\"name\":\"b\"}]"));
        assert_eq!(frame.len(), HEAD + 32);
    }

    #[test]
    fn the_highest_rate_is_one_frame_per_tick() {
        assert_eq!(MeterSubscription::new(None, MAX_HZ).every(), 1);
        assert_eq!(MeterSubscription::new(None, MIN_HZ).every(), 100);
        assert_eq!(Duration::from_secs_f64(1.0 / MAX_HZ), crate::TICK);
    }

    #[test]
    fn values_outside_the_range_are_limited_and_silence_has_none() {
        assert_eq!((word(f64::NEG_INFINITY), word(f64::NAN)), (NONE, NONE));
        assert_eq!((word(-400.0), word(400.0), word(-23.046)), (-32_767, 32_767, -2_305));
    }
}

//! What the history gets of each station, and the requests to it.
//!
//! The control plane reads every station's status ten times a second anyway; this module makes a
//! record of each second of it.

use std::io;

use aulos_config::StationSettings;
use aulos_core::Span;
use aulos_files::history::{HistoryFigure, HistoryFlags, HistoryRange, HistoryRecord, Series};
use tokio::sync::oneshot;

use crate::backend::{Loudness, StationReport, StationState};
use crate::stations::activity::CEILING_TOLERANCE_DB;

/// The records of one second.
#[derive(Debug)]
pub struct HistorySecond {
    /// The second, in Unix time.
    pub time: u32,
    /// Each station with what was measured of it.
    pub records: Vec<(String, HistoryRecord)>,
}

/// A request to the thread that keeps the history.
#[derive(Debug)]
pub enum HistoryRequest {
    /// Keep this second.
    Second(HistorySecond),
    /// Read the history of a station.
    Query {
        /// The station.
        station: String,
        /// The span of time.
        range: HistoryRange,
        /// Takes the answer.
        reply: oneshot::Sender<io::Result<Series>>,
    },
    /// Write everything and end; the sender is dropped then.
    Finish(oneshot::Sender<()>),
}

/// Why there is no answer from the history.
#[derive(Debug)]
pub enum HistoryError {
    /// No history is kept.
    Disabled,
    /// There is no station of this name.
    UnknownStation,
    /// The disk is too slow.
    Busy,
    /// The disk gave an error.
    Io(io::Error),
}

/// Requests that wait for the disk: a minute of seconds, and some queries.
pub const HISTORY_QUEUE: usize = 96;

/// Samples of a second; a control loop that catches up after a pause gives no more.
const MAX_SAMPLES: usize = 20;

/// The window of momentary loudness; before it is full, a missing value is no silence.
const MOMENTARY_WINDOW: Span = Span::from_millis(400);

/// The samples of the current second.
#[derive(Debug, Default)]
pub(crate) struct HistorySampler {
    second: u32,
    /// By the number of the station.
    samples: Vec<Vec<HistoryRecord>>,
}

impl HistorySampler {
    /// Takes a sample of a station.
    pub(crate) fn sample(
        &mut self,
        number: usize,
        station: &StationSettings,
        status: &StationReport,
    ) {
        if self.samples.len() <= number {
            self.samples.resize_with(number + 1, Vec::new);
        }
        let samples = &mut self.samples[number];
        if samples.len() < MAX_SAMPLES {
            samples.extend(sample(station, status));
        }
    }

    /// Ends the current second when another one has begun. Gives its number, and the records of
    /// those stations of which something was measured, by their number.
    pub(crate) fn turn(&mut self, now: u32) -> Option<(u32, Vec<(usize, HistoryRecord)>)> {
        if now == self.second {
            return None;
        }
        let time = std::mem::replace(&mut self.second, now);
        let records = self.samples.iter_mut().enumerate().map(|(number, samples)| {
            let record = HistoryRecord::combine(samples.iter());
            samples.clear();
            (number, record)
        });
        Some((time, records.filter(|(_, record)| record.is_present()).collect()))
    }
}

fn sample(station: &StationSettings, status: &StationReport) -> Option<HistoryRecord> {
    let Loudness { momentary, short_term, integrated, range, current_true_peak, .. } =
        status.machine.loudness;
    let has_run = status.state == StationState::Stopped;
    if momentary.is_none() && status.machine.loudness.measured < MOMENTARY_WINDOW && !has_run {
        return None;
    }
    let figure = HistoryFigure::new;
    let momentary = figure(momentary.map(|lufs| lufs.get()));
    let gain = status.machine.normalizer.as_ref().filter(|normalizer| !normalizer.bypassed);
    let ceiling = station.sound.ceiling().get() + CEILING_TOLERANCE_DB;
    let is_recording =
        station.records.iter().zip(&status.recorders).any(|(_, one)| one.status.segment.is_some());
    let flags = HistoryFlags::default()
        .with(HistoryFlags::FALLBACK, is_on_fallback(status))
        .with(HistoryFlags::LAST_RESORT, is_on_last_resort(status))
        .with(HistoryFlags::SILENT, status.state == StationState::Silent)
        .with(HistoryFlags::STOPPED, status.state == StationState::Stopped)
        .with(HistoryFlags::OVER, current_true_peak.is_some_and(|peak| peak.get() > ceiling))
        .with(HistoryFlags::RECORDING, is_recording);
    Some(HistoryRecord {
        momentary_max: momentary,
        momentary_min: momentary,
        short_term: figure(short_term.map(|lufs| lufs.get())),
        integrated: figure(integrated.map(|lufs| lufs.get())),
        range: figure(range.map(|range| range.get())),
        true_peak: figure(current_true_peak.map(|peak| peak.get())),
        gain: figure(gain.map(|normalizer| normalizer.programme_stats.gain.get())),
        flags,
        parts: 1,
    })
}

/// Whether the last resort has sound.
fn is_on_last_resort(status: &StationReport) -> bool {
    status.is_on_last_resort() && status.machine.last_resort_frames > 0
}

/// Whether another source than the first choice is on air: the preferred one, else the scheduled
/// one, else the first that is always there. The page judges in the same way (`condition.js`).
fn is_on_fallback(status: &StationReport) -> bool {
    let Some(active) = status.machine.active else { return false };
    if is_on_last_resort(status) {
        return false;
    }
    let preferred = status.machine.preference.map(|preference| preference.input);
    if let Some(chosen) = preferred.or(status.machine.scheduled) {
        return active != chosen;
    }
    let waits = |number: usize| {
        let live = status.live_inputs.get(number).and_then(Option::as_ref);
        live.is_some_and(|live| !live.on_air)
    };
    (0..active).any(|number| !waits(number))
}

#[cfg(test)]
mod tests {
    use aulos_core::Lufs;

    use super::*;
    use aulos_core::Instant;
    use aulos_engine::switch::Preference;

    use crate::backend::{DjStatus, StationOutput, StationStatus};

    fn on_air(active: usize, preferred: Option<usize>, live: &[Option<bool>]) -> StationReport {
        let live =
            live.iter().map(|live| live.map(|on_air| DjStatus { on_air, ..DjStatus::default() }));
        StationReport {
            state: StationState::Playing,
            machine: StationStatus {
                active: Some(active),
                preference: preferred.map(|input| Preference { input, until: None }),
                output: StationOutput::Active(active),
                ..StationStatus::new(Instant::ZERO)
            },
            live_inputs: live.collect(),
            ..StationReport::default()
        }
    }

    #[test]
    fn a_fallback_is_any_source_behind_the_first_choice() {
        for (status, expected) in [
            (on_air(0, None, &[]), false),
            (on_air(1, None, &[]), true),
            (on_air(1, None, &[Some(false), None]), false),
            (on_air(1, None, &[Some(true), None]), true),
            (on_air(1, Some(1), &[]), false),
            (on_air(0, Some(1), &[]), true),
            (StationReport::default(), false),
        ] {
            assert_eq!(is_on_fallback(&status), expected, "{status:?}");
        }
        for (active, preferred, expected) in
            [(1, None, false), (0, None, true), (0, Some(0), false), (1, Some(0), true)]
        {
            let mut status = on_air(active, preferred, &[]);
            status.machine.scheduled = Some(1);
            assert_eq!(is_on_fallback(&status), expected, "{active} {preferred:?}");
        }
        let mut resort = on_air(1, None, &[]);
        resort.machine.output = StationOutput::LastResort;
        resort.machine.last_resort_frames = 48;
        assert!(is_on_last_resort(&resort) && !is_on_fallback(&resort));
    }

    #[test]
    fn the_samples_of_a_second_become_one_record_when_the_next_begins() {
        let config = aulos_config::load(None, &[], &aulos_config::Environment::of_process());
        let station = config.unwrap().stations.remove(0);
        let mut sampler = HistorySampler::default();
        let mut status = on_air(0, None, &[]);
        // A window that is not full yet is no silence.
        sampler.sample(1, &station, &status);
        for momentary in [-20.0, -30.0, -25.0] {
            status.machine.loudness.momentary = Some(Lufs::new(momentary));
            sampler.sample(1, &station, &status);
        }
        assert_eq!(sampler.turn(0), None);
        let (time, records) = sampler.turn(7).unwrap();
        let [(1, record)] = records[..] else { panic!("{records:?}") };
        let figures = (record.momentary_max.get(), record.momentary_min.get());
        assert_eq!((time, figures), (0, (Some(-20.0), Some(-30.0))));
        assert_eq!(record.parts, 3);
        // A clock that goes back ends a second too, and a burst of samples is bounded.
        status.machine.loudness.measured = Span::from_secs(1);
        status.machine.loudness.momentary = None;
        status.state = StationState::Silent;
        (0..1_000).for_each(|_| sampler.sample(1, &station, &status));
        let (time, records) = sampler.turn(3).unwrap();
        assert_eq!((time, records[0].1.parts), (7, 20));
        assert!(records[0].1.flags.contains(HistoryFlags::SILENT));
        assert_eq!(records[0].1.momentary_max.get(), None);
        assert_eq!(sampler.turn(4).unwrap().1, []);
    }
}

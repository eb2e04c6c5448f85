//! What is told of a server over MQTT, in plain values.

use aulos_core::{Db, Lufs};
use aulos_engine::announce::Layer;
use aulos_engine::recorder::RecordingState;
use serde_json::Value;

use crate::backend::{RecorderState, StationReport, StationState};
use crate::clients::registry::{Client, Group};
use crate::control::state::Subjects;
use crate::stations::slot::StationSlot;
use crate::stations::titles::json::title_line;
use crate::views::Views;

/// A server at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// Connected clients.
    pub connected_clients: usize,
    /// Chunks that clients skipped because they or their network were too slow, since the start.
    pub underruns: u64,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// The names of the presets.
    pub presets: Vec<String>,
    /// The stations.
    pub stations: Vec<StationFacts>,
    /// The clients, connected or not; at most as many as were asked for.
    pub clients: Vec<ClientFacts>,
}

/// A station at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StationFacts {
    /// What its entities depend on.
    pub shape: StationShape,
    /// Momentary, short-term and integrated loudness in LUFS, loudness range in LU, true peak in
    /// dBTP, gain of the normalizer in dB.
    pub loudness: [Option<f64>; 6],
    /// The name of the source on air.
    pub source: Option<String>,
    /// The name of the source that was selected by hand.
    pub selected: Option<String>,
    /// The title of what it plays, in one line.
    pub title: String,
    /// Whether it has been silent for the configured time.
    pub is_silent: bool,
    /// Whether a source is missed and another one plays in its place.
    pub is_on_fallback: bool,
    /// Whether a recorder records, and the length of the longest current file in seconds.
    pub recording: Option<f64>,
    /// The normalization as a call takes it; null without.
    pub normalize: Value,
    /// The bands of the equalizer.
    pub equalizer: Value,
    /// Whether an announcement plays.
    pub is_announcing: bool,
}

/// The parts of a station on which its entities depend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StationShape {
    /// Its name.
    pub name: String,
    /// The names of its sources.
    pub sources: Vec<String>,
    /// Whether it has recorders that calls may start.
    pub has_recorder: bool,
    /// Whether it has a playlist.
    pub has_playlist: bool,
    /// Whether Snapcast clients can play it, and announcements are possible.
    pub has_clients: bool,
}

/// A client at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFacts {
    /// Its id.
    pub id: String,
    /// Its name as people see it.
    pub name: String,
    /// The id of its group.
    pub group: String,
    /// The station of its group.
    pub station: String,
    /// Percent.
    pub volume: u8,
    /// Its own mute.
    pub is_muted: bool,
    /// Milliseconds.
    pub latency_ms: i32,
    /// Whether it is connected.
    pub is_connected: bool,
}

impl Views<'_> {
    /// What is told of the server over MQTT, with at most so many clients.
    #[must_use]
    pub fn mqtt_facts(self, max_clients: usize) -> ServerFacts {
        let control = self.0;
        let subjects = control.lock();
        let Subjects { clients, stations, announcements, .. } = &*subjects;
        let table = &clients.registry.table;
        let members = table.groups().flat_map(|group| {
            table.members(&group.id).map(move |client| ClientFacts::new(client, group))
        });
        let clients_shown = members.take(max_clients).collect();
        let presets = clients.registry.presets.list.iter().map(|preset| preset.name.clone());
        let counters = control.backend.counters();
        let underruns =
            counters.iter().find_map(|(name, n)| (*name == "chunks_lagged").then_some(*n));
        // The status of a station is read without waiting for it.
        let stations = stations.views(&*control.backend).into_iter().filter_map(|view| {
            let slot = stations.get(view.number)?;
            let mut announcements = announcements.of_station(view.number, Layer::Announcement);
            let is_announcing = announcements.any(|entry| entry.is_playing);
            let title = title_line(&view.properties);
            Some(StationFacts { title, is_announcing, ..StationFacts::new(slot, &view.status) })
        });
        ServerFacts {
            connected_clients: table.connected(),
            underruns: underruns.unwrap_or(0),
            uptime_s: self.uptime().as_secs(),
            presets: presets.collect(),
            stations: stations.collect(),
            clients: clients_shown,
        }
    }
}

impl ClientFacts {
    fn new(client: &Client, group: &Group) -> Self {
        Self {
            id: client.id.clone(),
            name: client.shown_name().to_owned(),
            group: group.id.clone(),
            station: group.station.clone(),
            volume: client.volume,
            is_muted: client.muted,
            latency_ms: client.latency_ms,
            is_connected: client.session.is_some(),
        }
    }
}

impl StationFacts {
    /// Without title and announcement.
    fn new(slot: &StationSlot, status: &StationReport) -> Self {
        let station = &slot.station;
        let name = |index: Option<usize>| {
            index.and_then(|index| station.sources.get(index)).map(|source| source.name.clone())
        };
        let recorders = station.records.iter().zip(&status.recorders);
        let recorders = recorders.filter(|(record, _)| !record.is_logger);
        let recording = recorders.clone().filter_map(|(_, state)| recorded(state));
        Self {
            shape: StationShape {
                name: station.name.clone(),
                sources: station.sources.iter().map(|source| source.name.clone()).collect(),
                has_recorder: station.records.iter().any(|record| !record.is_logger),
                has_playlist: station.sources.iter().any(|source| source.config.can_skip()),
                has_clients: station.mount.is_none(),
            },
            loudness: loudness(status),
            source: name(status.machine.active),
            selected: name(status.machine.preference.map(|preference| preference.input)),
            title: String::new(),
            is_silent: slot.watch.is_silent(),
            is_on_fallback: slot.watch.is_on_fallback(),
            recording: recording.reduce(f64::max),
            normalize: station.sound.normalize_json(),
            equalizer: station.sound.equalizer_json(),
            is_announcing: false,
        }
    }
}

/// Seconds in the file of a recorder that records.
fn recorded(recorder: &RecorderState) -> Option<f64> {
    let is_recording = matches!(recorder.machine()?, RecordingState::Recording { .. });
    let segment = recorder.status.segment.as_ref();
    let length = segment.map_or(0.0, |file| file.rate.span(file.frames).as_secs_f64());
    is_recording.then_some(length)
}

/// The values that have a meaning: below [`LEAST_LUFS`] there is no loudness.
fn loudness(status: &StationReport) -> [Option<f64>; 6] {
    if status.state == StationState::Stopped {
        return [None; 6];
    }
    let loudness = &status.machine.loudness;
    let lufs = |value: Option<Lufs>| value.map(Lufs::get).filter(|value| *value >= LEAST_LUFS);
    let db = |value: Option<Db>| value.map(Db::get).filter(|value| value.is_finite());
    let gain = status.machine.normalizer.as_ref().map(|status| status.programme_stats.gain);
    [
        lufs(loudness.momentary),
        lufs(loudness.short_term),
        lufs(loudness.integrated),
        db(loudness.range),
        db(loudness.true_peak).filter(|peak| *peak >= LEAST_LUFS),
        db(gain),
    ]
}

/// The absolute gate of BS.1770.
const LEAST_LUFS: f64 = -70.0;

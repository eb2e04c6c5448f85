//! The status of server, streams and stations as JSON, in Snapcast's format and in our own.

use aulos_config::{MountSettings, StationSettings};
use aulos_core::{SampleSpec, Span};
use aulos_engine::encode::CodecConfig;
use aulos_io::encoder::encoder_name;
use aulos_proto::snap::wire::PlayerReport;
use aulos_session::nats::LeaseState;
use std::collections::HashMap;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::backend::{
    ConnectionHealth, InputState, PassStatus, SourceState, StationReport, StationState,
};
use crate::clients::registry::{ClientJson, GroupJson, GroupView, to_json_text};
use crate::control::host::HostInfo;
use crate::recordings;
use crate::stations::level_json::{
    levels, loudness, normalizer_json, round_to_hundredths, whole_seconds,
};
use crate::stations::schedule::json::schedule_json;
use crate::stations::sources::{djs, of_source, playlist, radio, rtp, sendspin, srt};
use crate::stations::view::StationView;
use crate::stations::{fallback, hls, insert, pushes};
use crate::views::icecast::mount_of;

/// Controllers check this before they use newer methods; our own version is in `name`.
const SNAPSERVER_VERSION: &str = "0.34.0";

/// The whole of `Server.GetStatus` at one moment, to be rendered without the lock of the state.
#[derive(Clone, Debug)]
pub(crate) struct ServerView {
    host: HostInfo,
    groups: Vec<GroupView>,
    stations: Vec<StationView>,
}

impl ServerView {
    pub(crate) fn new(host: &HostInfo, groups: Vec<GroupView>, stations: Vec<StationView>) -> Self {
        Self { host: host.clone(), groups, stations }
    }
}

impl Serialize for ServerView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            server: Body<'a>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            groups: Vec<GroupJson<'a>>,
            server: Value,
            streams: Vec<Value>,
        }
        let host = &self.host;
        let server = json!({
            "host": { "arch": host.arch, "ip": "", "mac": "", "name": host.name, "os": host.os },
            "snapserver": {
                "controlProtocolVersion": 1,
                "name": concat!("aulos ", env!("CARGO_PKG_VERSION")),
                "protocolVersion": 1,
                "version": SNAPSERVER_VERSION,
            },
        });
        let groups = self.groups.iter().map(GroupJson::new).collect();
        let streams = self.stations.iter().map(StationView::stream_json).collect();
        Shape { server: Body { groups, server, streams } }.serialize(serializer)
    }
}

/// The whole of `Aulos.GetStatus` at one moment, to be rendered without the lock of the state.
#[derive(Debug)]
pub(crate) struct StatusView {
    /// Everything but the stations.
    pub(crate) head: Value,
    pub(crate) groups: Vec<GroupView>,
    /// Each station with its listeners, its plays and its announcements.
    pub(crate) stations: Vec<(StationView, usize, [Value; 2])>,
}

impl StatusView {
    /// The status as JSON.
    pub(crate) fn text(&self) -> String {
        let mut groups = groups_by_station(&self.groups);
        let stations = self.stations.iter().map(|(view, listeners, sounds)| {
            let groups = groups.remove(view.station.name.as_str()).unwrap_or_default();
            station(view, *listeners, sounds, ClientList(groups))
        });
        status(&self.head, stations.collect())
    }
}

/// The result of `Aulos.GetStatus`: `head` and the stations.
fn status(head: &Value, stations: Vec<StationJson<'_>>) -> String {
    #[derive(Serialize)]
    struct StatusResponse<'a> {
        #[serde(flatten)]
        head: &'a Value,
        stations: Vec<StationJson<'a>>,
    }
    to_json_text(&StatusResponse { head, stations })
}

/// A source in `Aulos.GetStatus`, by its index.
fn source_json(station: &StationSettings, status: &StationReport, index: usize) -> Value {
    let source = station.sources.get(index);
    let state = status.sources.get(index).cloned().unwrap_or_default();
    let input = status.inputs().get(index);
    json!({
        "name": source.map(|source| &source.name),
        "uri": source.map(|source| &source.uri),
        "state": source_state_name(&state),
        "reason": if let SourceState::Failed(why) = &state { Some(why) } else { None },
        "retry_in_s": status.retries.get(index).copied().flatten().map(whole_seconds),
        "health": input.map(|condition| fallback::condition(condition, &state)),
        "loudness": loudness(&input.unwrap_or(&InputState::NEW).loudness),
        "radio": of_source(&status.radios, index).map(radio::status_json),
        "dj": of_source(&status.live_inputs, index).map(djs::status_json),
        "playlist": of_source(&status.playlists, index).map(playlist::status_json),
        "rtp": of_source(&status.rtp_inputs, index).map(rtp::source_json),
        "srt": of_source(&status.srt_inputs, index).map(srt::status_json),
        "sendspin": of_source(&status.sendspin_inputs, index).map(sendspin::status_json),
        "pass": of_source(&status.passes, index).map(pass_json),
    })
}

/// A station in `Aulos.GetStatus`.
#[derive(Serialize)]
struct StationJson<'a> {
    #[serde(flatten)]
    head: Value,
    clients: ClientList<'a>,
}

/// The clients of some groups, each with its group.
struct ClientList<'a>(Vec<&'a GroupView>);

#[derive(Serialize)]
struct ClientEntry<'a> {
    #[serde(flatten)]
    client: ClientJson<'a>,
    group: &'a str,
    group_muted: bool,
    group_name: &'a str,
    health: Option<HealthJson>,
}

/// A connected client's health, about two seconds old.
#[derive(Serialize)]
struct HealthJson {
    ahead_ms: Option<i64>,
    round_trip_ms: f64,
    jitter_ms: f64,
    unsent_bytes: u64,
    retransmitted: u64,
    skipped_chunks: u64,
    skipped_s_ago: Option<i64>,
    sync: Option<SyncJson>,
}

/// What a player reports of itself.
#[derive(Serialize)]
struct SyncJson {
    error_us: Option<i64>,
    clock_error_us: Option<i64>,
    drift_ppm: f64,
    device_delay_ms: Option<f64>,
    cuts: u64,
    underruns: u64,
    device_underruns: u64,
    lost: u64,
}

/// Milliseconds, in hundredths.
#[allow(clippy::cast_precision_loss, reason = "at most 100 seconds")]
fn ms(span: Span) -> f64 {
    round_to_hundredths(span.as_micros() as f64 / 1_000.0)
}

impl From<PlayerReport> for SyncJson {
    fn from(report: PlayerReport) -> Self {
        Self {
            error_us: report.sync_error.map(Span::as_micros),
            clock_error_us: report.clock_error.map(Span::as_micros),
            drift_ppm: round_to_hundredths(f64::from(report.drift.as_ppb()) / 1_000.0),
            device_delay_ms: report.device_delay.map(ms),
            cuts: report.cuts,
            underruns: report.underruns,
            device_underruns: report.device_underruns,
            lost: report.lost,
        }
    }
}

impl From<ConnectionHealth> for HealthJson {
    fn from(health: ConnectionHealth) -> Self {
        Self {
            ahead_ms: health.buffered.map(Span::as_millis),
            round_trip_ms: ms(health.round_trip),
            jitter_ms: ms(health.jitter),
            unsent_bytes: health.unsent,
            retransmitted: health.retransmitted,
            skipped_chunks: health.skipped,
            skipped_s_ago: health.since_skip.map(|since| since.as_millis() / 1_000),
            sync: health.report.map(SyncJson::from),
        }
    }
}

impl Serialize for ClientList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().flat_map(|GroupView { group, clients }| {
            clients.iter().map(|row| ClientEntry {
                client: row.json(),
                group: &group.id,
                group_muted: group.muted,
                group_name: &group.name,
                health: row.client().health.map(HealthJson::from),
            })
        }))
    }
}

/// The groups of each station.
fn groups_by_station(groups: &[GroupView]) -> HashMap<&str, Vec<&GroupView>> {
    let mut all: HashMap<&str, Vec<&GroupView>> = HashMap::new();
    for view in groups {
        all.entry(&view.group.station).or_default().push(view);
    }
    all
}

const fn source_state_name(state: &SourceState) -> &'static str {
    match state {
        SourceState::Waiting => "waiting",
        SourceState::Ready => "ready",
        SourceState::Silent => "silent",
        SourceState::Failed(_) => "failed",
    }
}

/// A station in `Aulos.GetStatus`.
fn station<'a>(
    view: &StationView,
    listeners: usize,
    [plays, announcements]: &[Value; 2],
    clients: ClientList<'a>,
) -> StationJson<'a> {
    let StationView { station, status, .. } = view;
    let sources = (0..station.sources.len()).map(|index| source_json(station, status, index));
    let push_states = station.pushes.iter().zip(&status.pushes);
    let pushes: Vec<_> =
        push_states.map(|(push, state)| pushes::status_json(push, state)).collect();
    let sent = station.rtp.iter().zip(&status.rtp_outputs);
    let sent: Vec<_> = sent.map(|(config, sent)| rtp::output_json(config, sent)).collect();
    let mut head = json!({
        "name": station.name,
        "state": match status.state {
            StationState::Stopped => "stopped",
            StationState::Silent => "silent",
            StationState::Playing => "playing",
        },
        "active": status.machine.active.and_then(|index| station.sources.get(index)).map(|s| &s.name),
        "sources": sources.collect::<Vec<_>>(),
        "switch": fallback::on_air(station, status),
        "schedule": schedule_json(station, view.schedule.as_deref()),
        "latency_ms": fallback::latency(status.latency),
        "levels_dbfs": levels(status.machine.level.peaks()),
        "loudness": loudness(&status.machine.loudness),
        "insert": insert::status_json(station, status.insert.as_ref()),
        "normalize": station.sound.normalize_json(),
        "normalizer": normalizer_json(status.machine.normalizer.as_ref(), station.spec.rate),
        "equalizer": station.sound.equalizer_json(),
        "codec": station.codec.codec().name(),
        "encoder": station.codec.to_string(),
        "spec": station.spec.to_string(),
        "chunk_ms": station.chunk_ms,
        "buffer_ms": station.buffer_ms,
        "listeners": listeners,
        "mount": station.mount.as_ref().map(|mount| mount_json(station, mount)),
        "hls": hls::status_json(station, status),
        "pushes": pushes,
        "rtp": sent,
        "publication": status.publication.as_ref().map(publication_json),
        "recorders": recordings::station_json(station, &status.recorders),
        "added": view.added.is_some(),
        "playing": view.properties.get("metadata"),
        "plays": plays,
        "announcements": announcements,
    });
    for codec in &station.codecs {
        head[codec.codec().name()] = json!(codec_json(*codec, station.spec));
    }
    StationJson { head, clients }
}

/// How a mount is sent; `codec` and `encoder` of its station are none that anything receives.
fn mount_json(station: &StationSettings, mount: &MountSettings) -> Value {
    json!({
        "path": mount_of(station),
        "codec": mount.format.codec.name(),
        "encoder": mount.encoder.map(|encoder| encoder.to_string()),
        "max_listeners": mount.max_listeners,
        "hidden": mount.hidden,
    })
}

/// The stream of a station in a codec that is not for its clients; `None` where the codec does not
/// have its spec.
fn codec_json(codec: CodecConfig, spec: SampleSpec) -> Option<Value> {
    let kbps = codec.bitrate(spec).filter(|_| codec.codec().info().can_encode(spec))? / 1_000;
    Some(json!({ "kbps": kbps, "encoder": encoder_name(codec) }))
}

/// Which part this server has in the publication of a station.
fn publication_json(state: &LeaseState) -> Value {
    let (epoch, holder) = match state {
        LeaseState::Waiting => (None, None),
        LeaseState::Holder { epoch }
        | LeaseState::Unconfirmed { epoch }
        | LeaseState::Unleased { epoch } => (Some(epoch), None),
        LeaseState::Standby { holder } => (None, Some(holder)),
    };
    json!({ "part": publication_part(state), "epoch": epoch, "holder": holder })
}

/// The name of the part in the API and in events.
pub(crate) const fn publication_part(state: &LeaseState) -> &'static str {
    match state {
        LeaseState::Waiting => "waiting",
        LeaseState::Holder { .. } => "sending",
        LeaseState::Unconfirmed { .. } => "unconfirmed",
        LeaseState::Standby { .. } => "standby",
        LeaseState::Unleased { .. } => "unleased",
    }
}

/// Whether the chunks of a source are passed.
fn pass_json(status: &PassStatus) -> Value {
    let reason = match status {
        PassStatus::Passed => None,
        PassStatus::Encoded(reason) => Some(reason),
    };
    json!({ "passed": reason.is_none(), "reason": reason })
}

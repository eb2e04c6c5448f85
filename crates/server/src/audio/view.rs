//! What the control plane is told of stations and reactors.

use aulos_config::SourceConfig;
use aulos_control::backend::{Latency, SourceState, StationPosition, StationReport, StationState};
use aulos_core::{Instant, Span};
use aulos_engine::status::{InputState, StationStatus};
use aulos_engine::switch::{InputFault, InputHealth};
use aulos_io::SystemClock;
use aulos_io::reactor::ReactorStats;

use super::mount_monitor::MountMonitor;
use super::rtp::StationRtpOutput;
use super::running_push::RunningPush;
use super::sources::source_monitor::SourceMonitor;
use super::state::RunningStation;
use super::station_recorder::RecorderManager;
use crate::hls::HlsTable;
use crate::nats::PublicationState;

/// The report of a station.
pub(super) fn report(
    running: &mut RunningStation,
    recorder_manager: &RecorderManager,
    hls: &HlsTable,
) -> StationReport {
    let machine = *running.handle.status();
    let at = SystemClock::now();
    // An active source that is silent counts as silence, whatever its type.
    let is_audible =
        |active: usize| machine.inputs.get(active).is_some_and(|input| !input.is_silent());
    let state = match machine.active {
        Some(active) if is_audible(active) => StationState::Playing,
        _ => StationState::Silent,
    };
    let radios = per_source(running, |monitor| monitor.radio());
    let live_inputs = per_source(running, |monitor| Some(monitor.live_input()?.status()));
    let playlists = per_source(running, |monitor| monitor.playlist());
    let rtp_inputs = per_source(running, |monitor| monitor.rtp());
    let srt_inputs = per_source(running, |monitor| monitor.srt());
    let sendspin_inputs = per_source(running, |monitor| monitor.sendspin());
    let latency = latency(&machine, running);
    let downstream = latency.insert_ms + latency.look_ahead_ms + latency.client_ms;
    for source in &mut running.sources {
        source.set_downstream(Span::from_millis(downstream));
    }
    let mount = running.mount.as_mut().map(MountMonitor::status);
    let passes = running.sources.iter_mut().enumerate().map(|(index, monitor)| {
        let is_active = machine.active == Some(index);
        if let Some(mount) = mount {
            return mount.pass_status(index, is_active);
        }
        monitor.pass_status(is_active.then_some(machine.pass_through))
    });
    let passes = passes.collect();
    let (sources, retries) = source_states(running, &machine, at);
    let stage = machine.insert.unwrap_or_default();
    let insert = running.insert.as_mut().map(|insert| insert.report(at, stage));
    StationReport {
        state,
        at,
        sources,
        retries,
        latency,
        radios,
        live_inputs,
        playlists,
        rtp_inputs,
        srt_inputs,
        sendspin_inputs,
        passes,
        publication: running.publication.as_ref().map(PublicationState::get),
        insert,
        hls: hls.target_states(&running.config.name),
        rtp_outputs: running.rtp.iter_mut().map(StationRtpOutput::status).collect(),
        pushes: running.pushes.iter_mut().map(RunningPush::status).collect(),
        recorders: running.recordings.iter().map(|one| one.status(recorder_manager)).collect(),
        machine,
    }
}

/// The state of each source, and the time until the next attempt of those that have failed.
fn source_states(
    running: &mut RunningStation,
    status: &StationStatus,
    now: Instant,
) -> (Vec<SourceState>, Vec<Option<Span>>) {
    let sources = running.sources.iter_mut().zip(&running.config.sources).zip(&status.inputs);
    sources
        .map(|((watch, config), input)| {
            let state = source(&mut **watch, &config.config, input);
            let failed = matches!(state, SourceState::Failed(_));
            (state, watch.retry_at().filter(|_| failed).map(|at| at.since(now)))
        })
        .unzip()
}

/// What `figure` gives for each source; `None` where it does not apply.
fn per_source<T>(
    running: &mut RunningStation,
    figure: impl Fn(&mut dyn SourceMonitor) -> Option<T>,
) -> Vec<Option<T>> {
    running.sources.iter_mut().map(|monitor| figure(&mut **monitor)).collect()
}

/// The media position of a station.
pub(super) fn position(running: &mut RunningStation) -> StationPosition {
    let position = running.handle.status().position;
    StationPosition { instance: running.run, name: running.config.name.clone(), position }
}

/// The parts of the latency to a listener.
fn latency(status: &StationStatus, running: &RunningStation) -> Latency {
    let live = |input: &InputState| input.buffered.as_millis();
    let active = status.active.filter(|active| {
        let source = running.config.sources.get(*active);
        source.is_some_and(|source| !source.config.is_on_demand())
    });
    let rate = running.config.spec.rate;
    let ahead = status.normalizer.map(|normalizer| rate.span(normalizer.latency));
    Latency {
        input_ms: active.and_then(|active| status.inputs.get(active)).map_or(0, live),
        insert_ms: status.insert.map_or(0, |insert| rate.span(insert.latency).as_millis()),
        look_ahead_ms: ahead.map_or(0, |ahead| ahead.as_millis()),
        client_ms: i64::from(running.config.buffer_ms),
    }
}

fn source(watch: &mut dyn SourceMonitor, config: &SourceConfig, input: &InputState) -> SourceState {
    let failed = watch.problem().map(|reason| match config.server() {
        Some(server) => format!("{server}: {reason}"),
        None => reason,
    });
    match (failed, input.health) {
        (_, InputHealth::Healthy { .. } | InputHealth::Suspect(InputFault::DeadChannel)) => {
            SourceState::Ready
        }
        (_, InputHealth::Suspect(_)) if input.is_silent() => SourceState::Silent,
        (Some(reason), _) => SourceState::Failed(reason),
        // What is left in its buffer is not played any more.
        (None, InputHealth::Suspect(InputFault::Late | InputFault::Error)) => SourceState::Waiting,
        (None, _) if input.buffered > Span::ZERO => SourceState::Ready,
        (None, _) => SourceState::Waiting,
    }
}

/// The sum of every counter over stations and reactors; their names are stable.
pub(super) fn counters(
    reactors: &ReactorStats,
    stations: &mut dyn Iterator<Item = StationStatus>,
) -> Vec<(&'static str, u64)> {
    let mut sums = [0; STATION_COUNTERS.len()];
    for status in stations {
        for (sum, (_, read)) in sums.iter_mut().zip(STATION_COUNTERS) {
            *sum += read(&status);
        }
    }
    let mut all: Vec<_> = STATION_COUNTERS.iter().map(|(name, _)| *name).zip(sums).collect();
    all.extend([
        ("sessions", reactors.sessions),
        ("web_listeners", reactors.listeners),
        ("connections_accepted", reactors.accepted),
        ("accept_errors", reactors.accept_errors),
        ("connections_refused_same_address", reactors.refused),
        ("connections_refused_too_fast", reactors.refused_too_fast),
        ("tls_sessions", reactors.tls_sessions),
        ("chunks_sent", reactors.chunks_sent),
        ("chunks_lagged", reactors.chunks_lagged),
        ("sends", reactors.sends),
        ("bytes_sent", reactors.bytes),
        ("zero_copy_sends", reactors.zero_copy_sends),
        ("zero_copy_bytes", reactors.zero_copy_bytes),
        ("zero_copy_copied", reactors.zero_copy_copied),
        ("zero_copy_fallbacks", reactors.zero_copy_fallbacks),
        ("sessions_closed", reactors.closed),
        ("sessions_lost", reactors.network),
        ("sessions_cut_not_reading", reactors.not_reading),
        ("sessions_cut_without_hello", reactors.no_hello),
        ("sessions_cut_protocol_error", reactors.protocol),
        ("sessions_cut_tls_failed", reactors.tls_failed),
        ("sessions_cut_tls_unfinished", reactors.tls_unfinished),
        ("sessions_closed_in_tls_handshake", reactors.tls_closed),
        ("sessions_cut_plain", reactors.plain_refused),
        ("sessions_cut_unauthorized", reactors.unauthorized),
    ]);
    all
}

type Counter = (&'static str, fn(&StationStatus) -> u64);

const STATION_COUNTERS: [Counter; 15] = [
    ("chunks_made", |status| status.chunks),
    ("chunks_passed", |status| status.chunks_passed),
    ("pass_interruptions", |status| status.pass_interruptions),
    ("payload_bytes", |status| status.payload_bytes),
    ("underruns", |status| status.underruns),
    ("silent_frames", |status| status.silent_frames),
    ("switches", |status| status.switches),
    ("switch_events_lost", |status| status.switch_events_lost),
    ("tap_blocks_lost", |status| status.tap_blocks_lost),
    ("timeline_stalls", |status| status.stalls),
    ("pool_exhausted", |status| status.pool_exhausted),
    ("encode_errors", |status| status.encode_errors),
    ("fanout_full", |status| status.fanout_full),
    ("samples_clamped", |status| status.normalizer.map_or(0, |normalizer| normalizer.clamped)),
    ("samples_rejected", |status| {
        status.normalizer.map_or(0, |normalizer| normalizer.programme_stats.rejected)
    }),
];

//! Converts the state of stations and reactors to the types of [`aulos_control::backend`].

use aulos_config::SourceConfig;
use aulos_control::backend::{
    self, Latency, OnAir, SourceCondition, SourceHealth, SourceState, SourceSwitch, StationState,
};
use aulos_core::{Frames, Span};
use aulos_engine::station::SwitchEvent;
use aulos_engine::status::{InputState, StationOutput, StationStatus};
use aulos_engine::switch::{InputFault, InputHealth};
use aulos_io::SystemClock;
use aulos_io::reactor::ReactorStats;

use super::rtp::StationRtpOutput;
use super::running_push::RunningPush;
use super::sources::source_monitor::SourceMonitor;
use super::state::RunningStation;
use super::station_recorder::RecorderManager;
use crate::nats::PublicationState;

/// A station's status.
pub(super) fn status(
    running: &mut RunningStation,
    recorder_manager: &RecorderManager,
) -> backend::StationStatus {
    let status = *running.handle.status();
    // An active source that is silent counts as silence, whatever its type.
    let is_audible =
        |active: usize| status.inputs.get(active).is_some_and(|input| !input.is_silent());
    let state = match status.active {
        Some(active) if is_audible(active) => StationState::Playing,
        _ => StationState::Silent,
    };
    let inputs = status.inputs.iter().take(running.sources.len());
    let source_loudness = inputs.clone().map(|input| input.loudness).collect();
    let conditions = inputs.map(condition).collect();
    let radios = per_source(running, |monitor| monitor.radio());
    let djs = per_source(running, |monitor| Some(monitor.live_input()?.status()));
    let received = per_source(running, |monitor| monitor.rtp());
    let passed = running.sources.iter_mut().enumerate().map(|(index, monitor)| {
        let is_active = status.active == Some(index);
        monitor.pass_status(is_active.then_some(status.pass_through))
    });
    let passed = passed.collect();
    let sent = running.rtp.iter_mut().map(StationRtpOutput::status).collect();
    let (sources, retries) = source_states(running, &status);
    backend::StationStatus {
        state,
        active: status.active,
        sources,
        retries,
        levels: status.level.peak[..status.level.channels].to_vec(),
        loudness: status.loudness,
        source_loudness,
        normalizer: status.normalizer,
        source_conditions: conditions,
        on_air: on_air(&status, running),
        latency: latency(&status, running),
        radios,
        live_inputs: djs,
        rtp_inputs: received,
        passes: passed,
        publication: running.publication.as_ref().map(PublicationState::get),
        rtp_outputs: sent,
        pushes: running.pushes.iter().map(RunningPush::status).collect(),
        recorders: running.recordings.iter().map(|one| one.status(recorder_manager)).collect(),
        position: status.position,
        counters: station_counters(&status),
        steps: status.steps,
    }
}

/// The state of each source, and the time until the next attempt of those that have failed.
fn source_states(
    running: &mut RunningStation,
    status: &StationStatus,
) -> (Vec<SourceState>, Vec<Option<Span>>) {
    let sources = running.sources.iter_mut().zip(&running.config.sources).zip(&status.inputs);
    sources
        .map(|((watch, config), input)| {
            let state = source(&mut **watch, &config.config, input);
            let failed = matches!(state, SourceState::Failed(_));
            (state, watch.retry_at().filter(|_| failed).map(|at| at.since(SystemClock::now())))
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

const fn station_counters(status: &StationStatus) -> backend::StationCounters {
    backend::StationCounters {
        chunks: status.chunks + status.chunks_passed,
        payload_bytes: status.payload_bytes,
        underruns: status.underruns,
        tap_blocks_lost: status.tap_blocks_lost,
        timeline_stalls: status.stalls,
        pool_exhausted: status.pool_exhausted,
        encode_errors: status.encode_errors,
        codec_panics: status.codec_panics,
        fanout_full: status.fanout_full,
    }
}

/// The media position of a station.
pub(super) fn position(running: &mut RunningStation) -> backend::StationPosition {
    let position = running.handle.status().position;
    backend::StationPosition { instance: running.run, name: running.config.name.clone(), position }
}

fn on_air(status: &StationStatus, running: &RunningStation) -> OnAir {
    let millis = |frames: u64| running.config.spec.rate.span(Frames(frames)).as_millis();
    let now = SystemClock::now();
    let preference = status.preference;
    OnAir {
        output: Some(match status.output {
            StationOutput::Active(_) => backend::StationOutput::Active,
            StationOutput::Fade { .. } => backend::StationOutput::Fade,
            StationOutput::LastResort => backend::StationOutput::LastResort,
        }),
        cause: status.cause,
        preferred: preference.map(|request| request.input),
        preferred_for: preference.and_then(|request| request.until).map(|until| until - now),
        since_ms: (now - status.since).as_millis(),
        dead_air_ms: millis(status.silent_frames),
        last_resort_ms: millis(status.last_resort_frames),
        switches: status.switches_by,
    }
}

const fn condition(input: &InputState) -> SourceCondition {
    let health = match input.health {
        InputHealth::Disabled => SourceHealth::Disabled,
        InputHealth::Connecting => SourceHealth::Connecting,
        InputHealth::Priming { .. } => SourceHealth::Priming,
        InputHealth::Healthy { .. } => SourceHealth::Healthy,
        InputHealth::Suspect(fault) => SourceHealth::Suspect(fault),
        InputHealth::Failed(fault) => SourceHealth::Failed(fault),
        InputHealth::Backoff => SourceHealth::Backoff,
    };
    let InputState { standby, failures, has_started, .. } = *input;
    SourceCondition { health, standby, failures, has_started }
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
        look_ahead_ms: ahead.map_or(0, |ahead| ahead.as_millis()),
        client_ms: i64::from(running.config.buffer_ms),
    }
}

/// A switch for the control plane.
pub(super) const fn switched(SwitchEvent { change, .. }: SwitchEvent) -> SourceSwitch {
    SourceSwitch { from: change.from, to: change.to, cause: change.cause }
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

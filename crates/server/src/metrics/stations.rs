//! Metrics of stations, and of what they write and send.

use aulos_control::StationSnapshot;
use aulos_control::backend::{
    InsertFault, InsertReport, Latency, RtpDestinationStatus, StationState, StationStatus,
    SwitchCause, UploadPhase,
};
use aulos_core::{Db, Frames, Lufs};
use aulos_dsp::normalize::LoudnessStats;
use aulos_engine::loudness_processor::NormalizerStatus;
use aulos_engine::recorder::RecordingState;
use aulos_session::push::PushPhase;
use aulos_session::rtp::RtpOutputStatus;

use super::sources::{WINDOWS, windows};
use super::table::{Metric, RecorderView, Series, Values};

const STATES: &[&str] = &["playing", "silent", "last_resort", "stopped"];

/// In the order of [`SwitchCause::ALL`].
const CAUSES: [&str; SwitchCause::ALL.len()] = [
    "first",
    "better",
    "ended",
    "late",
    "silent",
    "dc",
    "dead_channel",
    "error",
    "manual",
    "schedule",
];

const POINTS: &[&str] = &["in", "out"];
const LATENCY_PARTS: &[&str] = &["input", "insert", "look_ahead", "client"];
const INSERT_STATES: &[&str] = &["starting", "processing", "bypassed"];

/// In the order of [`InsertFault::ALL`].
const INSERT_FAULTS: [&str; InsertFault::ALL.len()] = [
    "not_started",
    "exited",
    "no_output",
    "format",
    "too_many_frames",
    "too_few_frames",
    "unrecognized",
    "not_reading",
];

fn state(one: &StationSnapshot) -> &'static str {
    match one.status.state {
        StationState::Stopped => "stopped",
        _ if one.plays_last_resort() => "last_resort",
        StationState::Silent => "silent",
        StationState::Playing => "playing",
    }
}

fn normalizer<T>(one: &StationSnapshot, read: fn(&NormalizerStatus) -> T) -> Option<T> {
    one.status.machine.normalizer.as_ref().map(read)
}

const fn insert(one: &StationSnapshot) -> Option<&InsertReport> {
    one.status.insert.as_ref()
}

fn input(one: &StationSnapshot) -> Option<LoudnessStats> {
    normalizer(one, |normalizer| normalizer.programme_stats.input)
}

/// Milliseconds, far below 2^53, as seconds.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1e3
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&StationSnapshot, &mut Series<'_>),
) -> Metric {
    Metric::counter(name, help, Values::Station(read))
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&StationSnapshot, &mut Series<'_>),
) -> Metric {
    Metric::gauge(name, help, Values::Station(read))
}

const fn machine(one: &StationSnapshot) -> &StationStatus {
    &one.status.machine
}

/// The time of a station's frames, in whole milliseconds.
fn frame_seconds(one: &StationSnapshot, frames: u64) -> f64 {
    seconds(one.station.spec.rate.span(Frames(frames)).as_millis())
}

/// Metrics of stations.
pub(super) const STATIONS: &[Metric] = &[
    gauge(
        "aulos_station_info",
        "Always 1; codec, sample spec and whether it normalizes.",
        |one, series| {
            let station = &one.station;
            let normalizes = if station.sound.normalize.is_some() { "yes" } else { "no" };
            series
                .with(&[station.codec.codec().name(), &station.spec.to_string(), normalizes], true);
        },
    )
    .labels(&[("codec", &[]), ("spec", &[]), ("normalize", &[])]),
    gauge(
        "aulos_station_state",
        "1 for the station's state, 0 for every other one.",
        |one, series| {
            series.one_of(STATES, Some(state(one)));
        },
    )
    .labels(&[("state", STATES)]),
    gauge(
        "aulos_station_loudness_lufs",
        "Loudness (EBU R 128) in LUFS, -Inf for silence; `in` is before the normalizer.",
        |one, series| {
            for (window, value) in windows(&one.status.machine.loudness) {
                series.with(&["out", window], value);
            }
            if let Some(stats) = input(one) {
                let values = [stats.momentary, stats.short_term, stats.integrated];
                for (window, value) in WINDOWS.iter().zip(values) {
                    series.with(&["in", window], value.get());
                }
            }
        },
    )
    .labels(&[("point", POINTS), ("window", WINDOWS)]),
    gauge("aulos_station_loudness_range_lu", "Loudness range (LRA) in LU.", |one, series| {
        series.with(&["out"], one.status.machine.loudness.range.map(Db::get));
        series.with(&["in"], input(one).map(|stats| stats.range.get()));
    })
    .labels(&[("point", POINTS)]),
    gauge(
        "aulos_station_true_peak_dbtp",
        "Highest true peak of the output in the last 15 seconds, in dBTP.",
        |one, series| series.set(one.activity.held_peak().map(Db::get)),
    ),
    counter(
        "aulos_station_over_ceiling_seconds_total",
        "Time in seconds with a true peak above the ceiling.",
        |one, series| series.set(one.activity.over_ceiling().as_secs_f64()),
    ),
    gauge(
        "aulos_station_ceiling_dbtp",
        "Ceiling of the true peak in dBTP: the normalizer's, or that of EBU R 128.",
        |one, series| series.set(one.ceiling().get()),
    ),
    gauge("aulos_station_target_lufs", "Target of the normalizer in LUFS.", |one, series| {
        let normalize = one.station.sound.normalize.as_ref();
        series.set(normalize.map(|normalize| Lufs::get(normalize.settings.target)));
    }),
    gauge("aulos_station_gain_db", "Gain of the normalizer in dB.", |one, series| {
        series.set(normalizer(one, |normalizer| normalizer.programme_stats.gain.get()));
    }),
    gauge(
        "aulos_station_limiter_reduction_db",
        "Strongest gain reduction of the limiters in the last 100 ms, in dB; 0 or less.",
        |one, series| series.set(normalizer(one, |normalizer| normalizer.reduction.get())),
    ),
    counter("aulos_station_switches_total", "Changes of the source on air.", |one, series| {
        for (cause, count) in CAUSES.iter().zip(machine(one).switches_by) {
            series.with(&[cause], count);
        }
    })
    .labels(&[("cause", &CAUSES)]),
    counter(
        "aulos_station_dead_air_seconds_total",
        "Time in seconds of silence that no source has sent.",
        |one, series| series.set(frame_seconds(one, machine(one).silent_frames)),
    ),
    counter(
        "aulos_station_last_resort_seconds_total",
        "Time in seconds of the last resort's sound.",
        |one, series| series.set(frame_seconds(one, machine(one).last_resort_frames)),
    ),
    Metric::histogram(
        "aulos_station_step_seconds",
        "Time of the station's steps in seconds, each from its inputs to its chunks, with the time in \
         which other threads ran.",
        Values::StationHistogram(|one| &one.activity.steps),
    ),
    counter("aulos_station_chunks_total", "Chunks sent.", |one, series| {
        series.set(machine(one).chunks + machine(one).chunks_passed);
    }),
    counter(
        "aulos_station_payload_bytes_total",
        "Payload bytes of these chunks.",
        |one, series| {
            series.set(machine(one).payload_bytes);
        },
    ),
    counter("aulos_station_underruns_total", "Underruns of the source on air.", |one, series| {
        series.set(machine(one).underruns);
    }),
    counter(
        "aulos_station_tap_blocks_lost_total",
        "Blocks that stations playing this one missed, because they read too late.",
        |one, series| series.set(machine(one).tap_blocks_lost),
    ),
    counter(
        "aulos_station_timeline_stalls_total",
        "Stalls of the process that were so long that the station's timeline had to move.",
        |one, series| series.set(machine(one).stalls),
    ),
    counter(
        "aulos_station_pool_exhausted_total",
        "Chunks not produced because every buffer was in use.",
        |one, series| series.set(machine(one).pool_exhausted),
    ),
    counter(
        "aulos_station_encode_errors_total",
        "Chunks not produced because the codec refused.",
        |one, series| series.set(machine(one).encode_errors),
    ),
    counter(
        "aulos_station_codec_panics_total",
        "Panics of the encoder's library; a new encoder encoded the block again.",
        |one, series| series.set(machine(one).codec_panics),
    ),
    counter(
        "aulos_station_fanout_full_total",
        "Chunks that a reactor did not take in time.",
        |one, series| series.set(machine(one).fanout_full),
    ),
    counter(
        "aulos_station_samples_clamped_total",
        "Samples clipped behind the limiters; expected to stay 0.",
        |one, series| series.set(normalizer(one, |normalizer| normalizer.clamped)),
    ),
    counter(
        "aulos_station_samples_rejected_total",
        "Samples that were not finite or above +20 dBFS, and became silence.",
        |one, series| {
            series.set(normalizer(one, |normalizer| normalizer.programme_stats.rejected));
        },
    ),
    gauge(
        "aulos_station_latency_seconds",
        "Latency from the source to a client in seconds; the total is the sum of the parts.",
        |one, series| {
            let latency = one.status.latency;
            let Latency { input_ms, insert_ms, look_ahead_ms, client_ms, .. } = latency;
            let insert_ms = insert(one).map(|_| insert_ms);
            let parts = [Some(input_ms), insert_ms, Some(look_ahead_ms), Some(client_ms)];
            for (part, ms) in LATENCY_PARTS.iter().zip(parts) {
                series.with(&[part], ms.map(seconds));
            }
        },
    )
    .labels(&[("part", LATENCY_PARTS)]),
    gauge(
        "aulos_insert_state",
        "1 for the state of the station's insert, 0 for every other one.",
        |one, series| {
            if let Some(insert) = &one.status.insert {
                series.one_of(INSERT_STATES, Some(insert.state().name()));
            }
        },
    )
    .labels(&[("state", INSERT_STATES)]),
    counter(
        "aulos_insert_bypasses_total",
        "Times that the programme was played without the insert that had processed it.",
        |one, series| series.set(insert(one).map(|insert| insert.stage.bypasses)),
    ),
    counter(
        "aulos_insert_bypassed_seconds_total",
        "Time in seconds for which the programme was played without the insert.",
        |one, series| {
            let frames = insert(one).map(|insert| insert.stage.bypassed_frames);
            series.set(frames.map(|frames| frame_seconds(one, frames)));
        },
    ),
    counter("aulos_insert_starts_total", "Starts of the insert's program.", |one, series| {
        series.set(insert(one).map(|insert| insert.program.starts));
    }),
    counter(
        "aulos_insert_faults_total",
        "Failures of the insert's program, after each of which it is started again.",
        |one, series| {
            for (cause, count) in insert(one)
                .iter()
                .flat_map(|insert| INSERT_FAULTS.iter().zip(insert.program.faults))
            {
                series.with(&[cause], count);
            }
        },
    )
    .labels(&[("cause", &INSERT_FAULTS)]),
    gauge("aulos_station_clients", "Connected clients.", |one, series| series.set(one.clients)),
    gauge("aulos_station_listeners", "Web listeners.", |one, series| series.set(one.listeners)),
];

const RECORDER_STATES: &[&str] = &["unavailable", "idle", "waiting", "recording", "paused"];
const UPLOAD_PHASES: &[&str] = &["idle", "uploading", "waiting", "refused"];

const fn recorder_state(state: Option<RecordingState>) -> &'static str {
    match state {
        None => "unavailable",
        Some(RecordingState::Idle) => "idle",
        Some(RecordingState::Waiting { .. }) => "waiting",
        Some(RecordingState::Recording { .. }) => "recording",
        Some(RecordingState::Paused { .. }) => "paused",
    }
}

const fn recorder(
    name: &'static str,
    help: &'static str,
    read: fn(&RecorderView<'_>, &mut Series<'_>),
) -> Metric {
    Metric::gauge(name, help, Values::Recorder(read))
}

const fn recorder_counter(
    name: &'static str,
    help: &'static str,
    read: fn(&RecorderView<'_>, &mut Series<'_>),
) -> Metric {
    Metric::counter(name, help, Values::Recorder(read))
}

/// The time of a recorder's frames.
fn recorded_seconds(view: &RecorderView<'_>, frames: Frames) -> f64 {
    view.station.station.spec.rate.span(frames).as_secs_f64()
}

/// Metrics of recorders and their uploads.
pub(super) const RECORDERS: &[Metric] = &[
    recorder(
        "aulos_record_state",
        "1 for the recorder's state, 0 for every other one.",
        |view, series| {
            series.one_of(RECORDER_STATES, Some(recorder_state(view.state.machine())));
        },
    )
    .labels(&[("state", RECORDER_STATES)]),
    recorder("aulos_record_failed", "1 while the recorder has a failure.", |view, series| {
        series.set(view.state.trouble().is_some());
    }),
    recorder_counter("aulos_record_bytes_total", "Bytes written to files.", |view, series| {
        series.set(view.state.status.bytes);
    }),
    recorder_counter("aulos_record_files_total", "Complete files.", |view, series| {
        series.set(view.state.status.segments);
    }),
    recorder_counter(
        "aulos_record_files_deleted_total",
        "Files deleted by the retention rules.",
        |view, series| series.set(view.state.status.deleted),
    ),
    recorder_counter(
        "aulos_record_lost_seconds_total",
        "Audio in seconds that was lost: the disk was too slow, the machine stood still, or the \
         recorded source sent nothing.",
        |view, series| series.set(recorded_seconds(view, view.state.status.lost)),
    ),
    recorder(
        "aulos_record_waiting_seconds",
        "Audio in seconds that waits for the disk.",
        |view, series| series.set(recorded_seconds(view, view.state.status.buffered)),
    ),
    recorder("aulos_record_disk_free_bytes", "Free bytes of the disk.", |view, series| {
        series.set(view.state.status.free_bytes);
    }),
    recorder(
        "aulos_upload_state",
        "1 for the state of the recorder's uploads, 0 for every other one.",
        |view, series| {
            if let Some(upload) = &view.state.upload {
                series.one_of(UPLOAD_PHASES, Some(UploadPhase::name(upload.phase)));
            }
        },
    )
    .labels(&[("state", UPLOAD_PHASES)]),
    recorder("aulos_upload_waiting_files", "Files that wait for their upload.", |view, series| {
        series.set(view.state.upload.as_ref().map(|upload| upload.waiting));
    }),
    recorder_counter("aulos_upload_files_total", "Uploaded files.", |view, series| {
        series.set(view.state.upload.as_ref().map(|upload| upload.done));
    }),
    recorder_counter("aulos_upload_bytes_total", "Their bytes.", |view, series| {
        series.set(view.state.upload.as_ref().map(|upload| upload.done_bytes));
    }),
    recorder_counter("aulos_upload_failures_total", "Failed attempts.", |view, series| {
        series.set(view.state.upload.as_ref().map(|upload| upload.failures));
    }),
];

const PUSH_PHASES: &[&str] = &["connecting", "pushing", "waiting", "refused"];
const PACKET_RESULTS: &[&str] = &["sent", "late", "skipped", "unsent"];
const RELAY_DIRECTIONS: &[&str] = &["received", "sent"];

fn rtp<T>(status: &RtpDestinationStatus, read: fn(&RtpOutputStatus) -> T) -> Option<T> {
    status.state.as_ref().map(read)
}

/// Metrics of what stations send elsewhere, and of relays.
pub(super) const OUTPUTS: &[Metric] = &[
    Metric::gauge(
        "aulos_push_state",
        "1 for the state of the push with this number, 0 for every other one.",
        Values::Push(|push, series| series.one_of(PUSH_PHASES, Some(PushPhase::name(push.phase)))),
    )
    .labels(&[("state", PUSH_PHASES)]),
    Metric::counter(
        "aulos_push_connects_total",
        "Streams that the server of the push has accepted.",
        Values::Push(|push, series| series.set(push.connects)),
    ),
    Metric::counter(
        "aulos_push_failures_total",
        "Failed, refused or broken connections of the push.",
        Values::Push(|push, series| series.set(push.failures)),
    ),
    Metric::gauge(
        "aulos_rtp_output_failed",
        "1 if the RTP output with this number could not be opened.",
        Values::RtpOutput(|output, series| series.set(output.state.is_none())),
    ),
    Metric::counter(
        "aulos_rtp_output_packets_total",
        "RTP packets: `late` ones are among those that were sent, the others were dropped.",
        Values::RtpOutput(|output, series| {
            let values = rtp(output, |of| [of.packets, of.late, of.skipped, of.unsent]);
            for (result, value) in PACKET_RESULTS.iter().zip(values.into_iter().flatten()) {
                series.with(&[result], value);
            }
        }),
    )
    .labels(&[("result", PACKET_RESULTS)]),
    Metric::gauge(
        "aulos_relay_streams",
        "Active streams of the relay.",
        Values::Relay(|relay, series| series.set(relay["streams"].as_u64())),
    ),
    Metric::counter(
        "aulos_relay_packets_total",
        "RTP packets of the relay.",
        Values::Relay(|relay, series| {
            for direction in RELAY_DIRECTIONS {
                series.with(&[direction], relay[direction].as_u64());
            }
        }),
    )
    .labels(&[("direction", RELAY_DIRECTIONS)]),
    Metric::counter(
        "aulos_relay_lost_packets_total",
        "Packets known to be lost.",
        Values::Relay(|relay, series| series.set(relay["lost"].as_u64())),
    ),
    Metric::counter(
        "aulos_relay_dropped_packets_total",
        "Packets that the relay dropped.",
        Values::Relay(|relay, series| series.set(relay["dropped"].as_u64())),
    ),
    Metric::counter(
        "aulos_relay_foreign_packets_total",
        "Datagrams that belong to no stream of the relay.",
        Values::Relay(|relay, series| series.set(relay["foreign"].as_u64())),
    ),
];

//! Metrics of the server as a whole, its connections, its hooks and its process.

use std::time::{SystemTime, UNIX_EPOCH};

use aulos_control::backend::StationState;
use aulos_engine::codec_guard::CodecLibrary;

use super::table::{Metric, Values};

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The optional parts of this program.
const FEATURES: &str = match (cfg!(feature = "nats"), cfg!(feature = "s3")) {
    (true, true) => "nats,s3",
    (true, false) => "nats",
    (false, true) => "s3",
    (false, false) => "",
};

/// Metrics of the server.
pub(super) const SERVER: &[Metric] = &[
    Metric::gauge(
        "aulos_build_info",
        "Always 1; version and optional parts of the program.",
        Values::Server(|_, series| series.with(&[env!("CARGO_PKG_VERSION"), FEATURES], true)),
    )
    .labels(&[("version", &[]), ("features", &[])]),
    Metric::gauge(
        "aulos_start_time_seconds",
        "Start of the server in seconds since 1970.",
        Values::Server(|scrape, series| series.set(unix_seconds(scrape.server.started))),
    ),
    Metric::gauge(
        "aulos_config_last_reload_successful",
        "1 unless the last reload of the configuration failed.",
        Values::Server(|scrape, series| series.set(scrape.server.reload_succeeded)),
    ),
    Metric::gauge(
        "aulos_config_last_reload_success_timestamp_seconds",
        "When the configuration in use was read, in seconds since 1970.",
        Values::Server(|scrape, series| series.set(unix_seconds(scrape.server.configured_at))),
    ),
    Metric::gauge(
        "aulos_tls_certificate_expiry_timestamp_seconds",
        "When the configured certificate expires, in seconds since 1970.",
        Values::Server(|scrape, series| {
            if let Some(expires) = scrape.server.certificate_expires {
                series.set(unix_seconds(expires));
            }
        }),
    ),
    Metric::gauge(
        "aulos_stations",
        "Stations that run.",
        Values::Server(|scrape, series| {
            let stations = scrape.server.stations.iter();
            let running = stations.filter(|one| one.status.state != StationState::Stopped);
            series.set(running.count());
        }),
    ),
    Metric::gauge(
        "aulos_clients",
        "Connected Snapcast clients.",
        Values::Server(|scrape, series| {
            series.set(scrape.server.stations.iter().map(|one| one.clients).sum::<usize>());
        }),
    ),
    Metric::gauge(
        "aulos_controllers",
        "Connected controllers.",
        Values::Server(|scrape, series| series.set(scrape.server.controllers)),
    ),
    Metric::gauge(
        "aulos_renditions",
        "Further encodings of stations, by purpose.",
        Values::Counters(&[
            ("channel_maps", &["channel_map"]),
            ("client_sounds", &["client_sound"]),
            ("listener_codecs", &["listener_codec"]),
            ("announcement_overlays", &["announcement"]),
        ]),
    )
    .labels(&[("kind", &["channel_map", "client_sound", "listener_codec", "announcement"])]),
    Metric::counter(
        "aulos_codec_panics_total",
        "Panics of codec libraries; each time a new decoder or encoder went on.",
        Values::Counters(CodecLibrary::COUNTERS),
    )
    .labels(&[("library", CodecLibrary::NAMES)]),
    Metric::counter(
        "aulos_log_lines_lost_total",
        "Lines of the log that were lost: they were not read in time, or could not be written.",
        Values::Server(|scrape, series| series.set(scrape.process.lost_log_lines)),
    ),
    Metric::counter(
        "aulos_state_save_failures_total",
        "Failed writes of the state file.",
        Values::Counters(&[("state_not_saved", &[])]),
    ),
    Metric::counter(
        "aulos_events_dropped_total",
        "Events that newer ones displaced from the history.",
        Values::Counters(&[("events_dropped", &[])]),
    ),
    Metric::counter(
        "aulos_history_write_failures_total",
        "Failed writes of the history of loudness.",
        Values::Counters(&[("history_not_written", &[])]),
    ),
    Metric::counter(
        "aulos_history_dropped_total",
        "Parts of the history that were given up, by what they are.",
        Values::Counters(&[
            ("history_blocks_dropped", &["block"]),
            ("history_seconds_dropped", &["second"]),
        ]),
    )
    .labels(&[("part", &["block", "second"])]),
    Metric::counter(
        "aulos_clients_forgotten_total",
        "Clients whose settings were forgotten because there are too many.",
        Values::Counters(&[
            ("clients_evicted", &["evicted"]),
            ("clients_not_remembered", &["not_remembered"]),
            ("clients_not_restored", &["not_restored"]),
        ]),
    )
    .labels(&[("reason", &["evicted", "not_remembered", "not_restored"])]),
];

const PORTS: &[&str] = &["stream", "control", "http", "live_source", "sendspin", "control_plane"];
const HANDSHAKES: &[&str] = &["ok", "invalid", "closed", "timeout"];
const CLOSED: &[&str] = &[
    "peer",
    "network",
    "not_reading",
    "memory",
    "no_request",
    "long_request",
    "protocol_error",
    "displaced",
    "tls_failed",
    "tls_unfinished",
    "no_tls",
    "unauthorized",
    "stalled",
    "undecodable",
    "slow_disk",
];
const REFUSED: &[&str] = &[
    "full",
    "same_address",
    "too_fast",
    "no_tls",
    "new_client",
    "host",
    "cross_site",
    "denied",
    "busy_disk",
    "busy_export",
    "unknown_mount",
    "not_admitted",
    "mount_in_use",
    "content_type",
    "request",
];

const RADIO_FAILURES: &[(&str, &[&str])] = &[
    ("radio_failures_name", &["name"]),
    ("radio_failures_connect", &["connect"]),
    ("radio_failures_timeout", &["timeout"]),
    ("radio_failures_tls", &["tls"]),
    ("radio_failures_status", &["status"]),
    ("radio_failures_redirect", &["redirect"]),
    ("radio_failures_playlist", &["playlist"]),
    ("radio_failures_protocol", &["protocol"]),
    ("radio_failures_broken_off", &["broken_off"]),
    ("radio_failures_not_sound", &["not_sound"]),
];
const RADIO_CAUSES: [&str; 10] = [
    "name",
    "connect",
    "timeout",
    "tls",
    "status",
    "redirect",
    "playlist",
    "protocol",
    "broken_off",
    "not_sound",
];

const PUSH_FAILURES: &[(&str, &[&str])] = &[
    ("push_failures_name", &["name"]),
    ("push_failures_connect", &["connect"]),
    ("push_failures_timeout", &["timeout"]),
    ("push_failures_tls", &["tls"]),
    ("push_failures_password", &["password"]),
    ("push_failures_taken", &["taken"]),
    ("push_failures_refused", &["refused"]),
    ("push_failures_broken_off", &["broken_off"]),
    ("push_failures_not_reading", &["not_reading"]),
];
const PUSH_CAUSES: [&str; 9] = [
    "name",
    "connect",
    "timeout",
    "tls",
    "password",
    "taken",
    "refused",
    "broken_off",
    "not_reading",
];

/// Metrics of connections and requests.
pub(super) const CONNECTIONS: &[Metric] = &[
    Metric::counter(
        "aulos_stream_connections_total",
        "Connections accepted on the stream port.",
        Values::Counters(&[("connections_accepted", &[])]),
    ),
    Metric::counter(
        "aulos_stream_accept_errors_total",
        "Connections that the system could not accept.",
        Values::Counters(&[("accept_errors", &[])]),
    ),
    Metric::gauge(
        "aulos_stream_sessions",
        "Connections of the reactors, by kind.",
        Values::Counters(&[("sessions", &["client"]), ("web_listeners", &["listener"])]),
    )
    .labels(&[("kind", &["client", "listener"])]),
    Metric::counter(
        "aulos_stream_chunks_total",
        "Chunks for clients and listeners: sent, or skipped because the connection was too slow.",
        Values::Counters(&[
            ("chunks_sent", &["sent"]),
            ("chunks_lagged", &["skipped"]),
            ("listener_chunks_lost", &["lost"]),
        ]),
    )
    .labels(&[("result", &["sent", "skipped", "lost"])]),
    Metric::counter(
        "aulos_mount_frames_total",
        "Frames of mounts: passed from a source, encoded, or made silent at a change of source.",
        Values::Counters(&[
            ("mount_frames_passed", &["passed"]),
            ("mount_frames_encoded", &["encoded"]),
            ("mount_frames_silenced", &["silenced"]),
        ]),
    )
    .labels(&[("result", &["passed", "encoded", "silenced"])]),
    Metric::gauge(
        "aulos_mqtt_connected",
        "1 while the MQTT broker is connected.",
        Values::Counters(&[("mqtt_connected", &[])]),
    ),
    Metric::counter(
        "aulos_mqtt_disconnects_total",
        "Connections to the MQTT broker that failed or ended.",
        Values::Counters(&[("mqtt_disconnects", &[])]),
    ),
    Metric::counter(
        "aulos_mqtt_messages_total",
        "Messages published over MQTT, commands carried out and refused, and events dropped.",
        Values::Counters(&[
            ("mqtt_published", &["published"]),
            ("mqtt_commands", &["command"]),
            ("mqtt_refused", &["refused"]),
            ("mqtt_events_dropped", &["dropped"]),
        ]),
    )
    .labels(&[("result", &["published", "command", "refused", "dropped"])]),
    Metric::counter(
        "aulos_talks_ended_total",
        "Talks from a microphone that were refused, or ended before the button was released.",
        Values::Counters(&[
            ("talks_refused_full", &["full"]),
            ("talks_refused_request", &["request"]),
            ("talks_cut_stalled", &["stalled"]),
            ("talks_cut_too_fast", &["too_fast"]),
            ("talks_cut_damaged", &["damaged"]),
            ("talks_cut_too_long", &["too_long"]),
            ("talks_lost", &["lost"]),
        ]),
    )
    .labels(&[(
        "cause",
        &["full", "request", "stalled", "too_fast", "damaged", "too_long", "lost"],
    )]),
    Metric::counter(
        "aulos_title_outputs_total",
        "Titles that were sent to outputs, failed attempts, and connections of outputs that ended.",
        Values::Counters(&[
            ("title_outputs_sent", &["sent"]),
            ("title_outputs_failed", &["failed"]),
        ]),
    )
    .labels(&[("result", &["sent", "failed"])]),
    Metric::counter(
        "aulos_title_followers_refused_total",
        "Followers of titles for which there was no room.",
        Values::Counters(&[("title_followers_refused", &[])]),
    ),
    Metric::counter(
        "aulos_title_save_failures_total",
        "Failed writes of the history of titles.",
        Values::Counters(&[("titles_not_saved", &[])]),
    ),
    Metric::counter(
        "aulos_hls_segments_total",
        "Segments of HLS, one for all renditions of a station.",
        Values::Counters(&[("hls_segments", &[])]),
    ),
    Metric::counter(
        "aulos_hls_filled_segments_total",
        "Segments of HLS with audio that was filled in.",
        Values::Counters(&[("hls_segments_filled", &[])]),
    ),
    Metric::counter(
        "aulos_hls_restarts_total",
        "Discontinuities of HLS while a station runs.",
        Values::Counters(&[("hls_restarts", &[])]),
    ),
    Metric::counter(
        "aulos_hls_encoder_failures_total",
        "Failures of encoders of HLS.",
        Values::Counters(&[("hls_encoder_failures", &[])]),
    ),
    Metric::counter(
        "aulos_mount_splices_total",
        "How often the stream of a mount went on with another source, or after a gap in one.",
        Values::Counters(&[("mount_splices", &[])]),
    ),
    Metric::counter(
        "aulos_mount_sources_refused_total",
        "Sources of mounts that could not be passed, because of their codec, rate or channels.",
        Values::Counters(&[("mount_sources_refused", &[])]),
    ),
    Metric::counter(
        "aulos_mount_chunks_lost_total",
        "Chunks of mounts that found no buffer, or a reactor that does not read.",
        Values::Counters(&[("mount_chunks_lost", &[])]),
    ),
    Metric::counter(
        "aulos_stream_bytes_total",
        "Bytes sent to clients and listeners.",
        Values::Counters(&[("bytes_sent", &[])]),
    ),
    Metric::counter(
        "aulos_stream_sends_total",
        "System calls that sent audio: all, and those without a copy in the kernel.",
        Values::Counters(&[("sends", &["all"]), ("zero_copy_sends", &["zero_copy"])]),
    )
    .labels(&[("kind", &["all", "zero_copy"])]),
    Metric::counter(
        "aulos_connections_closed_total",
        "Connections that ended, by port and reason; `control_plane` is every port but the stream.",
        Values::Counters(&[
            ("sessions_closed", &["stream", "peer"]),
            ("sessions_lost", &["stream", "network"]),
            ("sessions_cut_not_reading", &["stream", "not_reading"]),
            ("sessions_cut_without_hello", &["stream", "no_request"]),
            ("sessions_cut_protocol_error", &["stream", "protocol_error"]),
            ("sessions_cut_tls_failed", &["stream", "tls_failed"]),
            ("sessions_cut_tls_unfinished", &["stream", "tls_unfinished"]),
            ("sessions_cut_plain", &["stream", "no_tls"]),
            ("sessions_cut_unauthorized", &["stream", "unauthorized"]),
            ("controllers_cut_slow", &["control", "not_reading"]),
            ("controllers_cut_memory", &["control", "memory"]),
            ("controllers_cut_long_line", &["control", "long_request"]),
            ("controllers_cut_not_json", &["control", "protocol_error"]),
            ("controllers_cut_unfinished", &["control", "displaced"]),
            ("controllers_cut_without_login", &["control", "unauthorized"]),
            ("http_cut_slow_request", &["http", "no_request"]),
            ("http_cut_long_request", &["http", "long_request"]),
            ("http_cut_unfinished", &["http", "displaced"]),
            ("pages_cut_slow", &["http", "slow_disk"]),
            ("control_cut_tls_unfinished", &["control_plane", "tls_unfinished"]),
            ("control_cut_tls_failed", &["control_plane", "tls_failed"]),
            ("djs_cut_unfinished", &["live_source", "displaced"]),
            ("djs_cut_without_request", &["live_source", "no_request"]),
            ("djs_cut_long_request", &["live_source", "long_request"]),
            ("djs_not_understood", &["live_source", "protocol_error"]),
            ("djs_cut_stalled", &["live_source", "stalled"]),
            ("djs_cut_unplayable", &["live_source", "undecodable"]),
            ("djs_broken", &["live_source", "network"]),
        ]),
    )
    .labels(&[("port", PORTS), ("reason", CLOSED)]),
    Metric::counter(
        "aulos_tls_handshakes_total",
        "TLS handshakes, by port and result: complete, not valid (also of a peer that refuses the \
         certificate with an alert), closed by the peer, or not complete in time; `control_plane` is \
         every port but the stream.",
        Values::Counters(&[
            ("tls_sessions", &["stream", "ok"]),
            ("sessions_cut_tls_failed", &["stream", "invalid"]),
            ("sessions_closed_in_tls_handshake", &["stream", "closed"]),
            ("sessions_cut_tls_unfinished", &["stream", "timeout"]),
            ("control_tls_handshakes", &["control_plane", "ok"]),
            ("control_cut_tls_failed", &["control_plane", "invalid"]),
            ("control_closed_in_tls_handshake", &["control_plane", "closed"]),
            ("control_cut_tls_unfinished", &["control_plane", "timeout"]),
        ]),
    )
    .labels(&[("port", PORTS), ("result", HANDSHAKES)]),
    Metric::counter(
        "aulos_connections_refused_total",
        "Connections and requests that were refused, by port and reason.",
        Values::Counters(&[
            ("connections_refused_same_address", &["stream", "same_address"]),
            ("connections_refused_too_fast", &["stream", "too_fast"]),
            ("clients_refused_new", &["stream", "new_client"]),
            ("controllers_refused", &["control", "full"]),
            ("http_refused", &["http", "full"]),
            ("http_cross_site", &["http", "cross_site"]),
            ("http_wrong_host", &["http", "host"]),
            ("http_listeners_denied", &["http", "denied"]),
            ("pages_refused_busy", &["http", "busy_disk"]),
            ("log_exports_refused", &["http", "busy_export"]),
            ("control_refused_same_address", &["control_plane", "same_address"]),
            ("control_refused_too_fast", &["control_plane", "too_fast"]),
            ("control_refused_plain", &["control_plane", "no_tls"]),
            ("djs_refused", &["live_source", "full"]),
            ("djs_refused_unknown", &["live_source", "unknown_mount"]),
            ("djs_refused_taken", &["live_source", "mount_in_use"]),
            ("djs_refused_type", &["live_source", "content_type"]),
            ("source_connections_refused_request", &["live_source", "request"]),
            ("sendspin_refused", &["sendspin", "full"]),
            ("sendspin_not_admitted", &["sendspin", "not_admitted"]),
        ]),
    )
    .labels(&[("port", PORTS), ("reason", REFUSED)]),
    Metric::counter(
        "aulos_sendspin_artwork_total",
        "Requests of Sendspin players for pictures that were reduced or put off (`limited`), and pictures \
         of stations that could not be decoded (`failed`).",
        Values::Counters(&[
            ("sendspin_artwork_limited", &["limited"]),
            ("sendspin_artwork_failed", &["failed"]),
        ]),
    )
    .labels(&[("result", &["limited", "failed"])]),
    Metric::counter(
        "aulos_log_exports_total",
        "Exports of logs over HTTP.",
        Values::Counters(&[("log_exports", &[])]),
    ),
    Metric::counter(
        "aulos_live_sources_total",
        "Live sources that have been on air.",
        Values::Counters(&[("djs_on_air", &[])]),
    ),
    Metric::counter(
        "aulos_logins_failed_total",
        "Logins with a wrong name or secret (`wrong`), or refused after too many (`slowed`).",
        Values::Counters(&[("logins_failed", &["wrong"]), ("logins_slowed", &["slowed"])]),
    )
    .labels(&[("reason", &["wrong", "slowed"])]),
    Metric::counter(
        "aulos_http_requests_total",
        "HTTP requests by route and status code; `other` is every path without a route.",
        Values::Server(|scrape, series| {
            for request in &scrape.requests {
                series.with(&[&request.route, &request.code.to_string()], request.count);
            }
        }),
    )
    .labels(&[("route", &[]), ("code", &[])]),
    Metric::counter(
        "aulos_rpc_calls_total",
        "Control calls by method; `other` is every unknown one.",
        Values::Server(|scrape, series| {
            for (method, count) in &scrape.server.calls {
                series.with(&[method], *count);
            }
        }),
    )
    .labels(&[("method", &[])]),
    Metric::histogram(
        "aulos_rpc_call_seconds",
        "Time in seconds for which a control call occupied the server.",
        Values::ServerHistogram(|scrape| &scrape.server.call_seconds),
    ),
    Metric::counter(
        "aulos_rpc_refused_total",
        "Control calls that were refused before they were carried out.",
        Values::Counters(&[
            ("rpc_not_understood", &["not_json_rpc"]),
            ("batches_over_budget", &["batch_too_costly"]),
            ("calls_refused_before_login", &["before_login"]),
        ]),
    )
    .labels(&[("reason", &["not_json_rpc", "batch_too_costly", "before_login"])]),
    Metric::counter(
        "aulos_notifications_superseded_total",
        "Notifications that a slow controller did not get because a newer one includes them.",
        Values::Counters(&[("notifications_superseded", &[])]),
    ),
    Metric::counter(
        "aulos_fifo_events_total",
        "FIFOs that were created or opened anew, and paths of FIFOs where another kind of file was found.",
        Values::Counters(&[
            ("fifos_recreated", &["recreated"]),
            ("fifos_reopened", &["reopened"]),
            ("fifos_blocked", &["blocked"]),
        ]),
    )
    .labels(&[("event", &["recreated", "reopened", "blocked"])]),
    Metric::counter(
        "aulos_radio_connection_failures_total",
        "Failed connections of all web radio sources, by cause.",
        Values::Counters(RADIO_FAILURES),
    )
    .labels(&[("cause", &RADIO_CAUSES)]),
    Metric::counter(
        "aulos_push_connection_failures_total",
        "Failed connections of all pushes, by cause.",
        Values::Counters(PUSH_FAILURES),
    )
    .labels(&[("cause", &PUSH_CAUSES)]),
];

const RESULTS: &[&str] = &["delivered", "failed", "dropped"];

/// Metrics of hooks.
pub(super) const HOOKS: &[Metric] = &[
    Metric::counter(
        "aulos_hook_events_total",
        "Events of the hook: delivered, given up (`failed`), or dropped from a full queue.",
        Values::Hook(|hook, series| {
            for (result, count) in RESULTS.iter().zip(hook.events) {
                series.with(&[result], count);
            }
        }),
    )
    .labels(&[("result", RESULTS)]),
    Metric::counter(
        "aulos_hook_retries_total",
        "Repeated attempts of the hook.",
        Values::Hook(|hook, series| series.set(hook.retries)),
    ),
    Metric::gauge(
        "aulos_hook_waiting_events",
        "Events that wait for the hook.",
        Values::Hook(|hook, series| series.set(hook.waiting)),
    ),
];

/// Metrics of the process, under the names that all programs use.
pub(super) const PROCESS: &[Metric] = &[
    Metric::counter(
        "process_cpu_seconds_total",
        "CPU time of the process in seconds.",
        Values::Server(|scrape, series| series.set(scrape.process.cpu_seconds)),
    ),
    Metric::gauge(
        "process_resident_memory_bytes",
        "Resident memory in bytes.",
        Values::Server(|scrape, series| series.set(scrape.process.resident_bytes)),
    ),
    Metric::gauge(
        "process_virtual_memory_bytes",
        "Virtual memory in bytes.",
        Values::Server(|scrape, series| series.set(scrape.process.virtual_bytes)),
    ),
    Metric::gauge(
        "process_open_fds",
        "Open file descriptors.",
        Values::Server(|scrape, series| series.set(scrape.process.open_fds)),
    ),
    Metric::gauge(
        "process_max_fds",
        "Limit of open file descriptors.",
        Values::Server(|scrape, series| series.set(scrape.process.max_fds)),
    ),
    Metric::gauge(
        "process_threads",
        "Threads of the process.",
        Values::Server(|scrape, series| series.set(scrape.process.threads)),
    ),
    Metric::counter(
        "aulos_thread_cpu_seconds_total",
        "CPU time in seconds of the threads with this name.",
        Values::Server(|scrape, series| {
            for (name, seconds) in &scrape.process.thread_cpu_seconds {
                series.with(&[name], *seconds);
            }
        }),
    )
    .labels(&[("thread", &[])]),
];

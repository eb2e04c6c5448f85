//! Metrics of clients: of each one while there are few, of all of a station always.

use aulos_control::ClientSnapshot;
use aulos_control::backend::ConnectionHealth;

use super::table::{Metric, Values};

/// Minutes in milliseconds and microseconds are far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "see above")]
const fn seconds(value: i64, per_second: f64) -> f64 {
    value as f64 / per_second
}

/// A figure of a client's health, absent in its first seconds.
fn health<T>(one: &ClientSnapshot, read: impl Fn(&ConnectionHealth) -> T) -> Option<T> {
    one.client.health.as_ref().map(read)
}

/// Metrics of clients.
pub(super) const CLIENTS: &[Metric] = &[
    Metric::histogram(
        "aulos_station_client_ahead_seconds",
        "Audio that clients had in reserve in seconds, observed with each report about a client.",
        Values::StationHistogram(|one| &one.activity.client_ahead),
    ),
    Metric::histogram(
        "aulos_station_client_round_trip_seconds",
        "Round-trip times to clients in seconds, observed with each report about a client.",
        Values::StationHistogram(|one| &one.activity.client_round_trip),
    ),
    Metric::gauge(
        "aulos_client_info",
        "Always 1; the client's name, group, station and version.",
        Values::Client(|one, series| {
            let client = &one.client;
            let name = if client.name.is_empty() { &client.host_name } else { &client.name };
            series.with(&[name, &one.group, &one.station, &client.version], true);
        }),
    )
    .labels(&[("name", &[]), ("group", &[]), ("station", &[]), ("version", &[])]),
    Metric::gauge(
        "aulos_client_volume_ratio",
        "Volume of the client, 0 to 1.",
        Values::Client(|one, series| series.set(f64::from(one.client.volume) / 100.0)),
    ),
    Metric::gauge(
        "aulos_client_muted",
        "1 while the client is muted.",
        Values::Client(|one, series| series.set(one.client.muted)),
    ),
    Metric::gauge(
        "aulos_client_ahead_seconds",
        "Audio that the client has in reserve in seconds; below 0 it plays late.",
        Values::Client(|one, series| {
            let ahead = health(one, |health| health.buffered).flatten();
            series.set(ahead.map(|ahead| seconds(ahead.as_millis(), 1e3)));
        }),
    ),
    Metric::gauge(
        "aulos_client_round_trip_seconds",
        "Smoothed round-trip time in seconds.",
        Values::Client(|one, series| {
            let trip = health(one, |health| health.round_trip.as_micros());
            series.set(trip.map(|us| seconds(us, 1e6)));
        }),
    ),
    Metric::gauge(
        "aulos_client_sync_error_seconds",
        "How far ahead of its time the client plays in seconds, as it reports itself.",
        Values::Client(|one, series| {
            let report = health(one, |health| health.report).flatten();
            let error = report.and_then(|report| report.sync_error);
            series.set(error.map(|error| seconds(error.as_micros(), 1e6)));
        }),
    ),
    Metric::gauge(
        "aulos_client_unsent_bytes",
        "Bytes that wait in this machine.",
        Values::Client(|one, series| series.set(health(one, |health| health.unsent))),
    ),
    Metric::counter(
        "aulos_client_skipped_chunks_total",
        "Chunks skipped because the client was too slow, in this connection.",
        Values::Client(|one, series| series.set(health(one, |health| health.skipped))),
    ),
    Metric::counter(
        "aulos_client_retransmits_total",
        "Retransmitted segments, in this connection.",
        Values::Client(|one, series| series.set(health(one, |health| health.retransmitted))),
    ),
];

//! Metrics of the folders and storages to which HLS is written.

use aulos_control::StationSnapshot;
use aulos_control::backend::HlsTargetKind;
use aulos_session::hls::PublisherStatus;

use super::table::{Metric, MetricValue, Series, Values};

/// In the order of [`HlsTargetKind::ALL`].
const KINDS: [&str; HlsTargetKind::ALL.len()] = ["folder", "s3"];

/// Adds a value for each target.
fn each<T: MetricValue>(
    one: &StationSnapshot,
    series: &mut Series<'_>,
    read: impl Fn(&PublisherStatus) -> T,
) {
    for target in &one.status.hls {
        series.with(&[target.kind.name()], read(&target.status));
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&StationSnapshot, &mut Series<'_>),
) -> Metric {
    Metric::gauge(name, help, Values::Station(read)).labels(&[("target", &KINDS)])
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&StationSnapshot, &mut Series<'_>),
) -> Metric {
    Metric::counter(name, help, Values::Station(read)).labels(&[("target", &KINDS)])
}

/// Metrics of the folders and storages to which HLS is written.
pub(super) const TARGETS: &[Metric] = &[
    gauge(
        "aulos_hls_target_failing",
        "1 while HLS cannot be written to the target.",
        |one, series| each(one, series, |status| status.error.is_some()),
    ),
    gauge(
        "aulos_hls_target_age_seconds",
        "Time in seconds since the playlists there were complete.",
        |one, series| {
            let age = |at| one.status.at.since(at).as_secs_f64();
            each(one, series, |status| status.complete_at.map(age));
        },
    ),
    counter(
        "aulos_hls_target_segments_total",
        "Segments written, of all renditions.",
        |one, series| each(one, series, |status| status.segments),
    ),
    counter("aulos_hls_target_bytes_total", "Bytes written.", |one, series| {
        each(one, series, |status| status.bytes);
    }),
    counter(
        "aulos_hls_target_removed_total",
        "Segments removed some time after they left the playlists.",
        |one, series| each(one, series, |status| status.removed),
    ),
    counter("aulos_hls_target_failures_total", "Failed attempts.", |one, series| {
        each(one, series, |status| status.failures);
    }),
    counter(
        "aulos_hls_target_dropped_segments_total",
        "Segments that left the playlists before they could be written.",
        |one, series| each(one, series, |status| status.dropped),
    ),
];

//! Metrics of sources.

use aulos_control::backend::{FailureCounts, HlsSourceState, InputState, Loudness, RadioState};
use aulos_core::{Lufs, Span};
use aulos_io::srt::SrtFeederState;
use aulos_session::rtp::RtpInputStatus;
use aulos_session::sendspin::SendspinInputStatus;

use super::table::{Metric, Series, SourceView, Values};

const STATES: &[&str] =
    &["disabled", "connecting", "priming", "healthy", "suspect", "failed", "backoff"];
const REASONS: &[&str] = &["late", "silent", "dc", "dead_channel", "error", "flap"];
const RESULTS: &[&str] =
    &["received", "lost", "recovered", "late", "duplicate", "undecodable", "dropped"];

const HLS_RESULTS: &[&str] = &["played", "lost"];

const SRT_RESULTS: &[&str] =
    &["received", "lost", "retransmitted", "dropped", "duplicate", "unreadable", "no_room"];

const SENDSPIN_RESULTS: &[&str] = &["played", "late", "early", "repeated", "damaged", "dropped"];
const SENDSPIN_FAULTS: &[&str] = &["forged", "malformed"];

/// The windows of EBU R 128.
pub(super) const WINDOWS: &[&str] = &["momentary", "short_term", "integrated"];

/// Each window's loudness. A window that is full and has no value was silent.
pub(super) fn windows(loudness: &Loudness) -> [(&'static str, Option<f64>); 3] {
    let value = |value: Option<Lufs>, full: Span| {
        let silence = (loudness.measured >= full).then_some(f64::NEG_INFINITY);
        value.map(Lufs::get).or(silence)
    };
    let momentary = value(loudness.momentary, Span::from_millis(400));
    let short_term = value(loudness.short_term, Span::from_secs(3));
    [
        ("momentary", momentary),
        ("short_term", short_term),
        // Without a gated block there is no integrated loudness.
        ("integrated", loudness.integrated.map(Lufs::get)),
    ]
}

fn radio<'a>(view: &SourceView<'a>) -> Option<&'a RadioState> {
    view.station.status.radios.get(view.index)?.as_ref()
}

fn hls<'a>(view: &SourceView<'a>) -> Option<&'a HlsSourceState> {
    radio(view)?.hls.as_ref()
}

fn rtp(view: &SourceView<'_>) -> Option<RtpInputStatus> {
    *view.station.status.rtp_inputs.get(view.index)?
}

fn srt(view: &SourceView<'_>) -> Option<SrtFeederState> {
    *view.station.status.srt_inputs.get(view.index)?
}

fn sendspin<'a>(view: &SourceView<'a>) -> Option<&'a SendspinInputStatus> {
    view.station.status.sendspin_inputs.get(view.index)?.as_ref()
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&SourceView<'_>, &mut Series<'_>),
) -> Metric {
    Metric::gauge(name, help, Values::Source(read))
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&SourceView<'_>, &mut Series<'_>),
) -> Metric {
    Metric::counter(name, help, Values::Source(read))
}

/// Metrics of sources.
pub(super) const SOURCES: &[Metric] = &[
    gauge(
        "aulos_source_state",
        "1 for the source's health, 0 for every other one.",
        |view, series| {
            let health = view.station.source_health(view.index);
            series.one_of(STATES, health.map(|(state, _)| state));
        },
    )
    .labels(&[("state", STATES)]),
    gauge("aulos_source_active", "1 for the source on air.", |view, series| {
        series.set(view.station.status.machine.active == Some(view.index));
    }),
    gauge("aulos_source_preferred", "1 for a source that a controller prefers.", |view, series| {
        series.set(view.station.status.machine.preference.map(|one| one.input) == Some(view.index));
    }),
    gauge(
        "aulos_source_scheduled",
        "1 for a source to which the schedule gives precedence.",
        |view, series| {
            series.set(view.station.status.machine.scheduled == Some(view.index));
        },
    ),
    gauge(
        "aulos_source_priority",
        "Place of the source in the order of priority, from 1.",
        |view, series| series.set(view.index + 1),
    ),
    counter("aulos_source_failures_total", "Failures of the source.", |view, series| {
        if let Some(input) = view.station.status.inputs().get(view.index) {
            let FailureCounts { late, silent, dc, dead_channel, error, flaps, .. } = input.failures;
            let counts = [late, silent, dc, dead_channel, error, flaps];
            for (reason, count) in REASONS.iter().zip(counts) {
                series.with(&[reason], count);
            }
        }
    })
    .labels(&[("reason", REASONS)]),
    gauge(
        "aulos_source_loudness_lufs",
        "Loudness of the source (EBU R 128) in LUFS, -Inf for silence.",
        |view, series| {
            if let Some(InputState { loudness, .. }) = view.station.status.inputs().get(view.index)
            {
                for (window, value) in windows(loudness) {
                    series.with(&[window], value);
                }
            }
        },
    )
    .labels(&[("window", WINDOWS)]),
    counter(
        "aulos_radio_connects_total",
        "Connections of a web radio source that delivered a stream.",
        |view, series| series.set(radio(view).map(|radio| radio.connects)),
    ),
    counter(
        "aulos_radio_failures_total",
        "Failed or broken connections of a web radio source.",
        |view, series| series.set(radio(view).map(|radio| radio.failures)),
    ),
    counter("aulos_hls_source_segments_total", "Segments of a source over HLS.", |view, series| {
        if let Some(hls) = hls(view) {
            for (result, value) in HLS_RESULTS.iter().zip([hls.counts.segments, hls.counts.lost]) {
                series.with(&[result], value);
            }
        }
    })
    .labels(&[("result", HLS_RESULTS)]),
    gauge(
        "aulos_hls_source_reserve_seconds",
        "Sound in seconds that a source over HLS holds in reserve.",
        |view, series| series.set(hls(view).map(|hls| hls.reserve.as_secs_f64())),
    ),
    gauge("aulos_live_source_connected", "1 while a live source sends.", |view, series| {
        let live = view.station.status.live_inputs.get(view.index);
        series.set(live.and_then(Option::as_ref).map(|live| live.on_air));
    }),
    counter("aulos_rtp_input_packets_total", "Packets of an RTP source.", |view, series| {
        if let Some(status) = rtp(view) {
            let of = status.counts;
            let recovered = of.recovered_red + of.recovered_fec;
            let dropped = of.skipped + of.no_room;
            let values =
                [of.received, of.lost, recovered, of.late, of.duplicates, of.undecodable, dropped];
            for (result, value) in RESULTS.iter().zip(values) {
                series.with(&[result], value);
            }
        }
    })
    .labels(&[("result", RESULTS)]),
    gauge(
        "aulos_rtp_input_jitter_seconds",
        "Interarrival jitter of an RTP source (RFC 3550) in seconds.",
        |view, series| series.set(rtp(view).map(|status| status.jitter.as_secs_f64())),
    ),
    gauge(
        "aulos_srt_input_connected",
        "1 while a source over SRT is connected.",
        |view, series| {
            series.set(srt(view).map(|status| status.link.srt.peer.is_some()));
        },
    ),
    counter("aulos_srt_input_packets_total", "Packets of a source over SRT.", |view, series| {
        if let Some(status) = srt(view) {
            let of = status.link.srt;
            let values = [
                of.packets,
                of.lost,
                of.retransmitted,
                of.dropped,
                of.duplicates,
                of.unreadable,
                status.overflown,
            ];
            for (result, value) in SRT_RESULTS.iter().zip(values) {
                series.with(&[result], value);
            }
        }
    })
    .labels(&[("result", SRT_RESULTS)]),
    gauge(
        "aulos_srt_input_round_trip_seconds",
        "Round-trip time of a source over SRT in seconds.",
        |view, series| {
            let connected = srt(view).filter(|status| status.link.srt.peer.is_some());
            series.set(connected.map(|status| status.link.srt.round_trip.as_secs_f64()));
        },
    ),
    counter(
        "aulos_srt_input_refused_total",
        "Callers that a source over SRT has refused.",
        |view, series| series.set(srt(view).map(|status| status.link.srt.refused)),
    ),
    gauge(
        "aulos_sendspin_input_connected",
        "1 while a Sendspin server has the source.",
        |view, series| series.set(sendspin(view).map(|status| status.server.is_some())),
    ),
    counter("aulos_sendspin_input_chunks_total", "Chunks of a Sendspin source.", |view, series| {
        if let Some(status) = sendspin(view) {
            let of = status.counts;
            let values = [of.played, of.late, of.early, of.repeated, of.damaged, of.dropped];
            for (result, value) in SENDSPIN_RESULTS.iter().zip(values) {
                series.with(&[result], value);
            }
        }
    })
    .labels(&[("result", SENDSPIN_RESULTS)]),
    counter(
        "aulos_sendspin_input_gaps_total",
        "Gaps of a Sendspin source that were filled with silence.",
        |view, series| series.set(sendspin(view).map(|status| status.counts.gaps)),
    ),
    counter(
        "aulos_sendspin_input_messages_bad_total",
        "Messages to a Sendspin source that do not decrypt (`forged`) or make no sense.",
        |view, series| {
            if let Some(status) = sendspin(view) {
                let values = [status.counts.forged, status.counts.malformed];
                for (reason, value) in SENDSPIN_FAULTS.iter().zip(values) {
                    series.with(&[reason], value);
                }
            }
        },
    )
    .labels(&[("reason", SENDSPIN_FAULTS)]),
    counter(
        "aulos_sendspin_input_refused_total",
        "Servers that a Sendspin source has refused because another one was playing.",
        |view, series| series.set(sendspin(view).map(|status| status.counts.refused)),
    ),
];

//! The status of web radio sources, as JSON.

use serde_json::{Value, json};

use crate::backend::{HlsSourceState, RadioState};
use crate::stations::titles::json::metadata;

/// The status of a web radio source.
pub(crate) fn status_json(radio: &RadioState) -> Value {
    let about = &radio.station_info;
    json!({
        "phase": radio.phase.name(),
        "url": about.url,
        "name": about.name,
        "genre": about.genre,
        "description": about.description,
        "bitrate_kbps": about.bitrate,
        "content_type": about.content_type,
        "codec": radio.info.map(|info| info.codec),
        "sample_rate": radio.info.map(|info| info.rate.hz()),
        "channels": radio.info.map(|info| info.layout.channels()),
        "title": radio.title.as_ref().map(metadata),
        "connects": radio.connects,
        "failures": radio.failures,
        "redirects": radio.redirects,
        "resyncs": radio.resyncs,
        "damaged_packets": radio.damaged,
        "codec_panics": radio.codec_panics,
        "hls": radio.hls.as_ref().map(hls_json),
    })
}

fn hls_json(hls: &HlsSourceState) -> Value {
    json!({
        "variant_kbps": hls.counts.bandwidth.map(|bits| bits / 1_000),
        "target_duration_s": hls.counts.target.as_millis() / 1_000,
        "reserve_ms": hls.reserve.as_millis(),
        "segments": hls.counts.segments,
        "lost_segments": hls.counts.lost,
        "discontinuities": hls.counts.discontinuities,
        "underruns": hls.dry_runs,
        "drift_ppm": hls.pace_ppm.round(),
    })
}

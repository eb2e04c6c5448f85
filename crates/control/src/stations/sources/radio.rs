//! The status of web radio sources, as JSON.

use serde_json::{Value, json};

use crate::backend::RadioState;
use crate::stations::title_json::metadata;

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
    })
}

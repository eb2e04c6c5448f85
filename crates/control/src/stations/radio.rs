//! Metadata and status of web radio sources.

use aulos_proto::titles::TrackMetadata;
use serde_json::{Value, json};

use crate::backend::{RadioState, StationReport};
use crate::stations::title_json::metadata;

/// The title of the active source, where that is web radio or a live input.
pub(crate) fn title(status: &StationReport) -> Option<TrackMetadata> {
    let active = status.machine.active?;
    let radio = status.radios.get(active).and_then(Option::as_ref).map(|radio| &radio.title);
    let dj = status.live_inputs.get(active).and_then(Option::as_ref).map(|dj| &dj.title);
    radio.or(dj)?.clone()
}

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

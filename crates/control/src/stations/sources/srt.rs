//! The status of sources over SRT, as JSON.

use aulos_io::srt::SrtFeederState;
use serde_json::{Value, json};

/// The status of a source over SRT.
pub(crate) fn status_json(state: &SrtFeederState) -> Value {
    let SrtFeederState { link, info, overflown } = state;
    let srt = &link.srt;
    let round_trip = srt.peer.map(|_| srt.round_trip.as_micros() / 100);
    #[allow(clippy::cast_precision_loss, reason = "at most ten seconds")]
    let round_trip = round_trip.map(|tenths| tenths as f64 / 10.0);
    json!({
        "peer": srt.peer.map(|peer| peer.to_string()),
        "codec": info.map(|info| info.codec),
        "sample_rate": info.map(|info| info.rate.hz()),
        "channels": info.map(|info| info.layout.channels()),
        "round_trip_ms": round_trip,
        "packets": srt.packets,
        "bytes": srt.bytes,
        "lost": srt.lost,
        "retransmitted": srt.retransmitted,
        "dropped": srt.dropped,
        "duplicates": srt.duplicates,
        "unreadable": srt.unreadable,
        "no_room": overflown,
        "invalid": srt.invalid,
        "refused": srt.refused,
        "last_refused": link.refusal.map(|(from, code)| json!({
            "from": from.to_string(),
            "code": code.0,
            "reason": code.to_string(),
        })),
        "last_end": link.problem.map(|problem| problem.to_string()),
    })
}

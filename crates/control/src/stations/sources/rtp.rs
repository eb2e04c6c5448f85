//! The status of RTP sources and outputs, as JSON.

use aulos_config::RtpOutputSettings;
use aulos_core::Span;
use aulos_session::rtp::RtpInputStatus;
use serde_json::{Value, json};

use crate::backend::RtpDestinationStatus;

/// The status of an RTP source.
pub(crate) fn source_json(state: &RtpInputStatus) -> Value {
    let counts = &state.counts;
    json!({
        "from": state.from.map(|from| from.to_string()),
        "ssrc": state.ssrc,
        "received": counts.received,
        "lost": counts.lost,
        "recovered": counts.recovered_red + counts.recovered_fec,
        "recovered_by": { "red": counts.recovered_red, "fec": counts.recovered_fec },
        "late": counts.late,
        "duplicates": counts.duplicates,
        "reordered": counts.reordered,
        "concealed_frames": counts.concealed,
        "stretched_frames": counts.stretched,
        "silent_frames": counts.left_out,
        "skipped": counts.skipped,
        "gaps": counts.gaps,
        "jitter_ms": millis(state.jitter),
        "delay_ms": millis(state.wait),
        "changes": counts.changes,
        "undecodable": counts.undecodable,
        "codec_panics": counts.codec_panics,
        "overflown_frames": counts.overflown,
        "no_room": counts.no_room,
        "refused": counts.refused,
        "other_types": counts.other_types,
        "other_senders": counts.other_senders,
        "other_rtcp": counts.other_rtcp,
        "forged_byes": counts.forged_byes,
    })
}

/// The status of an RTP output.
pub(crate) fn output_json(config: &RtpOutputSettings, sent: &RtpDestinationStatus) -> Value {
    let state = sent.state.unwrap_or_default();
    json!({
        "dest": format!("rtp://{}", config.dest),
        "encoding": config.encoding.to_string(),
        "payload_type": config.payload_type,
        "sap": config.sap,
        "state": if sent.state.is_some() { "sending" } else { "waiting" },
        "reason": sent.problem,
        "packets": state.packets,
        "bytes": state.bytes,
        "late": state.late,
        "skipped": state.skipped,
        "gaps": state.gaps,
        "unsent": state.unsent,
        "reported": state.receiver_report.map(|block| json!({
            "lost": block.cumulative_lost,
            "fraction_lost": f64::from(block.fraction_lost) / 256.0,
            "jitter": block.jitter,
        })),
        "round_trip_ms": state.round_trip.map(millis),
    })
}

/// Milliseconds, rounded to hundredths.
fn millis(span: Span) -> f64 {
    (span.as_secs_f64() * 1e5).round() / 100.0
}

//! What a player has to say, as text and as JSON.

use aulos_core::{Ppm, Span};
use aulos_proto::snap::client::DisconnectReason;
use aulos_session::player::PlayerStatus;
use serde_json::{Value, json};

use crate::thread::PlayerEvent;

/// A status as one line.
#[must_use]
pub fn status_line(status: &PlayerStatus) -> String {
    let stats = &status.playback;
    let dash = || "-".to_owned();
    let state = match (status.is_connected, status.is_playing) {
        (true, true) => "playing",
        (true, false) => "waiting",
        (false, true) => "reconnecting, playing",
        (false, false) => "not connected",
    };
    let error = status.sync_error.map_or_else(dash, |span| format!("{:+.0}", micros(span)));
    let delay = status.device_delay.map_or_else(dash, |span| format!("{:.1}", millis(span)));
    let clock = match (status.offset, status.offset_error) {
        (Some(offset), Some(error)) => {
            format!("{:+.3} ms +-{:.0} us", millis(offset), micros(error))
        }
        _ => dash(),
    };
    format!(
        "{state}: error {error} us; server's clock {clock}, {:+.2} ppm; device delay {delay} ms, \
         {:+.2} ppm; queue {} chunks; cuts {}, underruns {}, late {}, damaged {}, device stops {}, device underruns {}",
        ppm(status.server_drift),
        ppm(status.device_drift),
        status.queued,
        stats.cuts,
        stats.underruns + stats.jumps,
        stats.late,
        stats.damaged,
        status.device_slips,
        status.device_underruns,
    )
}

/// A status as a JSON object. Values that are not known are null.
#[must_use]
pub fn status_json(status: &PlayerStatus) -> Value {
    let stats = &status.playback;
    json!({
        "connected": status.is_connected,
        "playing": status.is_playing,
        "codec": status.stream.map(|stream| stream.codec.to_string()),
        "spec": status.stream.map(|stream| stream.spec.to_string()),
        "error_us": status.sync_error.map(micros),
        "offset_us": status.offset.map(micros),
        "offset_error_us": status.offset_error.map(micros),
        "network_delay_us": status.network_delay.map(micros),
        "server_drift_ppm": ppm(status.server_drift),
        "device_drift_ppm": ppm(status.device_drift),
        "device_delay_ms": status.device_delay.map(millis),
        "rate_ppm": ppm(status.rate),
        "queued": status.queued,
        "received": status.received,
        "no_room": status.no_room,
        "starts": stats.starts,
        "cuts": stats.cuts,
        "underruns": stats.underruns,
        "jumps": stats.jumps,
        "late": stats.late,
        "damaged": stats.damaged,
        "codec_panics": stats.codec_panics,
        "lost_events": status.lost_events,
        "device_stops": status.device_slips,
        "device_underruns": status.device_underruns,
    })
}

/// An event as a message; `None` for one that is of no interest to people. `server` is the address.
#[must_use]
pub fn event_message(event: &PlayerEvent, server: &str) -> Option<String> {
    Some(match event {
        PlayerEvent::Found { name: Some(name), address } => format!("found `{name}` at {address}"),
        PlayerEvent::Found { name: None, address } => format!("found a server at {address}"),
        PlayerEvent::Searching(message) => message.clone(),
        PlayerEvent::Connected => format!("connected to {server}"),
        PlayerEvent::Unreachable(error) => format!("{server}: {error}; trying again"),
        PlayerEvent::Rejected(reason) => {
            format!("{server}: {}; trying again", reason_text(*reason))
        }
        PlayerEvent::Stream(stream) => {
            format!("the stream is {} {}", stream.codec, stream.spec)
        }
        PlayerEvent::Unsupported(why) => format!("{server}: {why}"),
        PlayerEvent::Settings(settings) => format!(
            "volume {} %{}, buffer {} ms, latency {} ms",
            settings.volume,
            if settings.muted { ", muted" } else { "" },
            settings.buffer.as_millis(),
            settings.latency.as_millis(),
        ),
        PlayerEvent::DevicePlaying(name) => format!("playing on {name}"),
        PlayerEvent::DeviceFailed(error) => format!("{error}; trying again"),
        PlayerEvent::Sounding(_) => return None,
    })
}

fn reason_text(reason: DisconnectReason) -> String {
    match reason {
        DisconnectReason::NoAnswer => "the server does not answer within 2 s".to_owned(),
        DisconnectReason::Refused(401 | 403) => "the server requires a login that it accepts; put \
             USER:PASSWORD@ in front of the host"
            .to_owned(),
        DisconnectReason::Refused(code) => format!("the server refuses this player (code {code})"),
        DisconnectReason::TooLarge => "the server has sent a message that is too large".to_owned(),
        DisconnectReason::Malformed => "the server has sent a malformed message".to_owned(),
        DisconnectReason::OutOfOrder => {
            "the server has sent messages in the wrong order".to_owned()
        }
        DisconnectReason::BadType | _ => {
            "the server has sent an unknown message; it may not be a Snapcast server".to_owned()
        }
    }
}

fn micros(span: Span) -> f64 {
    rounded(span.as_secs_f64() * 1e6, 10.0)
}

fn millis(span: Span) -> f64 {
    rounded(span.as_secs_f64() * 1e3, 1e3)
}

fn ppm(drift: Ppm) -> f64 {
    f64::from(drift.as_ppb()) / 1e3
}

/// Without digits that say nothing.
fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

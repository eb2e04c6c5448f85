//! Markers: a call names a recorded frame.

use std::sync::Arc;
use std::time::Duration;

use aulos_core::MediaTime;
use aulos_files::record::{self, MAX_LABEL_BYTES, Marker, MarkerRequest};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::CallContext;
use super::methods::{MethodResult, invalid_param, text_param};
use super::recordings::{Meant, meant, when};
use super::rpc::internal_error;

/// `Aulos.AddMarker {label}`. The recorder's thread writes the marker, and the answer waits until
/// it is on disk; [`PendingMarkers`] waits without a lock.
pub(super) fn add(state: &mut CallContext<'_>, params: &Value) -> MethodResult {
    let label = text_param(params, "label")?;
    if !record::is_valid_label(label) {
        let kind = format!("a text of 1 to {MAX_LABEL_BYTES} bytes without control characters");
        return Err(invalid_param("label", &kind));
    }
    let meant = meant(state.inner, params)?;
    let when = when(params)?;
    let asked = meant.into_iter().map(|recorder| {
        let asked = state.control.backend.mark(recorder.number, recorder.index, label, when);
        (recorder, asked)
    });
    *state.markers = Some(PendingMarkers { asked: asked.collect() });
    Ok(Value::Null)
}

/// Markers that are not on disk yet.
pub(super) struct PendingMarkers {
    asked: Vec<(Meant, Result<Arc<MarkerRequest>, String>)>,
}

impl PendingMarkers {
    /// The result of all markers, once each is known or after [`PATIENCE`].
    pub(super) async fn answer(self) -> MethodResult {
        let deadline = Instant::now() + PATIENCE;
        let waits = |(_, asked): &(Meant, Result<Arc<MarkerRequest>, String>)| {
            asked.as_ref().is_ok_and(|request| request.outcome().is_none())
        };
        while self.asked.iter().any(waits) && Instant::now() < deadline {
            sleep(POLL).await;
        }
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for (recorder, asked) in self.asked {
            match outcome(asked) {
                Ok(marker) => done.push(shape(&recorder, &marker)),
                Err(why) => refused.push((recorder.name, why)),
            }
        }
        if let (true, Some((name, why))) = (done.is_empty(), refused.first()) {
            return Err(internal_error(format!("{name}: {why}")));
        }
        let refused = refused.iter().map(|(name, why)| json!({ "recorder": name, "reason": why }));
        let refused: Vec<Value> = refused.collect();
        Ok(json!({ "recorders": done, "refused": refused }))
    }
}

fn outcome(asked: Result<Arc<MarkerRequest>, String>) -> Result<Marker, String> {
    match asked?.outcome() {
        Some(Ok(marker)) => Ok(marker),
        Some(Err(refused)) => Err(refused.to_string()),
        None => Err(format!(
            "the disk has not taken the marker within {} s; it may still do so",
            PATIENCE.as_secs()
        )),
    }
}

fn shape(recorder: &Meant, marker: &Marker) -> Value {
    let MediaTime(frame) = marker.frame;
    json!({
        "recorder": recorder.name,
        "station": recorder.station,
        "file": marker.path.display().to_string(),
        "frame": frame,
        "position": marker.position.0,
        "time": record::rfc3339(marker.utc),
        "sample_rate": recorder.hz,
    })
}

/// How long a call waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// Polling interval; the recorder's thread works some twenty times a second.
const POLL: Duration = Duration::from_millis(10);

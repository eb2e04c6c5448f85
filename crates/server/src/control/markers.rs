//! Markers: a call labels a recorded frame.

use std::sync::Arc;
use std::time::Duration;

use aulos_core::MediaTime;
use aulos_files::record::{self, MAX_LABEL_BYTES, Marker, MarkerRequest};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::context::CallContext;
use super::params::Params;
use super::recordings::{self, SelectedRecorder};
use super::rpc::MethodResult;

/// `Aulos.AddMarker`. The recorder's thread writes the marker, and the answer waits until it is on
/// disk; [`PendingMarkers`] waits without a lock.
pub(super) fn add(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let label = params.text("label")?;
    if !record::is_valid_label(label) {
        let expected = format!("a text of 1 to {MAX_LABEL_BYTES} bytes without control characters");
        return Err(params.invalid("label", &expected));
    }
    let selected = recordings::selected_recorders(context.inner, params)?;
    let when = recordings::command_time(params)?;
    let requests = selected.into_iter().map(|recorder| {
        let backend = &context.control.backend;
        let request = backend.mark(recorder.number, recorder.index, label, when);
        (recorder, request)
    });
    let pending = PendingMarkers { requests: requests.collect() };
    context.outcome.later_answer = Some(Box::pin(pending.answer()));
    Ok(Value::Null)
}

/// Markers that are not on disk yet.
struct PendingMarkers {
    requests: Vec<(SelectedRecorder, Result<Arc<MarkerRequest>, String>)>,
}

impl PendingMarkers {
    /// The result of all markers, once each is known or after [`WRITE_TIMEOUT`].
    async fn answer(self) -> MethodResult {
        let deadline = Instant::now() + WRITE_TIMEOUT;
        while self.is_pending() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        recordings::answer(self.requests.into_iter().map(|(recorder, request)| {
            let marker = outcome(request).map(|marker| marker_json(&recorder, &marker));
            (recorder.name, marker)
        }))
    }

    fn is_pending(&self) -> bool {
        let mut accepted = self.requests.iter().filter_map(|(_, request)| request.as_ref().ok());
        accepted.any(|request| request.outcome().is_none())
    }
}

fn outcome(request: Result<Arc<MarkerRequest>, String>) -> Result<Marker, String> {
    match request?.outcome() {
        Some(Ok(marker)) => Ok(marker),
        Some(Err(refused)) => Err(refused.to_string()),
        None => Err(format!(
            "the marker was not written to the disk within {} s; it may still be written",
            WRITE_TIMEOUT.as_secs()
        )),
    }
}

fn marker_json(recorder: &SelectedRecorder, marker: &Marker) -> Value {
    let MediaTime(frame) = marker.frame;
    json!({
        "recorder": recorder.name,
        "station": recorder.station,
        "file": marker.path.display().to_string(),
        "frame": frame,
        "position": marker.position.0,
        "time": record::rfc3339(marker.utc),
        "sample_rate": recorder.rate.hz(),
    })
}

/// How long a call waits for the disk.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Polling interval; the recorder's thread works some twenty times a second.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

//! Markers: a call labels a recorded frame.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use aulos_core::MediaTime;
use aulos_files::record::{self, MAX_LABEL_BYTES, Marker, MarkerRequest};
use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{CallOutput, MethodResult};
use crate::recordings::calls::{SelectedRecorder, answer, command_time, selected_recorders};

/// `Aulos.AddMarker`. The recorder's thread writes the marker, and the answer waits until it is on
/// disk; [`PendingMarkers`] waits without a lock.
pub(crate) fn add(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let label = params.text("label")?;
    if !record::is_valid_label(label) {
        let expected = format!("a text of 1 to {MAX_LABEL_BYTES} bytes without control characters");
        return Err(params.invalid("label", &expected));
    }
    let selected = selected_recorders(&context.subjects.stations, params)?;
    let when = command_time(params, context.control.clock.local())?;
    let requests = selected.into_iter().map(|recorder| {
        let backend = &context.control.backend;
        let request = backend.mark(recorder.number, recorder.index, label, when);
        (recorder, request)
    });
    let pending = PendingMarkers { requests: requests.collect() };
    Ok(CallOutput::later(pending.answer()))
}

/// Markers that are not on disk yet.
struct PendingMarkers {
    requests: Vec<(SelectedRecorder, Result<Arc<MarkerRequest>, String>)>,
}

impl PendingMarkers {
    /// The result of all markers, once each is known or after [`WRITE_TIMEOUT`].
    async fn answer(self) -> Result<Value, RpcError> {
        let deadline = Instant::now() + WRITE_TIMEOUT;
        let mut results = Vec::with_capacity(self.requests.len());
        for (recorder, request) in self.requests {
            let marker = match request {
                Ok(request) => written(&request, deadline).await,
                Err(refused) => Err(refused),
            };
            let answer = marker.map(|marker| marker_json(&recorder, &marker));
            results.push((recorder.name, answer));
        }
        answer(results.into_iter())
    }
}

/// The marker, once it is on disk.
async fn written(request: &MarkerRequest, deadline: Instant) -> Result<Marker, String> {
    match timeout_at(deadline, poll_fn(|context| request.poll_outcome(context))).await {
        Ok(outcome) => outcome.map_err(|refused| refused.to_string()),
        Err(_) => Err(format!(
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

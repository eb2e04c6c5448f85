//! The complete files of the stations' recorders: a list, and each file.
//!
//! Only files that a recorder of a running station has written are reachable, below its folder and
//! nowhere else (`docs/decisions/confined-paths.md`).

use std::path::{Path as FilePath, PathBuf};

use aulos_config::RecorderSettings;
use aulos_control::Control;
use aulos_files::record::{RecordedFile, RecordingConfig, list_recordings, open_recording};
use aulos_proto::uri::percent_encode_url;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::resource::{Parameter, ParameterKind, Query};
use super::waveform::Recording;
use crate::http::app_state::{AppState, json_response};
use crate::http::pages::{FileRequest, PageError};

/// The parameters of the list.
pub(crate) const LIST: &[Parameter] = &[
    Parameter {
        name: "station",
        kind: ParameterKind::Text,
        about: "only recorders of this station",
    },
    Parameter { name: "recorder", kind: ParameterKind::Text, about: "only this recorder" },
    Parameter {
        name: "limit",
        kind: ParameterKind::Integer(1, MAX_FILES),
        about: "at most this many files of each recorder; 50 without it",
    },
];

/// The parameters of a file.
pub(crate) const FILE: &[Parameter] = &[
    Parameter { name: "station", kind: ParameterKind::Path, about: "the station's name" },
    Parameter { name: "recorder", kind: ParameterKind::Path, about: "the recorder's name" },
    Parameter {
        name: "file",
        kind: ParameterKind::Path,
        about: "the file's path in the recorder's folder; it may have slashes",
    },
    Parameter {
        name: "view",
        kind: ParameterKind::Word(&["waveform"]),
        about: "return the levels of up to 1024 equal parts of the file, not the file",
    },
];

/// Most files of a recorder in a list: each has a sidecar that is read.
const MAX_FILES: u64 = 500;
const DEFAULT_FILES: u64 = 50;

/// The recorders of running stations, each with its station's name. Logs are not among them: what
/// a station sent months ago is for fewer than its recordings.
fn recorders(control: &Control) -> Vec<(String, RecorderSettings)> {
    let stations = control.stations().into_iter();
    stations
        .flat_map(|station| {
            let records = station.records.clone();
            records
                .into_iter()
                .filter(|record| !record.is_logger)
                .map(move |record| (station.name.clone(), record))
        })
        .collect()
}

/// `GET /api/v1/recordings`.
pub(crate) async fn list(State(app): State<AppState>, uri: Uri) -> Response {
    let query = match Query::parse(LIST, &uri) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    let limit = query.integer("limit").unwrap_or(DEFAULT_FILES);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for (station, record) in recorders(&app.control) {
        let is_wanted = |name: &str, value: &str| query.text(name).is_none_or(|text| text == value);
        if !is_wanted("station", &station) || !is_wanted("recorder", &record.recording.name) {
            continue;
        }
        let RecordingConfig { folder: dir, name, .. } = record.recording.clone();
        let read = app.recordings.run(move || list_recordings(&dir, &name, limit)).await;
        found.push(recorder_json(&station, &record, read));
    }
    json_response(json!({ "recorders": found }).to_string())
}

type ReadFolder = Result<(Vec<RecordedFile>, bool), PageError>;

fn recorder_json(station: &str, record: &RecorderSettings, read: ReadFolder) -> Value {
    let (files, is_more, error) = match read {
        Ok((files, is_more)) => (files, is_more, None),
        Err(PageError::Io(error)) => (Vec::new(), false, Some(error.to_string())),
        Err(PageError::Busy | PageError::Slow) => {
            (Vec::new(), false, Some("the disk does not respond in time".to_owned()))
        }
    };
    let files: Vec<Value> =
        files.iter().map(|file| file_json(station, &record.recording.name, file)).collect();
    json!({
        "station": station,
        "recorder": record.recording.name,
        "dir": record.recording.folder.display().to_string(),
        "files": files,
        "more": is_more,
        "error": error,
    })
}

fn file_json(station: &str, recorder: &str, file: &RecordedFile) -> Value {
    let path: Vec<String> = file.name.split('/').map(percent_encode_url).collect();
    let (station, recorder) = (percent_encode_url(station), percent_encode_url(recorder));
    json!({
        "name": file.name,
        // Relative to the page, so that a path prefix of a reverse proxy is kept.
        "url": format!("api/v1/recordings/{station}/{recorder}/{}", path.join("/")),
        "bytes": file.bytes,
        "start": file.start,
        "seconds": file.seconds.map(|seconds| (seconds * 1e3).round() / 1e3),
        "lost_frames": file.lost_frames,
        "markers": file.markers,
        "loudness": file.loudness,
    })
}

/// `GET /api/v1/recordings/STATION/RECORDER/FILE`.
pub(crate) async fn file(
    State(app): State<AppState>,
    Path((station, recorder, name)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let known = recorders(&app.control);
    let known = known.into_iter().filter(|(of, _)| *of == station);
    let found = known.map(|(_, record)| record.recording).find(|one| one.name == recorder);
    let Some(RecordingConfig { folder: dir, name: recorder, .. }) = found else {
        return (StatusCode::NOT_FOUND, "unknown recorder\n").into_response();
    };
    let query = match Query::parse(FILE, request.uri()) {
        Ok(query) => query,
        Err(refusal) => return refusal,
    };
    if query.text("view").is_some() {
        let recording = Recording { folder: dir, recorder, name: name.into() };
        return match app.waveforms.answer(&app.recordings, recording).await {
            Ok(waveform) => json_response(waveform.to_string()),
            Err(error) => app.recordings.error_response(&error),
        };
    }
    let wanted = FileRequest::new(&request, PathBuf::from(name), false);
    drop(request);
    let open = move |path: &FilePath| open_recording(&dir, &recorder, path);
    app.recordings.serve(wanted, open).await
}

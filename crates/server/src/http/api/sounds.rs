//! The sounds that can be announced: a list, each uploaded sound, its upload and its deletion.

use std::path::PathBuf;
use std::time::Duration;

use aulos_control::Caller;
use aulos_files::sounds::{
    MAX_SOUND, Sound, StoreError, delete_sound, list_sounds, open_sound, store_sound,
};
use aulos_proto::uri::{percent_encode, percent_encode_url};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::resource::{Parameter, ParameterKind};
use crate::http::app_state::{AppState, json_response};
use crate::http::pages::{FileRequest, PageError};

/// The parameters of an uploaded sound.
pub(crate) const SOUND: &[Parameter] = &[Parameter {
    name: "name",
    kind: ParameterKind::Path,
    about: "the name of an uploaded sound",
}];

/// Time limit for the bytes of an upload: the longest over two megabits a second, twice.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// `GET /api/v1/sounds`.
pub(crate) async fn list(State(app): State<AppState>) -> Response {
    let config = app.control.config();
    let (roots, uploads) = (config.streams.roots.clone(), config.uploads());
    let found = app.sounds.run(move || Ok(list_sounds(&roots, &uploads)));
    match found.await {
        Ok(list) => {
            let sounds: Vec<Value> = list.sounds.iter().map(sound_json).collect();
            json_response(json!({ "sounds": sounds, "more": list.is_more }).to_string())
        }
        Err(error) => app.sounds.error_response(&error),
    }
}

fn sound_json(sound: &Sound) -> Value {
    let url = format!("api/v1/sounds/{}", percent_encode_url(&sound.name));
    json!({
        "name": sound.name,
        "uri": format!("file://{}", percent_encode(&sound.path.to_string_lossy())),
        "bytes": sound.bytes,
        // Relative to the page, so that a path prefix of a reverse proxy is kept.
        "url": sound.is_uploaded.then_some(url),
    })
}

/// `GET /api/v1/sounds/NAME`.
pub(crate) async fn file(
    State(app): State<AppState>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let folder = uploads(&app);
    let wanted = FileRequest::new(&request, PathBuf::from(name), false);
    drop(request);
    let open = move |path: &std::path::Path| open_sound(&folder, &path.to_string_lossy());
    app.sounds.serve(wanted, open).await
}

/// `PUT /api/v1/sounds/NAME`.
pub(crate) async fn store(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Some(refusal) = app.refuse_cross_site(&headers) {
        return refusal;
    }
    let Ok(_turn) = app.upload_turn.try_acquire() else {
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "another sound is being uploaded; try again",
        );
    };
    let bytes = match app.read_body(body, MAX_SOUND, UPLOAD_TIMEOUT).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let folder = uploads(&app);
    let stored_name = name.clone();
    // A refusal is no failure of the disk.
    let stored = app.sounds.run(move || match store_sound(&folder, &name, &bytes) {
        Err(StoreError::Io(error)) => Err(error),
        stored => Ok(stored.map(|path| (path, bytes.len() as u64))),
    });
    match stored.await {
        Ok(Ok((path, bytes))) => {
            tracing::info!(name = %stored_name, from = %caller.from, "sound uploaded");
            let sound = Sound { name: stored_name, path, bytes, is_uploaded: true };
            (StatusCode::CREATED, json_response(sound_json(&sound).to_string())).into_response()
        }
        Ok(Err(error)) => {
            let status = match error {
                StoreError::Name => StatusCode::BAD_REQUEST,
                StoreError::Exists => StatusCode::CONFLICT,
                StoreError::Full => StatusCode::INSUFFICIENT_STORAGE,
                StoreError::Unreadable(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                StoreError::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refusal(status, &error.to_string())
        }
        Err(PageError::Io(error)) => {
            tracing::warn!(%error, "an uploaded sound cannot be written");
            refusal(StatusCode::INSUFFICIENT_STORAGE, &StoreError::Io(error).to_string())
        }
        Err(error) => app.sounds.error_response(&error),
    }
}

/// `DELETE /api/v1/sounds/NAME`.
pub(crate) async fn delete(
    State(app): State<AppState>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = app.refuse_cross_site(&headers) {
        return refusal;
    }
    let (folder, deleted) = (uploads(&app), name.clone());
    match app.sounds.run(move || delete_sound(&folder, &name)).await {
        Ok(()) => {
            tracing::info!(name = %deleted, from = %caller.from, "sound deleted");
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => app.sounds.error_response(&error),
    }
}

fn uploads(app: &AppState) -> PathBuf {
    app.control.config().uploads()
}

fn refusal(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

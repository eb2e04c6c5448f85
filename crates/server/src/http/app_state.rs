//! What the handlers of requests share.

use std::sync::Arc;

use aulos_control::Control;
use aulos_control::backend::ListenSink;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::events::EventFeed;
use super::forwarded::ProxiedClients;
use super::pages::FileServer;
use super::system_probe::SystemProbe;
use super::waveform::Waveforms;
use super::web::WebFiles;
use crate::connections::ConnectionSlots;

/// What the handlers share.
#[derive(Clone)]
pub(super) struct AppState {
    pub(super) control: Arc<Control>,
    pub(super) feed: EventFeed,
    pub(super) system: SystemProbe,
    pub(super) recordings: FileServer,
    pub(super) waveforms: Waveforms,
    pub(super) sounds: FileServer,
    /// One uploaded sound at a time is in memory.
    pub(super) upload_turn: Arc<Semaphore>,
    pub(super) sink: Arc<dyn ListenSink>,
    /// Slots for controllers behind a WebSocket, which leave the slots of HTTP.
    pub(super) sockets: ConnectionSlots,
    pub(super) web: WebFiles,
    pub(super) proxied: Arc<ProxiedClients>,
}

pub(super) fn json_response(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

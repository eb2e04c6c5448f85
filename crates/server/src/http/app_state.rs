//! What the handlers of requests share.

use std::sync::Arc;
use std::time::Duration;

use aulos_control::backend::ListenSink;
use aulos_control::{Caller, Control, count};
use aulos_io::reactor::AddressPermit;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::api::waveform::Waveforms;
use super::events::EventFeed;
use super::forwarded::ProxiedClients;
use super::login::ConnectionIdentity;
use super::pages::FileServer;
use super::system_probe::SystemProbe;
use super::web::WebFiles;
use crate::connections::{ConnectionPermit, ConnectionSlots};
use crate::input_budget::is_budget_error;
use crate::tcp::slot_error_counter;

/// What the handlers share.
#[derive(Clone)]
pub(super) struct AppState {
    pub(super) control: Arc<Control>,
    pub(super) feed: EventFeed,
    pub(super) system: SystemProbe,
    pub(super) recordings: FileServer,
    pub(super) waveforms: Waveforms,
    pub(super) sounds: FileServer,
    /// Places for those who follow the titles of stations.
    pub(super) title_followers: Arc<Semaphore>,
    /// One uploaded sound at a time is in memory.
    pub(super) upload_turn: Arc<Semaphore>,
    pub(super) sink: Arc<dyn ListenSink>,
    /// Slots for controllers behind a WebSocket, which leave the slots of HTTP.
    pub(super) sockets: ConnectionSlots,
    pub(super) web: WebFiles,
    pub(super) proxied: Arc<ProxiedClients>,
    /// Places for those who speak to rooms.
    pub(super) talks: Arc<Semaphore>,
}

/// What a WebSocket holds while it is open.
#[derive(Debug)]
pub(super) struct SocketPermits {
    pub(super) slot: ConnectionPermit,
    /// That of the client behind a proxy.
    _client: AddressPermit,
}

impl AppState {
    /// The permits for a WebSocket that tokio serves.
    ///
    /// # Errors
    /// The refusal.
    #[allow(clippy::result_large_err, reason = "it is made once a connection")]
    pub(super) fn admit_socket(
        &self,
        caller: &Caller,
        identity: &ConnectionIdentity,
    ) -> Result<SocketPermits, Response> {
        let counters = &self.control.counters;
        let slot = self.sockets.admit(caller.from).map_err(|error| {
            count(slot_error_counter(error, counters, |counters| &counters.controllers_refused));
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        })?;
        let client = self.proxied.admit(identity.proxied_client(), counters);
        let client = client.map_err(|_| too_many_connections())?;
        Ok(SocketPermits { slot, _client: client })
    }

    /// The whole body of a request, of at most `limit` bytes, within `time`.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn read_body(
        &self,
        body: Body,
        limit: usize,
        time: Duration,
    ) -> Result<Bytes, Response> {
        let Ok(read) = timeout(time, axum::body::to_bytes(body, limit)).await else {
            let text = "the request body did not arrive in time\n";
            return Err((StatusCode::REQUEST_TIMEOUT, text).into_response());
        };
        read.map_err(|error| {
            if is_budget_error(&error) {
                count(&self.control.counters.controllers_cut_memory);
                let text =
                    "the unfinished requests of all clients exceed their memory; try again\n";
                return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
            }
            let text = format!("the request body is larger than {limit} bytes\n");
            (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
        })
    }
}

pub(super) fn too_many_connections() -> Response {
    let text = "too many connections from this address; try again later\n";
    (StatusCode::TOO_MANY_REQUESTS, [(CONNECTION, "close")], text).into_response()
}

pub(super) fn json_response(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

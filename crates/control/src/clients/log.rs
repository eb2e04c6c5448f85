//! The log of clients that come, go and are refused, and of refused logins.

use std::net::IpAddr;

use crate::backend::{AudioEvent, KickReason, SessionCommand, SessionId};
use crate::clients::registry::{Client, SharedId};
use crate::control::state::{Control, ControlState};
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::stations::event_log::{ACCESS, CLIENT};

impl Control {
    /// Logs a client that disconnects; before the registry forgets its session.
    pub(crate) fn log_departure(&self, inner: &ControlState, event: &AudioEvent) {
        let AudioEvent::Left { session } = event else { return };
        let client = inner.registry.table.with_session(*session);
        if let Some(client) = client.filter(|_| self.log_limit.admits()) {
            tracing::info!(target: CLIENT, id = ?client.id, name = ?name(client), "disconnected");
            self.add_client_event(inner, client, "disconnected".to_owned());
        }
    }

    /// Logs a client that has been accepted, or the reason why it was not.
    pub(crate) fn log_arrival(
        &self,
        inner: &ControlState,
        session: SessionId,
        peer: IpAddr,
        commands: &[SessionCommand],
    ) {
        let kicked = commands.iter().find_map(|command| match command {
            SessionCommand::Kick { session: kicked, cause } if *kicked == session => Some(*cause),
            _ => None,
        });
        if let Some(cause) = kicked {
            return self.log_refused_client(peer, cause);
        }
        self.refused_clients.forget(peer);
        let client = inner.registry.table.with_session(session);
        if let Some(client) = client.filter(|_| self.log_limit.admits()) {
            let (id, name) = (&client.id, name(client));
            tracing::info!(target: CLIENT, ?id, ?name, address = %peer, "connected");
            self.add_client_event(inner, client, format!("connected from {peer}"));
        }
    }

    /// Logs a refusal, once for each reason: a player tries again every second.
    pub(crate) fn log_refused_client(&self, peer: IpAddr, cause: KickReason) {
        if self.refused_clients.is_new(peer, cause) && self.log_limit.admits() {
            let reason = match cause {
                KickReason::Replaced => "it has a newer session",
                KickReason::Deleted => "it was deleted",
                KickReason::Full => "the maximum number of clients is reached",
                KickReason::Unidentified => "it has no id",
                KickReason::Unauthorized => "its credentials do not permit listening",
                KickReason::RateLimited => "too many new clients or wrong logins from its address",
            };
            tracing::warn!(target: CLIENT, address = %peer, reason, "refused");
            self.add_event(NewEvent {
                kind: EventKind::Client,
                severity: EventSeverity::Warning,
                station: None,
                subject: peer.to_string(),
                text: format!("refused: {reason}"),
            });
        }
    }

    pub(crate) fn log_refused_login(&self, from: IpAddr, reason: &str) {
        if self.log_limit.admits() {
            tracing::warn!(target: ACCESS, address = %from, reason, "login refused");
            self.add_event(NewEvent {
                kind: EventKind::Login,
                severity: EventSeverity::Warning,
                station: None,
                subject: from.to_string(),
                text: format!("login refused: {reason}"),
            });
        }
    }

    /// Warns of two machines with one id, which are one client to controllers.
    pub(crate) fn log_shared_id(&self, inner: &ControlState, shared: &SharedId) {
        let SharedId { id, addresses: [first, second] } = shared;
        tracing::warn!(
            target: CLIENT, ?id, %first, %second,
            "two machines have the same client id; both play, and the newer one decides on settings"
        );
        let station = inner.registry.table.client(id).map(|(group, _)| group.station.clone());
        self.add_event(NewEvent {
            kind: EventKind::Client,
            severity: EventSeverity::Warning,
            station,
            subject: id.clone(),
            text: format!("{first} and {second} are connected with the same client id; both play"),
        });
    }

    fn add_client_event(&self, inner: &ControlState, client: &Client, text: String) {
        let found = inner.registry.table.client(&client.id);
        self.add_event(NewEvent {
            kind: EventKind::Client,
            severity: EventSeverity::Info,
            station: found.map(|(group, _)| group.station.clone()),
            subject: name(client).to_owned(),
            text,
        });
    }
}

/// The name that a user gave to a client, or that of its machine.
fn name(client: &Client) -> &str {
    if client.name.is_empty() { &client.host_name } else { &client.name }
}

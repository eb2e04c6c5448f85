//! The log of clients that come, go and are refused, and of refused logins.

use std::net::IpAddr;

use crate::access::LoginError;
use crate::backend::{KickReason, ReactorEvent, SessionId};
use crate::clients::registry::{Client, ClientTable, SharedId};
use crate::events::EventLog;
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::events::targets::{ACCESS, CLIENT};

/// Logs a client that disconnects; before the registry forgets its session.
pub(super) fn log_departure(events: &EventLog, clients: &ClientTable, event: &ReactorEvent) {
    let ReactorEvent::SessionEnded { session, .. } = event else { return };
    if let Some(client) = clients.with_session(*session).filter(|_| events.admits()) {
        tracing::info!(target: CLIENT, id = ?client.id, name = ?name(client), "disconnected");
        add_event(events, clients, client, "disconnected".to_owned());
    }
}

/// Logs a client that has been accepted.
pub(super) fn log_arrival(
    events: &EventLog,
    clients: &ClientTable,
    session: SessionId,
    peer: IpAddr,
) {
    if let Some(client) = clients.with_session(session).filter(|_| events.admits()) {
        let (id, name) = (&client.id, name(client));
        tracing::info!(target: CLIENT, ?id, ?name, address = %peer, "connected");
        add_event(events, clients, client, format!("connected from {peer}"));
    }
}

/// Logs a refusal.
pub(super) fn log_refusal(events: &EventLog, peer: IpAddr, cause: KickReason) {
    if events.admits() {
        let reason = match cause {
            KickReason::Replaced => "it has a newer session",
            KickReason::Deleted => "it was deleted",
            KickReason::Full => "the maximum number of clients is reached",
            KickReason::Unidentified => "it has no id",
            KickReason::Unauthorized => "its credentials do not permit listening",
            KickReason::RateLimited => "too many new clients or wrong logins from its address",
        };
        tracing::warn!(target: CLIENT, address = %peer, reason, "refused");
        events.add(NewEvent {
            kind: EventKind::Client,
            severity: EventSeverity::Warning,
            station: None,
            subject: peer.to_string(),
            text: format!("refused: {reason}"),
        });
    }
}

/// Logs a refused login.
pub(crate) fn log_refused_login(events: &EventLog, from: IpAddr, why: LoginError) {
    let reason = match why {
        LoginError::WrongCredentials => "wrong user, password or token",
        LoginError::RateLimited => "too many wrong logins from this address",
    };
    if events.admits() {
        tracing::warn!(target: ACCESS, address = %from, reason, "login refused");
        events.add(NewEvent {
            kind: EventKind::Login,
            severity: EventSeverity::Warning,
            station: None,
            subject: from.to_string(),
            text: format!("login refused: {reason}"),
        });
    }
}

/// Warns of two machines with one id, which are one client to controllers.
pub(super) fn log_shared_id(events: &EventLog, clients: &ClientTable, shared: &SharedId) {
    let SharedId { id, addresses: [first, second] } = shared;
    tracing::warn!(
        target: CLIENT, ?id, %first, %second,
        "two machines have the same client id; both play, and the newer one decides on settings"
    );
    events.add(NewEvent {
        kind: EventKind::Client,
        severity: EventSeverity::Warning,
        station: clients.client(id).map(|(group, _)| group.station.clone()),
        subject: id.clone(),
        text: format!("{first} and {second} are connected with the same client id; both play"),
    });
}

fn add_event(events: &EventLog, clients: &ClientTable, client: &Client, text: String) {
    let found = clients.client(&client.id);
    events.add(NewEvent {
        kind: EventKind::Client,
        severity: EventSeverity::Info,
        station: found.map(|(group, _)| group.station.clone()),
        subject: name(client).to_owned(),
        text,
    });
}

/// The name that a user gave to a client, or that of its machine.
fn name(client: &Client) -> &str {
    if client.name.is_empty() { &client.host_name } else { &client.name }
}

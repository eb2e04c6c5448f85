//! The log of clients that come, go and are refused, and of refused logins.

use std::net::IpAddr;

use super::event_log::{ACCESS, CLIENT};
use super::{Control, ControlState};
use crate::backend::{AudioEvent, KickReason, SessionCommand, SessionId, StationStatus};
use crate::registry::Client;

impl ControlState {
    /// Logs what has changed since the last status of a station.
    pub(super) fn log_station_changes(&mut self, number: usize, now: &StationStatus) {
        let slot = self.slots.get_mut(number).and_then(Option::as_mut);
        if let (Some(slot), Some(before)) = (slot, self.last_shown.get(number)) {
            slot.logged_failures.log_changes(&slot.station, before, now);
        }
    }
}

impl Control {
    /// Logs a client that disconnects; before the registry forgets its session.
    pub(super) fn log_departure(&self, inner: &ControlState, event: &AudioEvent) {
        let AudioEvent::Left { session } = event else { return };
        let client = inner.registry.client_of_session(*session);
        if let Some(client) = client.filter(|_| self.log_limit.admits()) {
            tracing::info!(target: CLIENT, id = ?client.id, name = ?name(client), "disconnected");
        }
    }

    /// Logs a client that has been accepted, or the reason why it was not.
    pub(super) fn log_arrival(
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
        let client = inner.registry.client_of_session(session);
        if let Some(client) = client.filter(|_| self.log_limit.admits()) {
            let (id, name) = (&client.id, name(client));
            tracing::info!(target: CLIENT, ?id, ?name, address = %peer, "connected");
        }
    }

    pub(super) fn log_refused_client(&self, peer: IpAddr, cause: KickReason) {
        if self.log_limit.admits() {
            let reason = match cause {
                KickReason::Replaced => "it has a newer session",
                KickReason::Deleted => "it was deleted",
                KickReason::Full => "the maximum number of clients is reached",
                KickReason::Unidentified => "it has no id",
                KickReason::Unauthorized => "its credentials do not permit listening",
                KickReason::RateLimited => "too many new clients or wrong logins from its address",
            };
            tracing::warn!(target: CLIENT, address = %peer, reason, "refused");
        }
    }

    pub(super) fn log_refused_login(&self, from: IpAddr, reason: &str) {
        if self.log_limit.admits() {
            tracing::warn!(target: ACCESS, address = %from, reason, "login refused");
        }
    }
}

/// The name that a user gave to a client, or that of its machine.
fn name(client: &Client) -> &str {
    if client.name.is_empty() { &client.host_name } else { &client.name }
}

//! How many clients are remembered, and which one is forgotten for a new one.
//!
//! Clients are free to invent: one peer can send Hello with a thousand ids. A client whose settings
//! a controller has changed is therefore never forgotten to make room. Forgetting the client that
//! has been away longest was rejected: 8,192 invented ids would then remove every real client with
//! its name and volume cap.

use aulos_core::ChannelMap;

use super::Registry;
use super::client::{Client, Group, client_id};
use super::retention::{ClientRetention, DiscardCounts, MAX_CLIENTS, MAX_TRANSIENT};
use crate::backend::Hello;

impl Registry {
    /// Whether the client of this Hello is known.
    #[must_use]
    pub fn is_known(&self, hello: &Hello) -> bool {
        client_id(hello).is_some_and(|id| self.client(&id).is_some())
    }

    /// What was lost for lack of room.
    #[must_use]
    pub const fn discarded(&self) -> DiscardCounts {
        self.discarded
    }

    /// Finds room for a new client; `None` when as many as can be remembered are connected.
    pub(super) fn make_room(&mut self) -> Option<ClientRetention> {
        if self.table.remembered() < MAX_CLIENTS {
            return Some(ClientRetention::Remembered);
        }
        if self.table.connected() >= MAX_CLIENTS {
            return None;
        }
        if let Some(id) = self.newest_unconfigured() {
            self.discarded.evicted += 1;
            return self.table.remove_client(&id).map(|_| ClientRetention::Remembered);
        }
        (self.table.transient() < MAX_TRANSIENT).then(|| {
            self.discarded.transient += 1;
            ClientRetention::Transient
        })
    }

    /// The newest client without settings. Invented ids are usually newer than real clients.
    fn newest_unconfigured(&self) -> Option<String> {
        let mut alone = self.table.single_clients_newest_first();
        let found = alone.find(|(group, client)| self.is_unconfigured(group, client));
        found.map(|(_, client)| client.id.clone())
    }

    /// Whether a client that is alone in its group is disconnected and has only default settings.
    fn is_unconfigured(&self, group: &Group, client: &Client) -> bool {
        let fresh = self.newcomer(String::new());
        let volume = client.volume == fresh.volume && !client.muted;
        client.session.is_none()
            && client.name.is_empty()
            && client.cap == fresh.cap
            && client.map == ChannelMap::Stereo
            && client.latency_ms == 0
            && (volume || client.volume_by_client)
            && group.name.is_empty()
            && !group.muted
            && group.station == self.default_station()
            && !self.presets.contains_client(&client.id)
    }
}

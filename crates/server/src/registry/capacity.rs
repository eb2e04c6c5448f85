//! How many clients are remembered, and which of them is forgotten for a new one.
//!
//! A client costs nothing to invent: whatever may say Hello can say it with a thousand ids. So what
//! was set by a controller is never forgotten to make room. Forgetting the client that has been away
//! longest was rejected: then inventing 8,192 ids removes every real client, and with it the names
//! and the caps that parents and shops rely on.

use aulos_core::ChannelMap;

use super::client::{Client, Group, client_id};
use super::{MAX_CLIENTS, Registry};
use crate::backend::Hello;

/// Clients that play although there is no room to remember them: as many as one address may have
/// sessions, and an eighth of [`MAX_CLIENTS`].
pub const MAX_TRANSIENT: usize = 1_024;

/// What was lost because there was no room; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    /// Clients without any setting that were forgotten for newer ones.
    pub evicted: u64,
    /// Clients that were not remembered.
    pub transient: u64,
}

/// Where a new client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientRetention {
    /// It is remembered.
    Remembered,
    /// It plays, and is forgotten when it leaves.
    Transient,
}

impl Registry {
    /// Whether the client that says this is known.
    #[must_use]
    pub fn is_known(&self, hello: &Hello) -> bool {
        client_id(hello).is_some_and(|id| self.client(&id).is_some())
    }

    /// What was lost because there was no room.
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

    /// The newest of the clients that nothing is lost with. The newest, because ids are invented
    /// now, and real clients were there before.
    fn newest_unconfigured(&self) -> Option<String> {
        let mut alone = self.table.alone_newest_first();
        let found = alone.find(|(group, client)| self.is_unconfigured(group, client));
        found.map(|(_, client)| client.id.clone())
    }

    /// Whether a client that is alone in its group is not connected, and everything of it is as it
    /// would be if it came for the first time.
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

//! How many clients are remembered, and which one is forgotten for a new one.
//!
//! Clients are free to invent: one peer can send Hello with a thousand ids. A client whose settings
//! a controller has changed is therefore never forgotten to make room. Forgetting the client that
//! has been away longest was rejected: 8,192 invented ids would then remove every real client with
//! its name and volume cap. If none of the newest absent clients can be forgotten, a new one is not
//! remembered.
//!
//! Browsers that play in sync come and go more often than loudspeakers. One that is away and for
//! which nothing was set is forgotten by itself; every other client stays until a controller
//! forgets it, as in a Snapcast server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Registry;
use super::client::{Client, Group};
use super::retention::{ClientRetention, MAX_CLIENTS, MAX_TRANSIENT};
use super::{Effects, Notice};

/// A browser is forgotten when it has been away this long: a network that comes back, or a page
/// that is loaded again, finds its group as it was.
pub const BROWSER_RETENTION: Duration = Duration::from_secs(60);

/// Absent clients that are considered for being forgotten, so that each of a thousand Hellos costs
/// little.
const MAX_CANDIDATES: usize = 512;

/// What the player of the page calls itself in its Hello.
const BROWSER_SOFTWARE: &str = "aulos web player";

impl Registry {
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
        let alone = self.table.single_clients_newest_first();
        let mut absent = alone.filter(|(_, client)| client.session.is_none()).take(MAX_CANDIDATES);
        let default = self.stations.default_name();
        let found = absent.find(|(group, client)| {
            group.station == default && self.has_default_settings(group, client)
        });
        found.map(|(_, client)| client.id.clone())
    }

    /// Forgets the browsers that have been away for [`BROWSER_RETENTION`] and for which nothing was
    /// set. Called now and then; `now` is monotonic. A browser that was restored from the saved
    /// state is away since the first call.
    pub fn forget_absent_browsers(&mut self, now: Instant) -> Effects {
        let alone = self.table.single_clients_newest_first();
        let is_absent = |group: &Group, client: &Client| {
            client.software == BROWSER_SOFTWARE && self.has_default_settings(group, client)
        };
        let absent: HashMap<String, Instant> = alone
            .filter(|(group, client)| is_absent(group, client))
            .map(|(_, client)| {
                let since = self.absent_browsers.get(&client.id).copied().unwrap_or(now);
                (client.id.clone(), since)
            })
            .collect();
        let mut effects = Effects::default();
        self.absent_browsers = absent;
        let expired = |since: &Instant| now.saturating_duration_since(*since) >= BROWSER_RETENTION;
        let gone = self.absent_browsers.extract_if(|_, since| expired(since));
        for (id, _) in gone.collect::<Vec<_>>() {
            drop(self.table.remove_client(&id));
            effects = Effects { save: true, ..Effects::notice(Notice::Server) };
        }
        effects
    }

    /// Whether a client that is alone in its group is disconnected and has only default settings,
    /// whatever station its group plays: a browser chooses that anew each time it begins to play.
    fn has_default_settings(&self, group: &Group, client: &Client) -> bool {
        let fresh = self.limits.new_client(String::new());
        let volume = client.volume == fresh.volume && !client.muted;
        client.session.is_none()
            && client.name.is_empty()
            && client.cap == fresh.cap
            && client.plays_all()
            && client.latency_ms == 0
            && (volume || client.volume_by_client)
            && group.name.is_empty()
            && !group.muted
            && !self.presets.contains_client(&client.id)
    }
}

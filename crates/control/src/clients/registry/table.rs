//! Storage of groups and clients with constant-time lookups.
//!
//! The simple form, a list of groups with a list of clients in each, makes every lookup a scan, and
//! an installation with thousands of clients looks all of them up after a power cut. Here all
//! clients are in one sorted map, in display order, and an index leads to them by id and session.
//! These positions do not leave this file.
//!
//! Groups and clients are shared and copied on write: [`ClientTable::remembered_groups`] gives the
//! saved state of thousands of clients without a copy of their texts, so that it is rendered
//! without the lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::client::{Client, EarlierSession, Group, WallTime, client_id};
use super::client_json::{ClientJson, ClientTexts};
use crate::backend::{ConnectionHealth, Hello, SessionId};

/// The sort key of a client: its group, and its order inside the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClientPosition {
    group: u64,
    order: u64,
}

/// Groups in order of creation; clients in the order in which they joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTable {
    groups: BTreeMap<u64, Arc<Group>>,
    clients: BTreeMap<ClientPosition, Arc<ClientRow>>,
    keys: HashMap<String, u64>,
    positions: HashMap<String, ClientPosition>,
    sessions: HashMap<SessionId, ClientPosition>,
    /// Number of sessions of clients that have a newer one.
    earlier: usize,
    /// Number of clients that are not remembered.
    transient: usize,
    /// Clients that have connected, disconnected or may need another greeting.
    changed: HashSet<String>,
    /// Last number given to a group or client; numbers are not reused.
    next: u64,
}

/// A client, and its texts from when they were needed until it changes.
#[derive(Clone, Debug)]
pub(crate) struct ClientRow {
    client: Client,
    texts: OnceLock<ClientTexts>,
}

impl ClientRow {
    fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, texts: OnceLock::new() })
    }

    /// The client, to be changed; a copy if others still read it.
    fn client_mut(self: &mut Arc<Self>) -> &mut Client {
        let row = Arc::make_mut(self);
        row.texts.take();
        &mut row.client
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// The client in the form in which controllers get it.
    pub(crate) fn json(&self) -> ClientJson<'_> {
        let texts = self.texts.get_or_init(|| ClientTexts::new(&self.client));
        ClientJson::with_texts(&self.client, texts)
    }
}

/// A group and its clients at one moment, shared with the table until they change.
#[derive(Clone, Debug)]
pub(crate) struct GroupView {
    pub(crate) group: Arc<Group>,
    pub(crate) clients: Vec<Arc<ClientRow>>,
}

impl GroupView {
    /// The clients, in the order in which they joined.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().map(|row| row.client())
    }
}

impl ClientTable {
    /// Adds a group without clients; the caller adds one before anything else reads the table.
    pub(super) fn add_group(&mut self, group: Group) {
        let key = self.next_number();
        self.keys.insert(group.id.clone(), key);
        self.groups.insert(key, group.into());
    }

    /// Adds a new client as the last one of a group.
    pub(super) fn add_client(&mut self, group: &str, client: Client) {
        if let Some(&key) = self.keys.get(group) {
            self.insert_client(key, client);
        }
    }

    /// Moves a client to the end of another group. Its old group is removed if it becomes empty.
    pub(super) fn move_client(&mut self, id: &str, group: &str) {
        let Some(&to) = self.keys.get(group) else { return };
        if let Some((from, client)) = self.take_client(id) {
            self.insert_client(to, client);
            self.remove_if_empty(from);
        }
    }

    /// Removes a client, and its group if that becomes empty.
    pub(super) fn remove_client(&mut self, id: &str) -> Option<Client> {
        let (group, client) = self.take_client(id)?;
        self.remove_if_empty(group);
        Some(client)
    }

    /// Starts a client's session; returns the oldest one if there are too many.
    pub(super) fn connect(
        &mut self,
        id: &str,
        session: SessionId,
        now: WallTime,
    ) -> Option<SessionId> {
        self.disconnect(session, now);
        let seat = *self.positions.get(id)?;
        let client = self.clients.get_mut(&seat)?.client_mut();
        client.last_seen = now;
        client.health = None;
        if let Some(before) = client.session.replace(session) {
            let ip = client.ip.clone();
            let earlier = EarlierSession { session: before, ip, since_time_request: None };
            client.earlier_sessions.push(earlier);
            self.earlier += 1;
        }
        self.sessions.insert(session, seat);
        self.changed.insert(client.id.clone());
        if client.earlier_sessions.len() < MAX_SESSIONS {
            return None;
        }
        let oldest = client.earlier_sessions.remove(0).session;
        self.earlier -= 1;
        self.sessions.remove(&oldest);
        Some(oldest)
    }

    /// Ends a session; returns its client, which has the session before it if that is still there.
    pub(super) fn disconnect(&mut self, session: SessionId, now: WallTime) -> Option<&Client> {
        let seat = self.sessions.remove(&session)?;
        let client = self.clients.get_mut(&seat)?.client_mut();
        let earlier = &mut client.earlier_sessions;
        self.earlier -= usize::from(!earlier.is_empty());
        if client.session == Some(session) {
            let before = earlier.pop();
            client.session = before.as_ref().map(|before| before.session);
            client.ip = before.map_or_else(|| core::mem::take(&mut client.ip), |before| before.ip);
            client.health = None;
        } else {
            earlier.retain(|one| one.session != session);
        }
        client.is_shared &= client.session.is_some();
        client.last_seen = now;
        Some(client)
    }

    /// Sets a client's health, and when it was last seen: controllers take a client for
    /// disconnected whose time stands still. Returns the session before its newest one when it
    /// turns out that both are in use, once.
    pub(super) fn set_health(
        &mut self,
        session: SessionId,
        health: ConnectionHealth,
        now: WallTime,
    ) -> Option<(&Client, &EarlierSession)> {
        // Its texts stay: nothing that changes here is in them.
        let row = self.clients.get_mut(self.sessions.get(&session)?)?;
        let client = &mut Arc::make_mut(row).client;
        let Some(at) = client.earlier_sessions.iter().position(|one| one.session == session) else {
            client.health = Some(health);
            if let Some(ago) = health.since_time_request {
                client.last_seen = now.minus(ago);
            }
            return None;
        };
        let earlier = client.earlier_sessions.get_mut(at)?;
        let since = health.since_time_request;
        let before = core::mem::replace(&mut earlier.since_time_request, since);
        // It has sent a request between two reports: a connection that is dead does not.
        let in_use = before.zip(since).is_some_and(|(before, now)| now < before);
        if !in_use || core::mem::replace(&mut client.is_shared, true) {
            return None;
        }
        let client: &Client = client;
        Some((client, client.earlier_sessions.get(at)?))
    }

    /// Mutable access to a client; id, session and last-seen time must not be changed.
    pub(super) fn client_mut(&mut self, id: &str) -> Option<&mut Client> {
        let client = self.clients.get_mut(self.positions.get(id)?)?.client_mut();
        self.changed.insert(client.id.clone());
        Some(client)
    }

    /// Mutable access to a group; the id must not be changed.
    pub(super) fn group_mut(&mut self, id: &str) -> Option<&mut Group> {
        self.mark_changed(id);
        self.groups.get_mut(self.keys.get(id)?).map(Arc::make_mut)
    }

    /// Marks the clients of a group, because something outside of the table changes their greeting.
    pub(super) fn mark_changed(&mut self, group: &str) {
        let Some(&key) = self.keys.get(group) else { return };
        self.changed
            .extend(self.clients.range(positions_of(key)).map(|(_, row)| row.client.id.clone()));
    }

    /// Marks a client, which need not be known, because its greeting may have changed.
    pub(super) fn mark_client_changed(&mut self, id: &str) {
        self.changed.insert(id.to_owned());
    }

    /// Takes the clients that have connected, disconnected or may need another greeting.
    pub(crate) fn take_changed(&mut self) -> HashSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// A client and its group.
    pub(crate) fn client(&self, id: &str) -> Option<(&Group, &Client)> {
        let seat = self.positions.get(id)?;
        Some((self.groups.get(&seat.group)?, &self.clients.get(seat)?.client))
    }

    /// The client of a session.
    pub(crate) fn with_session(&self, session: SessionId) -> Option<&Client> {
        self.clients.get(self.sessions.get(&session)?).map(|row| &row.client)
    }

    /// A group.
    pub(crate) fn group(&self, id: &str) -> Option<&Group> {
        self.groups.get(self.keys.get(id)?).map(Arc::as_ref)
    }

    /// The clients of a group; none for an unknown group.
    pub(crate) fn members(&self, group: &str) -> impl Iterator<Item = &Client> + Clone {
        self.rows(group).map(|row| &row.client)
    }

    /// The rows of a group.
    fn rows(&self, group: &str) -> impl Iterator<Item = &Arc<ClientRow>> + Clone {
        let key = self.keys.get(group);
        key.into_iter().flat_map(|key| self.clients.range(positions_of(*key))).map(|(_, row)| row)
    }

    /// Every group.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> + Clone {
        self.groups.values().map(Arc::as_ref)
    }

    /// Every client.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Client> + Clone {
        self.clients.values().map(|row| &row.client)
    }

    /// A group with its clients.
    pub(crate) fn view(&self, group: &str) -> Option<GroupView> {
        let key = self.keys.get(group)?;
        let clients = self.rows(group).cloned().collect();
        Some(GroupView { group: Arc::clone(self.groups.get(key)?), clients })
    }

    /// Every group with its clients, in order of creation.
    pub(crate) fn views(&self) -> Vec<GroupView> {
        let mut clients = self.clients.iter().peekable();
        let groups = self.groups.iter().map(|(key, group)| {
            let members = std::iter::from_fn(|| clients.next_if(|(seat, _)| seat.group == *key));
            let clients = members.map(|(_, row)| Arc::clone(row)).collect();
            GroupView { group: Arc::clone(group), clients }
        });
        groups.collect()
    }

    /// Every group that has remembered clients, with these.
    pub(super) fn remembered_groups(&self) -> Vec<GroupView> {
        let mut groups = self.views();
        groups.iter_mut().for_each(|one| one.clients.retain(|row| !row.client.transient));
        groups.retain(|one| !one.clients.is_empty());
        groups
    }

    /// The ids of the connected clients that play a station.
    pub(crate) fn clients_of_station(&self, station: &str) -> impl Iterator<Item = &str> {
        let groups = self.groups().filter(move |group| group.station == station);
        let clients = groups.flat_map(move |group| self.members(&group.id));
        clients.filter(|client| client.session.is_some()).map(|client| &client.id[..])
    }

    /// The ids of the groups that play a station.
    pub(super) fn groups_of(&self, station: &str) -> Vec<String> {
        let groups = self.groups().filter(|group| group.station == station);
        groups.map(|group| group.id.clone()).collect()
    }

    /// The volume of a group: the average of its clients.
    pub(crate) fn group_volume(&self, id: &str) -> Option<i64> {
        let clients = self.members(id).map(|client| (i64::from(client.volume), 1));
        let (sum, count) = clients.reduce(|all, one| (all.0 + one.0, all.1 + one.1))?;
        Some((sum + count / 2) / count)
    }

    /// The ids of all known clients.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.clients().map(|client| client.id.as_str())
    }

    /// Whether the client of this Hello is known.
    pub(crate) fn is_known(&self, hello: &Hello) -> bool {
        client_id(hello).is_some_and(|id| self.client(&id).is_some())
    }

    /// Number of known clients, connected or not.
    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Number of remembered clients.
    pub(super) fn remembered(&self) -> usize {
        self.clients.len() - self.transient
    }

    /// Number of clients that are not remembered.
    pub(super) const fn transient(&self) -> usize {
        self.transient
    }

    /// Number of connected clients.
    pub(crate) fn connected(&self) -> usize {
        self.sessions.len() - self.earlier
    }

    /// Clients that are alone in their group, the newest group first.
    pub(super) fn single_clients_newest_first(&self) -> impl Iterator<Item = (&Group, &Client)> {
        self.groups.iter().rev().filter_map(|(key, group)| {
            let mut members = self.clients.range(positions_of(*key));
            let (_, row) = members.next()?;
            members.next().is_none().then_some((&**group, &row.client))
        })
    }

    fn insert_client(&mut self, group: u64, client: Client) {
        let seat = ClientPosition { group, order: self.next_number() };
        self.positions.insert(client.id.clone(), seat);
        self.changed.insert(client.id.clone());
        self.sessions.extend(client.sessions().map(|session| (session, seat)));
        self.earlier += client.earlier_sessions.len();
        self.transient += usize::from(client.transient);
        self.clients.insert(seat, ClientRow::new(client));
    }

    fn take_client(&mut self, id: &str) -> Option<(u64, Client)> {
        let seat = self.positions.remove(id)?;
        let client = Arc::unwrap_or_clone(self.clients.remove(&seat)?).client;
        for session in client.sessions() {
            self.sessions.remove(&session);
        }
        self.earlier -= client.earlier_sessions.len();
        self.transient -= usize::from(client.transient);
        self.changed.insert(client.id.clone());
        Some((seat.group, client))
    }

    fn remove_if_empty(&mut self, key: u64) {
        if self.clients.range(positions_of(key)).next().is_none()
            && let Some(group) = self.groups.remove(&key)
        {
            self.keys.remove(&group.id);
        }
    }

    const fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

const fn positions_of(group: u64) -> std::ops::RangeInclusive<ClientPosition> {
    ClientPosition { group, order: 0 }..=ClientPosition { group, order: u64::MAX }
}

/// Sessions of one id: a set of machines that were copied from one, each with a connection whose
/// end has not been noticed yet.
const MAX_SESSIONS: usize = 16;

#[cfg(test)]
impl ClientTable {
    fn count(&self, wanted: impl Fn(&Client) -> bool) -> usize {
        self.clients().filter(|client| wanted(client)).count()
    }

    /// Whether all indices are consistent.
    pub(super) fn is_consistent(&self) -> bool {
        let seated = self.clients.iter().all(|(seat, row)| {
            let client = &row.client;
            let texts = row.texts.get_or_init(|| ClientTexts::new(client));
            texts.is_of(client)
                && client.sessions().all(|session| self.sessions.get(&session) == Some(seat))
                && (client.session.is_some() || client.earlier_sessions.is_empty())
                && self.positions.get(&client.id) == Some(seat)
                && self.groups.contains_key(&seat.group)
        });
        let known = self.groups.iter().all(|(key, group)| {
            self.keys.get(&group.id) == Some(key) && self.members(&group.id).next().is_some()
        });
        seated
            && known
            && self.positions.len() == self.clients.len()
            && self.connected() == self.count(|client| client.session.is_some())
            && self.sessions.len()
                == self.clients().map(|one| one.sessions().count()).sum::<usize>()
            && self.transient == self.count(|client| client.transient)
            && self.keys.len() == self.groups.len()
    }
}

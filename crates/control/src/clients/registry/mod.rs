//! The registry of clients, groups and volumes, without clock, sockets or files.
//!
//! Each change is one method call that returns [`Effects`]: commands for the audio backend, notices
//! for other controllers, and whether to save. Handlers do not edit it themselves
//! (`docs/decisions/control-state.md`).

mod capacity;
mod client;
mod client_json;
mod names;
mod preset_calls;
mod presets;
mod retention;
mod saved_json;
pub(crate) mod shared;
mod shared_table;
mod snapcast_json;
mod sound;
mod stations;
pub mod store;
mod table;
#[cfg(test)]
mod tests;
mod volume;

pub use capacity::BROWSER_RETENTION;
pub(crate) use client::clip as clip_text;
pub use client::{
    Client, EarlierSession, Group, MAX_ID, MAX_TEXT, MIN_LATENCY_MS, NotFound, SavedGroup, WallTime,
};
pub use client_json::{ClientJson, volume_json};
pub use presets::{
    MAX_PRESET_BYTES, MAX_PRESET_CLIENTS, MAX_PRESETS, MAX_PRESETS_BYTES, Preset, PresetError,
    PresetGroups,
};
pub use retention::{DiscardCounts, MAX_CLIENTS, MAX_TRANSIENT};
pub use snapcast_json::GroupJson;
pub(crate) use snapcast_json::to_json_text;
pub use sound::{MAX_CLIENT_SOUNDS, SoundError};
pub(crate) use sound::{active_sounds, check_sound, set_sound};
pub use stations::StationInfo;
pub use volume::VolumeChange;

pub use crate::effects::{Effects, Notice, SharedId};

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Instant;

use aulos_proto::snap::wire::ClientInfo;

use crate::backend::{Greeting, Hello, KickReason, ReactorEvent, SessionCommand, SessionId};
use client::{IdGenerator, VolumeLimits, clamp_volume, client_id};
pub(crate) use presets::Presets;
use retention::ClientRetention;
use shared_table::SharedTable;
use stations::StationTable;
pub(crate) use table::{ClientTable, GroupView};

/// All groups and clients. No group is empty, and every client is in exactly one group.
#[derive(Clone, Debug)]
pub struct Registry {
    pub(crate) stations: StationTable,
    pub(crate) table: ClientTable,
    pub(crate) presets: Presets,
    /// What was lost for lack of room.
    pub(crate) discarded: DiscardCounts,
    /// Browsers that may be forgotten, with the time since when they are away.
    absent_browsers: HashMap<String, Instant>,
    ids: IdGenerator,
    shared: SharedTable,
    limits: VolumeLimits,
}

impl Registry {
    /// An empty registry for these stations; `seed` generates the groups' ids.
    ///
    /// # Panics
    /// When there is no station; a resolved configuration has at least one.
    #[must_use]
    pub fn new(stations: Vec<StationInfo>, seed: u64) -> Self {
        assert!(!stations.is_empty(), "a server without a station has no registry");
        let mut registry = Self {
            stations: StationTable::default(),
            table: ClientTable::default(),
            presets: Presets::default(),
            discarded: DiscardCounts::default(),
            absent_browsers: HashMap::new(),
            ids: IdGenerator::new(seed),
            shared: SharedTable::default(),
            limits: VolumeLimits::default(),
        };
        for (number, info) in stations.into_iter().enumerate() {
            registry.add_station(number, info);
        }
        registry
    }

    /// Handles an event of the audio backend; `now` is wall time, for display.
    pub fn apply(&mut self, event: ReactorEvent, now: WallTime) -> Effects {
        match event {
            ReactorEvent::Hello { session, hello, address, answered, volume, .. } => {
                self.handle_hello(session, (address.ip(), &hello), (answered, volume), now)
            }
            ReactorEvent::SessionEnded { session, .. } => self.handle_left(session, now),
            ReactorEvent::Health { session, health } => {
                let shared = self.table.set_health(session, health, now);
                let shared = shared.map(|(client, earlier)| SharedId {
                    id: client.id.clone(),
                    addresses: [earlier.ip.clone(), client.ip.clone()],
                });
                Effects { shared, ..Effects::default() }
            }
            ReactorEvent::ClientInfo { session, info } => {
                let cap = self.limits.cap;
                // Of several clients with one id, the newest one decides.
                let newest = self.table.with_session(session);
                let newest = newest.filter(|client| client.session == Some(session));
                let id = newest.map(|client| client.id.clone());
                let Some(client) = id.and_then(|id| self.table.client_mut(&id)) else {
                    return Effects::default();
                };
                let is_capped = client.follow(info, cap);
                let id = client.id.clone();
                let mut effects =
                    Effects { save: true, ..Effects::notice(Notice::Volume(id.clone())) };
                if is_capped {
                    // The client has exceeded its volume cap and gets the corrected volume.
                    self.push_client(&id, false, &mut effects);
                }
                effects
            }
            ReactorEvent::SendspinClient { .. }
            | ReactorEvent::Command { .. }
            | ReactorEvent::Artwork { .. } => Effects::default(),
        }
    }

    /// Sets volume, mute or both; a client's own volume is 0 to 100.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_volume(
        &mut self,
        id: &str,
        percent: Option<i64>,
        muted: Option<bool>,
    ) -> Result<Effects, NotFound> {
        let cap = self.limits.cap;
        let client = self.table.client_mut(id).ok_or(NotFound::Client)?;
        client.volume = percent.map_or(client.volume, clamp_volume).min(client.cap).min(cap);
        client.muted = muted.unwrap_or(client.muted);
        client.volume_by_client = false;
        Ok(self.push(id, Notice::Volume(id.to_owned())))
    }

    /// Sets a client's latency, clamped to -10 s and the station's buffer.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_latency(&mut self, id: &str, latency_ms: i64) -> Result<Effects, NotFound> {
        let (group, _) = self.table.client(id).ok_or(NotFound::Client)?;
        let buffer = self.stations.find(&group.station).map_or(0, |(_, info)| info.buffer_ms);
        let latency = latency_ms.clamp(i64::from(MIN_LATENCY_MS), i64::from(buffer));
        self.table.client_mut(id).ok_or(NotFound::Client)?.latency_ms =
            i32::try_from(latency).unwrap_or(0);
        Ok(self.push(id, Notice::Latency(id.to_owned())))
    }

    /// Names a client.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn set_client_name(&mut self, id: &str, name: &str) -> Result<Effects, NotFound> {
        self.table.client_mut(id).ok_or(NotFound::Client)?.name = client::clip(name);
        Ok(Effects { save: true, ..Effects::notice(Notice::ClientName(id.to_owned())) })
    }

    /// Forgets a client, and ends its sessions if it is connected.
    ///
    /// # Errors
    /// [`NotFound::Client`].
    pub fn delete_client(&mut self, id: &str) -> Result<Effects, NotFound> {
        let client = self.table.remove_client(id).ok_or(NotFound::Client)?;
        let mut effects = Effects { save: true, ..Effects::notice(Notice::Server) };
        effects.commands.extend(
            client
                .sessions()
                .map(|session| SessionCommand::Kick { session, cause: KickReason::Deleted }),
        );
        Ok(effects)
    }

    /// Mutes or unmutes a group; its clients keep their own mute.
    ///
    /// # Errors
    /// [`NotFound::Group`].
    pub fn set_mute(&mut self, id: &str, muted: bool) -> Result<Effects, NotFound> {
        self.table.group_mut(id).ok_or(NotFound::Group)?.muted = muted;
        let mut effects = Effects { save: true, ..Effects::notice(Notice::Mute(id.to_owned())) };
        self.push_group(id, false, &mut effects);
        Ok(effects)
    }

    /// Moves a group to another station.
    ///
    /// # Errors
    /// [`NotFound::Group`], [`NotFound::Station`].
    pub fn set_stream(&mut self, id: &str, station: &str) -> Result<Effects, NotFound> {
        self.table.group(id).ok_or(NotFound::Group)?;
        let station = match self.stations.find(station) {
            Some(_) => station.to_owned(),
            // Music Assistant moves groups back to `default`, whatever the default station is
            // called.
            None if station == "default" => self.stations.default_name().to_owned(),
            None => return Err(NotFound::Station),
        };
        self.table.group_mut(id).ok_or(NotFound::Group)?.station = station;
        let mut effects = Effects { save: true, ..Effects::notice(Notice::Stream(id.to_owned())) };
        self.push_group(id, true, &mut effects);
        Ok(effects)
    }

    /// Names a group.
    ///
    /// # Errors
    /// [`NotFound::Group`].
    pub fn set_group_name(&mut self, id: &str, name: &str) -> Result<Effects, NotFound> {
        self.table.group_mut(id).ok_or(NotFound::Group)?.name = client::clip(name);
        Ok(Effects { save: true, ..Effects::notice(Notice::GroupName(id.to_owned())) })
    }

    /// Makes these clients, as far as they exist, the members of the group. A client that is
    /// removed gets a new group with the same station; groups that become empty are removed,
    /// including this one.
    ///
    /// # Errors
    /// [`NotFound::Group`].
    pub fn set_clients(&mut self, id: &str, wanted: &[String]) -> Result<Effects, NotFound> {
        let station = self.table.group(id).ok_or(NotFound::Group)?.station.clone();
        let chosen: HashSet<&str> = wanted.iter().map(String::as_str).collect();
        let leave = self.table.members(id).filter(|client| !chosen.contains(client.id.as_str()));
        let leave: Vec<String> = leave.map(|client| client.id.clone()).collect();
        let mut effects = Effects { save: true, ..Effects::notice(Notice::Server) };
        for name in wanted {
            let from = self.table.client(name).map(|(from, _)| from).filter(|from| from.id != id);
            let Some(from) = from else { continue };
            let moved = from.station != station;
            self.table.move_client(name, id);
            self.push_client(name, moved, &mut effects);
        }
        for name in leave {
            let own = self.add_group(station.clone());
            self.table.move_client(&name, &own);
            self.push_client(&name, false, &mut effects);
        }
        Ok(effects)
    }

    /// Adds a station under the number that the audio backend gave it.
    pub fn add_station(&mut self, number: usize, info: StationInfo) {
        self.stations.add(number, info);
    }

    /// Announces that a station is about to be replaced under the same name: its clients get the
    /// new buffer length.
    pub fn change_station(&mut self, number: usize, info: StationInfo) -> Effects {
        let mut effects = Effects { save: true, ..Effects::default() };
        let ids = self.table.groups_of(&info.name);
        let buffer_ms = info.buffer_ms;
        let before = self.stations.add(number, info);
        let same = before.is_some_and(|before| before.buffer_ms == buffer_ms);
        for id in ids.iter().filter(|_| !same) {
            self.table.mark_changed(id);
            self.push_group(id, false, &mut effects);
        }
        effects
    }

    /// Announces that a station is about to be removed: its groups move to the default one.
    pub fn remove_station(&mut self, number: usize) -> Effects {
        let Some(info) = self.stations.remove(number) else { return Effects::default() };
        let mut effects = Effects { save: true, ..Effects::default() };
        let default = self.stations.default_name().to_owned();
        for id in self.table.groups_of(&info.name) {
            if let Some(group) = self.table.group_mut(&id) {
                group.station.clone_from(&default);
            }
            self.push_group(&id, true, &mut effects);
            effects.notices.push(Notice::Stream(id));
        }
        effects
    }

    /// Restores the saved groups. Stations that no longer exist are replaced by the default one,
    /// and duplicate clients are dropped.
    #[must_use]
    pub fn restore(&mut self, groups: Vec<SavedGroup>) -> usize {
        let mut dropped = 0;
        for SavedGroup { mut group, clients } in groups {
            if self.stations.find(&group.station).is_none() {
                group.station = self.stations.default_name().to_owned();
            }
            if group.id.is_empty() || self.table.group(&group.id).is_some() {
                group.id = self.new_id();
            }
            let (id, mut group) = (group.id.clone(), Some(group));
            for client in clients {
                if self.table.client(&client.id).is_some() {
                    continue;
                }
                if self.table.remembered() >= MAX_CLIENTS {
                    dropped += 1;
                    continue;
                }
                // A group is added with its first client, so that none is empty.
                if let Some(group) = group.take() {
                    self.table.add_group(group);
                }
                self.table.add_client(&id, client);
            }
        }
        dropped
    }

    /// The greeting for unknown clients.
    #[must_use]
    pub fn newcomer_greeting(&self) -> Option<Greeting> {
        let client = self.limits.new_client(String::new());
        let group = Group { station: self.stations.default_name().to_owned(), ..Group::default() };
        self.stations.greeting(&group, &client)
    }

    /// The greeting for a known client.
    #[must_use]
    pub fn greeting_of(&self, client: &str) -> Option<Greeting> {
        let Some((group, client)) = self.table.client(client) else {
            let (group, client) = self.expected(client)?;
            return self.stations.greeting(&group, &client);
        };
        let mut greeting = self.stations.greeting(group, client)?;
        if !client.plays_all() {
            greeting.station = Greeting::DEFER_TO_CONTROL;
        }
        Some(greeting)
    }

    fn handle_hello(
        &mut self,
        session: SessionId,
        (peer, hello): (IpAddr, &Hello),
        (answered, volume): (Option<Greeting>, ClientInfo),
        now: WallTime,
    ) -> Effects {
        let kick = |cause| Effects {
            commands: vec![SessionCommand::Kick { session, cause }],
            ..Effects::default()
        };
        let Some(id) = client_id(hello) else { return kick(KickReason::Unidentified) };
        let known = self.table.client(&id).is_some();
        let mut effects = Effects { save: true, ..Effects::default() };
        if !known {
            let Some(room) = self.make_room() else { return kick(KickReason::Full) };
            let (group, client) = self.arrival(&id, volume);
            let client = Client { transient: room == ClientRetention::Transient, ..client };
            self.table.add_client(&group, client);
        }
        self.absent_browsers.remove(&id);
        // Two machines may have one id, because one is a copy of the other. Both play: as each
        // connects again when its session is ended, neither would play otherwise.
        let oldest = self.table.connect(&id, session, now);
        effects.commands.extend(
            oldest.map(|session| SessionCommand::Kick { session, cause: KickReason::Replaced }),
        );
        if let Some(client) = self.table.client_mut(&id) {
            client.update_from_hello(peer, hello);
        }
        if let Some((group, client)) = self.table.client(&id) {
            push_difference(&self.stations, group, client, answered, &mut effects);
        }
        effects.notices.push(if known { Notice::Connected(id) } else { Notice::Server });
        effects
    }

    fn handle_left(&mut self, session: SessionId, now: WallTime) -> Effects {
        let newest = self.table.with_session(session).and_then(|client| client.session);
        let Some(client) = self.table.disconnect(session, now) else { return Effects::default() };
        let id = client.id.clone();
        if client.session.is_some() {
            // The session before it goes on, with another address.
            let is_changed = newest == Some(session);
            return if is_changed {
                Effects::notice(Notice::Connected(id))
            } else {
                Effects::default()
            };
        }
        if client.transient {
            self.table.remove_client(&id);
            return Effects { save: true, ..Effects::notice(Notice::Server) };
        }
        Effects { save: true, ..Effects::notice(Notice::Disconnected(id)) }
    }

    /// Adds a group that is about to get its first client; returns its id.
    fn add_group(&mut self, station: String) -> String {
        let id = self.new_id();
        self.table.add_group(Group::new(id.clone(), station));
        id
    }

    fn new_id(&mut self) -> String {
        let table = &self.table;
        self.ids.next_unused(|id| table.group(id).is_some())
    }

    fn push(&self, client: &str, notice: Notice) -> Effects {
        let mut effects = Effects { save: true, ..Effects::notice(notice) };
        self.push_client(client, false, &mut effects);
        effects
    }

    fn push_group(&self, id: &str, moved: bool, effects: &mut Effects) {
        let Some(group) = self.table.group(id) else { return };
        for client in self.table.members(id) {
            push_one(&self.stations, group, client, moved.then_some(Move::Join), effects);
        }
    }

    fn push_client(&self, id: &str, moved: bool, effects: &mut Effects) {
        if let Some((group, client)) = self.table.client(id) {
            push_one(&self.stations, group, client, moved.then_some(Move::Join), effects);
        }
    }
}

/// How a client gets to its station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// It begins to play it.
    Join,
    /// It plays it, and continues with another sound.
    Continue,
}

fn push_settings(session: SessionId, greeting: Greeting, effects: &mut Effects) {
    effects.commands.push(SessionCommand::SetSettings { session, settings: greeting.settings });
}

fn push_station(
    session: SessionId,
    Greeting { station, .. }: Greeting,
    client: &Client,
    change: Move,
    effects: &mut Effects,
) {
    let (sound, continues) = (client.sound(), change == Move::Continue);
    effects.commands.push(SessionCommand::MoveClient { session, station, sound, continues });
}

/// Settings of all sessions of a client, and its station if that is another one.
fn push_one(
    stations: &StationTable,
    group: &Group,
    client: &Client,
    moved: Option<Move>,
    effects: &mut Effects,
) {
    let Some(greeting) = stations.greeting(group, client) else { return };
    for session in client.sessions() {
        push_settings(session, greeting, effects);
        if let Some(change) = moved {
            push_station(session, greeting, client, change, effects);
        }
    }
}

/// Commands for a new session, as far as the reactor has not already `answered` its Hello.
fn push_difference(
    stations: &StationTable,
    group: &Group,
    client: &Client,
    answered: Option<Greeting>,
    effects: &mut Effects,
) {
    let (Some(session), Some(greeting)) = (client.session, stations.greeting(group, client)) else {
        return;
    };
    // Settings go first: a client needs its buffer length before the codec header.
    if answered.is_none_or(|answered| answered.settings != greeting.settings) {
        push_settings(session, greeting, effects);
    }
    let already_sent =
        |answered: Greeting| answered.station == greeting.station && client.plays_all();
    if !answered.is_some_and(already_sent) {
        push_station(session, greeting, client, Move::Join, effects);
    }
}

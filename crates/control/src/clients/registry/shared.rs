//! Settings of clients and groups that come from the other nodes of a cluster.
//!
//! They are kept beside the clients: most of them are of clients that have never been here, which
//! controllers would otherwise see as disconnected clients of this server. A client that connects
//! for the first time gets what is kept for it, and the reactors answer its Hello with that.

use aulos_proto::nats::{GroupSettings, SettingsKey, SettingsRecord, SharedClientSettings};
use aulos_proto::snap::wire::ClientInfo;

use super::client::{Client, Group, MIN_LATENCY_MS, VolumeLimits, clip};
use super::{Effects, MAX_CLIENTS, Notice, Registry};

impl Registry {
    /// Takes over a record of another node, as far as this one can have it: a volume up to its own
    /// limit, and a station that exists here.
    pub fn apply_shared(&mut self, key: &SettingsKey, record: SettingsRecord) -> Effects {
        match (key, record) {
            (SettingsKey::Client(id), SettingsRecord::Client(mut settings)) => {
                settings.name = clip(&settings.name);
                let effects = self.apply_client(id, &settings);
                let clients = &mut self.shared.clients;
                if clients.len() < MAX_CLIENTS || clients.contains_key(id) {
                    clients.insert(id.clone(), settings);
                }
                self.table.mark_client_changed(id);
                effects
            }
            (SettingsKey::Group(id), SettingsRecord::Group(mut settings)) => {
                settings.name = clip(&settings.name);
                let effects = self.apply_group(id, &settings);
                let groups = &mut self.shared.groups;
                if groups.len() < MAX_CLIENTS || groups.contains_key(id) {
                    groups.insert(id.clone(), settings);
                }
                let clients = self.shared.clients.iter().filter(|(_, one)| one.group == *id);
                for (id, _) in clients {
                    self.table.mark_client_changed(id);
                }
                effects
            }
            _ => Effects::default(),
        }
    }

    /// A client that connects for the first time, with what other nodes know of it, and its group.
    /// One that nobody knows keeps the `volume` that it has.
    pub(super) fn arrival(&mut self, id: &str, volume: ClientInfo) -> (String, Client) {
        let shared = self.shared.clients.get(id).cloned();
        let group = self.shared.arrival_group(&self.table, &self.stations, shared.as_ref());
        let (known, group) = match self.table.group(&group.id) {
            Some(_) => (true, group),
            None if group.id.is_empty() => (false, Group { id: self.new_id(), ..group }),
            None => (false, group),
        };
        let group_id = group.id.clone();
        if !known {
            self.table.add_group(group);
        }
        let mut client = arrived_client(self.limits, id, shared.as_ref());
        if shared.is_none() && volume != ClientInfo::default() {
            client.follow(volume, self.limits.cap);
        }
        (group_id, client)
    }

    /// A client that is not known here, and the group that it would have.
    pub(super) fn expected(&self, id: &str) -> Option<(Group, Client)> {
        let shared = self.shared.clients.get(id)?;
        let group = self.shared.arrival_group(&self.table, &self.stations, Some(shared));
        Some((group, arrived_client(self.limits, id, Some(shared))))
    }

    fn apply_client(&mut self, id: &str, settings: &SharedClientSettings) -> Effects {
        let (cap, before) = (self.limits.cap, client_settings(self, id));
        let Some(before) = before.filter(|before| before != settings) else {
            return Effects::default();
        };
        let station =
            |registry: &Self| registry.table.client(id).map(|(group, _)| group.station.clone());
        let old_station = station(self);
        if let Some(client) = self.table.client_mut(id) {
            set_client(client, settings, cap);
        }
        if !settings.group.is_empty() && settings.group != before.group {
            if self.table.group(&settings.group).is_none() {
                let group = self.shared.arrival_group(&self.table, &self.stations, Some(settings));
                self.table.add_group(group);
            }
            self.table.move_client(id, &settings.group);
        }
        let moved = station(self) != old_station;
        let mut effects = Effects { save: true, ..Effects::default() };
        self.push_client(id, moved, &mut effects);
        let changes = [
            (before.name != settings.name, Notice::ClientName(id.to_owned())),
            (before.latency_ms != settings.latency_ms, Notice::Latency(id.to_owned())),
            (
                (before.volume, before.muted, before.cap)
                    != (settings.volume, settings.muted, settings.cap),
                Notice::Volume(id.to_owned()),
            ),
            (before.group != settings.group, Notice::Server),
        ];
        effects.notices.extend(changes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, one)| one));
        effects
    }

    fn apply_group(&mut self, id: &str, settings: &GroupSettings) -> Effects {
        let Some(before) = group_settings(self, id).filter(|before| before != settings) else {
            return Effects::default();
        };
        let has_station = self.stations.find(&settings.station).is_some();
        let moved = has_station && before.station != settings.station;
        if let Some(group) = self.table.group_mut(id) {
            group.name.clone_from(&settings.name);
            group.muted = settings.muted;
            if moved {
                group.station.clone_from(&settings.station);
            }
        }
        let mut effects = Effects { save: true, ..Effects::default() };
        self.push_group(id, moved, &mut effects);
        let changes = [
            (before.name != settings.name, Notice::GroupName(id.to_owned())),
            (before.muted != settings.muted, Notice::Mute(id.to_owned())),
            (moved, Notice::Stream(id.to_owned())),
        ];
        effects.notices.extend(changes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, one)| one));
        effects
    }
}

fn arrived_client(limits: VolumeLimits, id: &str, shared: Option<&SharedClientSettings>) -> Client {
    let mut client = limits.new_client(id.to_owned());
    if let Some(shared) = shared {
        set_client(&mut client, shared, limits.cap);
    }
    client
}

/// The settings of a client that other nodes should know; none for one that is not remembered.
pub(crate) fn client_settings(registry: &Registry, id: &str) -> Option<SharedClientSettings> {
    let (group, client) = registry.table.client(id).filter(|(_, client)| !client.transient)?;
    Some(SharedClientSettings {
        name: client.name.clone(),
        volume: client.volume,
        muted: client.muted,
        cap: client.cap,
        latency_ms: client.latency_ms,
        group: group.id.clone(),
    })
}

/// The settings of a group that other nodes should know.
pub(crate) fn group_settings(registry: &Registry, id: &str) -> Option<GroupSettings> {
    let Group { name, station, muted, .. } = registry.table.group(id)?;
    Some(GroupSettings { name: name.clone(), muted: *muted, station: station.clone() })
}

/// Whether a client has the settings of one that has never been changed. Its group is not
/// compared.
pub(crate) fn is_unchanged_client(registry: &Registry, settings: &SharedClientSettings) -> bool {
    let Client { name, volume, muted, cap, latency_ms, .. } =
        registry.limits.new_client(String::new());
    let SharedClientSettings { group, .. } = settings;
    let new = SharedClientSettings { name, volume, muted, cap, latency_ms, group: group.clone() };
    *settings == new && registry.table.members(group).count() == 1
}

/// Whether a group has the settings of one that has never been changed.
pub(crate) fn is_unchanged_group(registry: &Registry, settings: &GroupSettings) -> bool {
    let GroupSettings { name, muted, station } = settings;
    name.is_empty() && !muted && station == registry.stations.default_name()
}

fn set_client(client: &mut Client, settings: &SharedClientSettings, cap: u8) {
    client.name.clone_from(&settings.name);
    client.cap = settings.cap.min(100);
    client.volume = settings.volume.min(client.cap).min(cap);
    client.muted = settings.muted;
    client.latency_ms = settings.latency_ms.max(MIN_LATENCY_MS);
    client.volume_by_client = false;
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::backend::test_events::{arrival, hello_of};
    use crate::backend::{SessionCommand, SessionId};
    use crate::clients::registry::{StationInfo, WallTime};

    fn registry() -> Registry {
        let station = |name: &str| StationInfo { name: name.to_owned(), buffer_ms: 1_000 };
        Registry::new(vec![station("default"), station("jazz")], 1)
    }

    fn hello(registry: &mut Registry, session: u64, id: &str) -> Effects {
        let hello = hello_of(id);
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let session = SessionId(session);
        let event = arrival(session, peer, hello);
        registry.apply(event, WallTime::default())
    }

    fn settings(volume: u8, group: &str) -> SettingsRecord {
        SettingsRecord::Client(SharedClientSettings {
            name: "Kitchen".into(),
            volume,
            muted: false,
            cap: 100,
            latency_ms: 20,
            group: group.into(),
        })
    }

    fn group(station: &str) -> SettingsRecord {
        SettingsRecord::Group(GroupSettings {
            name: "Ground floor".into(),
            muted: false,
            station: station.into(),
        })
    }

    fn client(id: &str) -> SettingsKey {
        SettingsKey::Client(id.into())
    }

    #[test]
    fn a_client_that_moves_here_has_its_settings_from_the_first_chunk_on() {
        let mut registry = registry();
        // In either order.
        let effects = registry.apply_shared(&client("a"), settings(30, "g1"));
        assert_eq!(effects, Effects::default());
        let effects = registry.apply_shared(&SettingsKey::Group("g1".into()), group("jazz"));
        assert_eq!((effects, registry.table.groups().count()), (Effects::default(), 0));
        assert!(registry.table.take_changed().contains("a"));
        let greeting = registry.greeting_of("a").unwrap();
        assert_eq!((greeting.settings.volume, greeting.station), (30, 1));
        let _effects = hello(&mut registry, 1, "a");
        let (its_group, its) = registry.table.client("a").unwrap();
        assert_eq!((its.name.as_str(), its.volume, its.latency_ms), ("Kitchen", 30, 20));
        assert_eq!((its_group.id.as_str(), its_group.station.as_str()), ("g1", "jazz"));
        assert_eq!(its_group.name, "Ground floor");
        assert_eq!(registry.greeting_of("a"), Some(greeting));
        // The second one of the group joins it.
        drop(registry.apply_shared(&client("b"), settings(30, "g1")));
        let _effects = hello(&mut registry, 2, "b");
        assert_eq!((registry.table.groups().count(), registry.table.members("g1").count()), (1, 2));
    }

    #[test]
    fn what_a_server_cannot_have_it_leaves() {
        let mut registry = registry();
        registry.set_volume_limits(50, 60);
        drop(registry.apply_shared(&client("a"), settings(90, "g1")));
        drop(registry.apply_shared(&SettingsKey::Group("g1".into()), group("elsewhere")));
        let _effects = hello(&mut registry, 1, "a");
        let (its_group, its) = registry.table.client("a").unwrap();
        assert_eq!((its.volume, its_group.station.as_str()), (60, "default"));
    }

    #[test]
    fn a_client_that_is_here_follows_and_controllers_are_told() {
        let mut registry = registry();
        let _effects = hello(&mut registry, 1, "a");
        let own = client_settings(&registry, "a").unwrap();
        assert!(is_unchanged_client(&registry, &own));
        let effects = registry.apply_shared(&client("a"), settings(30, &own.group));
        let told = [
            Notice::ClientName("a".into()),
            Notice::Latency("a".into()),
            Notice::Volume("a".into()),
        ];
        assert_eq!(effects.notices, told);
        let [SessionCommand::SetSettings { settings: sent, .. }] = &effects.commands[..] else {
            panic!("{effects:?}")
        };
        assert_eq!((sent.volume, sent.latency.as_millis()), (30, 20));
        let effects = registry.apply_shared(&SettingsKey::Group(own.group.clone()), group("jazz"));
        assert!(effects.notices.contains(&Notice::Stream(own.group.clone())));
        assert!(matches!(effects.commands[..], [_, SessionCommand::MoveClient { station: 1, .. }]));
        // The same again changes nothing.
        let again = registry.apply_shared(&client("a"), settings(30, &own.group));
        assert_eq!(again, Effects::default());
        // Into a group that is not known yet.
        let effects = registry.apply_shared(&client("a"), settings(30, "g9"));
        assert!(effects.notices.contains(&Notice::Server) && effects.save);
        assert_eq!(registry.table.client("a").unwrap().0.id, "g9");
        assert!(registry.table.group(&own.group).is_none());
    }

    #[test]
    fn records_of_the_wrong_kind_and_beyond_the_limit_are_ignored() {
        let mut registry = registry();
        assert_eq!(registry.apply_shared(&client("a"), group("jazz")), Effects::default());
        for number in 0..MAX_CLIENTS + 3 {
            drop(registry.apply_shared(&client(&number.to_string()), settings(1, "g")));
        }
        assert_eq!(registry.shared.clients.len(), MAX_CLIENTS);
        assert!(registry.expected("0").is_some());
    }
}

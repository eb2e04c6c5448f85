//! Keeps the settings of clients and groups in step with the other nodes of a cluster.
//!
//! The registry marks what may have changed; ten times a second that is compared with what the
//! other nodes were told or have said. So a record that comes from them is not sent back, and a
//! hundred steps of a slider between two looks are one change.

use std::collections::{HashMap, HashSet};

use aulos_proto::nats::{SettingsKey, SettingsRecord};

use crate::clients::registry::{Registry, shared};
use crate::cluster::{ClusterLink, SettingsChange};
use crate::effects::Effects;

/// What the other nodes have, as far as it concerns clients and groups of this one.
#[derive(Debug, Default)]
pub(crate) struct SettingsSync {
    known: HashMap<SettingsKey, SettingsRecord>,
    /// Clients that may have changed, with their groups.
    stale: HashSet<String>,
}

impl SettingsSync {
    /// Applies the next record of another node, if there is one.
    pub(crate) fn receive(
        &mut self,
        link: &dyn ClusterLink,
        registry: &mut Registry,
    ) -> Option<Effects> {
        let (key, record) = link.take_settings()?;
        let effects = registry.apply_shared(&key, record);
        let own = match &key {
            SettingsKey::Client(id) => {
                shared::client_settings(registry, id).map(SettingsRecord::Client)
            }
            SettingsKey::Group(id) => {
                shared::group_settings(registry, id).map(SettingsRecord::Group)
            }
        };
        if let Some(own) = own {
            self.known.insert(key, own);
        }
        Some(effects)
    }

    /// Tells the other nodes of these clients and of those that could not be told of before.
    /// Without a link there is nobody to tell.
    pub(crate) fn send_changes(
        &mut self,
        link: Option<&dyn ClusterLink>,
        registry: &Registry,
        changed: &HashSet<String>,
    ) {
        match link {
            Some(link) => {
                self.note(changed);
                self.send(registry, link);
                self.tidy(registry);
            }
            None => self.stale.clear(),
        }
    }

    /// Notes clients that may have changed.
    pub(crate) fn note(&mut self, changed: &HashSet<String>) {
        self.stale.extend(changed.iter().cloned());
    }

    /// Sends what has changed; what the link does not take is sent next time.
    fn send(&mut self, registry: &Registry, link: &dyn ClusterLink) {
        let known = &mut self.known;
        let mut is_busy = false;
        self.stale.retain(|id| {
            if is_busy {
                return true;
            }
            let client = shared::client_settings(registry, id);
            let Some(client) = client else {
                known.remove(&SettingsKey::Client(id.clone()));
                return false;
            };
            let group = client.group.clone();
            let is_unchanged = shared::is_unchanged_client(registry, &client);
            let key = SettingsKey::Client(id.clone());
            let record = SettingsRecord::Client(client);
            is_busy = !send_one(known, link, key, record, is_unchanged);
            if let Some(settings) = shared::group_settings(registry, &group).filter(|_| !is_busy) {
                let is_unchanged = shared::is_unchanged_group(registry, &settings);
                let record = SettingsRecord::Group(settings);
                is_busy = !send_one(known, link, SettingsKey::Group(group), record, is_unchanged);
            }
            is_busy
        });
    }

    /// Forgets groups that are gone.
    fn tidy(&mut self, registry: &Registry) {
        if self.known.len() > 2 * MAX_FORGOTTEN {
            self.known.retain(|key, _| match key {
                SettingsKey::Client(id) => registry.table.client(id).is_some(),
                SettingsKey::Group(id) => registry.table.group(id).is_some(),
            });
        }
    }
}

/// Sends a record that differs from what is known; false if the link is busy. One that has never
/// been changed is not offered.
fn send_one(
    known: &mut HashMap<SettingsKey, SettingsRecord>,
    link: &dyn ClusterLink,
    key: SettingsKey,
    after: SettingsRecord,
    is_unchanged: bool,
) -> bool {
    let before = known.get(&key).cloned();
    if before.as_ref() == Some(&after) {
        return true;
    }
    let is_offer = before.is_none();
    let change = SettingsChange { key: key.clone(), before, after: after.clone() };
    let is_sent = is_offer && is_unchanged || link.change_settings(change);
    if is_sent {
        known.insert(key, after);
    }
    is_sent
}

/// Records that are applied at a time: the lock is held meanwhile.
pub(crate) const MAX_APPLIED: usize = 256;

/// Entries of groups and clients that are gone before they are looked for.
const MAX_FORGOTTEN: usize = 2 * crate::clients::registry::MAX_CLIENTS;

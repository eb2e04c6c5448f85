//! Settings of clients and groups that come from the other nodes of a cluster, and go to them.

use aulos_proto::nats::{SettingsKey, SettingsRecord};

use crate::clients::registry::shared;
use crate::control::state::{Control, ControlState};

impl Control {
    /// Applies what other nodes have changed, tells them what has changed here, and refreshes the
    /// greetings of both.
    pub(crate) fn sync_settings(&self, inner: &mut ControlState) {
        let link = self.cluster.as_ref().filter(|link| link.shares_settings());
        for _ in 0..MAX_APPLIED {
            let Some((key, record)) = link.and_then(|link| link.take_settings()) else { break };
            let effects = inner.registry.apply_shared(&key, record);
            let own = match &key {
                SettingsKey::Client(id) => {
                    shared::client_settings(&inner.registry, id).map(SettingsRecord::Client)
                }
                SettingsKey::Group(id) => {
                    shared::group_settings(&inner.registry, id).map(SettingsRecord::Group)
                }
            };
            if let Some(own) = own {
                inner.settings.known.insert(key, own);
            }
            self.apply_effects(inner, effects, None);
        }
        let ControlState { greetings, registry, settings, .. } = inner;
        let changed = registry.table.take_changed();
        if let Some(link) = link {
            settings.note(&changed);
            settings.send(registry, &**link);
            settings.tidy(registry);
        } else {
            settings.stale.clear();
        }
        let open = !self.access.rules().requires_login();
        greetings.refresh(registry, changed, open, &*self.backend);
    }
}

/// Records that are applied at a time: the lock is held meanwhile.
const MAX_APPLIED: usize = 256;

//! Groups in Snapcast's JSON, for controllers and for `server.json`; `saved_json` reads them back.
//!
//! Serialization writes straight into text: the status of a large installation is rendered on every
//! request, and building it as a tree took eight times as long.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Registry;
use super::client::{Client, Group, RememberedGroup};
use super::client_json::ClientJson;

/// A group as `Group.GetStatus` shows it.
#[derive(Debug, Serialize)]
pub struct GroupJson<'a> {
    clients: GroupMembers<'a>,
    id: &'a str,
    muted: bool,
    name: &'a str,
    stream_id: &'a str,
}

impl<'a> GroupJson<'a> {
    /// A group of this registry.
    #[must_use]
    pub fn new(registry: &'a Registry, group: &'a Group) -> Self {
        Self {
            clients: GroupMembers::All { registry, group: &group.id },
            id: &group.id,
            muted: group.muted,
            name: &group.name,
            stream_id: &group.station,
        }
    }

    /// The same for the state file.
    pub(super) fn saved(saved: &'a RememberedGroup) -> Self {
        let RememberedGroup { group, clients } = saved;
        Self {
            clients: GroupMembers::Saved(clients),
            id: &group.id,
            muted: group.muted,
            name: &group.name,
            stream_id: &group.station,
        }
    }
}

/// The clients of a group.
#[derive(Debug)]
enum GroupMembers<'a> {
    /// For controllers.
    All { registry: &'a Registry, group: &'a str },
    /// For the state file, with keys that only the file has.
    Saved(&'a [Arc<Client>]),
}

impl Serialize for GroupMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All { registry, group } => {
                serializer.collect_seq(registry.table.members_json(group).map(|(_, json)| json))
            }
            Self::Saved(clients) => {
                serializer.collect_seq(clients.iter().map(|client| ClientJson::saved(client)))
            }
        }
    }
}

/// Serializes to text. Cannot fail: keys are strings and numbers are finite.
pub(crate) fn to_json_text(shape: &impl Serialize) -> String {
    serde_json::to_string(shape).unwrap_or_default()
}

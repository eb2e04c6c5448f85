//! Groups in Snapcast's JSON, for controllers and for `server.json`; `saved_json` reads them back.
//!
//! Serialization writes straight into text: the status of a large installation is rendered on every
//! request, and building it as a tree took eight times as long.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::client::Group;
use super::client_json::ClientJson;
use super::table::{ClientRow, GroupView};

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
    /// A group for controllers.
    #[must_use]
    pub(crate) fn new(view: &'a GroupView) -> Self {
        Self::of(&view.group, GroupMembers::All(&view.clients))
    }

    /// The same for the state file.
    pub(super) fn saved(view: &'a GroupView) -> Self {
        Self::of(&view.group, GroupMembers::Saved(&view.clients))
    }

    fn of(group: &'a Group, clients: GroupMembers<'a>) -> Self {
        let Group { id, name, station: stream_id, muted } = group;
        Self { clients, id, muted: *muted, name, stream_id }
    }
}

/// The clients of a group.
#[derive(Debug)]
enum GroupMembers<'a> {
    /// For controllers.
    All(&'a [Arc<ClientRow>]),
    /// For the state file, with keys that only the file has.
    Saved(&'a [Arc<ClientRow>]),
}

impl Serialize for GroupMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(clients) => serializer.collect_seq(clients.iter().map(|row| row.json())),
            Self::Saved(clients) => {
                serializer.collect_seq(clients.iter().map(|row| ClientJson::saved(row.client())))
            }
        }
    }
}

/// Serializes to text. Cannot fail: keys are strings and numbers are finite.
pub(crate) fn to_json_text(shape: &impl Serialize) -> String {
    serde_json::to_string(shape).unwrap_or_default()
}

//! What a change causes: commands, notices, a save.

use crate::backend::SessionCommand;

/// The effects of a change; the order inside each list matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a change must be notified"]
pub struct Effects {
    /// For the audio backend.
    pub commands: Vec<SessionCommand>,
    /// For every controller except the one that made the change.
    pub notices: Vec<Notice>,
    /// Whether the state has to be saved.
    pub save: bool,
    /// An id that has turned out to be shared; reported once while it is.
    pub shared: Option<SharedId>,
}

/// A change to report to controllers. The strings are ids of clients and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A client has connected.
    Connected(String),
    /// A client has disconnected.
    Disconnected(String),
    /// A client's volume or mute has changed.
    Volume(String),
    /// A client's latency has changed.
    Latency(String),
    /// A client's name has changed.
    ClientName(String),
    /// A client's channel map has changed.
    ChannelMap(String),
    /// A group's mute has changed.
    Mute(String),
    /// A group's station has changed.
    Stream(String),
    /// A group's name has changed.
    GroupName(String),
    /// Groups or the set of clients have changed.
    Server,
}

/// An id with which two machines are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedId {
    /// The id.
    pub id: String,
    /// The address of the machine that connected first, and of the other one.
    pub addresses: [String; 2],
}

impl Effects {
    pub(crate) fn notice(notice: Notice) -> Self {
        Self { notices: vec![notice], ..Self::default() }
    }
}

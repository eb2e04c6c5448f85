//! What a change causes: commands, notices, a save.

use serde_json::Value;

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
    /// Whether pages have to be shown something new, also without a save.
    pub is_shown: bool,
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
    /// A client's sound has changed.
    Sound(String),
    /// A group's mute has changed.
    Mute(String),
    /// A group's station has changed.
    Stream(String),
    /// A group's name has changed.
    GroupName(String),
    /// Groups or the set of clients have changed.
    Server,
    /// Something else: the method and the parameters of its notification.
    Message(&'static str, Value),
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

    /// A notification of something that pages show.
    pub(crate) fn message(method: &'static str, params: Value) -> Self {
        Self { is_shown: true, ..Self::notice(Notice::Message(method, params)) }
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.commands.extend(others.commands);
        self.notices.extend(others.notices);
        self.save |= others.save;
        self.is_shown |= others.is_shown;
    }
}

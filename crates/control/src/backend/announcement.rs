//! Announcements and plays, and what happens to them.

use std::sync::{Arc, Mutex, PoisonError};

use aulos_config::SourceConfig;
use aulos_core::{Db, Lufs, Span};
use aulos_engine::announce::{Ducking, Layer, Priority};
use aulos_engine::generate::TestTone;
use aulos_proto::http::HttpUrl;
use aulos_session::radio::HostRule;
use aulos_session::talk::TalkSound;

use super::{ClientSound, SessionId};

/// A sound over a station's programme, or in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// A number that is never reused in the lifetime of a server.
    pub id: u64,
    /// Whether it is an announcement or a play.
    pub layer: Layer,
    /// Which clients of the station hear it.
    pub target: AnnouncementTarget,
    /// Which announcements to the same target it interrupts.
    pub priority: Priority,
    /// What sounds before it.
    pub lead: Option<AnnouncementLead>,
    /// Its sound.
    pub source: AnnouncementSource,
    /// What it does to the programme.
    pub ducking: Ducking,
    /// Additional gain of the announcement, on top of the one that matches the station's loudness.
    pub gain: Db,
    /// Whether to match the loudness of a normalized station.
    pub normalize: bool,
    /// The loudness to bring it to, also where the station is not normalized.
    pub loudness: Option<Lufs>,
    /// Of an announcement: replaces those for the same target that wait with the same key.
    pub key: Option<String>,
}

/// Which clients of a station hear an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementTarget {
    /// All of them.
    Station,
    /// Those of the group with this id.
    Group(String),
    /// The one with this id.
    Client(String),
}

/// The sessions of the connected clients of a target, and what each plays: `None` if
/// the target does not play the station of this number.
pub type TargetSessions<'a> =
    dyn Fn(usize, &AnnouncementTarget) -> Option<Vec<(SessionId, ClientSound)>> + 'a;

/// What sounds before an announcement.
#[derive(Clone, Debug, PartialEq)]
pub enum AnnouncementLead {
    /// The built-in chime.
    Chime,
    /// A sound.
    Sound(AnnouncementSource),
}

/// Where the sound of an announcement comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum AnnouncementSource {
    /// A finite file.
    File(SourceConfig),
    /// A URL, and the hosts that it may lead to.
    Url(HttpUrl, Vec<HostRule>),
    /// A generated tone of this length.
    TestTone(TestTone, Span),
    /// What is spoken meanwhile.
    Live(LiveSound),
}

/// The sound of a talk, which the first to ask for it gets.
#[derive(Clone, Debug)]
pub struct LiveSound(Arc<Mutex<Option<TalkSound>>>);

impl LiveSound {
    /// The sound, before it is taken.
    #[must_use]
    pub fn new(sound: TalkSound) -> Self {
        Self(Arc::new(Mutex::new(Some(sound))))
    }

    /// The sound, unless it has been taken.
    #[must_use]
    pub fn take(&self) -> Option<TalkSound> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PartialEq for LiveSound {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A state change of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementEvent {
    /// Clients hear the programme ramp down for it.
    Started,
    /// It has ended, with the outcome; of one that has started, clients have heard the end.
    Ended(AnnouncementOutcome),
}

/// How an announcement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementOutcome {
    /// It was played to its end.
    Played,
    /// It was cancelled.
    Cancelled,
    /// Another one with the same key took its place in the queue, or a newer play its place on air.
    Replaced,
    /// One of higher priority took its place.
    Interrupted,
    /// It exceeded the maximum length.
    TooLong,
    /// Its station was changed or removed.
    StationGone,
    /// It cannot be played, and why.
    Failed(String),
}

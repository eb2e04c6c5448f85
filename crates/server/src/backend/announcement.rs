//! Announcements, and what happens to them.

use aulos_config::SourceConfig;
use aulos_core::Db;

/// An announcement over a station's programme.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// A number that is never reused in the lifetime of a server.
    pub id: u64,
    /// A finite file.
    pub source: SourceConfig,
    /// Gain of the programme while it plays.
    pub duck: Db,
    /// Additional gain of the announcement, on top of the one that matches the station's loudness.
    pub gain: Db,
    /// Whether to match the loudness of a normalized station.
    pub normalize: bool,
}

/// A state change of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementEvent {
    /// The programme ramps down for it.
    Started,
    /// It has ended, with the outcome.
    Ended(AnnouncementOutcome),
}

/// How an announcement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnouncementOutcome {
    /// It was played to its end.
    Played,
    /// It was cancelled.
    Cancelled,
    /// It exceeded the maximum length.
    TooLong,
    /// Its station was changed or removed.
    StationGone,
    /// It cannot be played, and why.
    Failed(String),
}

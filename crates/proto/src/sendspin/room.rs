//! What a client is told of its group: its name, what plays, and its volume.

use aulos_core::Instant;
use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use super::frame::micros;

/// The group of a client.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "what the driver knows")]
pub struct RoomState {
    /// Id of the group.
    pub group_id: String,
    /// Its name for people.
    pub group_name: String,
    /// Whether it plays.
    pub playback: PlaybackState,
    /// What plays, for clients with the role `metadata`.
    pub track: TrackInfo,
    /// For clients with the role `controller`.
    pub controller: ControllerState,
}

/// Whether a group plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the two of the protocol")]
pub enum PlaybackState {
    /// It plays.
    Playing,
    /// It does not.
    Stopped,
}

/// What plays; what is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the driver knows")]
pub struct TrackInfo {
    /// The title.
    pub title: Option<String>,
    /// Who plays it.
    pub artist: Option<String>,
    /// The album.
    pub album: Option<String>,
    /// Who made the album.
    pub album_artist: Option<String>,
    /// Where there is a picture.
    pub artwork_url: Option<String>,
    /// The number on the album, from 1.
    pub track: Option<u32>,
    /// The year.
    pub year: Option<u32>,
}

/// What a controller of a group is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what the driver knows")]
pub struct ControllerState {
    /// The mean volume, 0 to 100.
    pub volume: u8,
    /// Whether all are muted.
    pub muted: bool,
    /// Whether the source can be told to play and pause.
    pub can_pause: bool,
    /// Whether it can be told to go to the next and to the previous track.
    pub can_skip: bool,
}

impl RoomState {
    /// The payload of `group/update`.
    pub(super) fn group_update(&self) -> Value {
        json!({
            "playback_state": match self.playback {
                PlaybackState::Playing => "playing",
                PlaybackState::Stopped => "stopped",
            },
            "group_id": self.group_id,
            "group_name": self.group_name,
        })
    }
}

impl TrackInfo {
    /// The object `metadata` of `server/state`. In the first dialects it says what has changed, so
    /// everything is said.
    pub(super) fn to_json(&self, dialect: Dialect, now: Instant) -> Value {
        let keeps_null = !dialect.info().has_whole_states;
        let mut json = Map::new();
        json.insert("timestamp".to_owned(), micros(now).into());
        let number = |number: Option<u32>| number.filter(|number| *number > 0).map(Value::from);
        let text = |text: &Option<String>| text.clone().map(Value::from);
        for (key, value) in [
            ("title", text(&self.title)),
            ("artist", text(&self.artist)),
            ("album_artist", text(&self.album_artist)),
            ("album", text(&self.album)),
            ("artwork_url", text(&self.artwork_url)),
            ("year", number(self.year.filter(|year| (1_000..=2_040).contains(year)))),
            ("track", number(self.track)),
        ] {
            if value.is_some() || keeps_null {
                json.insert(key.to_owned(), value.unwrap_or_default());
            }
        }
        Value::Object(json)
    }
}

impl ControllerState {
    /// The object `controller` of `server/state`.
    pub(super) fn to_json(&self) -> Value {
        let mut commands = vec!["volume", "mute"];
        if self.can_pause {
            commands.extend(["play", "pause", "stop"]);
        }
        if self.can_skip {
            commands.extend(["next", "previous"]);
        }
        json!({
            "supported_commands": commands,
            "volume": self.volume,
            "muted": self.muted,
            "repeat": "off",
            "shuffle": false,
        })
    }
}

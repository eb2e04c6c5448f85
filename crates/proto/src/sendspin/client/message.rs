//! The texts of servers.

use aulos_core::Instant;
use serde_json::Value;

use crate::sendspin::dialect::DialectInfo;
use crate::sendspin::format::SupportedFormat;
use crate::sendspin::frame::instant;
use crate::sendspin::hello::{ARTWORK, CONTROLLER, METADATA, PLAYER};
use crate::sendspin::room::{PlaybackState, TrackInfo};

/// What a server wants of a connection, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(clippy::exhaustive_enums, reason = "the activities of the protocol")]
pub enum ServerActivity {
    /// Nothing now.
    #[default]
    None,
    /// It pairs.
    Pairing,
    /// It plays.
    Playback,
}

/// What a server can be told of its programme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the commands of the protocol that stations have")]
pub struct TransportCommands {
    /// To play.
    pub play: bool,
    /// To pause.
    pub pause: bool,
    /// To stop.
    pub stop: bool,
    /// To go to the next track.
    pub next: bool,
    /// To go to the one before.
    pub previous: bool,
    /// To go to a position.
    pub seek: bool,
}

/// A command for the server's programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the commands of the protocol that stations have")]
pub enum TransportCommand {
    /// Play.
    Play,
    /// Pause.
    Pause,
    /// Stop.
    Stop,
    /// Go to the next track.
    Next,
    /// Go to the track before.
    Previous,
    /// Go to this position, in ms.
    Seek(u32),
    /// Go on by so many ms, or back.
    SeekBy(i32),
}

impl TransportCommand {
    /// Whether a server with these commands takes it.
    #[must_use]
    pub const fn is_in(self, commands: TransportCommands) -> bool {
        match self {
            Self::Play => commands.play,
            Self::Pause => commands.pause,
            Self::Stop => commands.stop,
            Self::Next => commands.next,
            Self::Previous => commands.previous,
            Self::Seek(_) | Self::SeekBy(_) => commands.seek,
        }
    }

    /// The object `controller` of `client/command`.
    pub(super) fn to_json(self) -> Value {
        let plain = |command: &str| serde_json::json!({ "command": command });
        match self {
            Self::Play => plain("play"),
            Self::Pause => plain("pause"),
            Self::Stop => plain("stop"),
            Self::Next => plain("next"),
            Self::Previous => plain("previous"),
            Self::Seek(ms) => serde_json::json!({ "command": "seek", "position_ms": ms }),
            Self::SeekBy(ms) => serde_json::json!({ "command": "seek_relative", "offset_ms": ms }),
        }
    }
}

/// `server/activate`.
#[derive(Debug)]
pub(super) struct Activate {
    /// `None` if one of them is not known.
    pub(super) activity: Option<ServerActivity>,
    /// Those that we have; `None` if they stay.
    pub(super) roles: Option<Roles>,
    /// Whether it pairs by token.
    pub(super) by_token: bool,
}

/// Active roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Roles {
    pub(super) player: bool,
    pub(super) metadata: bool,
    pub(super) controller: bool,
    pub(super) artwork: bool,
}

impl Roles {
    pub(super) const fn is_empty(self) -> bool {
        !self.player && !self.metadata && !self.controller && !self.artwork
    }
}

impl Activate {
    /// `None` without the list of activities, which is required.
    pub(super) fn parse(payload: &Value) -> Option<Self> {
        let activities = payload.get("activities")?.as_array()?;
        let mut activity = Some(ServerActivity::None);
        for name in activities {
            let one = match name.as_str() {
                Some("pairing") => Some(ServerActivity::Pairing),
                Some("playback") => Some(ServerActivity::Playback),
                _ => None,
            };
            activity = activity.zip(one).map(|(most, one)| most.max(one));
        }
        let roles = payload.get("active_roles").and_then(Value::as_array).map(|roles| {
            let has = |name| roles.iter().any(|role| role == name);
            Roles {
                player: has(PLAYER),
                metadata: has(METADATA),
                controller: has(CONTROLLER),
                artwork: has(ARTWORK),
            }
        });
        let method = payload.get("pairing").and_then(|pairing| pairing.get("method"));
        Some(Self { activity, roles, by_token: method.is_some_and(|it| it == "pairing_psk") })
    }
}

/// The three stamps of `server/time`.
pub(super) fn time(payload: &Value) -> Option<[i64; 3]> {
    let number = |key| payload.get(key)?.as_i64();
    let question = number("client_transmitted")?;
    Some([question, number("server_received")?, number("server_transmitted")?])
}

/// The format of `stream/start`; `None` if that is not for a player, or not understood.
pub(super) fn stream(payload: &Value) -> Option<SupportedFormat> {
    SupportedFormat::parse(payload.get("player")?)
}

/// Whether `stream/clear` or `stream/end` is for this role.
pub(super) fn is_for(role: &str, payload: &Value) -> bool {
    let family = |name: &Value| name.as_str().and_then(|name| name.split('@').next()) == Some(role);
    let roles = payload.get("roles").and_then(Value::as_array);
    roles.is_none_or(|roles| roles.iter().any(family))
}

/// `playback_state` of `group/update`.
pub(super) fn playback(payload: &Value) -> Option<PlaybackState> {
    Some(match payload.get("playback_state")?.as_str()? {
        "playing" => PlaybackState::Playing,
        _ => PlaybackState::Stopped,
    })
}

/// The commands of the object `controller` of `server/state`.
pub(super) fn transport(payload: &Value) -> Option<TransportCommands> {
    let commands = payload.get("controller")?.get("supported_commands")?.as_array()?;
    let has = |name| commands.iter().any(|command| command == name);
    Some(TransportCommands {
        play: has("play"),
        pause: has("pause"),
        stop: has("stop"),
        next: has("next"),
        previous: has("previous"),
        seek: has("seek"),
    })
}

/// The object `metadata` of `server/state`: what plays from a time of the server's clock on. In the
/// first dialects it says what has changed since `before`.
pub(super) fn track(
    dialect: DialectInfo,
    payload: &Value,
    before: &TrackInfo,
) -> Option<(Instant, TrackInfo)> {
    let metadata = payload.get("metadata")?;
    let at = instant(metadata.get("timestamp")?.as_i64()?)?;
    let text = |key: &str, before: &Option<String>| match metadata.get(key) {
        None if !dialect.has_whole_states => before.clone(),
        value => value.and_then(Value::as_str).map(clip).filter(|text| !text.is_empty()),
    };
    let number = |key: &str, before: Option<u32>| match metadata.get(key) {
        None if !dialect.has_whole_states => before,
        value => value.and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok()),
    };
    let track = TrackInfo {
        title: text("title", &before.title),
        artist: text("artist", &before.artist),
        album: text("album", &before.album),
        album_artist: text("album_artist", &before.album_artist),
        artwork_url: text("artwork_url", &before.artwork_url),
        track: number("track", before.track),
        year: number("year", before.year),
    };
    Some((at, track))
}

/// A text for people, without control characters and not longer than [`MAX_TEXT`] characters.
pub(super) fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

/// Characters of a text: a title, or the address of a picture.
const MAX_TEXT: usize = 1_000;

//! The texts of clients after their hello.

use serde_json::Value;

use super::artwork::{ArtworkChannels, ChannelChange};
use super::dialect::DialectInfo;
use crate::json::{self, JsonError};

/// A text of a client.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClientMessage {
    /// Asks for the time.
    Time {
        /// Its clock when it asked, in microseconds.
        transmitted: i64,
    },
    State(ClientState),
    /// The picture of a channel is to be another one, in the first dialects.
    Artwork(usize, ChannelChange),
    Command(ControllerCommand),
    /// Its player leaves the group.
    Leave,
    Goodbye(Goodbye),
    /// One that we do not know, or may pass over.
    Other,
}

/// The state of a client; what it does not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientState {
    pub(super) available: Option<bool>,
    pub(super) player: Option<PlayerState>,
    /// The channels of its pictures.
    pub(super) artwork: Option<ArtworkChannels>,
}

/// The state of a player; what it does not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PlayerState {
    pub(super) volume: Option<u8>,
    pub(super) muted: Option<bool>,
    pub(super) output_delay_ms: Option<u32>,
    pub(super) required_lead_ms: Option<u32>,
    pub(super) min_buffer_ms: Option<u32>,
    pub(super) commands: Option<Commands>,
}

impl PlayerState {
    /// This state, with what `earlier` said and this does not.
    pub(super) fn after(self, earlier: Self) -> Self {
        Self {
            volume: self.volume.or(earlier.volume),
            muted: self.muted.or(earlier.muted),
            output_delay_ms: self.output_delay_ms.or(earlier.output_delay_ms),
            required_lead_ms: self.required_lead_ms.or(earlier.required_lead_ms),
            min_buffer_ms: self.min_buffer_ms.or(earlier.min_buffer_ms),
            commands: self.commands.or(earlier.commands),
        }
    }
}

/// Commands that a player takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) volume: bool,
    pub(super) mute: bool,
}

/// A command of a client with the role of a controller, for its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerCommand {
    /// Play, pause, and so on.
    Play,
    /// Pauses.
    Pause,
    /// Stops.
    Stop,
    /// The next track.
    Next,
    /// The track before.
    Previous,
    /// The mean volume of the group, 0 to 100.
    Volume(u8),
    /// Mutes the players of the group, or ends that.
    Mute(bool),
}

/// Why a client ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Goodbye {
    /// It plays for another server.
    AnotherServer,
    /// It is switched off; so long it is not dialled.
    Shutdown,
    /// Its user has ended it.
    UserRequest,
    /// It comes back, or gives another reason.
    Restart,
    /// It wants to be paired first.
    PairingRequired,
    /// We may not do what we want to.
    Unauthorized,
}

impl Goodbye {
    pub(super) fn parse(reason: &str) -> Self {
        match reason {
            "another_server" => Self::AnotherServer,
            "shutdown" => Self::Shutdown,
            "user_request" => Self::UserRequest,
            "pairing_required" => Self::PairingRequired,
            "unauthorized" | "unpaired" => Self::Unauthorized,
            _ => Self::Restart,
        }
    }

    /// The reason in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::AnotherServer => "it plays for another server",
            Self::Shutdown => "it has been switched off",
            Self::UserRequest => "its user has ended the connection",
            Self::Restart => "it restarts",
            Self::PairingRequired => "it wants to be paired first",
            Self::Unauthorized => "it does not let this server in",
        }
    }
}

/// The type and the payload of a text.
pub(super) fn split(bytes: &[u8]) -> Result<(String, Value), JsonError> {
    let Value::Object(mut message) = json::parse(bytes)? else { return Err(JsonError::Syntax) };
    let Some(Value::String(kind)) = message.remove("type") else { return Err(JsonError::Syntax) };
    Ok((kind, message.remove("payload").unwrap_or_default()))
}

impl ClientMessage {
    /// Parses a text; one that does not make sense is [`Self::Other`].
    pub(super) fn parse(dialect: DialectInfo, bytes: &[u8]) -> Result<Self, JsonError> {
        let (kind, payload) = split(bytes)?;
        Ok(match kind.as_str() {
            "client/time" => match payload.get("client_transmitted").and_then(Value::as_i64) {
                Some(transmitted) => Self::Time { transmitted },
                None => Self::Other,
            },
            "client/state" => Self::State(state(dialect, &payload)),
            "stream/request-format" if !dialect.has_artwork_transfers => {
                let change = payload.get("artwork").and_then(|change| {
                    let channel = usize::try_from(change.get("channel")?.as_u64()?).ok()?;
                    Some(Self::Artwork(channel, ChannelChange::parse(dialect, change)))
                });
                change.unwrap_or(Self::Other)
            }
            "client/command" => command(&payload).map_or(Self::Other, Self::Command),
            "client/leave" => Self::Leave,
            "client/goodbye" => {
                let reason = payload.get("reason").and_then(Value::as_str);
                Self::Goodbye(reason.map_or(Goodbye::Restart, Goodbye::parse))
            }
            _ => Self::Other,
        })
    }
}

fn state(dialect: DialectInfo, payload: &Value) -> ClientState {
    // In the first dialects a word, of the client or of its player.
    let word = |of: &Value| of.get("state")?.as_str().map(|state| state == "synchronized");
    let old = word(payload).or_else(|| word(payload.get("player")?));
    let player = payload.get("player").map(|player| {
        let number = |key: &str| player.get(key)?.as_f64();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let millis = |key| number(key).map(|ms| ms.clamp(0.0, MAX_MILLIS) as u32);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let volume = number("volume").map(|volume| volume.clamp(0.0, 100.0) as u8);
        PlayerState {
            volume,
            muted: player.get("muted").and_then(Value::as_bool),
            output_delay_ms: millis(dialect.delay_key),
            required_lead_ms: millis("required_lead_time_ms"),
            min_buffer_ms: millis("min_buffer_ms"),
            commands: player.get("supported_commands").map(commands),
        }
    });
    let artwork = payload.get("artwork").filter(|_| dialect.has_artwork_transfers);
    let artwork = artwork.and_then(|artwork| ArtworkChannels::parse(dialect, artwork));
    let available = payload.get("available").and_then(Value::as_bool).or(old);
    ClientState { available, player, artwork }
}

/// A list of commands that a player takes.
pub(super) fn commands(list: &Value) -> Commands {
    let has = |name| list.as_array().is_some_and(|list| list.iter().any(|own| own == name));
    Commands { volume: has("volume"), mute: has("mute") }
}

fn command(payload: &Value) -> Option<ControllerCommand> {
    let controller = payload.get("controller")?;
    Some(match controller.get("command")?.as_str()? {
        "play" => ControllerCommand::Play,
        "pause" => ControllerCommand::Pause,
        "stop" => ControllerCommand::Stop,
        "next" => ControllerCommand::Next,
        "previous" => ControllerCommand::Previous,
        "volume" => {
            let volume = controller.get("volume")?.as_u64()?.min(100);
            ControllerCommand::Volume(u8::try_from(volume).unwrap_or(100))
        }
        "mute" => ControllerCommand::Mute(controller.get("mute")?.as_bool()?),
        _ => return None,
    })
}

/// Delays and leads are clamped to this.
const MAX_MILLIS: f64 = 30_000.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Dialect;
    use super::*;

    fn parse(dialect: Dialect, text: &str) -> ClientMessage {
        ClientMessage::parse(dialect.info(), text.as_bytes()).unwrap()
    }

    #[test]
    fn texts_of_the_dialects() {
        let player = r#"{"volume": 40, "muted": false, "output_delay_ms": 12, "static_delay_ms": 7,
            "required_lead_time_ms": 250, "min_buffer_ms": 99999, "supported_commands": ["volume"]}"#;
        let text = format!(
            r#"{{"type": "client/state", "payload": {{"available": true, "player": {player}}}}}"#
        );
        let ClientMessage::State(state) = parse(Dialect::Current, &text) else { panic!() };
        let own = state.player.unwrap();
        assert_eq!((state.available, own.volume, own.muted), (Some(true), Some(40), Some(false)));
        assert_eq!((own.output_delay_ms, own.min_buffer_ms), (Some(12), Some(30_000)));
        assert_eq!(own.commands, Some(Commands { volume: true, mute: false }));
        let ClientMessage::State(old) = parse(Dialect::FirstNoise, &text) else { panic!() };
        assert_eq!(old.player.unwrap().output_delay_ms, Some(7));
        for text in [
            r#"{"type": "client/state", "payload": {"state": "error"}}"#,
            r#"{"type": "client/state", "payload": {"player": {"state": "error"}}}"#,
        ] {
            let ClientMessage::State(state) = parse(Dialect::Legacy, text) else { panic!() };
            assert_eq!(state.available, Some(false));
        }
        let text = r#"{"type": "client/command", "payload": {"controller": {"command": "volume", "volume": 300}}}"#;
        let volume = ClientMessage::Command(ControllerCommand::Volume(100));
        assert_eq!(parse(Dialect::Current, text), volume);
        let text = r#"{"type": "client/goodbye", "payload": {"reason": "another_server"}}"#;
        let goodbye = ClientMessage::Goodbye(Goodbye::AnotherServer);
        assert_eq!(parse(Dialect::Legacy, text), goodbye);
        assert_eq!(parse(Dialect::Current, r#"{"type": "client/new"}"#), ClientMessage::Other);
    }

    #[test]
    fn absurd_times_are_clamped() {
        for (value, millis) in [("-5", 0), ("1e300", 30_000), ("30001", 30_000), ("0.9", 0)] {
            let text = format!(
                r#"{{"type": "client/state", "payload": {{"player": {{"output_delay_ms": {value},
                    "required_lead_time_ms": {value}, "min_buffer_ms": {value}}}}}}}"#
            );
            let ClientMessage::State(state) = parse(Dialect::Current, &text) else { panic!() };
            let own = state.player.unwrap();
            let times = [own.output_delay_ms, own.required_lead_ms, own.min_buffer_ms];
            assert_eq!(times, [Some(millis); 3], "{value}");
        }
        let text = r#"{"type": "client/state", "payload": {"player": {"min_buffer_ms": "1"}}}"#;
        let ClientMessage::State(state) = parse(Dialect::Current, text) else { panic!() };
        assert_eq!(state.player.unwrap().min_buffer_ms, None);
    }

    proptest! {
        #[test]
        fn no_text_panics(
            text in ".{0,200}",
            kind in "client/(time|state|command|goodbye)|stream/request-format",
        ) {
            drop(ClientMessage::parse(Dialect::Current.info(), text.as_bytes()));
            let text = format!(r#"{{"type": "{kind}", "payload": {text}}}"#);
            drop(ClientMessage::parse(Dialect::Legacy.info(), text.as_bytes()));
        }
    }
}

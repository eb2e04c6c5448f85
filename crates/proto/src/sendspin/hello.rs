//! What a client says of itself.

use core::fmt;

use serde_json::Value;

use super::artwork::ArtworkChannels;
use super::dialect::Dialect;
use super::format::SupportedFormat;
use super::message::{self, Commands};
use crate::snap::wire::MAX_ID;

/// A client, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientHello {
    /// Who it is: its public key as text, or whatever a client of [`Dialect::Legacy`] says.
    pub client_id: String,
    /// How it speaks.
    pub dialect: Dialect,
    /// Its name for people; not unique.
    pub name: String,
    /// What it runs on.
    pub device: ClientDevice,
    /// The roles that it has and we know, in our order.
    pub roles: Vec<&'static str>,
    /// What it can play; `None` without the role of a player.
    pub player: Option<PlayerSupport>,
    /// The channels of its pictures, where the hello says it.
    pub(super) artwork: Option<ArtworkChannels>,
    /// Whether its owner lets servers in that are not paired.
    pub unpaired_access: bool,
}

/// What a client runs on, for people; each may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientDevice {
    /// The product.
    pub product: String,
    /// Who makes it.
    pub manufacturer: String,
    /// The version of its software.
    pub version: String,
    /// The MAC address.
    pub mac: String,
}

/// What a player can play.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlayerSupport {
    /// Its formats, the best first; at most 64.
    pub formats: Vec<SupportedFormat>,
    /// Bytes that it holds before they are played.
    pub buffer_capacity: u32,
    /// The commands that it takes, where the hello says it.
    pub(super) commands: Option<Commands>,
}

/// Why a hello is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HelloError {
    /// A field that is required is missing or has another type.
    Missing(&'static str),
    /// It has no role that we know.
    NoRole,
    /// Another version than 1.
    Version,
    /// Its buffer holds less than 1 KiB.
    Capacity,
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(field) => write!(f, "its hello has no valid `{field}`"),
            Self::NoRole => f.write_str(
                "it has none of the roles player, metadata, controller and \
                                      artwork",
            ),
            Self::Version => f.write_str("it speaks another version than 1"),
            Self::Capacity => {
                write!(
                    f,
                    "its `buffer_capacity` is below {MIN_CAPACITY} bytes, less than any chunk"
                )
            }
        }
    }
}

impl core::error::Error for HelloError {}

impl ClientHello {
    /// Parses the payload of `client/hello`. `client_id` is the one that has been proved; without it
    /// the client is one of [`Dialect::Legacy`] and says who it is.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn parse(payload: &Value, client_id: Option<String>) -> Result<Self, HelloError> {
        let text = |key| payload.get(key).and_then(Value::as_str).map(clip);
        let support = ["player@v1_support", "player_support"];
        let support = support.iter().find_map(|key| payload.get(key));
        let dialect = match &client_id {
            None => Dialect::Legacy,
            Some(_) => dialect(payload, support),
        };
        if client_id.is_none() && payload.get("version").is_some_and(|version| version != 1) {
            return Err(HelloError::Version);
        }
        let listed = payload.get("supported_roles").and_then(Value::as_array);
        let listed = listed.ok_or(HelloError::Missing("supported_roles"))?;
        let has = |role: &str| listed.iter().any(|own| own == role || own == family(role));
        let roles: Vec<_> = ROLES.into_iter().filter(|role| has(role)).collect();
        if roles.is_empty() {
            return Err(HelloError::NoRole);
        }
        let player = match (support, roles.contains(&PLAYER)) {
            (_, false) => None,
            (None, true) => return Err(HelloError::Missing("player@v1_support")),
            (Some(support), true) => Some(PlayerSupport::parse(support)?),
        };
        let artwork = ["artwork@v1_support", "artwork_support"];
        let artwork = artwork.iter().find_map(|key| payload.get(key)).filter(|_| has(ARTWORK));
        let artwork = artwork.filter(|_| !dialect.info().has_artwork_transfers);
        let artwork = artwork.and_then(|it| ArtworkChannels::parse(dialect.info(), it));
        // Never shortened: it would be the id of another client.
        let own = || payload.get("client_id").and_then(Value::as_str).map(str::to_owned);
        let is_valid = |id: &String| !id.is_empty() && id.len() <= MAX_ID && *id == clip(id);
        let id = client_id.or_else(own).filter(is_valid);
        let access = payload.get("unpaired_access").and_then(|access| access.get("enabled"));
        Ok(Self {
            client_id: id.ok_or(HelloError::Missing("client_id"))?,
            dialect,
            name: text("name").ok_or(HelloError::Missing("name"))?,
            device: ClientDevice::parse(payload.get("device_info")),
            roles,
            player,
            artwork,
            unpaired_access: access.and_then(Value::as_bool).unwrap_or(false),
        })
    }

    /// Whether it has this role.
    #[must_use]
    pub fn has(&self, role: &str) -> bool {
        self.roles.contains(&role)
    }
}

impl ClientDevice {
    fn parse(info: Option<&Value>) -> Self {
        let text = |key| {
            let value = info.and_then(|info| info.get(key)).and_then(Value::as_str);
            value.map(clip).unwrap_or_default()
        };
        Self {
            product: text("product_name"),
            manufacturer: text("manufacturer"),
            version: text("software_version"),
            mac: text("mac_address"),
        }
    }
}

impl PlayerSupport {
    fn parse(support: &Value) -> Result<Self, HelloError> {
        let formats = support.get("supported_formats").and_then(Value::as_array);
        let formats = formats.ok_or(HelloError::Missing("supported_formats"))?;
        let formats = formats.iter().take(MAX_FORMATS).filter_map(SupportedFormat::parse).collect();
        let capacity = support.get("buffer_capacity").and_then(Value::as_u64);
        let capacity = capacity.ok_or(HelloError::Missing("buffer_capacity"))?;
        if capacity < MIN_CAPACITY {
            return Err(HelloError::Capacity);
        }
        let commands = support.get("supported_commands").map(message::commands);
        let buffer_capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        Ok(Self { formats, buffer_capacity, commands })
    }

    /// Whether it can play this format.
    #[must_use]
    pub fn can_play(&self, format: &SupportedFormat) -> bool {
        self.formats.iter().any(|own| own.matches(format))
    }
}

/// How an encrypted client speaks: only the first dialect with Noise has one of these keys.
fn dialect(payload: &Value, support: Option<&Value>) -> Dialect {
    let has_commands = support.is_some_and(|support| support.get("supported_commands").is_some());
    match payload.get("trust_level").is_some() || has_commands {
        true => Dialect::FirstNoise,
        false => Dialect::Current,
    }
}

/// The name of a role without its version; the oldest clients have no versions.
fn family(role: &str) -> &str {
    role.split_once('@').map_or(role, |(family, _)| family)
}

/// A text for people, not longer than [`MAX_TEXT`] characters and without control characters.
fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

pub(super) const PLAYER: &str = "player@v1";
pub(super) const METADATA: &str = "metadata@v1";
pub(super) const CONTROLLER: &str = "controller@v1";
pub(super) const ARTWORK: &str = "artwork@v1";

/// The roles that we serve.
const ROLES: [&str; 4] = [PLAYER, METADATA, CONTROLLER, ARTWORK];

/// Formats of a player that are looked at; players list a dozen.
pub(super) const MAX_FORMATS: usize = 64;

/// The least buffer of a player: a few chunks of Opus.
const MIN_CAPACITY: u64 = 1_024;

/// Characters of a name.
const MAX_TEXT: usize = 200;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hello() -> Value {
        json!({
            "name": "Kitchen\u{7}",
            "supported_roles": ["player@v1", "artwork@v1", "metadata@v1"],
            "player@v1_support": {
                "supported_formats": [
                    {"codec": "flac", "channels": 2, "sample_rate": 48000, "bit_depth": 16},
                    {"codec": "mp9", "channels": 2, "sample_rate": 48000, "bit_depth": 16},
                    {"codec": "opus", "channels": 2, "sample_rate": 48000, "bit_depth": 32},
                ],
                "buffer_capacity": 1_000_000,
            },
            "unpaired_access": {"enabled": true},
        })
    }

    #[test]
    fn each_dialect_is_told_by_its_hello() {
        let current = ClientHello::parse(&hello(), Some("id".to_owned())).unwrap();
        assert_eq!((current.dialect, current.name.as_str()), (Dialect::Current, "Kitchen"));
        assert_eq!(current.roles, [PLAYER, METADATA, ARTWORK]);
        assert!(current.unpaired_access && current.has(PLAYER) && !current.has(CONTROLLER));
        let player = current.player.unwrap();
        assert_eq!((player.formats.len(), player.buffer_capacity), (2, 1_000_000));
        let [flac, mut opus] = player.formats[..] else { panic!() };
        opus.bits = 16;
        assert!(player.can_play(&flac) && player.can_play(&opus));
        assert!(!player.can_play(&SupportedFormat { bits: 24, ..flac }));
        let mut old = hello();
        old["trust_level"] = "user".into();
        let parsed = ClientHello::parse(&old, Some("id".to_owned())).unwrap();
        assert_eq!(parsed.dialect, Dialect::FirstNoise);
        let mut old = hello();
        old["player@v1_support"]["supported_commands"] = json!(["volume"]);
        let parsed = ClientHello::parse(&old, Some("id".to_owned())).unwrap();
        assert_eq!(parsed.dialect, Dialect::FirstNoise);
        old["client_id"] = "browser".into();
        old["supported_roles"] = json!(["player"]);
        let parsed = ClientHello::parse(&old, None).unwrap();
        assert_eq!((parsed.dialect, parsed.client_id.as_str()), (Dialect::Legacy, "browser"));
        assert_eq!(parsed.roles, [PLAYER]);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (key, error) in [
            ("name", HelloError::Missing("name")),
            ("supported_roles", HelloError::Missing("supported_roles")),
            ("player@v1_support", HelloError::Missing("player@v1_support")),
        ] {
            let mut hello = hello();
            hello.as_object_mut().unwrap().remove(key);
            assert_eq!(ClientHello::parse(&hello, Some("id".to_owned())), Err(error), "{key}");
        }
        let mut other = hello();
        other["supported_roles"] = json!(["visualizer@v1"]);
        assert_eq!(ClientHello::parse(&other, Some("id".to_owned())), Err(HelloError::NoRole));
        assert_eq!(ClientHello::parse(&hello(), None), Err(HelloError::Missing("client_id")));
    }

    #[test]
    fn a_player_that_lies_about_its_buffer_or_its_formats_is_kept_within_limits() {
        let with = |key: &str, value: Value| {
            let mut hello = hello();
            hello["player@v1_support"][key] = value;
            ClientHello::parse(&hello, Some("id".to_owned())).map(|hello| hello.player.unwrap())
        };
        for capacity in [0, 1, MIN_CAPACITY - 1] {
            let error = with("buffer_capacity", json!(capacity)).unwrap_err();
            assert_eq!(error, HelloError::Capacity);
            assert!(error.to_string().contains("1024 bytes"), "{error}");
        }
        for capacity in [json!(-1), json!(1e9), json!("1"), Value::Null] {
            let error = Err(HelloError::Missing("buffer_capacity"));
            assert_eq!(with("buffer_capacity", capacity), error);
        }
        assert_eq!(with("buffer_capacity", json!(u64::MAX)).unwrap().buffer_capacity, u32::MAX);
        let flac = json!({"codec": "flac", "channels": 2, "sample_rate": 48000, "bit_depth": 16});
        let many = with("supported_formats", vec![flac; 10_000].into()).unwrap();
        assert_eq!(many.formats.len(), MAX_FORMATS);
        let none = with("supported_formats", vec![json!({"codec": "mp9"}); 10_000].into());
        assert_eq!(none.unwrap().formats, []);
    }
}

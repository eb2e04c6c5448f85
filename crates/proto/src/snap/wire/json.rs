//! The JSON bodies: Hello, server settings, client info.
//!
//! They are read by hand from a [`Value`] and not derived: clients leave keys out, send numbers for
//! strings and have keys that we do not know, and none of that is a reason to keep a loudspeaker
//! silent.

use aulos_core::Span;
use serde_json::{Map, Value, json};

use super::PayloadError;
use crate::json;

/// The longest client id, in bytes. A MAC address has 17, a UUID 36.
pub const MAX_ID: usize = 128;

/// The longest of the other texts of a greeting, in bytes; the rest is cut off.
pub const MAX_TEXT: usize = 256;

/// How a client introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The address of its network card; Snapweb sends zeros.
    pub mac: String,
    /// The name of its machine.
    pub host_name: String,
    /// Its version.
    pub version: String,
    /// Its program: `Snapclient`, `Snapweb`, ...
    pub client_name: String,
    /// Its operating system.
    pub os: String,
    /// Its processor; `web` for Snapweb.
    pub arch: String,
    /// Which of several clients on one machine it is, from 1.
    pub instance: u32,
    /// What it wants to be known by; never empty.
    pub id: String,
    /// The version of the protocol that it speaks: 2 today.
    pub protocol_version: u32,
    /// Its credentials, if it sends any.
    pub auth: Option<Auth>,
}

/// What a client proves itself with.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// `Basic` (base64 of user:password) or `Plain` (user:password).
    pub scheme: String,
    /// The proof itself.
    pub param: String,
}

impl core::fmt::Debug for Auth {
    /// Leaves the proof out: greetings are logged.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Auth").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl Hello {
    /// A client called `id` that leaves everything else at its default.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self {
            mac: "00:00:00:00:00:00".to_owned(),
            host_name: String::new(),
            version: String::new(),
            client_name: "Snapclient".to_owned(),
            os: String::new(),
            arch: String::new(),
            instance: 1,
            id: id.to_owned(),
            protocol_version: 2,
            auth: None,
        }
    }

    /// The name that the server knows the client by: its id, with `#` and the instance when that is
    /// not the first.
    #[must_use]
    pub fn client_id(&self) -> String {
        if self.instance == 1 { self.id.clone() } else { format!("{}#{}", self.id, self.instance) }
    }

    /// Reads a greeting. Control characters are taken out of every text, so that an id can go into
    /// a log line, a file and a topic name.
    ///
    /// # Errors
    /// [`BodyError::Json`], [`BodyError::NoIdentity`] when neither `ID` nor `MAC` says who it is,
    /// [`BodyError::IdTooLong`] above [`MAX_ID`]: a cut id could be somebody else's.
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        let Value::Object(map) = json::parse(json)? else { return Err(PayloadError::NoIdentity) };
        let mac = text(&map, "MAC", MAX_ID + 1);
        let id = Some(text(&map, "ID", MAX_ID + 1)).filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| mac.clone());
        if id.is_empty() {
            return Err(PayloadError::NoIdentity);
        }
        if id.len() > MAX_ID {
            return Err(PayloadError::IdTooLong);
        }
        Ok(Self {
            mac,
            id,
            host_name: text(&map, "HostName", MAX_TEXT),
            version: text(&map, "Version", MAX_TEXT),
            client_name: text(&map, "ClientName", MAX_TEXT),
            os: text(&map, "OS", MAX_TEXT),
            arch: text(&map, "Arch", MAX_TEXT),
            instance: number(&map, "Instance").unwrap_or(1),
            protocol_version: number(&map, "SnapStreamProtocolVersion").unwrap_or(1),
            auth: map.get("Auth").and_then(Value::as_object).map(|auth| Auth {
                scheme: text(auth, "scheme", MAX_TEXT),
                param: text(auth, "param", MAX_TEXT),
            }),
        })
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut value = json!({
            "MAC": self.mac,
            "HostName": self.host_name,
            "Version": self.version,
            "ClientName": self.client_name,
            "OS": self.os,
            "Arch": self.arch,
            "Instance": self.instance,
            "ID": self.id,
            "SnapStreamProtocolVersion": self.protocol_version,
        });
        if let (Some(auth), Value::Object(map)) = (&self.auth, &mut value) {
            map.insert("Auth".into(), json!({ "scheme": auth.scheme, "param": auth.param }));
        }
        value.to_string().into_bytes()
    }
}

/// What a client needs to know to play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// From a chunk's timestamp to the moment that it sounds; whole milliseconds on the wire.
    pub buffer: Span,
    /// How much later than others this client's loudspeaker is; whole milliseconds on the wire.
    pub latency: Span,
    /// 0 to 100 %; the client applies its own curve.
    pub volume: u8,
    /// Whether the client, or its group, is to be silent.
    pub muted: bool,
}

impl Default for ServerSettings {
    /// Snapserver's defaults: one second of buffer, full volume.
    fn default() -> Self {
        Self { buffer: Span::from_secs(1), latency: Span::ZERO, volume: 100, muted: false }
    }
}

impl ServerSettings {
    /// Reads settings; what is missing has its default, what is out of range is clamped.
    ///
    /// # Errors
    /// [`BodyError::Json`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        let value = json::parse(json)?;
        let default = Self::default();
        let millis = |key| value.get(key).and_then(integer).map(Span::from_millis);
        Ok(Self {
            buffer: millis("bufferMs").unwrap_or(default.buffer),
            latency: millis("latency").unwrap_or(default.latency),
            volume: value.get("volume").and_then(percent).unwrap_or(default.volume),
            muted: value.get("muted").and_then(Value::as_bool).unwrap_or(default.muted),
        })
    }

    pub(super) fn to_json(self) -> Vec<u8> {
        json!({
            "bufferMs": self.buffer.as_millis(),
            "latency": self.latency.as_millis(),
            "muted": self.muted,
            "volume": self.volume,
        })
        .to_string()
        .into_bytes()
    }
}

/// What a client tells of its own mixer; absent is unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// 0 to 100 %.
    pub volume: Option<u8>,
    /// Whether it is silent.
    pub muted: Option<bool>,
}

impl ClientInfo {
    /// Reads a client's own volume and mute; what is out of range is clamped.
    ///
    /// # Errors
    /// [`BodyError::Json`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        let value = json::parse(json)?;
        Ok(Self {
            volume: value.get("volume").and_then(percent),
            muted: value.get("muted").and_then(Value::as_bool),
        })
    }

    pub(super) fn to_json(self) -> Vec<u8> {
        let mut map = Map::new();
        if let Some(muted) = self.muted {
            map.insert("muted".into(), muted.into());
        }
        if let Some(volume) = self.volume {
            map.insert("volume".into(), volume.into());
        }
        Value::Object(map).to_string().into_bytes()
    }
}

/// The text under `key` without control characters, at most `limit` bytes; numbers and booleans as
/// they are written, everything else is empty.
fn text(map: &Map<String, Value>, key: &str, limit: usize) -> String {
    let mut text = match map.get(key) {
        Some(Value::String(text)) => text.chars().filter(|char| !char.is_control()).collect(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        _ => String::new(),
    };
    while text.len() > limit {
        text.pop();
    }
    text
}

fn number(map: &Map<String, Value>, key: &str) -> Option<u32> {
    let value = integer(map.get(key)?)?;
    Some(u32::try_from(value.max(0)).unwrap_or(u32::MAX))
}

/// Integers, floats without their fraction, and either of them in a string.
#[allow(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        _ => value.as_i64().or_else(|| value.as_f64().map(|float| float as i64)),
    }
}

fn percent(value: &Value) -> Option<u8> {
    integer(value).and_then(|value| u8::try_from(value.clamp(0, 100)).ok())
}

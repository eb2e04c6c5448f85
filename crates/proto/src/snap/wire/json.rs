//! JSON payloads: Hello, server settings, client info.
//!
//! They are parsed from a [`Value`] and not by derived code: clients omit keys, send numbers as
//! strings and add unknown keys, and none of this should keep a client from playing.

use core::fmt;

use aulos_core::Span;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::report::PlayerReport;
use crate::json::{self, JsonError, integer};

/// Maximum length of a client id in bytes. A MAC address has 17, a UUID 36.
pub const MAX_ID: usize = 128;

/// Maximum length of the other texts of a Hello in bytes; longer ones are truncated.
pub const MAX_TEXT: usize = 256;

/// Hello message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// MAC address; Snapweb sends zeros.
    pub mac: String,
    /// Host name.
    pub host_name: String,
    /// Version of the client.
    pub version: String,
    /// Name of the client program: `Snapclient`, `Snapweb`, ...
    pub client_name: String,
    /// Operating system.
    pub os: String,
    /// Processor architecture; `web` for Snapweb.
    pub arch: String,
    /// Number of the client among those on one host, from 1.
    pub instance: u32,
    /// Id of the client; never empty.
    pub id: String,
    /// Version of the protocol; currently 2.
    pub protocol_version: u32,
    /// Credentials, if present.
    pub auth: Option<Auth>,
}

/// Credentials of a client.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// `Basic` (base64 of user:password) or `Plain` (user:password).
    pub scheme: String,
    /// The credentials.
    pub param: String,
}

impl Auth {
    /// Credentials of the scheme `Basic`.
    #[must_use]
    pub fn basic(user: &str, password: &str) -> Self {
        let param = STANDARD.encode(format!("{user}:{password}"));
        Self { scheme: "Basic".to_owned(), param }
    }
}

impl fmt::Debug for Auth {
    /// Omits the credentials, because Hello messages are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl Hello {
    /// A Hello with this id and default values.
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

    /// Id by which the server knows the client: its id, with `#` and the instance unless that is 1.
    #[must_use]
    pub fn client_id(&self) -> String {
        if self.instance == 1 { self.id.clone() } else { format!("{}#{}", self.id, self.instance) }
    }

    /// Parses a Hello. Control characters are removed from every text, so that an id can be used in
    /// a log line, a file and a topic name.
    ///
    /// # Errors
    /// [`PayloadError::Json`], [`PayloadError::NoIdentity`] without `ID` and `MAC`,
    /// [`PayloadError::IdTooLong`] above [`MAX_ID`]: a truncated id could be that of another
    /// client.
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

/// Playback settings of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Time from a chunk's timestamp to its playout; whole milliseconds on the wire.
    pub buffer: Span,
    /// Latency of this client's loudspeaker; whole milliseconds on the wire.
    pub latency: Span,
    /// 0 to 100 %; the client applies its own curve.
    pub volume: u8,
    /// Whether the client or its group is muted.
    pub muted: bool,
    /// How often the server wants a [`PlayerReport`]; whole milliseconds on the wire. An extension:
    /// snapclient passes over the key, and snapserver never sends it.
    pub report_interval: Option<Span>,
}

impl Default for ServerSettings {
    /// Snapserver's defaults: a buffer of one second, full volume.
    fn default() -> Self {
        Self {
            buffer: Span::from_secs(1),
            latency: Span::ZERO,
            volume: 100,
            muted: false,
            report_interval: None,
        }
    }
}

impl ServerSettings {
    /// Parses settings; missing values have their defaults, values out of range are clamped.
    ///
    /// # Errors
    /// [`PayloadError::Json`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        let value = json::parse(json)?;
        let default = Self::default();
        let millis = |key| value.get(key).and_then(integer).map(Span::from_millis);
        Ok(Self {
            buffer: millis("bufferMs").unwrap_or(default.buffer),
            latency: millis("latency").unwrap_or(default.latency),
            volume: value.get("volume").and_then(percent).unwrap_or(default.volume),
            muted: value.get("muted").and_then(Value::as_bool).unwrap_or(default.muted),
            report_interval: millis(REPORT_MS).map(|span| span.max(MIN_REPORT_INTERVAL)),
        })
    }

    pub(super) fn to_json(self) -> Vec<u8> {
        let mut value = json!({
            "bufferMs": self.buffer.as_millis(),
            "latency": self.latency.as_millis(),
            "muted": self.muted,
            "volume": self.volume,
        });
        if let (Some(interval), Value::Object(map)) = (self.report_interval, &mut value) {
            map.insert(REPORT_MS.into(), interval.as_millis().into());
        }
        value.to_string().into_bytes()
    }
}

const REPORT_MS: &str = "reportMs";

/// A server cannot ask a player for more.
const MIN_REPORT_INTERVAL: Span = Span::from_millis(500);

/// A client's own mixer settings; absent values are unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientInfo {
    /// 0 to 100 %.
    pub volume: Option<u8>,
    /// Whether the client is muted.
    pub muted: Option<bool>,
    /// How well it is in time, if the server asked for it.
    pub report: Option<PlayerReport>,
}

impl ClientInfo {
    /// Parses a client's own volume, mute and report; values out of range are clamped.
    ///
    /// # Errors
    /// [`PayloadError::Json`].
    pub fn parse(json: &[u8]) -> Result<Self, PayloadError> {
        let value = json::parse(json)?;
        Ok(Self {
            volume: value.get("volume").and_then(percent),
            muted: value.get("muted").and_then(Value::as_bool),
            report: value.get(REPORT).and_then(PlayerReport::parse),
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
        if let Some(report) = self.report {
            map.insert(REPORT.into(), report.to_json());
        }
        Value::Object(map).to_string().into_bytes()
    }
}

const REPORT: &str = "report";

/// The text of `key` without control characters, truncated to `limit` bytes. Numbers and booleans
/// are formatted; everything else is empty.
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

fn percent(value: &Value) -> Option<u8> {
    integer(value).and_then(|value| u8::try_from(value.clamp(0, 100)).ok())
}

/// Reason why a payload is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadError {
    /// An inner length exceeds the message, or a field is missing.
    Truncated,
    /// Invalid JSON.
    Json(JsonError),
    /// A Hello without `ID` and `MAC`.
    NoIdentity,
    /// An `ID` above [`MAX_ID`].
    IdTooLong,
}

impl From<JsonError> for PayloadError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a length exceeds the message"),
            Self::Json(error) => error.fmt(f),
            Self::NoIdentity => f.write_str("the Hello message has neither ID nor MAC"),
            Self::IdTooLong => write!(f, "the ID is longer than {} bytes", MAX_ID),
        }
    }
}

impl core::error::Error for PayloadError {}

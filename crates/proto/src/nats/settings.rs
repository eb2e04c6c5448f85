//! Settings of clients and groups that the nodes of a site share, and their keys in a bucket.

use super::crc::crc32;
use super::subject::{MAX_SUBJECT_NAME, token};
use super::{RecordError, put_head, read_head};
use crate::bytes::{Reader, put_blob};

/// The bucket of the settings.
pub const SETTINGS_BUCKET: &str = "aulos_settings";

/// Maximum length of a record in bytes: three texts and some numbers.
pub const MAX_SETTINGS: usize = 1_024;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a caller handles all")]
pub enum SettingsKey {
    /// A client, by its id.
    Client(String),
    /// A group, by its id.
    Group(String),
}

impl SettingsKey {
    /// The key in the bucket; none for an id that is empty or longer than [`MAX_SUBJECT_NAME`].
    #[must_use]
    pub fn to_key(&self, site: &str) -> Option<String> {
        let (kind, id) = match self {
            Self::Client(id) => ("client", id),
            Self::Group(id) => ("group", id),
        };
        let is_valid = (1..=MAX_SUBJECT_NAME).contains(&id.len());
        is_valid.then(|| format!("{}.{kind}.{}", token(site), token(id)))
    }

    /// What a key in the bucket is about; none for a key of another site or kind.
    #[must_use]
    pub fn parse(site: &str, key: &str) -> Option<Self> {
        let rest = key.strip_prefix(&token(site))?.strip_prefix('.')?;
        let (kind, id) = rest.split_once('.')?;
        let id = untoken(id)?;
        match kind {
            "client" => Some(Self::Client(id)),
            "group" => Some(Self::Group(id)),
            _ => None,
        }
    }

    /// The keys of a site, with a wildcard.
    #[must_use]
    pub fn all_of(site: &str) -> String {
        format!("{}.>", token(site))
    }
}

/// The settings of a client that follow it to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a node fills in")]
pub struct SharedClientSettings {
    /// The name that a user gave it; empty if none.
    pub name: String,
    /// In percent.
    pub volume: u8,
    /// Its own mute.
    pub muted: bool,
    /// Upper limit of its volume in percent.
    pub cap: u8,
    /// The latency of its device in milliseconds.
    pub latency_ms: i32,
    /// The id of its group.
    pub group: String,
}

/// The settings of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what a node fills in")]
pub struct GroupSettings {
    /// The name that a user gave it; empty if none.
    pub name: String,
    /// Mutes every client.
    pub muted: bool,
    /// The name of its station.
    pub station: String,
}

/// A record in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a caller handles all")]
pub enum SettingsRecord {
    /// Of a client.
    Client(SharedClientSettings),
    /// Of a group.
    Group(GroupSettings),
}

impl SettingsRecord {
    /// Parses a record.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > MAX_SETTINGS {
            return Err(RecordError::TooLarge);
        }
        let mut reader = Reader::new(bytes);
        let kind = read_head(&mut reader, MAGIC)?;
        let checksum = reader.u32().ok_or(RecordError::Truncated)?;
        if crc32(&[reader.rest()]) != checksum {
            return Err(RecordError::Checksum);
        }
        let record = match kind {
            CLIENT => Self::read_client(&mut reader),
            GROUP => Self::read_group(&mut reader),
            _ => return Err(RecordError::Field),
        };
        let record = record.ok_or(RecordError::Field)?;
        if reader.rest().is_empty() { Ok(record) } else { Err(RecordError::Field) }
    }

    /// Appends the encoded record. Longer texts than [`MAX_SUBJECT_NAME`] make a record that is
    /// refused.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_head(out, MAGIC, if matches!(self, Self::Client(_)) { CLIENT } else { GROUP });
        out.extend_from_slice(&[0; 4]);
        let body = out.len();
        match self {
            Self::Client(client) => {
                out.extend_from_slice(&[client.volume, client.muted.into(), client.cap]);
                out.extend_from_slice(&client.latency_ms.to_le_bytes());
                put_blob(out, client.name.as_bytes());
                put_blob(out, client.group.as_bytes());
            }
            Self::Group(group) => {
                out.push(group.muted.into());
                put_blob(out, group.name.as_bytes());
                put_blob(out, group.station.as_bytes());
            }
        }
        let checksum = crc32(&[out.get(body..).unwrap_or_default()]);
        if let Some(place) = out.get_mut(start + 8..body) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }

    fn read_client(reader: &mut Reader<'_>) -> Option<Self> {
        let [volume, muted, cap] = reader.array()?;
        let latency_ms = i32::from_le_bytes(reader.array()?);
        let (name, group) = (read_text(reader)?, read_text(reader)?);
        let is_valid = volume <= 100 && cap <= 100 && muted <= 1;
        is_valid.then_some(Self::Client(SharedClientSettings {
            name,
            volume,
            muted: muted == 1,
            cap,
            latency_ms,
            group,
        }))
    }

    fn read_group(reader: &mut Reader<'_>) -> Option<Self> {
        let [muted] = reader.array()?;
        let (name, station) = (read_text(reader)?, read_text(reader)?);
        (muted <= 1).then_some(Self::Group(GroupSettings { name, muted: muted == 1, station }))
    }
}

fn read_text(reader: &mut Reader<'_>) -> Option<String> {
    let text = core::str::from_utf8(reader.blob()?).ok()?;
    let is_valid = text.len() <= MAX_SUBJECT_NAME && !text.contains(char::is_control);
    is_valid.then(|| text.to_owned())
}

/// The name of which [`token`] makes this; none if it makes it of no name, or of a longer one.
fn untoken(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'=' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    let name = String::from_utf8(bytes).ok()?;
    (token(&name) == text).then_some(name)
}

const MAGIC: [u8; 4] = *b"AULs";
const CLIENT: u16 = 1;
const GROUP: u16 = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(record: &SettingsRecord) -> Vec<u8> {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        bytes
    }

    fn client() -> SharedClientSettings {
        SharedClientSettings {
            name: "Hay loft".into(),
            volume: 40,
            muted: true,
            cap: 80,
            latency_ms: -20,
            group: "4dcc4e3b".into(),
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_refused() {
        let group = GroupSettings { name: "g".into(), muted: false, station: "s".into() };
        for record in [SettingsRecord::Client(client()), SettingsRecord::Group(group)] {
            let bytes = encode(&record);
            assert_eq!(SettingsRecord::parse(&bytes), Ok(record));
            for length in 0..bytes.len() {
                assert!(SettingsRecord::parse(&bytes[..length]).is_err(), "{length}");
            }
            // Flags are ignored.
            for index in (0..bytes.len()).filter(|index| *index != 5) {
                let mut changed = bytes.clone();
                changed[index] ^= 4;
                assert!(SettingsRecord::parse(&changed).is_err(), "{index}");
            }
        }
        assert_eq!(SettingsRecord::parse(&[0; MAX_SETTINGS + 1]), Err(RecordError::TooLarge));
    }

    #[test]
    fn values_have_ranges() {
        let loud = SharedClientSettings { volume: 101, ..client() };
        let long = SharedClientSettings { name: "x".repeat(MAX_SUBJECT_NAME + 1), ..client() };
        let lines = SharedClientSettings { name: "a\nb".into(), ..client() };
        for record in [loud, long, lines] {
            let bytes = encode(&SettingsRecord::Client(record));
            assert_eq!(SettingsRecord::parse(&bytes), Err(RecordError::Field));
        }
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_was_written(site in ".{1,40}", id in ".{1,40}") {
            for key in [SettingsKey::Client(id.clone()), SettingsKey::Group(id)] {
                let text = key.to_key(&site).unwrap();
                prop_assert_eq!(SettingsKey::parse(&site, &text), Some(key));
                prop_assert_eq!(SettingsKey::parse(&format!("{site}x"), &text), None);
            }
        }

        #[test]
        fn any_key_is_read_or_refused(key in "[a-z=.0-9A-F]{0,40}") {
            if let Some(read) = SettingsKey::parse("a", &key) {
                prop_assert!(read.to_key("a").is_some());
            }
        }
    }
}

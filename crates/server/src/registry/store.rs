//! `server.json`: groups and clients across restarts.
//!
//! It has snapserver's shape, so that theirs can be copied over. Unlike theirs it is written beside
//! the old one and then renamed: whenever the power goes, one of the two is whole.
//!
//! What can be accepted fits what can be read: [`MAX_BYTES`] is made of the bounds of everything that
//! is kept, and a change that goes beyond one of them is refused when it is asked for.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use aulos_config::limits::MAX_STATIONS;
use aulos_proto::uri::MAX_URI;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::client::{Client, Group, MAX_ID, MAX_TEXT};
use super::presets::{MAX_PRESETS, MAX_PRESETS_BYTES, Preset, preset_from};
use super::snapcast_json::{GroupJson, group_from};
use super::{MAX_CLIENTS, Registry};
use crate::control::MAX_ADDED;

/// The name of the file in the state directory.
pub const STATE_FILE: &str = "server.json";
/// What it was before the last change.
const PREVIOUS_FILE: &str = "server.json.previous";

/// Bytes that a text takes in the file at most: `"` and `\\` are written as two, texts have no
/// control characters, and it stands in quotes.
const MAX_TEXT_BYTES: usize = 2 * MAX_TEXT + 2;
/// A client: nine texts, of which the id is longer, and keys, numbers and words.
const MAX_CLIENT_BYTES: usize = 9 * MAX_TEXT_BYTES + 2 * (MAX_ID - MAX_TEXT) + 512;
/// A group without its clients: three texts, keys and words.
const MAX_GROUP_BYTES: usize = 3 * MAX_TEXT_BYTES + 128;
/// The address of an added stream: a control character is written as six, and a port that the system
/// chose has up to four digits more than 0.
const MAX_STREAM_BYTES: usize = 6 * (MAX_URI + 4) + 3;
/// Normaliser and sixteen bands of an equaliser as they are, and as the configuration has them.
pub(super) const MAX_SOUND_BYTES: usize = 8 << 10;
/// Bytes that are read and written at most: everything that can be kept, at its longest. An ordinary
/// house with as many clients takes a twentieth.
pub const MAX_BYTES: usize = MAX_CLIENTS * (MAX_CLIENT_BYTES + MAX_GROUP_BYTES)
    + MAX_ADDED * MAX_STREAM_BYTES
    + (MAX_STATIONS + MAX_ADDED) * MAX_SOUND_BYTES
    + MAX_PRESETS_BYTES
    + MAX_PRESETS
    + 1_024;

/// What was found.
#[derive(Debug)]
pub enum LoadOutcome {
    /// There is no file.
    Nothing,
    /// This.
    Saved(SavedState),
    /// Something that cannot be read; it was put aside as `server.json.broken`. What the file was
    /// before, if that can be read.
    Broken(Option<SavedState>),
    /// A file that cannot be used though it may be whole. It was put aside.
    Unusable {
        /// Why.
        why: UnusableReason,
        /// The name that the file has now, in its folder.
        aside: String,
        /// What the file was before, if that can be read.
        previous: Option<SavedState>,
    },
}

/// Why a file cannot be used.
#[derive(Debug)]
pub enum UnusableReason {
    /// It has more than [`MAX_BYTES`].
    TooLarge,
    /// The disk does not give it.
    Unreadable(io::Error),
}

impl fmt::Display for UnusableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "it is larger than the limit of {MAX_BYTES} bytes"),
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

/// What is kept of a house.
#[derive(Clone, Debug, Default)]
pub struct SavedState {
    /// The groups and their clients.
    pub groups: Vec<SavedGroup>,
    /// The addresses of streams that controllers added.
    pub streams: Vec<String>,
    /// What controllers have set of stations' sound.
    pub sounds: Vec<Value>,
    /// Arrangements of groups.
    pub presets: Vec<Preset>,
}

/// A group and its clients, as far as they could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedGroup {
    /// The group.
    pub group: Group,
    /// Its clients.
    pub clients: Vec<Client>,
}

/// Reads what was saved. A file that cannot be used is put aside under another name, so that the
/// next save does not replace it.
///
/// # Errors
/// Why a file that cannot be used cannot be put aside either.
pub fn load(dir: &Path) -> io::Result<LoadOutcome> {
    let path = dir.join(STATE_FILE);
    let previous = || read(&dir.join(PREVIOUS_FILE)).ok().and_then(|text| parse(&text));
    let unusable = |why, suffix| {
        let (aside, previous) = (put_aside(dir, suffix)?, previous());
        Ok(LoadOutcome::Unusable { why, aside, previous })
    };
    match read(&path) {
        Ok(text) => Ok(parse(&text).map_or_else(
            || {
                // Where that cannot be done, it is found again the next time.
                fs::rename(&path, dir.join("server.json.broken")).ok();
                LoadOutcome::Broken(previous())
            },
            LoadOutcome::Saved,
        )),
        // It was put aside, and nothing has changed since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(previous().map_or(LoadOutcome::Nothing, LoadOutcome::Saved))
        }
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            unusable(UnusableReason::TooLarge, "too-large")
        }
        Err(error) => unusable(UnusableReason::Unreadable(error), "unreadable"),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // One more, to see that there is more.
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Gives the file another name, which no file has; gives that.
fn put_aside(dir: &Path, suffix: &str) -> io::Result<String> {
    let name = |number: usize| match number {
        1 => format!("{STATE_FILE}.{suffix}"),
        number => format!("{STATE_FILE}.{suffix}.{number}"),
    };
    let is_free = |name: &String| fs::symlink_metadata(dir.join(name)).is_err();
    let free = (1..=MAX_PUT_ASIDE).map(name).find(is_free).ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(dir.join(STATE_FILE), dir.join(&free))?;
    Ok(free)
}

/// Files that are put aside for one reason: a server that starts again and again does not fill the
/// disk with them.
const MAX_PUT_ASIDE: usize = 10;

fn parse(text: &[u8]) -> Option<SavedState> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct StateFile {
        groups: SavedGroups,
        #[serde(default)]
        streams: Value,
        #[serde(default)]
        sounds: Value,
        #[serde(default)]
        presets: Value,
    }
    let file = serde_json::from_slice::<StateFile>(text).ok()?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    Some(SavedState {
        groups: file.groups.0,
        streams: list(&file.streams)
            .iter()
            .filter_map(|uri| uri.as_str().map(str::to_owned))
            .collect(),
        sounds: list(&file.sounds),
        presets: file
            .presets
            .as_array()
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .map(preset_from)
            .collect(),
    })
}

/// Groups, of which one at a time stands as a tree: that takes several times the memory of its text.
struct SavedGroups(Vec<SavedGroup>);

impl<'de> Deserialize<'de> for SavedGroups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GroupVisitor;
        impl<'de> Visitor<'de> for GroupVisitor {
            type Value = SavedGroups;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of groups")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<SavedGroups, A::Error> {
                let mut groups = Vec::new();
                while let Some(value) = list.next_element::<Value>()? {
                    groups.push(group_from(&value));
                }
                Ok(SavedGroups(groups))
            }
        }
        deserializer.deserialize_seq(GroupVisitor)
    }
}

/// What is to be saved, as it was at one moment. What changes is text already; what never changes is
/// referred to, and written when no lock is held.
#[derive(Debug)]
pub struct Snapshot {
    text: Vec<u8>,
    presets: Vec<Arc<Preset>>,
}

impl Snapshot {
    /// Of this registry, and of what else is kept.
    #[must_use]
    pub fn new(registry: &Registry, streams: &[String], sounds: &[Value]) -> Self {
        let mut text = Vec::with_capacity(registry.table.remembered() * TYPICAL_CLIENT);
        text.extend_from_slice(b"{\"ConfigVersion\":2");
        let groups = registry.groups().filter_map(|group| GroupJson::saved(registry, group));
        write_list(&mut text, "Groups", groups);
        if !streams.is_empty() {
            write_list(&mut text, "Streams", streams.iter());
        }
        if !sounds.is_empty() {
            write_list(&mut text, "Sounds", sounds.iter());
        }
        Self { text, presets: registry.presets().to_vec() }
    }

    /// The contents of the file. What snapserver does not know is only there when there is some.
    #[must_use]
    pub fn into_text(self) -> String {
        let mut text = self.text;
        if !self.presets.is_empty() {
            write_list(&mut text, "Presets", self.presets.iter().map(Arc::as_ref));
        }
        text.push(b'}');
        // JSON is written as UTF-8.
        String::from_utf8(text).unwrap_or_default()
    }
}

/// Bytes of a client with an ordinary name, and of its group.
const TYPICAL_CLIENT: usize = 512;

/// The contents of the file.
#[must_use]
pub fn render(registry: &Registry, streams: &[String], sounds: &[Value]) -> String {
    Snapshot::new(registry, streams, sounds).into_text()
}

/// Written and not built: the tree of a whole house takes ten times the memory of its text, and the
/// allocator would keep it.
fn write_list(text: &mut Vec<u8>, name: &str, items: impl Iterator<Item = impl Serialize>) {
    text.extend_from_slice(b",\"");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\":[");
    for (number, item) in items.enumerate() {
        if number > 0 {
            text.push(b',');
        }
        // Keys are texts and numbers finite, and memory takes all.
        serde_json::to_writer(&mut *text, &item).ok();
    }
    text.push(b']');
}

/// Replaces the file; returns when it is on the disk.
///
/// # Errors
/// What the file system says; [`FileTooLarge`](io::ErrorKind::FileTooLarge) for contents that
/// [`load`] would not read. The old file is then as it was.
pub fn save(dir: &Path, contents: &str) -> io::Result<()> {
    if contents.len() > MAX_BYTES {
        let fact = format!("the state has {} bytes, and the limit is {MAX_BYTES}", contents.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, fact));
    }
    let fresh = dir.join("server.json.new");
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(contents.as_bytes())?;
        file.sync_all()
    });
    if let Err(error) = written {
        // A full disk has better use for what was written of it.
        fs::remove_file(&fresh).ok();
        return Err(error);
    }
    keep_previous(dir);
    fs::rename(&fresh, dir.join(STATE_FILE))?;
    File::open(dir)?.sync_all()
}

/// Keeps the file that goes under a second name, in one step. The first save has none to keep, and
/// some file systems cannot.
fn keep_previous(dir: &Path) {
    let link = dir.join("server.json.link");
    // What a kill has left of the last time.
    fs::remove_file(&link).ok();
    if fs::hard_link(dir.join(STATE_FILE), &link).is_ok()
        && fs::rename(&link, dir.join(PREVIOUS_FILE)).is_err()
    {
        fs::remove_file(&link).ok();
    }
}

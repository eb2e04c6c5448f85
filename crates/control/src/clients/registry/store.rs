//! `server.json`: groups and clients across restarts.
//!
//! The format is snapserver's, so that its file can be copied over. A new file replaces the old one
//! by a rename (`docs/decisions/saved-state.md`).
//!
//! Everything that can be accepted can also be read back: [`MAX_BYTES`] is computed from the limits
//! of all saved values, and a change beyond a limit is refused when it is requested.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::sync::Arc;

use aulos_config::limits::MAX_STATIONS;
use aulos_io::disk::NewFile;
use aulos_proto::uri::MAX_URI;
use serde::Serialize;
use serde_json::Value;

pub use super::client::SavedGroup;
use super::client::{MAX_ID, MAX_IP, MAX_REPORTED_TEXTS, MAX_TEXT};
use super::presets::{MAX_PRESETS, MAX_PRESETS_BYTES, Preset};
use super::saved_json::{Object, StateFileJson};
use super::snapcast_json::GroupJson;
use super::table::GroupView;
use super::{MAX_CLIENT_SOUNDS, MAX_CLIENTS, Registry};

/// Limit of added streams; each costs work on several threads and about a megabyte of buffers.
pub const MAX_ADDED: usize = 128;

/// The file's name in the state directory.
pub const STATE_FILE: &str = "server.json";
/// The file before the last change.
const PREVIOUS_FILE: &str = "server.json.previous";

/// Largest size of a text in the file: `"` and `\\` take two bytes, control characters do not
/// occur, and there are two quotes.
const MAX_TEXT_BYTES: usize = 2 * MAX_TEXT + 2;
/// Largest client: its name and its id, which is longer, what it reports, its address, and keys,
/// numbers and words.
const MAX_CLIENT_BYTES: usize =
    2 * MAX_TEXT_BYTES + 2 * (MAX_ID - MAX_TEXT) + MAX_REPORTED_TEXTS + MAX_IP + 512;
/// Largest group without its clients: three texts, keys and words.
const MAX_GROUP_BYTES: usize = 3 * MAX_TEXT_BYTES + 128;
/// Largest URI of an added stream: a control character takes six bytes, and a port chosen by the
/// system up to four digits more than 0.
const MAX_STREAM_BYTES: usize = 6 * (MAX_URI + 4) + 3;
/// Largest sound settings: a normalizer and sixteen equalizer bands, as they are and as in the
/// configuration.
pub(super) const MAX_SOUND_BYTES: usize = 8 << 10;
/// Largest sound of a client: sixteen bands on each of two channels.
pub(super) const MAX_CHAIN_BYTES: usize = 5 << 10;
/// Largest file that is read or written: all limits at once. An ordinary installation with as many
/// clients takes a twentieth.
pub const MAX_BYTES: usize = MAX_CLIENTS * (MAX_CLIENT_BYTES + MAX_GROUP_BYTES)
    + MAX_ADDED * MAX_STREAM_BYTES
    + (MAX_STATIONS + MAX_ADDED) * MAX_SOUND_BYTES
    + MAX_CLIENT_SOUNDS * MAX_CHAIN_BYTES
    + MAX_PRESETS_BYTES
    + MAX_PRESETS
    + 1_024;

/// The result of [`load`].
#[derive(Debug)]
pub enum LoadOutcome {
    /// There is no file.
    Nothing,
    /// The saved state.
    Saved(SavedState),
    /// The file is not a saved state in all its parts and was renamed to `server.json.broken`.
    Broken {
        /// What is wrong, and where.
        why: serde_json::Error,
        /// The previous file, if that is readable.
        previous: Option<SavedState>,
    },
    /// The file cannot be used although it may be complete. It was renamed.
    Unusable {
        /// The reason.
        why: UnusableReason,
        /// The new name of the file, in the same folder.
        aside: String,
        /// The previous file, if that is readable.
        previous: Option<SavedState>,
    },
}

/// Why a file cannot be used.
#[derive(Debug)]
pub enum UnusableReason {
    /// It is larger than [`MAX_BYTES`].
    TooLarge,
    /// It cannot be read from the disk.
    Unreadable(io::Error),
}

impl fmt::Display for UnusableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "larger than the limit of {MAX_BYTES} bytes"),
            Self::Unreadable(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

/// The saved state of a server.
#[derive(Clone, Debug, Default)]
pub struct SavedState {
    /// Groups with their clients.
    pub groups: Vec<SavedGroup>,
    /// URIs of streams that controllers added.
    pub streams: Vec<String>,
    /// Sound settings that controllers made.
    pub sounds: Vec<Value>,
    /// Presets.
    pub presets: Vec<Preset>,
    /// Lines of the titles of each station, from files of their own.
    pub titles: HashMap<String, String>,
}

/// Loads the saved state. A file that cannot be used is renamed, so that the next save does not
/// replace it.
///
/// # Errors
/// The file cannot be used and cannot be renamed either.
pub fn load(dir: &Path) -> io::Result<LoadOutcome> {
    let path = dir.join(STATE_FILE);
    let previous = || read(&dir.join(PREVIOUS_FILE)).ok().and_then(|text| parse(&text).ok());
    let unusable = |why, suffix| {
        let (aside, previous) = (quarantine(dir, suffix)?, previous());
        Ok(LoadOutcome::Unusable { why, aside, previous })
    };
    match read(&path) {
        Ok(text) => Ok(parse(&text).map_or_else(
            |why| {
                // If this fails, the file is found again at the next start.
                fs::rename(&path, dir.join("server.json.broken")).ok();
                LoadOutcome::Broken { why, previous: previous() }
            },
            LoadOutcome::Saved,
        )),
        // The damaged file was renamed at an earlier start, and nothing has been saved since.
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
    // One byte more, to detect a file that is too large.
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Renames the file to an unused name; returns that.
fn quarantine(dir: &Path, suffix: &str) -> io::Result<String> {
    let name = |number: usize| match number {
        1 => format!("{STATE_FILE}.{suffix}"),
        number => format!("{STATE_FILE}.{suffix}.{number}"),
    };
    let is_free = |name: &String| fs::symlink_metadata(dir.join(name)).is_err();
    let free = (1..=MAX_PUT_ASIDE).map(name).find(is_free).ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(dir.join(STATE_FILE), dir.join(&free))?;
    Ok(free)
}

/// Limit of renamed files with the same suffix, so that repeated restarts do not fill the disk.
const MAX_PUT_ASIDE: usize = 10;

fn parse(text: &[u8]) -> Result<SavedState, serde_json::Error> {
    let Object(StateFileJson { groups, streams, sounds, presets }) = serde_json::from_slice(text)?;
    Ok(SavedState { groups, streams, sounds, presets, titles: HashMap::new() })
}

/// The state to save, which is rendered later without a lock: groups, clients and presets are
/// shared, and taken without a copy.
#[derive(Debug)]
pub struct Snapshot {
    groups: Vec<GroupView>,
    streams: Vec<String>,
    sounds: Vec<Value>,
    presets: Vec<Arc<Preset>>,
}

impl Snapshot {
    /// A snapshot of the registry and of streams and sound settings.
    #[must_use]
    pub fn new(registry: &Registry, streams: Vec<String>, sounds: Vec<Value>) -> Self {
        let (groups, presets) =
            (registry.table.remembered_groups(), registry.presets.list.to_vec());
        Self { groups, streams, sounds, presets }
    }

    /// The contents of the file. Keys that snapserver does not have are left out when they are
    /// empty.
    #[must_use]
    pub fn into_text(self) -> String {
        let clients: usize = self.groups.iter().map(|group| group.clients.len()).sum();
        let mut text = Vec::with_capacity(clients * TYPICAL_CLIENT);
        text.extend_from_slice(b"{\"ConfigVersion\":2");
        write_list(&mut text, "Groups", self.groups.iter().map(GroupJson::saved));
        if !self.streams.is_empty() {
            write_list(&mut text, "Streams", self.streams.iter());
        }
        if !self.sounds.is_empty() {
            write_list(&mut text, "Sounds", self.sounds.iter());
        }
        if !self.presets.is_empty() {
            write_list(&mut text, "Presets", self.presets.iter().map(Arc::as_ref));
        }
        text.push(b'}');
        // `serde_json` writes UTF-8.
        String::from_utf8(text).unwrap_or_default()
    }
}

/// Typical size of a client with its group, in bytes.
const TYPICAL_CLIENT: usize = 512;

/// Writes a list item by item: the tree of a large installation takes ten times the memory of its
/// text, and the allocator would keep it.
fn write_list(text: &mut Vec<u8>, name: &str, items: impl Iterator<Item = impl Serialize>) {
    text.extend_from_slice(b",\"");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\":[");
    for (number, item) in items.enumerate() {
        if number > 0 {
            text.push(b',');
        }
        // Cannot fail: keys are strings, numbers are finite, and a vector grows.
        serde_json::to_writer(&mut *text, &item).ok();
    }
    text.push(b']');
}

/// Replaces the file; returns when it is on the disk.
///
/// # Errors
/// Errors of the file system; [`FileTooLarge`](io::ErrorKind::FileTooLarge) for contents that
/// [`load`] would not read. The old file is then unchanged.
pub fn save(dir: &Path, contents: &str) -> io::Result<()> {
    if contents.len() > MAX_BYTES {
        let fact =
            format!("the state has {} bytes, more than the limit of {MAX_BYTES}", contents.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, fact));
    }
    let mut new = NewFile::create(&dir.join(STATE_FILE), 0o666)?;
    new.file().write_all(contents.as_bytes())?;
    let new = new.sync()?;
    keep_previous(dir);
    new.publish()
}

/// Keeps the old file under a second name, atomically. The first save has none, and some file
/// systems do not support links.
fn keep_previous(dir: &Path) {
    let link = dir.join("server.json.link");
    // Left over if an earlier save was killed.
    fs::remove_file(&link).ok();
    if fs::hard_link(dir.join(STATE_FILE), &link).is_ok()
        && fs::rename(&link, dir.join(PREVIOUS_FILE)).is_err()
    {
        fs::remove_file(&link).ok();
    }
}

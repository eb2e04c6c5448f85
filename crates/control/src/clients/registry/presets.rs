//! Named arrangements of groups, such as "party" and "night".
//!
//! A preset is applied through the same methods that controllers use, so it cannot create an
//! invalid state; unknown clients are skipped.
//!
//! Presets multiply clients, so their size is limited, individually and in total. They are
//! immutable: writers hold a counted reference and need no lock.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::Serialize;

use super::client::NotFound;
use super::retention::MAX_CLIENTS;

/// Limit of presets; more would not be usable in a list.
pub const MAX_PRESETS: usize = 64;
/// Limit of clients in one preset: each is in it once, and no more than these are remembered.
pub const MAX_PRESET_CLIENTS: usize = MAX_CLIENTS;
/// Largest preset as JSON, in bytes: three times [`MAX_PRESET_CLIENTS`] with ordinary names and a
/// group each, and half of the largest answer to a controller.
pub const MAX_PRESET_BYTES: usize = 4 << 20;
/// Total size of all presets as JSON, in bytes: 64 presets of 2,000 clients with a group each. All
/// of them are written with every save and read at every start.
pub const MAX_PRESETS_BYTES: usize = 16 << 20;

/// Groups with their stations and the volumes of their clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Preset {
    /// The name that a user gave it.
    pub name: String,
    pub(super) groups: Vec<PresetGroup>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PresetGroup {
    pub(super) name: String,
    #[serde(rename = "stream_id")]
    pub(super) station: String,
    pub(super) muted: bool,
    pub(super) clients: Vec<PresetClient>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PresetClient {
    pub(super) id: String,
    pub(super) volume: PresetVolume,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PresetVolume {
    pub(super) percent: u8,
    pub(super) muted: bool,
}

/// Serializes the groups of a preset.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PresetGroups<'a>(&'a [PresetGroup]);

/// Why a preset was not saved. Existing presets are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetError {
    /// The name is empty.
    NoName,
    /// There are [`MAX_PRESETS`] already.
    TooMany,
    /// It is larger than [`MAX_PRESET_BYTES`].
    TooLarge,
    /// All presets together would be larger than [`MAX_PRESETS_BYTES`].
    Full,
}

impl fmt::Display for PresetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes >> 20;
        match self {
            Self::NoName => f.write_str("a preset needs a name"),
            Self::TooMany => {
                write!(f, "the maximum of {MAX_PRESETS} presets is reached; delete one first")
            }
            Self::TooLarge => {
                write!(f, "the preset is larger than {} MiB as JSON", mib(MAX_PRESET_BYTES))
            }
            Self::Full => write!(
                f,
                "all presets together would be larger than {} MiB as JSON; delete one first",
                mib(MAX_PRESETS_BYTES)
            ),
        }
    }
}

impl std::error::Error for PresetError {}

/// All presets, with their sizes and members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presets {
    pub(crate) list: Vec<Arc<Preset>>,
    /// Size of each preset as JSON, in bytes.
    sizes: Vec<usize>,
    /// For each client, in how many groups of presets it is.
    members: HashMap<String, u32>,
}

impl Presets {
    /// Whether a client is in any preset.
    pub(super) fn contains_client(&self, client: &str) -> bool {
        self.members.contains_key(client)
    }

    /// Adds a preset, or replaces the one of the same name.
    pub(super) fn put(&mut self, preset: Preset) -> Result<(), PresetError> {
        let size = preset.bytes();
        let old = self.list.iter().position(|old| old.name == preset.name);
        let freed = old.map_or(0, |at| self.sizes[at]);
        let all: usize = self.sizes.iter().sum();
        if preset.name.is_empty() {
            return Err(PresetError::NoName);
        }
        if old.is_none() && self.list.len() >= MAX_PRESETS {
            return Err(PresetError::TooMany);
        }
        if size > MAX_PRESET_BYTES {
            return Err(PresetError::TooLarge);
        }
        if all - freed + size > MAX_PRESETS_BYTES {
            return Err(PresetError::Full);
        }
        if let Some(at) = old {
            self.take(at);
        }
        for id in preset.ids() {
            match self.members.get_mut(id) {
                Some(count) => *count += 1,
                None => drop(self.members.insert(id.to_owned(), 1)),
            }
        }
        self.sizes.push(size);
        self.list.push(Arc::new(preset));
        Ok(())
    }

    /// Deletes a preset.
    ///
    /// # Errors
    /// [`NotFound::Preset`].
    pub(crate) fn delete(&mut self, name: &str) -> Result<(), NotFound> {
        let at = self.list.iter().position(|preset| preset.name == name);
        self.take(at.ok_or(NotFound::Preset)?);
        Ok(())
    }

    /// Restores saved presets; returns the names of those that exceed the limits.
    pub(crate) fn restore(&mut self, presets: Vec<Preset>) -> Vec<String> {
        *self = Self::default();
        let mut refused = Vec::new();
        for preset in presets {
            let name = preset.name.clone();
            if self.put(preset).is_err() {
                refused.push(name);
            }
        }
        refused
    }

    fn take(&mut self, at: usize) {
        let preset = self.list.remove(at);
        self.sizes.remove(at);
        for id in preset.ids() {
            if let Some(count) = self.members.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    self.members.remove(id);
                }
            }
        }
    }
}

impl Preset {
    /// Its groups, for serialization.
    #[must_use]
    pub fn groups(&self) -> PresetGroups<'_> {
        PresetGroups(&self.groups)
    }

    /// The number of groups.
    #[must_use]
    pub const fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The number of clients.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.groups.iter().map(|group| group.clients.len()).sum()
    }

    fn ids(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flat_map(|group| &group.clients).map(|client| client.id.as_str())
    }

    /// Its size as JSON, without building the text.
    fn bytes(&self) -> usize {
        let mut counted = ByteCounter(0);
        // Cannot fail: keys are strings, numbers are finite, and the writer only counts.
        serde_json::to_writer(&mut counted, self).ok();
        counted.0
    }
}

/// A writer that counts bytes.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! `server.json`: groups and clients across restarts.
//!
//! It has snapserver's shape, so that theirs can be copied over. Unlike theirs it is written beside
//! the old one and then renamed: whenever the power goes, one of the two is whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::Registry;
use super::client::{Client, Group};
use super::presets::{Preset, preset_from, preset_json};
use super::shape::{GroupShape, group_from, to_text};

/// The name of the file in the state directory.
pub const FILE: &str = "server.json";
/// What it was before the last change.
const PREVIOUS: &str = "server.json.previous";
/// Bytes that are read at most: 8,192 clients take a tenth.
const MAX_BYTES: u64 = 32 << 20;

/// What was found.
#[derive(Debug)]
pub enum Loaded {
    /// There is no file.
    Nothing,
    /// This.
    Saved(Saved),
    /// Something that cannot be read; it was put aside as `server.json.broken`. What the file was
    /// before, if that can be read.
    Broken(Option<Saved>),
}

/// What is kept of a house.
#[derive(Clone, Debug, Default)]
pub struct Saved {
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

/// Reads the groups that were saved.
///
/// # Errors
/// What the file system says; a file with wrong contents is no error.
pub fn load(dir: &Path) -> io::Result<Loaded> {
    let (path, previous) = (dir.join(FILE), dir.join(PREVIOUS));
    let before = || read(&previous).ok().and_then(|text| parse(&text));
    let text = match read(&path) {
        Ok(text) => text,
        // It was put aside, and nothing has changed since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(before().map_or(Loaded::Nothing, Loaded::Saved));
        }
        Err(error) => return Err(error),
    };
    Ok(parse(&text).map_or_else(
        || {
            // Where that cannot be done, it is found again the next time.
            fs::rename(&path, dir.join("server.json.broken")).ok();
            Loaded::Broken(before())
        },
        Loaded::Saved,
    ))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn parse(text: &[u8]) -> Option<Saved> {
    let value = serde_json::from_slice::<Value>(text).ok()?;
    let list = |key: &str| value[key].as_array().map_or(&[][..], Vec::as_slice).iter();
    Some(Saved {
        groups: value["Groups"].as_array()?.iter().map(group_from).collect(),
        streams: list("Streams").filter_map(|uri| uri.as_str().map(str::to_owned)).collect(),
        sounds: list("Sounds").cloned().collect(),
        presets: list("Presets").map(preset_from).collect(),
    })
}

/// The contents of the file. What snapserver does not know is only there when there is some.
#[must_use]
pub fn render(registry: &Registry, streams: &[String], sounds: &[Value]) -> String {
    let mut text = "{\"ConfigVersion\":2".to_owned();
    let groups = registry.groups().map(|group| GroupShape::new(registry, group));
    list(&mut text, "Groups", groups);
    if !streams.is_empty() {
        list(&mut text, "Streams", streams.iter());
    }
    if !sounds.is_empty() {
        list(&mut text, "Sounds", sounds.iter());
    }
    if !registry.presets().is_empty() {
        list(&mut text, "Presets", registry.presets().iter().map(preset_json));
    }
    text.push('}');
    text
}

/// Written and not built: the tree of a whole house takes ten times the memory of its text, and the
/// allocator would keep it.
fn list(text: &mut String, name: &str, items: impl Iterator<Item = impl Serialize>) {
    text.push_str(",\"");
    text.push_str(name);
    text.push_str("\":[");
    for (number, item) in items.enumerate() {
        text.push_str(if number > 0 { "," } else { "" });
        text.push_str(&to_text(&item));
    }
    text.push(']');
}

/// Replaces the file; returns when it is on the disk.
///
/// # Errors
/// What the file system says; the old file is then as it was.
pub fn save(dir: &Path, contents: &str) -> io::Result<()> {
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
    fs::rename(&fresh, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

/// Keeps the file that goes under a second name, in one step. The first save has none to keep, and
/// some file systems cannot.
fn keep_previous(dir: &Path) {
    let link = dir.join("server.json.link");
    // What a kill has left of the last time.
    fs::remove_file(&link).ok();
    if fs::hard_link(dir.join(FILE), &link).is_ok()
        && fs::rename(&link, dir.join(PREVIOUS)).is_err()
    {
        fs::remove_file(&link).ok();
    }
}

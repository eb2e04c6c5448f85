//! `server.json`: groups and clients across restarts.
//!
//! It has snapserver's shape, so that theirs can be copied over. Unlike theirs it is written beside
//! the old one and then renamed: whenever the power goes, one of the two is whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::Value;

use super::client::Group;
use super::shape::{group_from, group_json};

/// The name of the file in the state directory.
pub const FILE: &str = "server.json";
/// Bytes that are read at most: 4,096 clients take a tenth.
const MAX_BYTES: u64 = 32 << 20;

/// What was found.
#[derive(Debug)]
pub enum Loaded {
    /// There is no file.
    Nothing,
    /// These groups.
    Groups(Vec<Group>),
    /// Something that cannot be read; it was put aside as `server.json.broken`.
    Broken,
}

/// Reads the groups that were saved.
///
/// # Errors
/// What the file system says; a file with wrong contents is no error.
pub fn load(dir: &Path) -> io::Result<Loaded> {
    let path = dir.join(FILE);
    let mut text = Vec::new();
    match File::open(&path) {
        Ok(file) => file.take(MAX_BYTES).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Nothing),
        Err(error) => return Err(error),
    };
    let groups = serde_json::from_slice::<Value>(&text)
        .ok()
        .and_then(|value| Some(value["Groups"].as_array()?.iter().map(group_from).collect()));
    Ok(match groups {
        Some(groups) => Loaded::Groups(groups),
        None => {
            fs::rename(&path, dir.join("server.json.broken"))?;
            Loaded::Broken
        }
    })
}

/// The contents of the file for these groups.
#[must_use]
pub fn render(groups: &[Group]) -> String {
    // Group by group: the tree of a whole house takes ten times the memory of its text, and the
    // allocator would keep it.
    let mut text = "{\"ConfigVersion\":2,\"Groups\":[".to_owned();
    for (number, group) in groups.iter().enumerate() {
        text.push_str(if number > 0 { "," } else { "" });
        text.push_str(&group_json(group).to_string());
    }
    text.push_str("]}");
    text
}

/// Replaces the file; returns when it is on the disk.
///
/// # Errors
/// What the file system says; the old file is then as it was.
pub fn save(dir: &Path, contents: &str) -> io::Result<()> {
    let fresh = dir.join("server.json.new");
    let mut file = File::create(&fresh)?;
    file.write_all(contents.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}

//! Holds: ranges of time whose files retention does not delete, for example until a complaint is
//! settled.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use aulos_engine::recorder::UnixTime;
use serde_json::{Value, json};

use super::index::path_of;
use crate::record::wall_clock;

/// A hold on the range `from..to`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// Its number, from 1.
    pub id: u64,
    /// Start of the range.
    pub from: UnixTime,
    /// End of the range, not included.
    pub to: UnixTime,
    /// The reason.
    pub why: String,
    /// When it ends by itself; `None` until it is released.
    pub until: Option<UnixTime>,
}

impl Hold {
    /// Whether it holds files at `now`.
    #[must_use]
    pub fn is_active(&self, now: UnixTime) -> bool {
        self.until.is_none_or(|until| until > now)
    }

    pub(super) fn touches(&self, from: UnixTime, to: UnixTime) -> bool {
        self.from < to && from < self.to
    }
}

/// The holds of a recorder that were not released, also those that have ended. Blocks.
///
/// # Errors
/// Errors of the file system; [`InvalidData`](io::ErrorKind::InvalidData) for a file with a line
/// that is not one of this program: retention deletes nothing then.
pub fn list_holds(folder: &Path, recorder: &str) -> io::Result<Vec<Hold>> {
    let mut text = String::new();
    match File::open(path_of(folder, recorder, HOLDS)) {
        Ok(file) => file.take(MAX_HOLDS_BYTES).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut holds: Vec<Hold> = Vec::new();
    for line in text.lines() {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the file of holds is damaged");
        let json: Value = serde_json::from_str(line).map_err(|_| wrong())?;
        if let Some(id) = json["release"].as_u64() {
            holds.retain(|hold| hold.id != id);
        } else {
            holds.push(parse_hold(&json).ok_or_else(wrong)?);
        }
    }
    Ok(holds)
}

fn parse_hold(json: &Value) -> Option<Hold> {
    let time = |key: &str| json[key].as_i64().map(UnixTime::from_nanos);
    Some(Hold {
        id: json["hold"].as_u64()?,
        from: time("from_ns")?,
        to: time("to_ns")?,
        why: json["why"].as_str()?.to_owned(),
        until: time("until_ns"),
    })
}

/// Holds the range `from..to`. A running recorder follows within its next check of the folder, and
/// before it deletes a file. Blocks.
///
/// # Errors
/// Errors of the file system; [`InvalidInput`](io::ErrorKind::InvalidInput) for an empty range or
/// a reason that is empty or longer than [`MAX_REASON_BYTES`].
pub fn add_hold(
    folder: &Path,
    recorder: &str,
    (from, to): (UnixTime, UnixTime),
    why: &str,
    until: Option<UnixTime>,
) -> io::Result<Hold> {
    if from >= to || why.trim().is_empty() || why.len() > MAX_REASON_BYTES {
        let message = "a hold needs a range that is not empty and a reason of at most 1,000 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let file = open_locked(folder, recorder)?;
    let id = last_id(folder, recorder)? + 1;
    let hold = Hold { id, from, to, why: why.to_owned(), until };
    let line = json!({
        "hold": id, "from_ns": from.as_nanos(), "to_ns": to.as_nanos(), "why": why,
        "until_ns": until.map(UnixTime::as_nanos), "at_ns": wall_clock().utc.as_nanos(),
    });
    append_line(file, &line)?;
    Ok(hold)
}

/// Releases a hold. Blocks.
///
/// # Errors
/// Errors of the file system; [`NotFound`](io::ErrorKind::NotFound) when there is no such hold.
pub fn release_hold(folder: &Path, recorder: &str, id: u64) -> io::Result<()> {
    let file = open_locked(folder, recorder)?;
    if !list_holds(folder, recorder)?.iter().any(|hold| hold.id == id) {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no hold {id}")));
    }
    append_line(file, &json!({ "release": id, "at_ns": wall_clock().utc.as_nanos() }))
}

/// The greatest number so far, also of holds that were released.
fn last_id(folder: &Path, recorder: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(path_of(folder, recorder, HOLDS))?;
    let ids = text.lines().filter_map(|line| {
        serde_json::from_str::<Value>(line).ok()?["hold"].as_u64().filter(|id| *id < u64::MAX)
    });
    Ok(ids.max().unwrap_or(0))
}

/// Opens the file for appending; two programs do not give the same number.
fn open_locked(folder: &Path, recorder: &str) -> io::Result<File> {
    let path = path_of(folder, recorder, HOLDS);
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    file.lock()?;
    if file.metadata()?.len() >= MAX_HOLDS_BYTES - MAX_LINE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file of holds is full"));
    }
    Ok(file)
}

/// Appends a line in one write, and syncs it.
pub(super) fn append_line(mut file: File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_data()
}

/// Maximum length of a reason.
pub const MAX_REASON_BYTES: usize = 1_000;

/// Behind the recorder's name in the name of the file of its holds.
const HOLDS: &str = ".holds.jsonl";

/// Some 10,000 holds.
const MAX_HOLDS_BYTES: u64 = 4 << 20;

/// A reason in JSON takes at most six times its bytes.
const MAX_LINE_BYTES: u64 = 8 << 10;

//! The on-disk journal of files to upload: one small file for each, so that a kill loses nothing.
//!
//! An entry is written beside the old one, synced and renamed; after a power cut one of the two is
//! complete. Why a file for each: `docs/decisions/saved-state.md`.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aulos_io::disk::{replace, sync_folder_of};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// A file to upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    /// Its path.
    pub(super) file: PathBuf,
    /// A sidecar, which is uploaded and deleted with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sidecar: Option<PathBuf>,
    /// Name of its object.
    pub(super) key: String,
    /// Its size when it was added.
    pub(super) bytes: u64,
    /// Number of failed attempts.
    #[serde(default)]
    pub(super) tries: u64,
    /// The object is complete and verified.
    #[serde(default)]
    pub(super) confirmed: bool,
    /// It was sent completely, but not verified yet.
    #[serde(default)]
    pub(super) sent: bool,
    /// Multipart upload in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) begun: Option<MultipartUpload>,
}

/// A multipart upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MultipartUpload {
    /// The server's upload id.
    pub(super) id: String,
    /// Name of the object.
    pub(super) key: String,
    /// SHA-256 of the file, in hexadecimal digits.
    pub(super) sha256: String,
    /// Size of each part except the last.
    pub(super) part_bytes: u64,
    /// The server's id of each part, in order.
    pub(super) parts: Vec<String>,
}

/// The journal's directory.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    dir: PathBuf,
}

/// A listing of the journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JournalListing {
    /// Names of the oldest entries, oldest first.
    pub(super) names: Vec<String>,
    /// Whether there are more.
    pub(super) more: bool,
}

impl Journal {
    /// Opens the directory, and creates it if necessary. Incomplete entries are deleted.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        for item in fs::read_dir(dir)? {
            let path = item?.path();
            if path.extension().is_some_and(|ending| ending == "new") {
                remove_file(&path)?;
            }
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// Name of the entry for this file.
    pub(super) fn entry_name(file: &Path) -> String {
        hex(&digest(&SHA256, file.as_os_str().as_encoded_bytes()).as_ref()[..16])
    }

    /// Whether this file is in the journal.
    pub(super) fn contains(&self, file: &Path) -> bool {
        self.path(&Self::entry_name(file)).exists()
    }

    /// Writes an entry durably: it survives a power cut.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn write(&self, name: &str, entry: &JournalEntry) -> io::Result<()> {
        let text = serde_json::to_vec(entry)?;
        replace(&self.path(name), 0o666, &text)
    }

    /// Reads an entry; `None` if it does not exist. An unreadable one is put aside as
    /// `NAME.broken`, and is an error.
    ///
    /// # Errors
    /// Errors of the file system, and [`io::ErrorKind::InvalidData`].
    pub(super) fn read(&self, name: &str) -> io::Result<Option<JournalEntry>> {
        let path = self.path(name);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX_BYTES).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match serde_json::from_slice(&text) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) => {
                fs::rename(&path, self.dir.join(format!("{name}.broken")))?;
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        remove_file(&path)?;
        sync_folder_of(&path)
    }

    /// Lists the journal: passes every name to `each`, and returns the `most` oldest names that
    /// match `wanted`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn list(
        &self,
        most: usize,
        wanted: impl Fn(&str) -> bool,
        mut each: impl FnMut(&str),
    ) -> io::Result<JournalListing> {
        // The top of the heap is the newest of the oldest; an older entry replaces it.
        let mut oldest = std::collections::BinaryHeap::new();
        let mut more = false;
        for item in fs::read_dir(&self.dir)? {
            let item = item?;
            let file_name = item.file_name();
            let Some(name) = file_name.to_str().and_then(|name| name.strip_suffix(ENDING)) else {
                continue;
            };
            each(name);
            if !wanted(name) {
                continue;
            }
            // It may just have been uploaded.
            let Ok(since) = item.metadata().and_then(|found| found.modified()) else { continue };
            oldest.push((since, name.to_owned()));
            if oldest.len() > most {
                more = true;
                oldest.pop();
            }
        }
        let oldest: Vec<(SystemTime, String)> = oldest.into_sorted_vec();
        Ok(JournalListing { names: oldest.into_iter().map(|(_, name)| name).collect(), more })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}{ENDING}"))
    }
}

/// Deletes a file; a missing one is no error.
///
/// # Errors
/// Errors of the file system.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Formats hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

const ENDING: &str = ".json";
/// Maximum length of an entry in bytes: 10,000 parts take two million.
const MAX_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use aulos_blackbox::scratch::ScratchDir;

    fn entry(file: &str) -> JournalEntry {
        JournalEntry {
            file: file.into(),
            key: format!("k/{file}"),
            bytes: 5,
            ..JournalEntry::default()
        }
    }

    #[test]
    fn entries_round_trip_and_corrupt_ones_are_set_aside() {
        let dir = ScratchDir::new("upload-journal").unwrap();
        let journal = Journal::open(&dir).unwrap();
        let name = Journal::entry_name(Path::new("/r/a.wav"));
        let mut wanted = entry("/r/a.wav");
        wanted.begun = Some(MultipartUpload {
            id: "1".into(),
            parts: vec!["p".into()],
            ..MultipartUpload::default()
        });
        journal.write(&name, &wanted).unwrap();
        assert!(
            journal.contains(Path::new("/r/a.wav")) && !journal.contains(Path::new("/r/b.wav"))
        );
        assert_eq!(Journal::open(&dir).unwrap().read(&name).unwrap(), Some(wanted));
        journal.remove(&name).unwrap();
        assert_eq!(journal.read(&name).unwrap(), None);
        fs::write(dir.join(format!("{name}.json")), "{\"file\":").unwrap();
        assert_eq!(journal.read(&name).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(journal.read(&name).unwrap(), None);
        assert!(dir.join(format!("{name}.broken")).exists());
    }

    #[test]
    fn the_oldest_entries_come_first_up_to_a_limit() {
        let dir = ScratchDir::new("upload-oldest").unwrap();
        let journal = Journal::open(&dir).unwrap();
        for number in 0..10 {
            let name = format!("{number:032x}");
            journal.write(&name, &entry("x")).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000 - number);
            File::options()
                .write(true)
                .open(dir.join(format!("{name}.json")))
                .unwrap()
                .set_modified(at)
                .unwrap();
        }
        fs::write(dir.join("half.new"), "{").unwrap();
        let journal = Journal::open(&dir).unwrap();
        assert!(!dir.join("half.new").exists());
        let mut all = 0;
        let found = journal.list(3, |name| !name.ends_with('9'), |_| all += 1).unwrap();
        assert_eq!((found.more, all), (true, 10));
        assert_eq!(found.names, ["8", "7", "6"].map(|end| format!("{end:0>32}")));
    }
}

//! The index on the disk: reads it, appends to it, and adds files that it does not have.

use std::collections::HashSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aulos_engine::recorder::UnixTime;
use aulos_io::confined_open::{open_regular_beneath, open_root};

use super::index_line::{FIRST_PREV, IndexEntry, IndexLine, LoggedFile};
use crate::record::{MAX_SIDECAR, ParsedSidecar, sanitize, sidecar_name};

/// The lines of an index.
#[derive(Debug, Default)]
pub(super) struct IndexContents {
    /// The lines in their order; `None` for text that is not a line of an index.
    pub(super) lines: Vec<Option<IndexLine>>,
    /// Bytes of whole lines; behind them is what a killed process has written of the next one.
    pub(super) whole_bytes: u64,
    pub(super) is_torn: bool,
}

impl IndexContents {
    /// Reads the index of a recorder; an index that does not exist has no lines.
    pub(super) fn read(folder: &Path, recorder: &str) -> io::Result<Self> {
        let path = path_of(folder, recorder, INDEX);
        let mut text = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX_INDEX + 1).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        if text.len() as u64 > MAX_INDEX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the index exceeds 256 MiB"));
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let parse = |line: &[u8]| IndexLine::parse(std::str::from_utf8(line).ok()?);
        let lines = text[..whole].split(|byte| *byte == b'\n');
        let mut lines: Vec<_> = lines.map(parse).collect();
        // Behind the last newline is nothing.
        drop(lines.pop());
        Ok(Self { lines, whole_bytes: whole as u64, is_torn: whole < text.len() })
    }

    /// The files that were closed and not deleted, in the order of the lines.
    pub(super) fn files(&self) -> Vec<LoggedFile> {
        let known = || self.lines.iter().flatten();
        let deleted: HashSet<&str> = known()
            .filter_map(|line| match &line.entry {
                IndexEntry::Deleted { file, .. } => Some(file.as_str()),
                IndexEntry::Closed(_) => None,
            })
            .collect();
        known()
            .filter_map(|line| match &line.entry {
                IndexEntry::Closed(file) if !deleted.contains(file.file.as_str()) => {
                    Some(file.clone())
                }
                _ => None,
            })
            .collect()
    }

    /// The last hash: the head of the chain.
    pub(super) fn head(&self) -> &str {
        self.lines.iter().flatten().next_back().map_or(FIRST_PREV, |line| &line.hash)
    }

    /// The number of the next line.
    pub(super) fn next_seq(&self) -> u64 {
        self.lines.iter().flatten().next_back().map_or(0, |line| line.seq.saturating_add(1))
    }
}

/// An index that is written. One process writes it: the one that records into the folder.
#[derive(Debug)]
pub(super) struct IndexWriter {
    path: PathBuf,
    file: File,
    seq: u64,
    head: String,
    /// The last file with the number of its segment, if this run has added it.
    last: Option<(u64, LoggedFile)>,
    /// Every file that was ever closed.
    known: HashSet<String>,
    files: Vec<LoggedFile>,
    /// The time behind the last frame of the last file, by its own clock.
    last_end: Option<UnixTime>,
}

impl IndexWriter {
    /// Opens the index, removes the rest of a line that was not completed, and adds the complete
    /// files of the folder that it does not have.
    pub(super) fn open(folder: &Path, recorder: &str) -> io::Result<Self> {
        let contents = IndexContents::read(folder, recorder)?;
        let path = path_of(folder, recorder, INDEX);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        if contents.is_torn {
            file.set_len(contents.whole_bytes)?;
        }
        let known = contents.lines.iter().flatten().filter_map(|line| match &line.entry {
            IndexEntry::Closed(file) => Some(file.file.clone()),
            IndexEntry::Deleted { .. } => None,
        });
        let files = contents.files();
        let mut index = Self {
            path,
            file,
            seq: contents.next_seq(),
            head: contents.head().to_owned(),
            last: None,
            known: known.collect(),
            files,
            last_end: None,
        };
        if let Some(last) = index.files.last() {
            let sidecar = read_sidecar(folder, &last.file);
            let segment = sidecar.as_ref().and_then(|it| it.json()["segment"].as_u64());
            index.last_end = Some(sidecar.map_or_else(|| last.end(), |it| it.end));
            index.last = Some((segment.unwrap_or(u64::MAX - 1), last.clone()));
        }
        for (name, sidecar) in closed_sidecars(folder, recorder, |name| index.known.contains(name))?
        {
            index.add(&name, &sidecar)?;
        }
        Ok(index)
    }

    /// Adds a complete file, unless the index has it.
    pub(super) fn add(&mut self, file: &str, sidecar: &ParsedSidecar) -> io::Result<()> {
        if self.known.contains(file) {
            return Ok(());
        }
        let Some((segment, logged)) = LoggedFile::from_sidecar(file, sidecar, self.last.as_ref())
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the sidecar has no digest"));
        };
        self.append(&IndexEntry::Closed(logged.clone()))?;
        self.known.insert(file.to_owned());
        self.files.push(logged.clone());
        (self.last, self.last_end) = (Some((segment, logged)), Some(sidecar.end));
        Ok(())
    }

    /// Appends a line and syncs it.
    pub(super) fn append(&mut self, entry: &IndexEntry) -> io::Result<()> {
        let (line, hash) = entry.line(self.seq, &self.head);
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        (self.seq, self.head) = (self.seq + 1, hash);
        if let IndexEntry::Deleted { file, .. } = entry {
            self.files.retain(|other| other.file != *file);
        }
        Ok(())
    }

    /// Whether the file that is open is the one at the path: not when the folder was removed, or
    /// another disk is mounted there.
    pub(super) fn is_current(&self) -> bool {
        let identity = |of: io::Result<Metadata>| of.ok().map(|it| (it.dev(), it.ino()));
        let open = identity(self.file.metadata());
        open.is_some() && open == identity(std::fs::metadata(&self.path))
    }

    /// The time behind the last frame of the last file.
    pub(super) const fn last_end(&self) -> Option<UnixTime> {
        self.last_end
    }

    /// The hash of the last line, and the number of lines.
    pub(super) fn head(&self) -> (&str, u64) {
        (&self.head, self.seq)
    }

    /// The files that are not deleted.
    pub(super) fn files(&self) -> &[LoggedFile] {
        &self.files
    }
}

/// The complete files of a recorder by their sidecars, oldest first, without those that are known.
pub(super) fn closed_sidecars(
    folder: &Path,
    recorder: &str,
    is_known: impl Fn(&str) -> bool,
) -> io::Result<Vec<(String, ParsedSidecar)>> {
    let mut found = Vec::new();
    for name in sidecar_files(folder)? {
        if is_known(&name) {
            continue;
        }
        let Some(sidecar) = read_sidecar(folder, &name) else { continue };
        if sidecar.is_closed && sidecar.recorder == recorder {
            found.push((name, sidecar));
        }
    }
    found.sort_by(|(a, at), (b, bt)| (at.start.as_nanos(), a).cmp(&(bt.start.as_nanos(), b)));
    Ok(found)
}

/// The names of files that have a sidecar.
pub(super) fn sidecar_files(folder: &Path) -> io::Result<Vec<String>> {
    let (mut folders, mut found) = (vec![(PathBuf::new(), 0)], Vec::new());
    let mut entries = 0;
    while let Some((below, depth)) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(io::Error::other("the folder has more than 1,000,000 entries"));
            }
            let (kind, path) = (entry.file_type()?, below.join(entry.file_name()));
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((path, depth + 1));
            } else if let Some(name) = path.to_str().and_then(|name| name.strip_suffix(".json"))
                && kind.is_file()
            {
                found.push(name.to_owned());
            }
        }
    }
    Ok(found)
}

/// The sidecar of a file of the folder.
pub(super) fn read_sidecar(folder: &Path, file: &str) -> Option<ParsedSidecar> {
    let root = open_root(folder).ok()?;
    let sidecar = open_regular_beneath(&root, Path::new(&sidecar_name(file))).ok()?;
    let mut bytes = Vec::new();
    sidecar.take(MAX_SIDECAR).read_to_end(&mut bytes).ok()?;
    ParsedSidecar::parse(&bytes)
}

/// Path of a file of the log.
pub(super) fn path_of(folder: &Path, recorder: &str, suffix: &str) -> PathBuf {
    folder.join(sanitize(recorder) + suffix)
}

/// Behind the recorder's name in the name of its index.
pub(super) const INDEX: &str = ".logger.jsonl";

/// A century of one file per hour.
const MAX_INDEX: u64 = 256 << 20;

/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1_000_000;

/// Depth of folders that are looked into; patterns have fewer.
const MAX_DEPTH: usize = 16;

//! Checks of a log: each line of the index, and each file.

use std::collections::HashSet;
use std::path::Path;
use std::{fmt, io};

use aulos_io::confined_open::{open_regular_beneath, open_root};

use super::catalog::{LoggerError, choose_station};
use super::index::{IndexContents, closed_sidecars};
use super::index_line::{FIRST_PREV, IndexEntry, LoggedFile};
use crate::record::{FileDigest, read_in_pieces};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Lines of the index.
    pub lines: usize,
    /// Files whose contents were compared.
    pub files: usize,
    /// The hash of the last line.
    pub head: String,
    /// What is wrong, in the order of the lines.
    pub problems: Vec<VerifyProblem>,
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyProblem {
    /// A line, counted from 1, is not a line of an index.
    DamagedLine(usize),
    /// The hash of a line does not fit its text.
    ChangedLine(usize),
    /// A line does not follow the line before it: one was removed, added or moved.
    BrokenChain(usize),
    /// The last line is not complete.
    TornLine,
    /// The contents of a file have changed.
    ChangedFile(String),
    /// A file is missing.
    MissingFile(String),
    /// A file cannot be read; with the reason.
    UnreadableFile(String, String),
    /// A complete file is not in the index.
    UnlistedFile(String),
    /// There is no index.
    NoIndex,
    /// No line has the expected hash: lines at the end were cut off, or all were written anew.
    HeadNotFound(String),
}

impl fmt::Display for VerifyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DamagedLine(line) => write!(f, "line {line} of the index is damaged"),
            Self::ChangedLine(line) => write!(f, "line {line} of the index has changed"),
            Self::BrokenChain(line) => {
                write!(f, "line {line} of the index does not follow the line before it")
            }
            Self::TornLine => f.write_str("the last line of the index is not complete"),
            Self::ChangedFile(file) => write!(f, "{file}: the contents have changed"),
            Self::MissingFile(file) => write!(f, "{file}: missing"),
            Self::UnreadableFile(file, why) => write!(f, "{file}: cannot be read: {why}"),
            Self::UnlistedFile(file) => write!(f, "{file}: not in the index"),
            Self::NoIndex => {
                f.write_str("there is no index; the files were compared with their sidecars")
            }
            Self::HeadNotFound(head) => write!(
                f,
                "no line has the hash {head}: lines were cut off, or the index was written anew"
            ),
        }
    }
}

/// Checks the index and the files of a folder. `head` is the hash of a line that was noted
/// elsewhere. Reads every file completely. Blocks.
///
/// # Errors
/// [`LoggerError`] when there is nothing to check.
pub fn verify_log(
    folder: &Path,
    station: Option<&str>,
    head: Option<&str>,
) -> Result<VerifyReport, LoggerError> {
    let station = choose_station(folder, station)?;
    let contents = IndexContents::read(folder, &station)?;
    let sidecars = closed_sidecars(folder, &station, |_| false)?;
    if contents.lines.is_empty() && sidecars.is_empty() {
        return Err(LoggerError::NoFiles);
    }
    let mut problems = check_chain(&contents);
    if contents.lines.is_empty() {
        problems.push(VerifyProblem::NoIndex);
    }
    let mut files = contents.files();
    let closed = contents.lines.iter().flatten().filter_map(|line| match &line.entry {
        IndexEntry::Closed(file) => Some(file.file.as_str()),
        IndexEntry::Deleted { .. } => None,
    });
    let listed: HashSet<&str> = closed.collect();
    for (name, sidecar) in &sidecars {
        if listed.contains(name.as_str()) {
            continue;
        }
        if !listed.is_empty() {
            problems.push(VerifyProblem::UnlistedFile(name.clone()));
        }
        files.extend(LoggedFile::from_sidecar(name, sidecar, None).map(|(_, file)| file));
    }
    for file in &files {
        problems.extend(check_file(folder, file));
    }
    if let Some(head) = head {
        let head = head.to_ascii_lowercase();
        if !contents.lines.iter().flatten().any(|line| line.is_intact && line.hash == head) {
            problems.push(VerifyProblem::HeadNotFound(head));
        }
    }
    let head = contents.head().to_owned();
    Ok(VerifyReport { lines: contents.lines.len(), files: files.len(), head, problems })
}

fn check_chain(contents: &IndexContents) -> Vec<VerifyProblem> {
    let mut problems = Vec::new();
    let (mut prev, mut seq) = (FIRST_PREV, 0);
    for (at, line) in contents.lines.iter().enumerate() {
        let Some(line) = line else {
            problems.push(VerifyProblem::DamagedLine(at + 1));
            continue;
        };
        if !line.is_intact {
            problems.push(VerifyProblem::ChangedLine(at + 1));
        }
        if line.prev != prev || line.seq != seq {
            problems.push(VerifyProblem::BrokenChain(at + 1));
        }
        (prev, seq) = (&line.hash, line.seq.saturating_add(1));
    }
    if contents.is_torn {
        problems.push(VerifyProblem::TornLine);
    }
    problems
}

fn check_file(folder: &Path, file: &LoggedFile) -> Option<VerifyProblem> {
    let name = || file.file.clone();
    let digest = || -> io::Result<(u64, String)> {
        let root = open_root(folder)?;
        let opened = open_regular_beneath(&root, Path::new(&file.file))?;
        let mut digest = FileDigest::new();
        let bytes = read_in_pieces(&opened, |piece| digest.update(piece))?;
        Ok((bytes, digest.hex()))
    };
    match digest() {
        Ok(found) if found == (file.bytes, file.sha256.clone()) => None,
        Ok(_) => Some(VerifyProblem::ChangedFile(name())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(VerifyProblem::MissingFile(name()))
        }
        Err(error) => Some(VerifyProblem::UnreadableFile(name(), error.to_string())),
    }
}

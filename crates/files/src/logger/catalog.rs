//! The files of one logger, for those who look for a time.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use aulos_engine::recorder::UnixTime;

use super::coverage::{self, CoveredFile, ExportPart, FoundRange};
use super::gap::{LogGap, LogGapCause};
use super::index::{INDEX, IndexContents, closed_sidecars, read_sidecar, sidecar_files};
use super::index_line::{IndexEntry, LoggedFile};
use crate::record::ParsedSidecar;

/// The files of one logger.
#[derive(Debug)]
pub struct LoggerCatalog {
    folder: PathBuf,
    station: String,
    /// Sorted by their times.
    files: Vec<CoveredFile>,
}

impl LoggerCatalog {
    /// Reads the index of a folder, or its sidecars where it has none. `station` may be `None` if
    /// the folder has the files of only one recorder. Blocks.
    ///
    /// # Errors
    /// [`LoggerError`].
    pub fn open(folder: &Path, station: Option<&str>) -> Result<Self, LoggerError> {
        let station = choose_station(folder, station)?;
        let contents = IndexContents::read(folder, &station)?;
        let mut files = indexed_files(folder, &contents);
        let known: HashSet<String> = files.iter().map(|it| it.file.file.clone()).collect();
        // A file that the index does not have: it was just closed, or there is no index.
        for (name, sidecar) in closed_sidecars(folder, &station, |name| known.contains(name))? {
            if let Some((_, file)) = LoggedFile::from_sidecar(&name, &sidecar, None) {
                files.push(covered(folder, file, Some(&sidecar)));
            }
        }
        if files.is_empty() {
            return Err(LoggerError::NoFiles);
        }
        files.sort_by_key(|it| it.file.t0.as_nanos());
        coverage::join(&mut files);
        Ok(Self { folder: folder.to_owned(), station, files })
    }

    /// The files whose times touch `from..to`, with the frames of that time.
    #[must_use]
    pub fn find(&self, from: UnixTime, to: UnixTime) -> Vec<FoundRange> {
        coverage::find(&self.files, from, to)
    }

    /// What an export of `from..to` consists of.
    #[must_use]
    pub fn export_parts(&self, from: UnixTime, to: UnixTime) -> Vec<ExportPart> {
        coverage::export_parts(&self.files, from, to)
    }

    /// What is missing in `from..to`.
    #[must_use]
    pub fn gaps(&self, from: UnixTime, to: UnixTime) -> Vec<LogGap> {
        coverage::gaps(&self.files, from, to)
    }

    /// From the first frame of the log to behind the last frame of its last file.
    #[must_use]
    pub fn range(&self) -> (UnixTime, UnixTime) {
        let start = self.files.first().map_or_else(UnixTime::default, |file| file.file.t0);
        let ends = self.files.iter().flat_map(|file| &file.spans).map(|span| span.end);
        (start, UnixTime::from_nanos(ends.max().unwrap_or(start.as_nanos())))
    }

    /// The entry of a file.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&LoggedFile> {
        self.files.iter().map(|it| &it.file).find(|file| file.file == name)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The recorder's name.
    #[must_use]
    pub fn station(&self) -> &str {
        &self.station
    }
}

/// The files of an index, also those that no longer exist.
fn indexed_files(folder: &Path, contents: &IndexContents) -> Vec<CoveredFile> {
    let mut files = Vec::new();
    let mut deleted = HashSet::new();
    for line in contents.lines.iter().flatten() {
        match &line.entry {
            IndexEntry::Closed(file) => {
                let sidecar = read_sidecar(folder, &file.file);
                files.push(covered(folder, file.clone(), sidecar.as_ref()));
            }
            IndexEntry::Deleted { file, .. } => {
                deleted.insert(file.as_str());
            }
        }
    }
    for file in &mut files {
        if deleted.contains(file.file.file.as_str()) {
            file.absence = Some(LogGapCause::Deleted);
        }
    }
    files
}

fn covered(folder: &Path, file: LoggedFile, sidecar: Option<&ParsedSidecar>) -> CoveredFile {
    let mut covered = CoveredFile::new(file, sidecar);
    if !folder.join(&covered.file.file).is_file() {
        covered.absence = Some(LogGapCause::FileMissing);
    }
    covered
}

/// The recorder whose files are meant.
pub(super) fn choose_station(folder: &Path, station: Option<&str>) -> Result<String, LoggerError> {
    if let Some(station) = station {
        return Ok(station.to_owned());
    }
    let mut names: Vec<String> = Vec::new();
    let indexes = std::fs::read_dir(folder)?.filter_map(Result::ok);
    for entry in indexes {
        let Some(name) =
            entry.file_name().to_str().and_then(|it| it.strip_suffix(INDEX)).map(str::to_owned)
        else {
            continue;
        };
        let contents = IndexContents::read(folder, &name)?;
        let first = contents.lines.iter().flatten().find_map(|line| match &line.entry {
            IndexEntry::Closed(file) => Some(file.station.clone()),
            IndexEntry::Deleted { .. } => None,
        });
        names.push(first.unwrap_or(name));
    }
    for file in sidecar_files(folder)? {
        if names.len() > 1 {
            break;
        }
        names.extend(read_sidecar(folder, &file).map(|sidecar| sidecar.recorder));
        names.sort();
        names.dedup();
    }
    match <[String; 1]>::try_from(names) {
        Ok([one]) => Ok(one),
        Err(names) if names.is_empty() => Err(LoggerError::NoFiles),
        Err(names) => Err(LoggerError::SeveralStations(names)),
    }
}

/// Why a folder cannot be used as a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoggerError {
    /// The folder or the index cannot be read.
    Io(io::Error),
    /// The folder has no complete file of the recorder.
    NoFiles,
    /// The folder has the files of more than one recorder; holds some of their names.
    SeveralStations(Vec<String>),
}

impl From<io::Error> for LoggerError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for LoggerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NoFiles => f.write_str("no complete recordings of that station"),
            Self::SeveralStations(names) => {
                write!(f, "recordings of several stations: choose one of {}", names.join(", "))
            }
        }
    }
}

impl std::error::Error for LoggerError {}

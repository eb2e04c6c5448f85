//! Which files are meant.

use std::io;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::error::ScanError;
use crate::decode::OpenError;

/// A file to be measured, or a path that leads to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanFile {
    /// As it was given, or below a folder that was given.
    pub path: PathBuf,
    /// Why it cannot be measured, where that is already known.
    pub error: Option<ScanError>,
}

impl ScanFile {
    /// A file whose measuring may be tried.
    #[must_use]
    pub const fn file(path: PathBuf) -> Self {
        Self { path, error: None }
    }

    const fn failed(path: PathBuf, error: ScanError) -> Self {
        Self { path, error: Some(error) }
    }
}

/// All files that `paths` mean: a file is itself, whatever its name; a folder is the sound files in
/// it and below, sorted by name. Order is that of `paths`.
///
/// Names that begin with a dot are passed over, links are followed. What version control ignores is
/// not passed over: sound often is what is kept out of it.
#[must_use]
pub fn find_files(paths: &[PathBuf]) -> Vec<ScanFile> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(ScanFile::file(path.clone()));
            continue;
        }
        let before = all.len();
        walk(path, &mut all);
        if all.len() == before {
            all.push(ScanFile::failed(path.clone(), ScanError::NothingInFolder));
        }
    }
    all
}

fn walk(folder: &Path, all: &mut Vec<ScanFile>) {
    let walk = WalkBuilder::new(folder)
        .standard_filters(false)
        .hidden(true)
        .follow_links(true)
        .max_depth(Some(MAX_DEPTH))
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    for entry in walk {
        match entry {
            Ok(entry) => {
                let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                if is_file && is_named_as_sound(entry.path()) {
                    all.push(ScanFile::file(entry.into_path()));
                }
            }
            Err(error) => all.extend(walk_error(folder, &error)),
        }
    }
}

/// A link that leads back to where the walk has been is no failure; nor is one that leads nowhere,
/// unless it has the name of a sound file.
fn walk_error(folder: &Path, error: &ignore::Error) -> Option<ScanFile> {
    let mut path = folder;
    let mut inner = error;
    loop {
        match inner {
            ignore::Error::WithPath { path: at, err } => (path, inner) = (at, err),
            ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
                inner = err;
            }
            ignore::Error::Loop { .. } => return None,
            _ => break,
        }
    }
    let kind = inner.io_error().map_or(io::ErrorKind::Other, io::Error::kind);
    if kind == io::ErrorKind::NotFound {
        let error = ScanError::Open(OpenError::NoSuchFile);
        return is_named_as_sound(path).then(|| ScanFile::failed(path.into(), error));
    }
    Some(ScanFile::failed(path.into(), ScanError::Folder(kind)))
}

fn is_named_as_sound(path: &Path) -> bool {
    let extension = path.extension().and_then(std::ffi::OsStr::to_str);
    extension.is_some_and(|name| EXTENSIONS.contains(&name.to_ascii_lowercase().as_str()))
}

/// What is looked at in folders: the names of all containers that can be read.
const EXTENSIONS: [&str; 25] = [
    "aac", "aif", "aifc", "aiff", "bwf", "caf", "flac", "m4a", "m4b", "m4p", "m4r", "mka", "mkv",
    "mov", "mp1", "mp2", "mp3", "mp4", "oga", "ogg", "opus", "rf64", "wav", "wave", "webm",
];

/// Folders within folders; deeper than any path that a system takes, so only a bound.
const MAX_DEPTH: usize = 2_048;

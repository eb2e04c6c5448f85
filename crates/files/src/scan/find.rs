//! Finds the files to scan.

use std::io;
use std::path::{Path, PathBuf};

use ignore::{Walk, WalkBuilder};

use super::error::ScanError;
use crate::decode::OpenError;

/// A file to measure, or a path without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanFile {
    /// The path as given, or below a given directory.
    pub path: PathBuf,
    /// An error that is known in advance.
    pub error: Option<ScanError>,
}

impl ScanFile {
    /// A file without a known error.
    #[must_use]
    pub const fn file(path: PathBuf) -> Self {
        Self { path, error: None }
    }

    const fn failed(path: PathBuf, error: ScanError) -> Self {
        Self { path, error: Some(error) }
    }
}

/// All files that `paths` select: a file stands for itself, whatever its name; a directory stands
/// for the audio files in it and below, sorted by name. The order is that of `paths`.
///
/// Hidden names are skipped, and links are followed. Ignore files of version control have no
/// effect, because audio is often excluded from it.
#[must_use]
pub fn find_files(paths: &[PathBuf]) -> Vec<ScanFile> {
    find_all_files(paths).0
}

/// As [`find_files`]; the second list has the files in directories whose names are those of sound
/// in formats that are not supported.
#[must_use]
pub fn find_all_files(paths: &[PathBuf]) -> (Vec<ScanFile>, Vec<PathBuf>) {
    let (mut all, mut unsupported) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            all.push(ScanFile::file(path.clone()));
            continue;
        }
        let before = all.len();
        walk(path, &mut all, &mut unsupported);
        if all.len() == before {
            all.push(ScanFile::failed(path.clone(), ScanError::NothingInFolder));
        }
    }
    (all, unsupported)
}

/// What is in a folder and below, sorted by name, without hidden names. Ignore files of version
/// control have no effect.
pub(crate) fn walk_folder(folder: &Path, follow_links: bool) -> Walk {
    WalkBuilder::new(folder)
        .standard_filters(false)
        .hidden(true)
        .follow_links(follow_links)
        .max_depth(Some(MAX_DEPTH))
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build()
}

fn walk(folder: &Path, all: &mut Vec<ScanFile>, unsupported: &mut Vec<PathBuf>) {
    for entry in walk_folder(folder, true) {
        match entry {
            Ok(entry) => {
                let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                if is_file && has_audio_name(entry.path()) {
                    all.push(ScanFile::file(entry.into_path()));
                } else if is_file && has_extension_of(entry.path(), &UNSUPPORTED_EXTENSIONS) {
                    unsupported.push(entry.into_path());
                }
            }
            Err(error) => all.extend(walk_error(folder, &error)),
        }
    }
}

/// A link cycle is no error; nor is a broken link, unless it has the name of an audio file.
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
        return has_audio_name(path).then(|| ScanFile::failed(path.into(), error));
    }
    Some(ScanFile::failed(path.into(), ScanError::Folder(kind)))
}

/// Whether the extension is one of a supported container; files in directories are selected by it.
#[must_use]
pub fn has_audio_name(path: &Path) -> bool {
    has_extension_of(path, &EXTENSIONS)
}

fn has_extension_of(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(std::ffi::OsStr::to_str);
    extension.is_some_and(|name| extensions.contains(&name.to_ascii_lowercase().as_str()))
}

/// The extensions of supported containers, for searching directories.
const EXTENSIONS: [&str; 25] = [
    "aac", "aif", "aifc", "aiff", "bwf", "caf", "flac", "m4a", "m4b", "m4p", "m4r", "mka", "mkv",
    "mov", "mp1", "mp2", "mp3", "mp4", "oga", "ogg", "opus", "rf64", "wav", "wave", "webm",
];

/// Extensions of sound in formats that are not supported.
const UNSUPPORTED_EXTENSIONS: [&str; 36] = [
    "aa", "aa3", "aax", "ac3", "amr", "ape", "asf", "au", "dff", "dsf", "dts", "eac3", "gsm", "it",
    "la", "mid", "midi", "mlp", "mod", "mp+", "mpc", "ofr", "oma", "ra", "rm", "s3m", "shn", "snd",
    "spx", "tak", "thd", "tta", "w64", "wma", "wv", "xm",
];

/// The limit of nested directories; deeper than any path that a system allows.
const MAX_DEPTH: usize = 2_048;

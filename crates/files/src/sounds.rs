//! The sounds that can be announced: files below given folders, and those that users upload.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{error, fmt};

use aulos_io::confined_open::{open_regular_beneath, open_root};
use aulos_io::disk::{NewFile, sync_folder_of};
use ignore::WalkBuilder;

use crate::decode::{FileDecodeOptions, FileDecoder, OpenError};
use crate::scan::has_audio_name;

/// Bytes of an uploaded sound: a quarter of an hour as MP3, a minute and a half as WAV.
pub const MAX_SOUND: usize = 16 << 20;
/// Uploaded sounds that are kept: together at most a gibibyte.
pub const MAX_SOUNDS: usize = 64;
/// Bytes of the name of an uploaded sound.
pub const MAX_SOUND_NAME: usize = 128;
/// Sounds in a list.
pub const MAX_LISTED: usize = 1_000;

/// Files and folders that are looked at for a list; a folder may hold a whole music library.
const MAX_VISITED: usize = 20_000;
/// Nested folders that are searched.
const MAX_DEPTH: usize = 8;

/// A file that can be announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sound {
    /// Below the folder in which it was found.
    pub name: String,
    /// The whole path.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether a user has uploaded it.
    pub is_uploaded: bool,
}

/// Sounds, and whether there are more than are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoundList {
    /// The uploaded ones first, then those of each folder, sorted by path.
    pub sounds: Vec<Sound>,
    /// Whether the list or the search has reached its limit.
    pub is_more: bool,
}

/// Why a sound was not stored.
#[derive(Debug)]
pub enum StoreError {
    /// The name is none of a sound file.
    Name,
    /// There is a sound of this name.
    Exists,
    /// There are [`MAX_SOUNDS`].
    Full,
    /// It cannot be decoded.
    Unreadable(OpenError),
    /// The disk failed.
    Io(io::Error),
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists,
            _ => Self::Io(error),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(
                f,
                "the name of a sound has at most {MAX_SOUND_NAME} bytes, no slash, no dot at its \
                 beginning, and the extension of a sound file, such as .wav or .mp3"
            ),
            Self::Exists => f.write_str("a sound of this name exists; delete it first"),
            Self::Full => {
                write!(f, "{MAX_SOUNDS} sounds are stored; delete those that are not needed")
            }
            Self::Unreadable(error) => error.fmt(f),
            Self::Io(error) => write!(f, "the sound cannot be written: {error}"),
        }
    }
}

impl error::Error for StoreError {}

/// The sounds below `uploads` and `roots`. A folder that cannot be read has none.
#[must_use]
pub fn list_sounds(roots: &[PathBuf], uploads: &Path) -> SoundList {
    let (mut list, mut visited) = (SoundList::default(), 0);
    find(uploads, true, &mut list, &mut visited);
    for root in roots {
        find(root, false, &mut list, &mut visited);
    }
    list
}

fn find(folder: &Path, is_uploaded: bool, list: &mut SoundList, visited: &mut usize) {
    let mut walk = WalkBuilder::new(folder);
    // A link may lead out of the folder, and could not be announced.
    walk.standard_filters(false).hidden(true).follow_links(false).max_depth(Some(MAX_DEPTH));
    walk.sort_by_file_name(std::ffi::OsStr::cmp);
    for entry in walk.build().filter_map(Result::ok) {
        *visited += 1;
        if *visited > MAX_VISITED || list.sounds.len() == MAX_LISTED {
            list.is_more = true;
            return;
        }
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        let name = entry.path().strip_prefix(folder).ok().and_then(Path::to_str).map(str::to_owned);
        let (Some(name), Ok(metadata)) = (name, entry.metadata()) else { continue };
        if is_file && has_audio_name(entry.path()) && entry.path().to_str().is_some() {
            let bytes = metadata.len();
            list.sounds.push(Sound { name, path: entry.into_path(), bytes, is_uploaded });
        }
    }
}

/// Stores a sound in the folder of uploads, which is created if necessary. It is complete or
/// absent.
///
/// # Errors
/// [`StoreError`]
pub fn store_sound(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, StoreError> {
    // One at a time, so that the number holds.
    static STORING: Mutex<()> = Mutex::new(());
    if !is_sound_name(name) {
        return Err(StoreError::Name);
    }
    let _turn = STORING.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(folder)?;
    let path = folder.join(name);
    if fs::symlink_metadata(&path).is_ok() {
        return Err(StoreError::Exists);
    }
    if fs::read_dir(folder)?.count() >= MAX_SOUNDS {
        return Err(StoreError::Full);
    }
    // Hidden, and with its extension, which a decoder looks at. A killed process leaves one file.
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".upload.{extension}"));
    let mut new = NewFile::create_as(&temporary, &path, 0o644)?;
    new.file().write_all(bytes)?;
    FileDecoder::open(&temporary, FileDecodeOptions::default()).map_err(StoreError::Unreadable)?;
    new.file().sync_all()?;
    // Unlike a rename it replaces nothing.
    fs::hard_link(&temporary, &path)?;
    drop(new);
    sync_folder_of(&path)?;
    Ok(path)
}

/// Opens an uploaded sound.
///
/// # Errors
/// Errors of the file system, [`io::ErrorKind::NotFound`] for a name that cannot be one.
pub fn open_sound(folder: &Path, name: &str) -> io::Result<File> {
    if !is_sound_name(name) {
        return Err(io::ErrorKind::NotFound.into());
    }
    open_regular_beneath(open_root(folder)?, Path::new(name))
}

/// Deletes an uploaded sound.
///
/// # Errors
/// As [`open_sound`].
pub fn delete_sound(folder: &Path, name: &str) -> io::Result<()> {
    drop(open_sound(folder, name)?);
    let path = folder.join(name);
    fs::remove_file(&path)?;
    sync_folder_of(&path)
}

fn is_sound_name(name: &str) -> bool {
    name.len() <= MAX_SOUND_NAME
        && !name.starts_with('.')
        && !name.chars().any(|c| c == '/' || c.is_control())
        && has_audio_name(Path::new(name))
}

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    /// A second of silence as WAV.
    fn wav() -> Vec<u8> {
        let (rate, size) = (48_000_u32, 96_000_u32);
        let mut bytes = b"RIFF".to_vec();
        bytes.extend((36 + size).to_le_bytes());
        bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
        bytes.extend(rate.to_le_bytes());
        bytes.extend((2 * rate).to_le_bytes());
        bytes.extend(b"\x02\0\x10\0data");
        bytes.extend(size.to_le_bytes());
        bytes.resize(44 + size as usize, 0);
        bytes
    }

    fn names(list: &SoundList) -> Vec<(&str, bool)> {
        list.sounds.iter().map(|sound| (sound.name.as_str(), sound.is_uploaded)).collect()
    }

    #[test]
    fn a_sound_is_stored_once_listed_opened_and_deleted() {
        let scratch = ScratchDir::new("sounds").unwrap();
        let (root, uploads) = (scratch.path().join("root"), scratch.path().join("state/sounds"));
        fs::create_dir_all(root.join("bells")).unwrap();
        for name in ["bells/gong.wav", "b.mp3", "notes.txt", ".hidden.wav"] {
            fs::write(root.join(name), b"x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", root.join("link.wav")).unwrap();
        let roots = [root];
        assert_eq!(
            names(&list_sounds(&roots, &uploads)),
            [("b.mp3", false), ("bells/gong.wav", false)]
        );
        let path = store_sound(&uploads, "door bell.wav", &wav()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), wav());
        let again = store_sound(&uploads, "door bell.wav", &wav());
        assert!(matches!(again, Err(StoreError::Exists)), "{again:?}");
        let list = list_sounds(&roots, &uploads);
        assert_eq!(names(&list)[0], ("door bell.wav", true));
        assert_eq!((list.sounds.len(), list.is_more), (3, false));
        assert_eq!(
            open_sound(&uploads, "door bell.wav").unwrap().metadata().unwrap().len(),
            96_044
        );
        delete_sound(&uploads, "door bell.wav").unwrap();
        assert!(delete_sound(&uploads, "door bell.wav").is_err());
        assert_eq!(fs::read_dir(&uploads).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_sound_is_not_stored() {
        let scratch = ScratchDir::new("no-sounds").unwrap();
        let folder = scratch.path().join("sounds");
        let long = format!("{}.wav", "n".repeat(MAX_SOUND_NAME));
        for name in ["", ".wav", "../up.wav", "a/b.wav", "page.html", "a\n.wav", &long] {
            let stored = store_sound(&folder, name, &wav());
            assert!(matches!(stored, Err(StoreError::Name)), "{name:?}: {stored:?}");
        }
        let stored = store_sound(&folder, "page.wav", b"<html>no sound</html>");
        assert!(matches!(stored, Err(StoreError::Unreadable(_))), "{stored:?}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        for number in 0..MAX_SOUNDS {
            fs::write(folder.join(format!("{number}.wav")), b"x").unwrap();
        }
        assert!(matches!(store_sound(&folder, "one-more.wav", &wav()), Err(StoreError::Full)));
        let victim = scratch.path().join("state.wav");
        fs::write(&victim, b"x").unwrap();
        assert!(open_sound(&folder, "../state.wav").is_err());
        assert!(delete_sound(&folder, "../state.wav").is_err() && victim.exists());
    }
}

//! HLS in a folder, as a web server or rsync reads it.
//!
//! A thread for each, because a network disk may block for any time. A file is written under a
//! temporary name, synced and renamed ([`disk::replace`]), so a reader finds all of it or the
//! file before, also after a loss of power.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

use aulos_control::backend::HlsTargetKind;
use aulos_io::{SystemClock, disk};
use aulos_session::hls::{HlsObject, HlsPublisher, HlsWindow, PublishAction, PublishResult};

use super::pace::pause;
use super::reporter::PublishReporter;

/// A folder that follows a window; the thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct FolderPublication {
    reporter: PublishReporter,
    is_over: Arc<AtomicBool>,
    thread: Thread,
}

impl FolderPublication {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives none.
    pub(super) fn start(
        station: &str,
        folder: &Path,
        window: &Arc<Mutex<HlsWindow>>,
    ) -> io::Result<Self> {
        let target = folder.display().to_string();
        let reporter = PublishReporter::new(station, HlsTargetKind::Folder, target);
        let is_over = Arc::<AtomicBool>::default();
        let config = window.lock().unwrap_or_else(PoisonError::into_inner).config().clone();
        let seed = RandomState::new().hash_one(folder);
        let mut publisher = HlsPublisher::new(&config, seed);
        let folder = HlsFolder { root: folder.to_owned() };
        // Without a window of its own: that of a station without HLS is freed at once.
        let window = Arc::downgrade(window);
        let (own_reporter, own_flag) = (reporter.clone(), Arc::clone(&is_over));
        let run = move || {
            while let Some(window) = window.upgrade() {
                let now = SystemClock::now();
                publisher
                    .handle_window(now, &window.lock().unwrap_or_else(PoisonError::into_inner));
                drop(window);
                while let Some(action) = publisher.poll_output() {
                    if own_flag.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = folder.perform(action);
                    publisher.handle_input(SystemClock::now(), result);
                    own_reporter.report(publisher.status());
                }
                if own_flag.load(Ordering::Relaxed) {
                    return;
                }
                thread::park_timeout(pause(&publisher, SystemClock::now()));
            }
        };
        let handle = thread::Builder::new().name("aulos-hls".to_owned()).spawn(run)?;
        Ok(Self { reporter, is_over, thread: handle.thread().clone() })
    }

    pub(super) const fn reporter(&self) -> &PublishReporter {
        &self.reporter
    }
}

impl Drop for FolderPublication {
    /// Does not wait: the disk may not answer.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// A folder with HLS of one station.
#[derive(Debug)]
struct HlsFolder {
    root: PathBuf,
}

impl HlsFolder {
    fn perform(&self, action: PublishAction) -> PublishResult {
        let done = match action {
            PublishAction::List => self.list().map(PublishResult::Found),
            PublishAction::Read(object) => self.read(&object).map(PublishResult::Contents),
            PublishAction::Put { object, bytes, only_if_absent } => {
                self.put(&object, &bytes, only_if_absent).map(|()| PublishResult::Done)
            }
            PublishAction::Remove(object) => self.remove(&object).map(|()| PublishResult::Done),
        };
        done.unwrap_or_else(|error| PublishResult::Failed(error.to_string()))
    }

    fn put(&self, object: &HlsObject, bytes: &[u8], only_if_absent: bool) -> io::Result<()> {
        let path = self.path(object);
        if only_if_absent && path.try_exists()? {
            return Ok(());
        }
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        disk::replace(&path, 0o666, bytes)
    }

    fn remove(&self, object: &HlsObject) -> io::Result<()> {
        let path = self.path(object);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The folder of a rendition that there is no more; any other is not empty.
        if let Some(folder) = path.parent().filter(|folder| *folder != self.root) {
            fs::remove_dir(folder).ok();
        }
        Ok(())
    }

    fn read(&self, object: &HlsObject) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path(object)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects that are there; what a killed server has left half written is removed.
    fn list(&self) -> io::Result<Vec<HlsObject>> {
        let mut found = Vec::new();
        for folder in Self::entries(&self.root)? {
            let Some(rendition) = folder.file_name().and_then(OsStr::to_str) else { continue };
            // Only folders have a name with something behind the slash.
            let is_rendition = HlsObject::parse(&format!("{rendition}/index.m3u8")).is_some();
            if !is_rendition || !folder.is_dir() {
                continue;
            }
            for file in Self::entries(&folder)? {
                let Some(name) = file.file_name().and_then(OsStr::to_str) else { continue };
                let complete = name.strip_suffix(TEMPORARY_SUFFIX);
                let object = HlsObject::parse(&format!("{rendition}/{}", complete.unwrap_or(name)));
                match object {
                    Some(_) if complete.is_some() => fs::remove_file(&file)?,
                    Some(object) => found.push(object),
                    None => {}
                }
            }
        }
        Ok(found)
    }

    /// The paths in a folder; none if there is no such folder.
    fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(folder) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn path(&self, object: &HlsObject) -> PathBuf {
        self.root.join(object.to_string())
    }
}

/// What [`disk::replace`] adds to a name.
const TEMPORARY_SUFFIX: &str = ".new";

#[cfg(test)]
mod tests {
    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    fn put(folder: &HlsFolder, address: &str, bytes: &[u8]) -> PublishResult {
        let object = HlsObject::parse(address).unwrap();
        folder.perform(PublishAction::Put { object, bytes: bytes.into(), only_if_absent: false })
    }

    #[test]
    fn files_are_replaced_listed_and_removed_and_others_are_left_alone() {
        let dir = ScratchDir::new("hls-folder").unwrap();
        let folder = HlsFolder { root: dir.join("a/b") };
        assert_eq!(folder.perform(PublishAction::List), PublishResult::Found(Vec::new()));
        for (address, bytes) in
            [("flac/1.m4s", b"one"), ("flac/1.m4s", b"two"), ("index.m3u8", b"top")]
        {
            assert_eq!(put(&folder, address, bytes), PublishResult::Done);
        }
        let object = HlsObject::parse("flac/1.m4s").unwrap();
        let filled = PublishAction::Put {
            object: object.clone(),
            bytes: b"filled".as_slice().into(),
            only_if_absent: true,
        };
        assert_eq!(folder.perform(filled), PublishResult::Done);
        let read = folder.perform(PublishAction::Read(object.clone()));
        assert_eq!(read, PublishResult::Contents(Some(b"two".to_vec())));
        let absent = HlsObject::parse("flac/2.m4s").unwrap();
        let read = folder.perform(PublishAction::Read(absent.clone()));
        assert_eq!(read, PublishResult::Contents(None));
        // A user's file, a half-written one of a killed server, and a file that looks like a folder.
        fs::write(folder.root.join("flac/cover.jpg"), "x").unwrap();
        fs::write(folder.root.join("flac/3.m4s.new"), "half").unwrap();
        fs::write(folder.root.join("opus-96k"), "x").unwrap();
        let found = folder.perform(PublishAction::List);
        assert_eq!(found, PublishResult::Found(vec![object.clone()]));
        assert!(!folder.root.join("flac/3.m4s.new").exists());
        for object in [object, absent] {
            assert_eq!(folder.perform(PublishAction::Remove(object)), PublishResult::Done);
        }
        assert!(folder.root.join("flac/cover.jpg").exists());
        fs::remove_file(folder.root.join("flac/cover.jpg")).unwrap();
        put(&folder, "flac/4.m4s", b"four");
        let last = HlsObject::parse("flac/4.m4s").unwrap();
        assert_eq!(folder.perform(PublishAction::Remove(last)), PublishResult::Done);
        assert!(!folder.root.join("flac").exists(), "nothing is left of the rendition");
    }

    #[test]
    fn what_fails_has_its_cause() {
        let dir = ScratchDir::new("hls-folder-fails").unwrap();
        fs::write(dir.join("file"), "").unwrap();
        let folder = HlsFolder { root: dir.join("file") };
        let PublishResult::Failed(why) = put(&folder, "flac/1.m4s", b"x") else { panic!() };
        assert!(why.contains("directory"), "{why}");
        assert!(matches!(folder.perform(PublishAction::List), PublishResult::Failed(_)));
    }
}

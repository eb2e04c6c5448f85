//! The thread that reads and writes text files with titles. It is started with the first such file;
//! a disk that does not answer delays nothing but these.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aulos_config::TitleTarget;
use aulos_control::{Control, titles};
use aulos_io::disk;
use aulos_proto::titles::{TitleCharset, TrackMetadata};
use tokio::sync::{mpsc, oneshot};

/// The way to the thread.
#[derive(Debug, Default)]
pub(super) struct TitleFiles(Option<mpsc::Sender<FileRequest>>);

/// Writes files on the thread.
#[derive(Clone, Debug)]
pub(super) struct FileWriter(mpsc::Sender<FileRequest>);

#[derive(Debug)]
enum FileRequest {
    /// Watches these files and no others.
    Watch(Vec<WatchedFile>),
    /// Replaces a file.
    Write { path: PathBuf, text: Vec<u8>, result: oneshot::Sender<io::Result<()>> },
}

/// A file of automation.
#[derive(Debug)]
pub(super) struct WatchedFile {
    station: String,
    path: PathBuf,
    charset: TitleCharset,
    state: WatchState,
    title: Option<TrackMetadata>,
}

/// What is known of the contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// There is none.
    Missing,
    /// It has changed since the last look, and may still be being written.
    Changing(FileStamp),
    /// Its present contents have been read.
    Read(FileStamp),
}

/// What changes with the contents of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl TitleFiles {
    /// Watches these files and no others; starts the thread for the first.
    pub(super) fn watch(&mut self, files: Vec<WatchedFile>, control: &Arc<Control>) {
        if files.is_empty() && self.0.is_none() {
            return;
        }
        let Some(thread) = self.start(control) else { return };
        // A full queue means a disk that does not answer, whose files are not read anyway.
        if thread.try_send(FileRequest::Watch(files)).is_err() {
            tracing::warn!("the files with titles are not read: their disk does not answer");
        }
    }

    /// A writer, for an output that is a file.
    pub(super) fn writer(
        &mut self,
        target: &TitleTarget,
        control: &Arc<Control>,
    ) -> Option<FileWriter> {
        matches!(target, TitleTarget::File(_)).then(|| self.start(control))?.map(FileWriter)
    }

    fn start(&mut self, control: &Arc<Control>) -> Option<mpsc::Sender<FileRequest>> {
        if self.0.is_none() {
            let (sender, requests) = mpsc::channel(MAX_REQUESTS);
            let control = Arc::downgrade(control);
            let thread = std::thread::Builder::new().name("aulos-titles".to_owned());
            match thread.spawn(move || run(requests, &control)) {
                Ok(_) => self.0 = Some(sender),
                Err(error) => tracing::error!(%error, "no thread for the files with titles"),
            }
        }
        self.0.clone()
    }
}

impl FileWriter {
    /// Replaces a file at once, so that a reader never finds half of it.
    pub(super) async fn write(&self, path: &Path, text: Vec<u8>) -> io::Result<()> {
        let (result, written) = oneshot::channel();
        let request = FileRequest::Write { path: path.to_owned(), text, result };
        let busy = || io::Error::other("the disk does not answer");
        self.0.try_send(request).map_err(|_| busy())?;
        written.await.map_err(|_| busy())?
    }
}

fn run(mut requests: mpsc::Receiver<FileRequest>, control: &Weak<Control>) {
    let mut watched: Vec<WatchedFile> = Vec::new();
    loop {
        let request = if watched.is_empty() {
            requests.blocking_recv()
        } else {
            match requests.try_recv() {
                Ok(request) => Some(request),
                Err(mpsc::error::TryRecvError::Disconnected) => None,
                Err(mpsc::error::TryRecvError::Empty) => {
                    let Some(control) = control.upgrade() else { return };
                    for file in &mut watched {
                        if let Some(title) = file.look() {
                            titles::report(&control, &file.station, title, None);
                        }
                    }
                    drop(control);
                    std::thread::sleep(LOOK_INTERVAL);
                    continue;
                }
            }
        };
        match request {
            None => return,
            Some(FileRequest::Watch(files)) => watched = renewed(watched, files),
            Some(FileRequest::Write { path, text, result }) => {
                // An output that has ended does not need it.
                result.send(disk::replace(&path, 0o666, &text)).ok();
            }
        }
    }
}

/// The new files, with what is known of those that were watched before.
fn renewed(mut before: Vec<WatchedFile>, now: Vec<WatchedFile>) -> Vec<WatchedFile> {
    let known = |file: WatchedFile| {
        let at = before.iter().position(|one| one.is_same(&file));
        at.map_or(file, |at| before.swap_remove(at))
    };
    now.into_iter().map(known).collect()
}

impl WatchedFile {
    pub(super) const fn new(station: String, path: PathBuf, charset: TitleCharset) -> Self {
        Self { station, path, charset, state: WatchState::Missing, title: None }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.station, &self.path, self.charset) == (&other.station, &other.path, other.charset)
    }

    /// The title of the file, if that has another one since the last call. One that does not change
    /// any more from one look to the next is read; one that is gone leaves its title.
    fn look(&mut self) -> Option<TrackMetadata> {
        let metadata = fs::metadata(&self.path).ok().filter(Metadata::is_file);
        let Some(stamp) = metadata.as_ref().map(FileStamp::of) else {
            self.state = WatchState::Missing;
            return None;
        };
        if self.state == WatchState::Read(stamp) {
            return None;
        }
        if self.state != WatchState::Changing(stamp) {
            self.state = WatchState::Changing(stamp);
            return None;
        }
        let text = read(&self.path).ok()?;
        self.state = WatchState::Read(stamp);
        let title = TrackMetadata::from_text_file(&text, self.charset);
        if self.title.as_ref() == Some(&title) {
            return None;
        }
        self.title = Some(title.clone());
        Some(title)
    }
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // It may have become a FIFO, which must not be waited for.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut text = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut text)?;
    Ok(text)
}

/// Twice this is what a title in a file is late at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of a file that are read: a title is in its first line.
const MAX_FILE: u64 = 16 << 10;

/// Requests that wait for a disk.
const MAX_REQUESTS: usize = 64;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use aulos_blackbox::scratch::ScratchDir;

    use super::*;

    fn watch(path: &Path) -> WatchedFile {
        WatchedFile::new("radio".to_owned(), path.to_owned(), TitleCharset::default())
    }

    /// The title after as many looks as it takes.
    fn title(file: &mut WatchedFile) -> Option<String> {
        let found = file.look().or_else(|| file.look())?;
        found.title.or(Some(String::new()))
    }

    #[test]
    fn a_file_is_read_when_it_is_replaced_or_rewritten_and_has_stopped_changing() {
        let dir = ScratchDir::new("titles").unwrap();
        let path = dir.join("now.txt");
        let mut file = watch(&path);
        assert_eq!(title(&mut file), None);
        fs::write(&path, "A - one").unwrap();
        assert_eq!((file.look(), title(&mut file)), (None, Some("one".to_owned())));
        assert_eq!(title(&mut file), None);
        // Rewritten in place, in two steps.
        fs::write(&path, "A - tw").unwrap();
        assert_eq!(file.look(), None);
        fs::write(&path, "A - two").unwrap();
        assert_eq!(file.look(), None);
        assert_eq!(title(&mut file), Some("two".to_owned()));
        // Replaced by a file of the same length and time.
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let other = dir.join("other");
        fs::write(&other, "A - six").unwrap();
        File::open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(title(&mut file), Some("six".to_owned()));
        // Gone, and back with the same title: nothing new.
        fs::remove_file(&path).unwrap();
        assert_eq!(title(&mut file), None);
        fs::write(&path, "A - six\n").unwrap();
        assert_eq!(title(&mut file), None);
        fs::write(&path, "").unwrap();
        assert_eq!(title(&mut file), Some(String::new()));
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = ScratchDir::new("titles").unwrap();
        let path = dir.join("fifo");
        aulos_io::feed::make_fifo(&path).unwrap();
        assert_eq!(title(&mut watch(&path)), None);
        assert_eq!(title(&mut watch(&dir)), None);
        let large = dir.join("large");
        fs::write(&large, format!("A - b\n{}", "x".repeat(1 << 20))).unwrap();
        assert_eq!(title(&mut watch(&large)), Some("b".to_owned()));
    }

    #[test]
    fn a_reload_does_not_report_a_title_again() {
        let dir = ScratchDir::new("titles").unwrap();
        let path = dir.join("now.txt");
        fs::write(&path, "x").unwrap();
        let mut file = watch(&path);
        assert_eq!(title(&mut file), Some("x".to_owned()));
        let mut files = renewed(vec![file], vec![watch(&path), watch(&dir.join("b"))]);
        assert_eq!((files.len(), title(&mut files[0])), (2, None));
    }
}

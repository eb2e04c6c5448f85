//! Files of a folder: those of `doc_root` (Snapweb, or another page), and recordings.
//!
//! The folder may be on a network disk that hangs, and it may contain a FIFO or a link that leads
//! out of it. Files are opened below the folder only, only regular files are read, and a read that
//! takes too long occupies one of [`PAGE_READS`] threads and gets a 503. Each [`FileServer`] has
//! threads of its own, so that a disk with recordings that hangs delays no page.
//! `docs/decisions/confined-paths.md` has the reason against Tower's `ServeDir`.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aulos_control::{Control, count};
use aulos_io::confined_open::{is_outside_root, open_regular_beneath, open_root};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName,
    IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Concurrent reads of pages, each on its own thread. A browser opens six connections, and a
/// working disk answers within a millisecond.
pub const PAGE_READS: usize = 4;
/// How long a request waits for a free thread: enough for several browsers on a working disk.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of one read. A network disk that becomes reachable again answers within it.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes per read; a browser that does not read keeps this much in memory.
const CHUNK: u64 = 64 << 10;

/// The folder, and its share of reading threads.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    root: Arc<Path>,
    files: FileServer,
}

/// Sends files that may be on a slow disk.
#[derive(Clone, Debug)]
pub(super) struct FileServer {
    disk: DiskReads,
    control: Arc<Control>,
    /// What the files are, for messages.
    what: &'static str,
}

/// A bounded number of blocking threads, with time limits.
#[derive(Clone, Debug)]
struct DiskReads {
    free: Arc<Semaphore>,
    queue_timeout: Duration,
    read_timeout: Duration,
}

/// Why a page cannot be read.
#[derive(Debug)]
pub(super) enum PageError {
    /// Too many other reads are pending.
    Busy,
    /// The disk did not answer in time.
    Slow,
    /// The disk reported an error.
    Io(io::Error),
}

/// An open file with its first bytes.
struct Page {
    /// `None` once all bytes are read.
    file: Option<File>,
    first: Bytes,
    /// The requested bytes; the end is exclusive.
    range: (u64, u64),
    size: u64,
    etag: String,
    kind: &'static str,
}

/// The result of a lookup.
enum PageLookup {
    Page(Page),
    /// A folder; its URL has to end with a slash.
    Folder,
    /// The browser's copy is current; with its `ETag`.
    Unchanged(String),
    /// The range starts behind the end of a file of this size.
    NoSuchRange(u64),
}

/// A parsed request.
pub(super) struct FileRequest {
    path: PathBuf,
    /// The path ends with a slash.
    is_folder: bool,
    known: Option<String>,
    range: Option<Range>,
    if_range: Option<String>,
    /// A `HEAD` request.
    head: bool,
    /// The URL of the folder, if the path turns out to be one.
    folder: String,
}

/// A range of bytes (RFC 9110, 14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// From the first to the second, both inclusive; or to the end.
    From(u64, Option<u64>),
    /// The last N bytes.
    Last(u64),
}

impl Pages {
    pub(super) fn new(root: PathBuf, control: Arc<Control>) -> Self {
        let pages = Self { root: root.into(), files: FileServer::new("`doc_root`", control) };
        let check = pages.clone();
        tokio::spawn(async move {
            if check.is_missing().await {
                tracing::warn!(
                    doc_root = %check.root.display(),
                    "no such folder; serving the built-in page; remove `doc_root` of [http]"
                );
            }
        });
        pages
    }

    /// Whether there is no such folder. A disk may be mounted later, so this is asked each time.
    pub(super) async fn is_missing(&self) -> bool {
        let root = Arc::clone(&self.root);
        let opened = self.files.run(move || open_root(&root).map(drop)).await;
        let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        matches!(opened, Err(PageError::Io(error)) if absent.contains(&error.kind()))
    }
}

impl FileServer {
    pub(super) fn new(what: &'static str, control: Arc<Control>) -> Self {
        let disk = DiskReads {
            free: Arc::new(Semaphore::new(PAGE_READS)),
            queue_timeout: QUEUE_TIMEOUT,
            read_timeout: READ_TIMEOUT,
        };
        Self { disk, control, what }
    }

    /// Like [`DiskReads::run`]; failures are counted.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, PageError> {
        let done = self.disk.run(job).await;
        match &done {
            Err(PageError::Busy) => count(&self.control.counters.pages_refused_busy),
            Err(PageError::Slow) => count(&self.control.counters.pages_cut_slow),
            Ok(_) | Err(PageError::Io(_)) => {}
        }
        done
    }
}

impl DiskReads {
    /// Runs a blocking operation on one of the threads.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, PageError> {
        let permit = timeout(self.queue_timeout, Arc::clone(&self.free).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(PageError::Busy) };
        let task = tokio::task::spawn_blocking(move || {
            let result = job();
            // The thread releases the permit, not the caller: a thread that hangs stays in use.
            drop(permit);
            result
        });
        match timeout(self.read_timeout, task).await {
            Ok(done) => done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(PageError::Io),
            Err(_) => Err(PageError::Slow),
        }
    }
}

/// Serves a file of the folder.
pub(super) async fn serve(State(pages): State<Pages>, request: Request) -> Response {
    let raw = request.uri().path();
    let path = PathBuf::from(std::ffi::OsString::from_vec(decode(raw.trim_start_matches('/'))));
    let wanted = FileRequest::new(&request, path, raw.ends_with('/'));
    drop(request);
    let root = Arc::clone(&pages.root);
    let open = move |path: &Path| open_regular_beneath(open_root(&root)?, path);
    pages.files.serve(wanted, open).await
}

impl FileServer {
    /// Sends the file that `open` opens on a thread for reading.
    pub(super) async fn serve(
        &self,
        wanted: Result<FileRequest, Response>,
        open: impl Fn(&Path) -> io::Result<File> + Send + 'static,
    ) -> Response {
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(refusal) => return refusal,
        };
        let (head, folder) = (wanted.head, wanted.folder.clone());
        match self.run(move || find(&wanted, open)).await {
            Ok(PageLookup::Page(page)) => page.respond(self.clone(), head),
            Ok(PageLookup::Folder) => {
                (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, folder)]).into_response()
            }
            Ok(PageLookup::Unchanged(etag)) => {
                (StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response()
            }
            Ok(PageLookup::NoSuchRange(size)) => {
                let range = [(CONTENT_RANGE, format!("bytes */{size}"))];
                (StatusCode::RANGE_NOT_SATISFIABLE, range).into_response()
            }
            Err(error) => self.error_response(&error),
        }
    }

    pub(super) fn error_response(&self, error: &PageError) -> Response {
        match error {
            PageError::Busy | PageError::Slow => {
                let text = format!("{} does not respond in time\n", self.what);
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
            PageError::Io(error) if is_absent(error) => not_found(),
            PageError::Io(error) => {
                tracing::warn!(%error, "cannot read a file of {}", self.what);
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "not found\n").into_response()
}

/// Whether an error means that the file is missing, unreadable or outside of the folder.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    let kinds = [
        K::NotFound,
        K::NotADirectory,
        K::IsADirectory,
        K::PermissionDenied,
        K::InvalidInput,
        K::InvalidFilename,
    ];
    kinds.contains(&error.kind())
        || is_outside_root(error)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
        || error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

impl FileRequest {
    /// The request of a file at this path.
    ///
    /// # Errors
    /// The response, if there can be no file.
    #[allow(clippy::result_large_err, reason = "it is made once a request")]
    pub(super) fn new(request: &Request, path: PathBuf, is_folder: bool) -> Result<Self, Response> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let allowed = [(ALLOW, "GET, HEAD")];
            return Err((StatusCode::METHOD_NOT_ALLOWED, allowed).into_response());
        }
        // A file name cannot contain NUL; other invalid paths are refused when the file is opened.
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(not_found());
        }
        let headers = request.headers();
        Ok(Self {
            path,
            is_folder,
            known: text(headers, &IF_NONE_MATCH),
            range: text(headers, &RANGE).and_then(|range| Range::parse(&range)),
            if_range: text(headers, &IF_RANGE),
            head: request.method() == Method::HEAD,
            // Exactly one slash: `//` would name another server.
            folder: format!("/{}/", request.uri().path().trim_matches('/')),
        })
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

impl Range {
    /// Several ranges and other units are ignored; then the whole file is sent.
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        match (first.trim(), last.trim()) {
            ("", last) => last.parse().ok().map(Self::Last),
            (first, "") => first.parse().ok().map(|first| Self::From(first, None)),
            (first, last) => {
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// The range within a file of this size, the end exclusive; `None` when it is empty.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Self::From(first, last) => {
                (first, last.map_or(size, |last| last.saturating_add(1).min(size)))
            }
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (start < end).then_some((start, end))
    }
}

/// Looks a path up. Blocks.
fn find(wanted: &FileRequest, open: impl Fn(&Path) -> io::Result<File>) -> io::Result<PageLookup> {
    let mut path =
        if wanted.path.as_os_str().is_empty() { ".".into() } else { wanted.path.clone() };
    if wanted.is_folder {
        path.push("index.html");
    }
    let mut file = match open(&path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory && !wanted.is_folder => {
            return Ok(PageLookup::Folder);
        }
        opened => opened?,
    };
    let about = file.metadata()?;
    let size = about.len();
    let etag = format!("\"{:x}.{:x}-{size:x}\"", about.mtime(), about.mtime_nsec());
    if wanted.known.as_ref().is_some_and(|known| known == "*" || known.contains(&etag)) {
        return Ok(PageLookup::Unchanged(etag));
    }
    let range = wanted.range.filter(|_| wanted.if_range.as_ref().is_none_or(|tag| *tag == etag));
    let Some(range) = range.map_or(Some((0, size)), |range| range.within(size)) else {
        return Ok(PageLookup::NoSuchRange(size));
    };
    let kind = kind_of(&path);
    if wanted.head {
        return Ok(PageLookup::Page(Page {
            file: None,
            first: Bytes::new(),
            range,
            size,
            etag,
            kind,
        }));
    }
    if range.0 > 0 {
        file.seek(SeekFrom::Start(range.0))?;
    }
    let (file, first) = chunk(file, range.1 - range.0)?;
    Ok(PageLookup::Page(Page { file, first, range, size, etag, kind }))
}

/// Reads the next chunk of `left` bytes; returns the file while more is left. Blocks.
fn chunk(file: File, left: u64) -> io::Result<(Option<File>, Bytes)> {
    let count = left.min(CHUNK);
    let mut bytes = Vec::new();
    (&file).take(count).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < count {
        // The file was truncated after its size was sent.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(((count < left).then_some(file), bytes.into()))
}

impl Page {
    fn respond(self, files: FileServer, head: bool) -> Response {
        let (start, end) = self.range;
        let headers = [
            (CONTENT_TYPE, self.kind.to_owned()),
            (CONTENT_LENGTH, (end - start).to_string()),
            (ACCEPT_RANGES, "bytes".to_owned()),
            (ETAG, self.etag),
        ];
        let body = if head {
            Body::empty()
        } else {
            let left = end - start - self.first.len() as u64;
            let file = self.file.map(|file| OpenPage(Some(file)));
            Body::from_stream(PageBody { files, first: Some(self.first), file, left, read: None })
        };
        if end - start == self.size {
            return (headers, body).into_response();
        }
        let range = [(CONTENT_RANGE, format!("bytes {start}-{}/{}", end - 1, self.size))];
        (StatusCode::PARTIAL_CONTENT, headers, range, body).into_response()
    }
}

/// A file between two reads. It is closed on a blocking thread: some network file systems block a
/// close until their server answers.
#[derive(Debug)]
struct OpenPage(Option<File>);

impl Drop for OpenPage {
    fn drop(&mut self) {
        if let (Some(file), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}

type PendingRead = Pin<Box<dyn Future<Output = Result<(Option<File>, Bytes), PageError>> + Send>>;

/// The body of a response, read chunk by chunk as the browser takes it.
struct PageBody {
    files: FileServer,
    first: Option<Bytes>,
    file: Option<OpenPage>,
    left: u64,
    read: Option<PendingRead>,
}

impl Stream for PageBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if self.read.is_none() {
            let Some(file) = self.file.take().and_then(|mut open| open.0.take()) else {
                return Poll::Ready(None);
            };
            let (files, left) = (self.files.clone(), self.left);
            self.read = Some(Box::pin(async move { files.run(move || chunk(file, left)).await }));
        }
        let Some(read) = &mut self.read else { return Poll::Ready(None) };
        let done = ready!(read.as_mut().poll(cx));
        self.read = None;
        Poll::Ready(Some(match done {
            Ok((file, bytes)) => {
                self.left -= bytes.len() as u64;
                self.file = file.map(|file| OpenPage(Some(file)));
                Ok(bytes)
            }
            Err(PageError::Io(error)) => Err(error),
            Err(PageError::Busy | PageError::Slow) => Err(io::ErrorKind::TimedOut.into()),
        }))
    }
}

/// Decodes percent-encoding; an invalid escape stays as it is.
fn decode(text: &str) -> Vec<u8> {
    let digit =
        |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escape = match (first, behind) {
            (b'%', [high, low, ..]) => digit(high).zip(digit(low)),
            _ => None,
        };
        bytes.push(escape.map_or(*first, |(high, low)| high << 4 | low));
        rest = if escape.is_some() { &behind[2..] } else { behind };
    }
    bytes
}

/// The media type by the file's name.
fn kind_of(path: &Path) -> &'static str {
    let extension = path.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    let known = KINDS.iter().find(|(end, _)| extension.as_deref() == Some(end));
    known.map_or("application/octet-stream", |(_, kind)| kind)
}

/// Media types of web pages.
const KINDS: [(&str, &str); 33] = [
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("webmanifest", "application/manifest+json"),
    ("wasm", "application/wasm"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("xml", "text/xml"),
    ("pdf", "application/pdf"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("ico", "image/x-icon"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("mp3", "audio/mpeg"),
    ("flac", "audio/flac"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("wav", "audio/wav"),
    ("m4a", "audio/mp4"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
];

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_hung_disk_blocks_only_its_threads_which_recover() {
        let short = Duration::from_millis(1);
        let mut disk = DiskReads {
            free: Arc::new(Semaphore::new(PAGE_READS)),
            queue_timeout: short,
            read_timeout: short,
        };
        let (answer, answers) = mpsc::channel::<()>();
        let answers = Arc::new(std::sync::Mutex::new(answers));
        for _ in 0..PAGE_READS {
            let answers = Arc::clone(&answers);
            let hang = move || {
                answers.lock().unwrap().recv().ok();
                Ok(())
            };
            let hung = disk.run(hang).await;
            assert!(matches!(hung, Err(PageError::Slow)), "{hung:?}");
        }
        let refused = disk.run(|| Ok(())).await;
        assert!(matches!(refused, Err(PageError::Busy)), "{refused:?}");
        // The disk answers again.
        drop(answer);
        (disk.queue_timeout, disk.read_timeout) =
            (Duration::from_secs(60), Duration::from_secs(60));
        for _ in 0..2 * PAGE_READS {
            disk.run(|| Ok(())).await.unwrap();
        }
        // Each thread that hung releases its permit after a while.
        let all = u32::try_from(PAGE_READS).unwrap();
        drop(timeout(disk.queue_timeout, disk.free.acquire_many(all)).await.unwrap().unwrap());
    }

    #[test]
    fn ranges_follow_the_standard() {
        for (text, size, range) in [
            ("bytes=0-", 10, Some((0, 10))),
            ("bytes=2-4", 10, Some((2, 5))),
            ("bytes=2-400", 10, Some((2, 10))),
            ("bytes=-3", 10, Some((7, 10))),
            ("bytes=-30", 10, Some((0, 10))),
            ("bytes=10-", 10, None),
            ("bytes=-0", 10, None),
            ("bytes=0-18446744073709551615", 10, Some((0, 10))),
        ] {
            assert_eq!(Range::parse(text).unwrap().within(size), range, "{text}");
        }
        for text in ["bytes=", "bytes=4-2", "bytes=a-b", "bytes=0-1,4-5", "lines=0-1", "0-1"] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }

    #[test]
    fn escapes_are_decoded_and_invalid_ones_stay() {
        for (text, bytes) in [
            ("a%20b", &b"a b"[..]),
            ("%2e%2E/", b"../"),
            ("%", b"%"),
            ("%4", b"%4"),
            ("%zz", b"%zz"),
            ("%00%ff", b"\0\xff"),
        ] {
            assert_eq!(decode(text), bytes, "{text}");
        }
    }
}

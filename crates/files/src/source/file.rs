//! A file as a source: opened, decoded into a ring, and retried if it cannot be opened.

use core::fmt;

use aulos_core::{Backoff, Block, ChannelLayout, SampleRate};
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{StandbyHandle, StandbyRequest};
use aulos_io::{Job, JobStatus, RetryTime, SourcePath, SystemClock};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestPublisher, LatestReader, Pool};

use crate::decode::{
    FileDecodeError, FileDecodeOptions, FileDecoder, FileFeed, FileFeedStatus, FileWarning,
    OpenError,
};

/// The state of a file source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileState {
    /// It has not been opened yet.
    Waiting,
    /// It is being decoded.
    Running,
    /// It has been decoded to its end.
    Finished,
    /// It cannot be opened; the source tries again.
    OpenFailed(OpenError),
    /// Decoding failed.
    DecodeFailed(FileDecodeError),
}

impl FileState {
    /// The problem as text, if there is one.
    #[must_use]
    pub fn problem(self) -> Option<String> {
        match self {
            Self::OpenFailed(error) => Some(error.to_string()),
            Self::DecodeFailed(error) => Some(error.to_string()),
            Self::Waiting | Self::Running | Self::Finished => None,
        }
    }
}

/// A job of the codec pool: one file, once or in a loop.
pub struct FileSource {
    path: SourcePath,
    options: FileDecodeOptions,
    work: FileJobState,
    backoff: Backoff,
    retry: RetryTime,
    state: LatestPublisher<FileState>,
    standby: Option<StandbyHandle>,
    /// Until the first warning: each is given once per file, not in every round of a loop.
    report: Option<WarningReport>,
}

/// Receives the warnings about a file.
type WarningReport = Box<dyn FnMut(&SourcePath, FileWarning) + Send>;

enum FileJobState {
    Closed(Pool<Block>, Producer<SourceItem>),
    Open(Box<FileFeed>),
    /// The file has ended. The station returns its blocks to this pool, so that it does not free
    /// them.
    Decoded {
        pool: Pool<Block>,
        items: Producer<SourceItem>,
    },
    Done,
}

impl FileSource {
    /// The job, the consumer for the station, and a reader of its state. `seed` determines the
    /// random pauses between retries.
    #[must_use]
    pub fn new(
        path: impl Into<SourcePath>,
        options: FileDecodeOptions,
        seed: u64,
    ) -> (Self, Consumer<SourceItem>, LatestReader<FileState>) {
        // The end mark needs a slot besides the blocks.
        let (items, consumer) = ring(FILE_BLOCKS + 1);
        let pool = Pool::new(FILE_BLOCKS, || {
            Block::with_capacity(SampleRate::HZ_48000, ChannelLayout::STEREO, BLOCK_SAMPLES)
        });
        let (state, seen) = aulos_rt::latest(FileState::Waiting);
        let work = FileJobState::Closed(pool, items);
        let (path, backoff) = (path.into(), Backoff::new(seed));
        let (retry, standby, report) = (RetryTime::default(), None, None);
        let file = Self { path, options, work, backoff, retry, state, standby, report };
        (file, consumer, seen)
    }

    /// Connects it to the station's stand-by control. In cold stand-by the file is closed until it
    /// is needed, and then starts from the beginning.
    #[must_use]
    pub fn with_standby(mut self, standby: StandbyHandle) -> Self {
        self.standby = Some(standby);
        self
    }

    /// Calls `report` for each warning about the file, when it has been decoded once. On a thread
    /// of the codec pool.
    #[must_use]
    pub fn with_report(
        mut self,
        report: impl FnMut(&SourcePath, FileWarning) + Send + 'static,
    ) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// When the file is tried again, for its status.
    #[must_use]
    pub fn retry_time(&self) -> RetryTime {
        self.retry.clone()
    }

    fn report_warnings(&mut self, feed: &FileFeed) {
        let warnings = feed.warnings();
        if !warnings.is_empty()
            && let Some(mut report) = self.report.take()
        {
            warnings.into_iter().for_each(|warning| report(&self.path, warning));
        }
    }

    fn close_file(&mut self) -> JobStatus {
        let work = core::mem::replace(&mut self.work, FileJobState::Done);
        let (pool, items) = match work {
            FileJobState::Closed(pool, items) | FileJobState::Decoded { pool, items } => {
                (pool, items)
            }
            FileJobState::Open(feed) => feed.close(),
            FileJobState::Done => return JobStatus::Done,
        };
        if items.is_abandoned() {
            return JobStatus::Done;
        }
        self.state.publish(FileState::Waiting);
        self.work = FileJobState::Closed(pool, items);
        JobStatus::Pending
    }

    fn open(&mut self, pool: Pool<Block>, items: Producer<SourceItem>) -> JobStatus {
        if items.is_abandoned() {
            return JobStatus::Done;
        }
        let now = SystemClock::now();
        if !self.backoff.is_due(now) {
            self.work = FileJobState::Closed(pool, items);
            return JobStatus::Pending;
        }
        match FileDecoder::open_source(&self.path, self.options) {
            Ok(decoder) => {
                self.state.publish(FileState::Running);
                self.retry.set(None);
                self.decode(Box::new(FileFeed::new(decoder, pool, items)))
            }
            Err(error) => {
                self.state.publish(FileState::OpenFailed(error));
                self.backoff.failed(now);
                self.retry.set(Some(self.backoff.retry_at()));
                self.work = FileJobState::Closed(pool, items);
                JobStatus::Pending
            }
        }
    }

    fn decode(&mut self, mut feed: Box<FileFeed>) -> JobStatus {
        let status = feed.step();
        self.report_warnings(&feed);
        match status {
            FileFeedStatus::Full => {
                self.work = FileJobState::Open(feed);
                return JobStatus::Pending;
            }
            FileFeedStatus::Ended => self.state.publish(FileState::Finished),
            FileFeedStatus::Failed(error) => self.state.publish(FileState::DecodeFailed(error)),
            FileFeedStatus::Abandoned => return JobStatus::Done,
        }
        let (pool, items) = feed.close();
        self.work = FileJobState::Decoded { pool, items };
        JobStatus::Pending
    }
}

impl Job for FileSource {
    fn step(&mut self) -> JobStatus {
        if self.standby.as_mut().is_some_and(|standby| standby.request() == StandbyRequest::Close) {
            return self.close_file();
        }
        match core::mem::replace(&mut self.work, FileJobState::Done) {
            FileJobState::Closed(pool, items) => self.open(pool, items),
            FileJobState::Open(feed) => self.decode(feed),
            FileJobState::Decoded { items, .. } if items.is_abandoned() => JobStatus::Done,
            decoded @ FileJobState::Decoded { .. } => {
                self.work = decoded;
                JobStatus::Pending
            }
            FileJobState::Done => JobStatus::Done,
        }
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource").field("path", &self.path).finish_non_exhaustive()
    }
}

/// More than a second at 48 kHz stereo; the codec pool steps each job ten times per second.
const FILE_BLOCKS: usize = 16;

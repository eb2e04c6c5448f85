//! A file as a source: opened, decoded into a ring, tried again where it cannot be opened.

use core::fmt;

use aulos_core::{Block, ChannelLayout, SampleRate};
use aulos_engine::source::{BLOCK_SAMPLES, Item};
use aulos_engine::standby::{Keeper, Wish};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{Pool, Publisher, Reader};

use super::Backoff;
use crate::decode::{DecodeError, FileDecoder, FileFeed, OpenError, Options, Progress};
use crate::{Job, SourcePath, Step, SystemClock};

/// What a file source is doing, for people to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileState {
    /// It has not been opened yet.
    Waiting,
    /// It is being decoded.
    Running,
    /// It has been decoded to its end.
    Finished,
    /// It cannot be opened; that is tried again.
    Unopened(OpenError),
    /// It broke off.
    Broken(DecodeError),
}

impl FileState {
    /// What is wrong, if something is.
    #[must_use]
    pub fn problem(self) -> Option<String> {
        match self {
            Self::Unopened(error) => Some(error.to_string()),
            Self::Broken(error) => Some(error.to_string()),
            Self::Waiting | Self::Running | Self::Finished => None,
        }
    }
}

/// Work for the codec pool: one file, once or in a loop.
pub struct FileSource {
    path: SourcePath,
    options: Options,
    work: Work,
    backoff: Backoff,
    state: Publisher<FileState>,
    keeper: Option<Keeper>,
}

enum Work {
    Closed(Pool<Block>, Producer<Item>),
    Open(Box<FileFeed>),
    /// The file is over; the station gives the blocks back, and must not be the one to free them.
    Decoded {
        pool: Pool<Block>,
        items: Producer<Item>,
    },
    Over,
}

impl FileSource {
    /// The job, the ring's other end for the station, and what can be told of it. `seed` is where
    /// the pauses between tries get their chance from.
    #[must_use]
    pub fn new(
        path: impl Into<SourcePath>,
        options: Options,
        seed: u64,
    ) -> (Self, Consumer<Item>, Reader<FileState>) {
        // The end of the file needs a place beside the blocks.
        let (items, consumer) = ring(FILE_BLOCKS + 1);
        let pool = Pool::new(FILE_BLOCKS, || {
            Block::with_capacity(SampleRate::STUDIO, ChannelLayout::STEREO, BLOCK_SAMPLES)
        });
        let (state, seen) = aulos_rt::latest(FileState::Waiting);
        let work = Work::Closed(pool, items);
        let (path, backoff) = (path.into(), Backoff::new(seed));
        let file = Self { path, options, work, backoff, state, keeper: None };
        (file, consumer, seen)
    }

    /// Hears from the station whether it is needed: one that stands by cold is closed until then, and
    /// begins again each time.
    #[must_use]
    pub fn kept(mut self, keeper: Keeper) -> Self {
        self.keeper = Some(keeper);
        self
    }

    fn rest(&mut self) -> Step {
        let work = core::mem::replace(&mut self.work, Work::Over);
        let (pool, items) = match work {
            Work::Closed(pool, items) | Work::Decoded { pool, items } => (pool, items),
            Work::Open(feed) => feed.close(),
            Work::Over => return Step::Done,
        };
        if items.is_abandoned() {
            return Step::Done;
        }
        self.state.publish(FileState::Waiting);
        self.work = Work::Closed(pool, items);
        Step::Later
    }

    fn open(&mut self, pool: Pool<Block>, items: Producer<Item>) -> Step {
        if items.is_abandoned() {
            return Step::Done;
        }
        let now = SystemClock::now();
        if !self.backoff.is_due(now) {
            self.work = Work::Closed(pool, items);
            return Step::Later;
        }
        match FileDecoder::open_source(&self.path, self.options) {
            Ok(decoder) => {
                self.state.publish(FileState::Running);
                self.decode(Box::new(FileFeed::new(decoder, pool, items)))
            }
            Err(error) => {
                self.state.publish(FileState::Unopened(error));
                self.backoff.failed(now);
                self.work = Work::Closed(pool, items);
                Step::Later
            }
        }
    }

    fn decode(&mut self, mut feed: Box<FileFeed>) -> Step {
        match feed.step() {
            Progress::Full => {
                self.work = Work::Open(feed);
                return Step::Later;
            }
            Progress::Ended => self.state.publish(FileState::Finished),
            Progress::Failed(error) => self.state.publish(FileState::Broken(error)),
            Progress::Abandoned => return Step::Done,
        }
        let (pool, items) = feed.close();
        self.work = Work::Decoded { pool, items };
        Step::Later
    }
}

impl Job for FileSource {
    fn step(&mut self) -> Step {
        if self.keeper.as_mut().is_some_and(|keeper| keeper.wish() == Wish::Close) {
            return self.rest();
        }
        match core::mem::replace(&mut self.work, Work::Over) {
            Work::Closed(pool, items) => self.open(pool, items),
            Work::Open(feed) => self.decode(feed),
            Work::Decoded { items, .. } if items.is_abandoned() => Step::Done,
            decoded @ Work::Decoded { .. } => {
                self.work = decoded;
                Step::Later
            }
            Work::Over => Step::Done,
        }
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource").field("path", &self.path).finish_non_exhaustive()
    }
}

/// More than a second at 48 kHz stereo, and the codec pool comes by ten times in that.
const FILE_BLOCKS: usize = 16;

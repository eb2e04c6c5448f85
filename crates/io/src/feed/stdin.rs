//! Standard input as a source.

use std::io::{self, Read, Stdin as Handle};
use std::os::fd::AsFd;

use aulos_core::Instant;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::fifo::{Drained, READ_BYTES, drain};
use super::{ByteFeed, FeedState, Feeder, Next};

/// Reads standard input once, to its end.
#[derive(Debug)]
pub struct Stdin {
    input: Polled,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

impl Stdin {
    /// A feeder for the standard input of this process.
    #[must_use]
    pub fn new(feed: ByteFeed) -> Self {
        Self { input: Polled(io::stdin()), feed, scratch: vec![0; READ_BYTES] }
    }
}

impl Feeder for Stdin {
    fn tick(&mut self, now: Instant) -> Next {
        if self.feed.is_abandoned() {
            return Next::Never;
        }
        self.feed.wish();
        match drain(&mut self.input, &mut self.feed, &mut self.scratch, now) {
            Ok(Drained::End) => {
                self.feed.end();
                self.feed.report(FeedState::Finished);
                Next::Never
            }
            Ok(Drained::Empty) => Next::Soon,
            Ok(Drained::Some | Drained::Full) => {
                self.feed.report(FeedState::Running);
                Next::Soon
            }
            Err(error) => {
                self.feed.end();
                self.feed.report(FeedState::Failed(error.raw_os_error().unwrap_or(0)));
                Next::Never
            }
        }
    }
}

/// Standard input belongs to the shell as well, so it must not be made non-blocking: it is asked
/// before each read instead.
#[derive(Debug)]
struct Polled(Handle);

impl Read for Polled {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&at_once))? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(rustix::io::read(self.0.as_fd(), buffer)?)
    }
}

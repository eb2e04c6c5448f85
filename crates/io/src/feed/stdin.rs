//! Standard input as a source.

use std::io::{self, Read, Stdin as Handle};
use std::os::fd::AsFd;

use aulos_core::Instant;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::fifo::{DrainStatus, READ_BYTES, drain};
use super::{ByteFeed, FeedState, Feeder, NextPoll};

/// Reads standard input once, to its end.
#[derive(Debug)]
pub struct StdinFeeder {
    input: PolledStdin,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

impl StdinFeeder {
    /// A feeder for the standard input of this process.
    #[must_use]
    pub fn new(feed: ByteFeed) -> Self {
        Self { input: PolledStdin(io::stdin()), feed, scratch: vec![0; READ_BYTES] }
    }
}

impl Feeder for StdinFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        self.feed.poll_demand();
        match drain(&mut self.input, &mut self.feed, &mut self.scratch, now) {
            Ok(DrainStatus::End) => {
                self.feed.mark_ended();
                self.feed.report(FeedState::Finished);
                NextPoll::Never
            }
            Ok(DrainStatus::Empty) => NextPoll::Soon,
            Ok(DrainStatus::Some | DrainStatus::Full) => {
                self.feed.report(FeedState::Running);
                NextPoll::Soon
            }
            Err(error) => {
                self.feed.mark_ended();
                self.feed.report(FeedState::Failed(error.raw_os_error().unwrap_or(0)));
                NextPoll::Never
            }
        }
    }
}

/// Standard input is shared with the shell and must not be made non-blocking, so it is polled
/// before each read.
#[derive(Debug)]
struct PolledStdin(Handle);

impl Read for PolledStdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut fds, Some(&at_once))? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(rustix::io::read(self.0.as_fd(), buffer)?)
    }
}

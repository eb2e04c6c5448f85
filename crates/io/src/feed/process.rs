//! A child process whose standard output is audio.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use aulos_core::{Backoff, Instant, Span};
use aulos_engine::standby::StandbyRequest;
use rustix::fs::OFlags;

use super::child::ChildGroup;
use super::fifo::{DrainStatus, READ_BYTES, drain, make_fifo};
use super::process_log::{LogLine, LoggedLines, ProcessLog};
use super::{ByteFeed, FeedState, Feeder, NextPoll};

/// The program to run.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// The program, looked up in `PATH` unless it contains a slash.
    pub program: PathBuf,
    /// Its arguments; no shell interprets them.
    pub arguments: Vec<String>,
    /// Logs a line of its standard error, if that is wanted.
    pub log_line: Option<LogLine>,
    /// A FIFO that receives a copy of its standard error, created if missing. The program never
    /// waits for a reader; what does not fit is lost.
    pub log_to: Option<PathBuf>,
}

/// Runs a program, reads its output, and restarts it when it ends or hangs.
#[derive(Debug)]
pub struct ProcessFeeder {
    config: ProcessConfig,
    timeout: Option<Span>,
    running: Option<RunningProcess>,
    backoff: Backoff,
    feed: ByteFeed,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct RunningProcess {
    child: ChildGroup,
    output: ChildStdout,
    log: ProcessLog,
    /// When it was started, wrote something last, or was held back by us.
    active_at: Instant,
    /// When its output was closed.
    closed: Option<Instant>,
}

impl ProcessFeeder {
    /// A feeder that starts the program at its first tick, and again when it writes nothing for
    /// `timeout`.
    #[must_use]
    pub fn new(config: ProcessConfig, timeout: Option<Span>, feed: ByteFeed) -> Self {
        let scratch = vec![0; READ_BYTES];
        Self { config, timeout, running: None, backoff: feed.backoff(), feed, scratch }
    }

    fn start(&self, now: Instant) -> io::Result<RunningProcess> {
        let mut command = Command::new(&self.config.program);
        command.args(&self.config.arguments).stdin(Stdio::null());
        let copy = self.config.log_to.as_deref().map(open_log).transpose()?;
        let (child, output, log) = ChildGroup::start(&mut command)?;
        let lines = self.config.log_line.map(|log| LoggedLines::new(&self.config.program, log));
        let log = ProcessLog::new(log, copy, lines)?;
        Ok(RunningProcess { child, output, log, active_at: now, closed: None })
    }

    /// Its output is closed; the exit status shows whether it has failed.
    fn poll_exit(&mut self, now: Instant) -> NextPoll {
        let Some(running) = &mut self.running else { return NextPoll::Later };
        let since = *running.closed.get_or_insert(now);
        let status = match running.child.exit_status() {
            Ok(None) if now.since(since) < EXIT_TIMEOUT => return NextPoll::Soon,
            status => status.ok().flatten(),
        };
        running.log.drain(&mut self.scratch);
        let exit = running.log.exit(status);
        if exit.is_success() {
            self.feed.mark_ended();
        } else {
            self.feed.mark_lost();
        }
        self.handle_exit(now, FeedState::Exited(exit))
    }

    fn handle_exit(&mut self, now: Instant, state: FeedState) -> NextPoll {
        self.running = None;
        self.feed.mark_lost();
        self.feed.report(state);
        self.backoff.failed(now);
        self.feed.will_retry(self.backoff.retry_at());
        NextPoll::Later
    }
}

impl Feeder for ProcessFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.feed.is_abandoned() {
            return NextPoll::Never;
        }
        if self.feed.poll_demand() == StandbyRequest::Close {
            self.running = None;
            self.feed.mark_ended();
            self.feed.report(FeedState::Waiting);
            return NextPoll::Later;
        }
        let running = match &mut self.running {
            Some(running) => running,
            None if !self.backoff.is_due(now) => return NextPoll::Later,
            None => match self.start(now) {
                Ok(running) => {
                    self.backoff.succeeded(now);
                    self.running.insert(running)
                }
                Err(error) => return self.handle_exit(now, failed(&error)),
            },
        };
        running.log.drain(&mut self.scratch);
        match drain(&mut running.output, &mut self.feed, &mut self.scratch, now) {
            Ok(DrainStatus::End) => self.poll_exit(now),
            Ok(DrainStatus::Empty) => match self.timeout {
                Some(timeout) if now.since(running.active_at) >= timeout => {
                    self.handle_exit(now, FeedState::Unresponsive(timeout))
                }
                _ => NextPoll::Soon,
            },
            Ok(DrainStatus::Some | DrainStatus::Full) => {
                running.active_at = now;
                self.feed.report(FeedState::Running);
                NextPoll::Soon
            }
            Err(error) => self.handle_exit(now, failed(&error)),
        }
    }
}

fn failed(error: &io::Error) -> FeedState {
    FeedState::Failed(error.raw_os_error().unwrap_or(0))
}

/// How long a program may run after it has closed its output; less than a source's usual time-out.
const EXIT_TIMEOUT: Span = Span::from_millis(200);

/// Opened for reading too, so that the open does not wait for a reader and survives its end.
fn open_log(path: &Path) -> io::Result<File> {
    make_fifo(path).map_err(super::FifoError::io)?;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Splits a line of arguments at blanks like a shell: single and double quotes keep blanks, a
/// backslash keeps the next character. Nothing else has a special meaning.
#[must_use]
pub fn split_arguments(line: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => {
                current.get_or_insert_default().extend(letters.next());
            }
            ('"' | '\'', None) => {
                quote = Some(letter);
                current.get_or_insert_default();
            }
            (letter, Some(open)) if letter == open => quote = None,
            (letter, None) if letter.is_whitespace() => arguments.extend(current.take()),
            (letter, _) => current.get_or_insert_default().push(letter),
        }
    }
    arguments.extend(current);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_as_a_shell_would() {
        assert_eq!(
            split_arguments("-re  -i 'a song.flac' -f s16le -"),
            ["-re", "-i", "a song.flac", "-f", "s16le", "-",]
        );
        assert_eq!(split_arguments(r#"a\ b "c \" d" '' e"#), ["a b", "c \" d", "", "e"]);
        assert_eq!(split_arguments("  "), Vec::<String>::new());
    }

    #[test]
    fn a_program_that_hangs_is_started_again_and_one_that_is_held_back_is_not() {
        let (publisher, mut state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, mut items) = ByteFeed::new(aulos_core::SampleSpec::DEFAULT, publisher, 1);
        let config = ProcessConfig {
            program: "sh".into(),
            arguments: vec!["-c".into(), "head -c 5000000 /dev/zero; exec sleep 100".into()],
            log_line: None,
            log_to: None,
        };
        let timeout = Span::from_secs(30);
        let mut feeder = ProcessFeeder::new(config, Some(timeout), feed);
        let begin = std::time::Instant::now();
        // Ticks at the same time until the program, which is real, has come so far.
        let mut until =
            |feeder: &mut ProcessFeeder, now, done: &mut dyn FnMut(FeedState) -> bool| {
                while !done(*state.read()) {
                    assert!(begin.elapsed().as_secs() < 60, "it does not happen");
                    assert_ne!(feeder.tick(now), NextPoll::Never);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            };
        let mut now = Instant::ZERO + Span::from_secs(1);
        until(&mut feeder, now, &mut |state| state == FeedState::Running);
        let first = feeder.running.as_ref().unwrap().child.id();
        // Nothing is taken, and its output is longer than the ring and the pipe.
        while feeder.feed.room() > 0 {
            until(&mut feeder, now, &mut |_| true);
            feeder.tick(now);
        }
        for _ in 0..5 {
            now += timeout;
            until(&mut feeder, now, &mut |_| true);
            feeder.tick(now);
            assert_eq!(feeder.running.as_ref().unwrap().child.id(), first);
        }
        let mut bytes = 0;
        until(&mut feeder, now, &mut |_| {
            while let Some(item) = items.pop() {
                if let aulos_engine::source::SourceItem::Block(block) = item {
                    bytes += block.samples().len() * 2;
                }
            }
            bytes >= 5_000_000
        });
        feeder.tick(now + timeout - Span::from_secs(1));
        assert!(feeder.running.is_some());
        now += timeout;
        feeder.tick(now);
        assert!(feeder.running.is_none());
        let unresponsive = FeedState::Unresponsive(timeout);
        let text = unresponsive.problem();
        assert_eq!(text.as_deref(), Some("the program has written nothing for 30 s"));
        until(&mut feeder, now, &mut |state| state == unresponsive);
        now += Span::from_secs(60);
        until(&mut feeder, now, &mut |state| state == FeedState::Running);
        assert_ne!(feeder.running.as_ref().unwrap().child.id(), first);
    }
}

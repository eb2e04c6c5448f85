//! A child process as the insert of a station: the programme on its standard input, what it makes
//! of it on its standard output.
//!
//! Both pipes are non-blocking and served in turn, so neither side can wait for the other for ever:
//! what a pipe does not take stays in this feeder, which takes no more from the station meanwhile.

mod output;

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use aulos_core::{Backoff, Instant, SampleFormat, SampleSpec};
use aulos_dsp::convert;
use aulos_engine::insert::{InsertFault, InsertSession, SessionStatus};
use aulos_proto::wav;
use aulos_rt::LatestPublisher;

use super::child::ChildGroup;
use super::process::ProcessConfig;
use super::process_log::{LoggedLines, ProcessLog, ProgramExit, set_nonblocking};
use super::{Feeder, NextPoll};
use output::{OutputReader, WrongOutput};

/// The program of an insert.
#[derive(Clone, Debug)]
pub struct InsertProgram {
    /// The program; a log of it is limited.
    pub process: ProcessConfig,
    /// Format of the samples on its standard input.
    pub format: SampleFormat,
    /// What it writes.
    pub output: InsertOutput,
}

/// What the program of an insert reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is a header or none")]
pub enum InsertOutput {
    /// WAVE: a header of endless length on its input, and any WAVE format on its output.
    Wave,
    /// Samples alone, in the same format on both.
    Raw,
}

/// State of the program; a plain copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InsertFeedStatus {
    /// Its output goes to the station.
    pub is_running: bool,
    /// Counts of frames.
    pub session: SessionStatus,
    /// Why it does not run, or did not run before.
    pub fault: Option<InsertFault>,
    /// For a program that could not be started, the number of the system's error.
    pub error: i32,
    /// How it ended, if it did so by itself.
    pub exit: Option<ProgramExit>,
    /// How often it was started.
    pub starts: u64,
    /// The number of faults, in the order of [`InsertFault::ALL`].
    pub faults: [u64; InsertFault::ALL.len()],
    /// When it is started next, if it does not run.
    pub retry_at: Option<Instant>,
}

/// Runs the program of an insert, and starts it again when it fails.
#[derive(Debug)]
pub struct InsertFeeder {
    program: InsertProgram,
    session: InsertSession,
    running: Option<RunningInsert>,
    backoff: Backoff,
    published: LatestPublisher<InsertFeedStatus>,
    status: InsertFeedStatus,
    samples: Vec<f32>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct RunningInsert {
    // In this order they are dropped: a program that ends at the end of its input may do so.
    input: ChildStdin,
    output: ChildStdout,
    child: ChildGroup,
    log: ProcessLog,
    reader: OutputReader,
    /// Bytes for its input that the pipe has not taken yet.
    pending: Vec<u8>,
    written: usize,
}

/// The program has ended, or must be ended.
#[derive(Debug)]
enum RunEnd {
    Fault(InsertFault),
    /// Its output is closed.
    Closed,
}

impl From<WrongOutput> for RunEnd {
    fn from(_: WrongOutput) -> Self {
        Self::Fault(InsertFault::Format)
    }
}

impl InsertFeeder {
    /// A feeder that starts the program at its first tick. `seed` determines the random pauses
    /// between retries and should differ for each feeder.
    #[must_use]
    pub fn new(
        program: InsertProgram,
        session: InsertSession,
        published: LatestPublisher<InsertFeedStatus>,
        seed: u64,
    ) -> Self {
        Self {
            program,
            session,
            running: None,
            backoff: Backoff::new(seed),
            published,
            status: InsertFeedStatus::default(),
            samples: Vec::new(),
            scratch: vec![0; READ_BYTES],
        }
    }

    fn spec(&self) -> SampleSpec {
        let config = self.session.config();
        SampleSpec { rate: config.rate, format: self.program.format, layout: config.layout }
    }

    fn start(&self, now: Instant) -> io::Result<RunningInsert> {
        let ProcessConfig { program, arguments, log_line, .. } = &self.program.process;
        let spec = self.spec();
        let pending = match self.program.output {
            InsertOutput::Wave => {
                wav::header(spec, wav::DataLength::Endless).map_err(io::Error::other)?.to_vec()
            }
            InsertOutput::Raw => Vec::new(),
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped());
        let (mut child, output, log) = ChildGroup::start(&mut command)?;
        let input = child.take_input().ok_or(io::ErrorKind::BrokenPipe)?;
        set_nonblocking(input.as_fd())?;
        let lines = log_line.map(|log| LoggedLines::limited(program, log, now));
        let log = ProcessLog::new(log, None, lines)?;
        let reader = match self.program.output {
            InsertOutput::Wave => OutputReader::wave(spec),
            InsertOutput::Raw => OutputReader::raw(spec),
        };
        Ok(RunningInsert { input, output, child, log, reader, pending, written: 0 })
    }

    /// Writes and reads what is possible without waiting.
    fn serve(&mut self, now: Instant) -> Result<(), RunEnd> {
        let Some(running) = &mut self.running else {
            return self.session.handle_timeout(now).map_err(RunEnd::Fault);
        };
        running.log.drain(&mut self.scratch);
        running.log.handle_timeout(now);
        let (session, samples, scratch) = (&mut self.session, &mut self.samples, &mut self.scratch);
        for _ in 0..MAX_TURNS {
            let wrote = running.write(session, self.program.format, samples)?;
            let read = running.read(session, samples, scratch)?;
            if !wrote && !read {
                break;
            }
        }
        session.handle_timeout(now).map_err(RunEnd::Fault)
    }

    fn end(&mut self, now: Instant, end: &RunEnd) {
        let mut exit = None;
        if let Some(running) = &mut self.running {
            let ended = running.child.exit_status().ok().flatten();
            running.log.drain(&mut self.scratch);
            if ended.is_some() || matches!(end, RunEnd::Closed) {
                exit = Some(running.log.exit(ended));
            }
        }
        self.running = None;
        let fault = match end {
            RunEnd::Fault(fault) => *fault,
            RunEnd::Closed => InsertFault::Exited,
        };
        self.fail(now, fault, exit);
    }

    fn fail(&mut self, now: Instant, fault: InsertFault, exit: Option<ProgramExit>) {
        self.session.stop();
        self.backoff.failed(now);
        self.status.fault = Some(fault);
        self.status.exit = exit;
        self.status.retry_at = Some(self.backoff.retry_at());
        if let Some(at) = InsertFault::ALL.iter().position(|known| *known == fault) {
            self.status.faults[at] += 1;
        }
    }
}

impl RunningInsert {
    /// Writes a piece; false if the pipe takes nothing, or there is nothing.
    fn write(
        &mut self,
        session: &mut InsertSession,
        format: SampleFormat,
        samples: &mut Vec<f32>,
    ) -> Result<bool, RunEnd> {
        if self.written == self.pending.len() {
            samples.clear();
            if !session.poll_input(samples) {
                return Ok(false);
            }
            self.pending.clear();
            self.pending.resize(samples.len() * format.bytes(), 0);
            convert::encode(format, samples, &mut self.pending);
            self.written = 0;
        }
        match self.input.write(&self.pending[self.written..]) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.written += count;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            // A program that has closed its input shows what it means by its output.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe
                ) =>
            {
                Ok(false)
            }
            Err(_) => Err(RunEnd::Closed),
        }
    }

    /// Reads a piece; false if there is none.
    fn read(
        &mut self,
        session: &mut InsertSession,
        samples: &mut Vec<f32>,
        scratch: &mut [u8],
    ) -> Result<bool, RunEnd> {
        match self.output.read(scratch) {
            Ok(0) => Err(RunEnd::Closed),
            Ok(count) => {
                samples.clear();
                self.reader.push(&scratch[..count], samples)?;
                session.handle_output(samples);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(RunEnd::Closed),
        }
    }
}

impl Feeder for InsertFeeder {
    fn tick(&mut self, now: Instant) -> NextPoll {
        if self.session.is_abandoned() {
            return NextPoll::Never;
        }
        if self.running.is_none() && self.backoff.is_due(now) {
            self.status.starts += 1;
            match self.start(now) {
                Ok(running) => {
                    self.running = Some(running);
                    self.status.retry_at = None;
                    self.session.start(now);
                }
                Err(error) => {
                    self.status.error = error.raw_os_error().unwrap_or(0);
                    self.fail(now, InsertFault::NotStarted, None);
                }
            }
        }
        if let Err(end) = self.serve(now) {
            self.end(now, &end);
        }
        self.status.is_running = self.session.is_running();
        self.status.session = self.session.status();
        if self.status.is_running {
            self.backoff.succeeded(now);
        }
        self.published.publish(self.status);
        if self.running.is_some() { NextPoll::Soon } else { NextPoll::Later }
    }
}

/// Bytes of one read: more than a pipe holds.
const READ_BYTES: usize = 65_536;

/// Turns of writing and reading in one tick: a second of eight channels in `f32`, in quanta of 20
/// ms. What is left waits for the next tick, so that a program without a pace of its own cannot
/// hold up the reactor.
const MAX_TURNS: usize = 64;

//! Opens any source for a thread that polls it.

pub(super) mod source_reader;

use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use aulos_config::SourceConfig;
use aulos_config::source::{GeneratedSource, HttpSource, PlayedFile, TcpMode};
use aulos_control::backend::{BackgroundTask, RadioPhase};
use aulos_core::{Block, Frames, Instant, SampleSpec, Span};
use aulos_engine::source::{Pacing, PullResult, RingSource, Source};
use aulos_files::decode::{
    FileDecodeError, FileDecodeOptions, FileDecodeStatus, FileDecoder, OpenError,
};
use aulos_files::source::StreamSource;
use aulos_io::Job as _;
use aulos_io::feed::{ByteFeed, FeedState, Feeder, HttpFeeder, NextPoll};
use aulos_proto::uri::percent_encode;
use aulos_rt::LatestReader;
use aulos_server::exit::{Exit, Failure};
use aulos_server::feeder::{FeederCounters, make_feeder};
use aulos_server::radio::{RadioClient, RadioHandles, RadioStatusHandle};

use crate::cli::output::usage_failure;

/// Parses a SOURCE argument; returns the source's name for display and its configuration. `-` is
/// standard input, and a path stands for the file or the FIFO that it names.
pub(super) fn parse(source: &str) -> Result<(&str, SourceConfig), Failure> {
    let uri = if source == "-" { "stdin:" } else { source };
    let path_uri = path_uri(uri);
    match aulos_config::parse_source(path_uri.as_deref().unwrap_or(uri)) {
        Ok(config) => Ok((uri, config)),
        Err(problems) => Err(source_failure(uri, &problems)),
    }
}

/// The URI of an existing file or FIFO.
fn path_uri(text: &str) -> Option<String> {
    let found = std::fs::metadata(text).ok().filter(|_| !text.contains("://"))?;
    let path = std::path::absolute(text).ok()?;
    let path = percent_encode(path.to_str()?);
    let kind = found.file_type();
    Some(if kind.is_fifo() || kind.is_char_device() {
        format!("pipe://{path}?mode=read")
    } else {
        format!("file://{path}")
    })
}

/// The problems of a URI; for a bare path or name, the hint to write it as a URI.
fn source_failure(uri: &str, problems: &[aulos_config::Problem]) -> Failure {
    match std::path::absolute(uri) {
        Ok(path) if !uri.contains(':') => {
            let file = path.display();
            let hint = format!("there is no {file}; demo:// is the built-in programme, - stdin");
            Failure::new(Exit::Usage, format!("`{uri}` is not a source URI\n    hint: {hint}"))
        }
        _ => usage_failure(problems),
    }
}

/// An open source.
pub(super) struct OpenSource {
    /// As the user wrote it.
    uri: String,
    kind: OpenSourceKind,
}

enum OpenSourceKind {
    Generated(Box<dyn Source>),
    File(Box<FileDecoder>),
    Feed(FeedSource),
    Radio(Box<RadioSource>),
}

/// Web radio; in the server its parts run on three threads.
struct RadioSource {
    feed: HttpFeeder,
    decoder: StreamSource,
    items: RingSource,
    watch: RadioStatusHandle,
    background_task: Option<BackgroundTask>,
    /// The connections of which sound was read.
    connects: u64,
    /// The server was away since the last block.
    is_interrupted: bool,
}

struct FeedSource {
    feeder: Box<dyn Feeder>,
    items: RingSource,
    state: LatestReader<FeedState>,
    /// Whether other senders may connect after this one.
    allows_reconnect: bool,
    /// The message for a failure without an error number.
    failure: &'static str,
    /// The program whose output this is.
    program: Option<PathBuf>,
    ended: bool,
    /// The sender was away since the last block.
    is_interrupted: bool,
}

/// The result of a read.
pub(super) enum ReadResult {
    /// The block contains the next frames.
    Block,
    /// Nothing yet; poll again after this delay.
    Pending(Span),
    /// The source has ended.
    End,
}

impl OpenSource {
    pub(super) fn open(uri: &str, config: &SourceConfig) -> Result<Self, Failure> {
        let kind = match config {
            SourceConfig::Generated(GeneratedSource { generator, spec }) => {
                OpenSourceKind::Generated(generator.source(*spec, QUANTUM))
            }
            SourceConfig::File(PlayedFile { path, repeat, spec }) => {
                let options = FileDecodeOptions { looped: *repeat, raw: *spec };
                let decoder = FileDecoder::open_source(path, options)
                    .map_err(|error| Failure::new(open_exit(error), format!("{uri}: {error}")))?;
                OpenSourceKind::File(Box::new(decoder))
            }
            SourceConfig::Http(HttpSource { url, charset, variant }) => {
                let options = (*charset, *variant);
                let radio = RadioClient::default().open(url.clone(), options, None, 0);
                OpenSourceKind::Radio(Box::new(RadioSource::new(radio)))
            }
            fed => OpenSourceKind::Feed(FeedSource::open(fed)?),
        };
        Ok(Self { uri: uri.to_owned(), kind })
    }

    /// Whether the source has no pace of its own.
    pub(super) const fn has_no_clock(&self) -> bool {
        matches!(self.kind, OpenSourceKind::Generated(_) | OpenSourceKind::File(_))
    }

    /// Whether the source waits for a sender.
    pub(super) fn is_waiting(&mut self) -> bool {
        match &mut self.kind {
            OpenSourceKind::Feed(fed) => *fed.state.read() == FeedState::Waiting,
            OpenSourceKind::Radio(tuned) => tuned.watch.state().phase != RadioPhase::Playing,
            OpenSourceKind::Generated(_) | OpenSourceKind::File(_) => false,
        }
    }

    /// Whether the source was interrupted before the block that was read last.
    pub(super) fn take_interruption(&mut self) -> bool {
        core::mem::take(match &mut self.kind {
            OpenSourceKind::Feed(fed) => &mut fed.is_interrupted,
            OpenSourceKind::Radio(tuned) => &mut tuned.is_interrupted,
            OpenSourceKind::Generated(_) | OpenSourceKind::File(_) => return false,
        })
    }

    /// The task that a runtime has to run for this source.
    pub(super) fn take_background_task(&mut self) -> Option<BackgroundTask> {
        match &mut self.kind {
            OpenSourceKind::Radio(tuned) => tuned.background_task.take(),
            _ => None,
        }
    }

    pub(super) fn next(&mut self, now: Instant, block: &mut Block) -> Result<ReadResult, Failure> {
        let uri = &self.uri;
        match &mut self.kind {
            OpenSourceKind::Generated(source) => {
                source.pull(now, block);
                Ok(ReadResult::Block)
            }
            OpenSourceKind::File(decoder) => match decoder.next(block) {
                Ok(FileDecodeStatus::Block) => Ok(ReadResult::Block),
                Ok(FileDecodeStatus::End) => Ok(ReadResult::End),
                Err(error) => Err(Failure::new(decode_exit(error), format!("{uri}: {error}"))),
            },
            OpenSourceKind::Feed(fed) => {
                fed.next(now, block).map_err(|Failure { exit, message }| {
                    // Devices name themselves, often as the user does.
                    let is_named = message.starts_with(uri.as_str());
                    let name = if is_named { String::new() } else { format!("{uri}: ") };
                    Failure::new(exit, name + &message)
                })
            }
            OpenSourceKind::Radio(tuned) => tuned
                .next(now, block)
                .map_err(|why| Failure::new(Exit::Unavailable, format!("{uri}: {why}"))),
        }
    }
}

impl RadioSource {
    fn new(radio: RadioHandles) -> Self {
        let RadioHandles { feed, source, items, status: watch, task } = radio;
        let items = RingSource::new(items, Pacing::Live);
        Self {
            feed,
            decoder: source,
            items,
            watch,
            background_task: Some(task),
            connects: 0,
            is_interrupted: false,
        }
    }

    /// Reconnects after a break; if the first connection failed or its stream cannot be decoded,
    /// returns the reason.
    fn next(&mut self, now: Instant, block: &mut Block) -> Result<ReadResult, String> {
        match self.items.pull(now, block) {
            PullResult::Block => return Ok(ReadResult::Block),
            PullResult::Ended => return Ok(ReadResult::End),
            PullResult::Lost | PullResult::Pending => {}
        }
        let state = self.watch.state();
        let is_first = state.connects == 0 || (state.is_permanent && state.info.is_none());
        if let (RadioPhase::Waiting, true, Some(why)) = (state.phase, is_first, state.reason) {
            return Err(why);
        }
        // All sound of the connection before has been read.
        let connects = core::mem::replace(&mut self.connects, state.connects);
        self.is_interrupted |= state.phase != RadioPhase::Playing || connects != state.connects;
        let next = self.feed.tick(now);
        self.decoder.step();
        Ok(ReadResult::Pending(if next == NextPoll::Later {
            IDLE_POLL_INTERVAL
        } else {
            BUSY_POLL_INTERVAL
        }))
    }
}

impl FeedSource {
    fn open(config: &SourceConfig) -> Result<Self, Failure> {
        let spec = config.spec().unwrap_or(SampleSpec::DEFAULT);
        let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, items) = ByteFeed::new(spec, publisher, 0);
        let stdin = matches!(config, SourceConfig::Stdin(_));
        if stdin && io::stdin().is_terminal() {
            let message = "standard input is a terminal; raw samples are expected\n    hint: \
                           ffmpeg -i FILE -f s16le -ar 48000 -ac 2 - | aulos ...";
            return Err(Failure::new(Exit::NoInput, message));
        }
        let Some(feeder) = make_feeder(config, feed, &FeederCounters::default()) else {
            let message = format!("{}: sources are for stations of a server", config.scheme());
            return Err(Failure::new(Exit::Usage, message));
        };
        let (stays, failure) = match config {
            SourceConfig::Pipe(_) => (true, "the path exists but is not a FIFO"),
            SourceConfig::Tcp(tcp) if tcp.mode == TcpMode::Server => {
                (true, "not an address of this machine; use 0.0.0.0 for all addresses")
            }
            SourceConfig::Tcp(_) => (false, "no answer; is a server listening at this address?"),
            SourceConfig::Stdin(_) => (false, "standard input cannot be read"),
            _ => (false, ""),
        };
        let items = RingSource::new(items, Pacing::Live);
        let program = config.program().map(Into::into);
        Ok(Self {
            feeder,
            items,
            state,
            allows_reconnect: stays,
            failure,
            program,
            ended: false,
            is_interrupted: false,
        })
    }

    fn next(&mut self, now: Instant, block: &mut Block) -> Result<ReadResult, Failure> {
        match self.items.pull(now, block) {
            PullResult::Block => return Ok(ReadResult::Block),
            PullResult::Ended | PullResult::Lost if !self.allows_reconnect => {
                return Ok(ReadResult::End);
            }
            PullResult::Ended | PullResult::Lost => self.is_interrupted = true,
            PullResult::Pending => {}
        }
        match *self.state.read() {
            FeedState::Finished => return Ok(ReadResult::End),
            // The process has exited, and its output has been read.
            FeedState::Exited(_) => return Ok(ReadResult::End),
            FeedState::Failed(error) => return Err(self.failed(error)),
            state @ (FeedState::Unresolved | FeedState::Unresponsive(_)) => {
                return Err(Failure::new(Exit::Unavailable, state.problem().unwrap_or_default()));
            }
            state @ FeedState::Encoded(..) => {
                return Err(Failure::new(Exit::Data, state.problem().unwrap_or_default()));
            }
            FeedState::DeviceFailed(failure) => {
                return Err(Failure::new(Exit::Unavailable, failure.to_string()));
            }
            _ if self.ended => return Ok(ReadResult::End),
            _ => {}
        }
        Ok(ReadResult::Pending(match self.feeder.tick(now) {
            NextPoll::Soon => BUSY_POLL_INTERVAL,
            NextPoll::Later => IDLE_POLL_INTERVAL,
            NextPoll::Never => {
                self.ended = true;
                Span::ZERO
            }
        }))
    }

    fn failed(&self, error: i32) -> Failure {
        use io::ErrorKind as K;
        let exit = match io::Error::from_raw_os_error(error).kind() {
            _ if error == 0 => Exit::Unavailable,
            K::NotFound => Exit::NoInput,
            K::PermissionDenied => Exit::Permission,
            K::AlreadyExists
            | K::AddrInUse
            | K::AddrNotAvailable
            | K::ConnectionRefused
            | K::ConnectionReset
            | K::HostUnreachable
            | K::NetworkUnreachable
            | K::TimedOut => Exit::Unavailable,
            _ => Exit::Io,
        };
        let state = FeedState::Failed(error);
        let message = match &self.program {
            _ if error == 0 => Some(self.failure.to_owned()),
            Some(program) => state.program_problem(program),
            None => state.problem(),
        };
        let remedy = match io::Error::from_raw_os_error(error).kind() {
            K::AddrNotAvailable => "\n    hint: use an address of this machine, or 0.0.0.0 for all",
            K::AddrInUse => "\n    hint: use another port, or stop the program that uses this one",
            K::ConnectionRefused => "\n    hint: is the server running at this address?",
            _ => "",
        };
        Failure::new(exit, message.unwrap_or_default() + remedy)
    }
}

fn open_exit(error: OpenError) -> Exit {
    match error {
        OpenError::NoSuchFile => Exit::NoInput,
        OpenError::Permission => Exit::Permission,
        OpenError::Io(_) => Exit::Io,
        _ => Exit::Data,
    }
}

fn decode_exit(error: FileDecodeError) -> Exit {
    if matches!(error, FileDecodeError::Io(_)) { Exit::Io } else { Exit::Data }
}

/// 20 ms at 48 kHz.
const QUANTUM: Frames = Frames(960);
/// While audio flows; a pipe buffers some hundred milliseconds.
const BUSY_POLL_INTERVAL: Span = Span::from_millis(5);
/// While there is no sender.
const IDLE_POLL_INTERVAL: Span = Span::from_millis(50);

//! Any source of the house, opened for a thread that reads it by hand.

use std::io::{self, IsTerminal};

use aulos_config::{PipeMode, SourceConfig};
use aulos_core::{Block, Frames, Instant, SampleSpec, Span};
use aulos_engine::generate::{Demo, Tone};
use aulos_engine::source::{Pacing, Pulled, RingSource, Source};
use aulos_io::Job as _;
use aulos_io::decode::{DecodeError, Decoded, FileDecoder, OpenError, Options};
use aulos_io::feed::{
    ByteFeed, FeedState, Feeder, Fifo, FifoMode, HttpFeed, Next, Process, ProcessConfig, Stdin,
    StreamSource, TcpClient, TcpServer, split_arguments,
};
use aulos_rt::Reader;
use aulos_server::exit::{Exit, Failure};
use aulos_server::radio::{Chore, Phase, Radio, Tuner, Watch};

use super::wrong;

/// What a command was given as its SOURCE, as a URI and as what that means; `-` is standard input.
pub(super) fn parse(source: &str) -> Result<(&str, SourceConfig), Failure> {
    let uri = if source == "-" { "stdin:" } else { source };
    match aulos_config::source(uri) {
        Ok(config) => Ok((uri, config)),
        Err(problems) => Err(refused(uri, &problems)),
    }
}

/// A problem with its hint, and the way from a bare path to a URI.
fn refused(uri: &str, problems: &[aulos_config::Problem]) -> Failure {
    if let Ok(path) = std::path::absolute(uri)
        && path.exists()
        && !uri.contains(':')
    {
        let message =
            format!("\"{uri}\" is not a source\n    hint: for a file, file://{}", path.display());
        return Failure::new(Exit::Usage, message);
    }
    wrong(problems)
}

/// A source that is open.
pub(super) struct Opened {
    /// As the user wrote it.
    uri: String,
    kind: Kind,
}

enum Kind {
    Made(Box<dyn Source>),
    File(Box<FileDecoder>),
    Fed(Fed),
    Radio(Box<Tuned>),
}

/// Web radio, whose parts a house has on three threads.
struct Tuned {
    feed: HttpFeed,
    decoder: StreamSource,
    items: RingSource,
    watch: Watch,
    chore: Option<Chore>,
}

struct Fed {
    feeder: Box<dyn Feeder>,
    items: RingSource,
    state: Reader<FeedState>,
    /// Other senders may come when this one has gone.
    stays: bool,
    /// What a failure without an error number is.
    failure: &'static str,
    over: bool,
}

/// What came from a source.
pub(super) enum Got {
    /// The block holds the next frames.
    Block,
    /// Nothing yet; look again after this pause.
    Nothing(Span),
    /// It is over.
    End,
}

impl Opened {
    pub(super) fn open(uri: &str, config: &SourceConfig) -> Result<Self, Failure> {
        let kind = match config {
            SourceConfig::Demo { spec } => Kind::Made(Box::new(Demo::new(spec.rate, QUANTUM))),
            SourceConfig::Tone { hz, dbfs, spec } => {
                Kind::Made(Box::new(Tone::new(*hz, *dbfs, spec.rate, spec.layout, QUANTUM)))
            }
            SourceConfig::File { path, repeat, spec } => {
                let options = Options { looped: *repeat, raw: *spec };
                let decoder = FileDecoder::open_source(path, options)
                    .map_err(|error| Failure::new(unopened(error), format!("{uri}: {error}")))?;
                Kind::File(Box::new(decoder))
            }
            SourceConfig::Http { url } => {
                Kind::Radio(Box::new(Tuned::new(Tuner::default().tune(url.clone(), None, 0))))
            }
            fed => Kind::Fed(Fed::open(fed)?),
        };
        Ok(Self { uri: uri.to_owned(), kind })
    }

    /// Whether the source would run as fast as it is asked.
    pub(super) const fn has_no_clock(&self) -> bool {
        matches!(self.kind, Kind::Made(_) | Kind::File(_))
    }

    /// Whether the source waits for somebody to send.
    pub(super) fn is_waiting(&mut self) -> bool {
        match &mut self.kind {
            Kind::Fed(fed) => *fed.state.read() == FeedState::Waiting,
            Kind::Radio(tuned) => tuned.watch.state().phase != Phase::Playing,
            Kind::Made(_) | Kind::File(_) => false,
        }
    }

    /// What a runtime has to do for it.
    pub(super) fn take_chore(&mut self) -> Option<Chore> {
        match &mut self.kind {
            Kind::Radio(tuned) => tuned.chore.take(),
            _ => None,
        }
    }

    pub(super) fn next(&mut self, now: Instant, block: &mut Block) -> Result<Got, Failure> {
        let uri = &self.uri;
        match &mut self.kind {
            Kind::Made(source) => {
                source.pull(now, block);
                Ok(Got::Block)
            }
            Kind::File(decoder) => match decoder.next(block) {
                Ok(Decoded::Block) => Ok(Got::Block),
                Ok(Decoded::End) => Ok(Got::End),
                Err(error) => Err(Failure::new(broken(error), format!("{uri}: {error}"))),
            },
            Kind::Fed(fed) => fed.next(now, block).map_err(|Failure { exit, message }| {
                Failure::new(exit, format!("{uri}: {message}"))
            }),
            Kind::Radio(tuned) => tuned
                .next(now, block)
                .map_err(|why| Failure::new(Exit::Unavailable, format!("{uri}: {why}"))),
        }
    }
}

impl Tuned {
    fn new(radio: Radio) -> Self {
        let Radio { feed, source, items, watch, chore } = radio;
        let items = RingSource::new(items, Pacing::Live);
        Self { feed, decoder: source, items, watch, chore: Some(chore) }
    }

    /// What breaks off is found again; what could never be had is a failure, and why.
    fn next(&mut self, now: Instant, block: &mut Block) -> Result<Got, String> {
        match self.items.pull(now, block) {
            Pulled::Block => return Ok(Got::Block),
            Pulled::Ended => return Ok(Got::End),
            Pulled::Lost | Pulled::Pending => {}
        }
        let state = self.watch.state();
        if let (Phase::Waiting, 0, Some(why)) = (state.phase, state.connects, state.reason) {
            return Err(why);
        }
        let next = self.feed.tick(now);
        self.decoder.step();
        Ok(Got::Nothing(if next == Next::Later { LATER } else { SOON }))
    }
}

impl Fed {
    fn open(config: &SourceConfig) -> Result<Self, Failure> {
        let spec = config.spec().unwrap_or(SampleSpec::DEFAULT);
        let (publisher, state) = aulos_rt::latest(FeedState::Waiting);
        let (feed, items) = ByteFeed::new(spec, publisher, 0);
        let (feeder, stays, failure): (Box<dyn Feeder>, _, _) = match config {
            SourceConfig::Pipe { path, mode, .. } => {
                let mode = match mode {
                    PipeMode::Create => FifoMode::Create,
                    PipeMode::Read => FifoMode::Read,
                };
                let fifo = Fifo::new(path.clone(), mode, feed);
                (Box::new(fifo), true, "something that is not a FIFO has this name")
            }
            SourceConfig::Process { path, params, log_stderr, .. } => {
                let process = ProcessConfig {
                    program: path.clone(),
                    arguments: split_arguments(params),
                    log_stderr: *log_stderr,
                    log_to: None,
                };
                (Box::new(Process::new(process, feed)), false, "")
            }
            SourceConfig::TcpServer { address, .. } => {
                (Box::new(TcpServer::new(address.to_string(), feed)), true, "no such address")
            }
            SourceConfig::TcpClient { address, .. } => {
                (Box::new(TcpClient::new(address.to_string(), feed)), false, "nobody answers there")
            }
            _ => {
                if io::stdin().is_terminal() {
                    let message = "standard input is a terminal: let a program write raw samples \
                                   to it, as in ffmpeg -i FILE -f s16le -ar 48000 -ac 2 - | \
                                   aulos ...";
                    return Err(Failure::new(Exit::NoInput, message));
                }
                (Box::new(Stdin::new(feed)), false, "it cannot be read")
            }
        };
        let items = RingSource::new(items, Pacing::Live);
        Ok(Self { feeder, items, state, stays, failure, over: false })
    }

    fn next(&mut self, now: Instant, block: &mut Block) -> Result<Got, Failure> {
        match self.items.pull(now, block) {
            Pulled::Block => return Ok(Got::Block),
            Pulled::Ended | Pulled::Lost if !self.stays => return Ok(Got::End),
            Pulled::Ended | Pulled::Lost | Pulled::Pending => {}
        }
        match *self.state.read() {
            FeedState::Finished => return Ok(Got::End),
            // A program that has ended; what it wrote has been taken above.
            FeedState::Failed(0) if self.failure.is_empty() => return Ok(Got::End),
            FeedState::Failed(error) => return Err(self.failed(error)),
            _ if self.over => return Ok(Got::End),
            _ => {}
        }
        Ok(Got::Nothing(match self.feeder.tick(now) {
            Next::Soon => SOON,
            Next::Later => LATER,
            Next::Never => {
                self.over = true;
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
        let message = if error == 0 {
            self.failure.to_owned()
        } else {
            FeedState::Failed(error).problem().unwrap_or_default()
        };
        Failure::new(exit, message)
    }
}

fn unopened(error: OpenError) -> Exit {
    match error {
        OpenError::NoSuchFile => Exit::NoInput,
        OpenError::Permission => Exit::Permission,
        OpenError::Io(_) => Exit::Io,
        _ => Exit::Data,
    }
}

fn broken(error: DecodeError) -> Exit {
    if matches!(error, DecodeError::Io(_)) { Exit::Io } else { Exit::Data }
}

/// 20 ms at 48 kHz.
const QUANTUM: Frames = Frames(960);
/// While sound is flowing; a pipe of the kernel holds some hundred milliseconds.
const SOON: Span = Span::from_millis(5);
/// While nobody sends.
const LATER: Span = Span::from_millis(50);

//! A push of a station's stream to an Icecast server, without its connections.
//!
//! The machine decides what to send, what an answer means, when to try again and which title is
//! due. What opens connections does as it is told by [`PushOutput`], and reports with
//! [`PushInput`]. At most one request is under way at a time; a title is sent on a connection of
//! its own, while the stream goes on.
//!
//! libshout could do the protocol, but would block a thread for each stream.

mod error;
mod exchange;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aulos_core::{Backoff, Instant, Span};
use aulos_proto::icecast::{IcecastUrl, SourceMethod, SourceResponse, StreamMetadata};
use portable_atomic::AtomicU64;

use error::COUNTER_NAMES;
pub use error::PushError;
use exchange::Exchange;

/// The configuration of a push.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "what was asked for")]
pub struct PushConfig {
    /// The server and its mount.
    pub target: IcecastUrl,
    /// The password, if the server requires one.
    pub password: Option<String>,
    /// The description of the programme.
    pub about: StreamMetadata,
    /// The user agent of the requests.
    pub agent: &'static str,
    /// Whether titles are sent by requests, because the stream has no place for them.
    pub sends_titles: bool,
    /// The time-out of an answer.
    pub answer_timeout: Span,
    /// Randomizes the pauses.
    pub seed: u64,
}

/// The state of a push, for users to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts, which a status page lists")]
pub struct PushState {
    /// What it is doing.
    pub phase: PushPhase,
    /// The last error and its remedy; `None` if it has never failed.
    pub error: Option<String>,
    /// Duration of the current connection.
    pub since: Option<Span>,
    /// Bytes sent in this connection.
    pub bytes: u64,
    /// Chunks skipped in this connection because the server was too slow.
    pub lagged: u64,
    /// Time until the next attempt.
    pub retry_in: Option<Span>,
    /// Number of accepted streams.
    pub connects: u64,
    /// Number of failed, refused or broken connections.
    pub failures: u64,
    /// Error of the last title update.
    pub title_error: Option<String>,
    /// What a link has that sends lost packets again.
    pub link: Option<PushLinkQuality>,
}

/// The quality of a link that sends lost packets again. Counters begin with the push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts, which a status page lists")]
pub struct PushLinkQuality {
    /// The round-trip time.
    pub round_trip: Span,
    /// Packets that were sent.
    pub packets: u64,
    /// Packets that were sent again.
    pub resent: u64,
    /// Packets that were not confirmed before they were too old.
    pub unacknowledged: u64,
}

/// Phase of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushPhase {
    /// It connects to the server.
    #[default]
    Connecting,
    /// The server receives the stream.
    Pushing,
    /// It could not be reached, or broke off, and is tried again.
    Waiting,
    /// The server refuses, which needs a change of configuration; it is tried again, but rarely.
    Refused,
}

impl PushPhase {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Pushing => "pushing",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
        }
    }
}

/// A [`PushState`] whose times are points in time.
#[derive(Clone, Debug, Default)]
pub struct PushProgress {
    state: PushState,
    since: Option<Instant>,
    retry_at: Option<Instant>,
}

impl PushProgress {
    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Instant) -> PushState {
        PushState {
            since: self.since.map(|since| now.since(since)),
            retry_in: self.retry_at.map(|at| at.since(now)),
            ..self.state.clone()
        }
    }

    /// The last error and its remedy.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.state.error.as_deref()
    }
}

/// Counters of all pushes; never reset.
#[derive(Debug, Default)]
pub struct PushCounters {
    connects: AtomicU64,
    titles: AtomicU64,
    titles_failed: AtomicU64,
    failures: [AtomicU64; COUNTER_NAMES.len()],
}

impl PushCounters {
    /// The counters, under stable names.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = vec![
            ("push_connects", read(&self.connects)),
            ("push_titles", read(&self.titles)),
            ("push_titles_failed", read(&self.titles_failed)),
        ];
        all.extend(COUNTER_NAMES.into_iter().zip(self.failures.iter().map(read)));
        all
    }
}

/// What has happened.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "what a connection can report")]
pub enum PushInput<'a> {
    /// The request has been sent.
    Requested,
    /// The server cannot be reached, or the request not be sent.
    RequestFailed(PushError),
    /// Bytes of the answer; none when the server has closed the connection.
    Received(&'a [u8]),
    /// The answer cannot be read.
    ReceiveFailed(io::ErrorKind),
    /// The accepted connection is being served.
    Serving,
    /// The accepted connection cannot be served.
    ServeFailed(PushError),
    /// How much of the stream has been sent in this connection.
    Progress {
        /// Bytes sent.
        bytes: u64,
        /// Chunks skipped.
        lagged: u64,
    },
    /// The stream broke off.
    Ended {
        /// Why.
        error: PushError,
        /// The HTTP status that the server sent in the middle of the stream.
        refusal_status: Option<u16>,
    },
    /// The current title.
    Title(Arc<str>),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "whoever opens connections does each of them")]
pub enum PushOutput {
    /// Connect to the target and send these bytes; an earlier connection of a request is closed.
    Request(String),
    /// Serve the stream on the connection of the request.
    Serve,
    /// Close the connection of the request.
    Close,
}

/// A push.
#[derive(Debug)]
pub struct PushSession {
    config: PushConfig,
    counters: Arc<PushCounters>,
    progress: PushProgress,
    step: Step,
    title: Arc<str>,
    backoff: Backoff,
    outputs: VecDeque<PushOutput>,
}

#[derive(Debug)]
enum Step {
    /// The next attempt begins at this time.
    Waiting(Instant),
    /// The server is asked to accept the stream.
    Requesting(Exchange),
    /// The server has accepted the stream, and its connection is being handed over.
    HandingOver,
    /// The server receives the stream.
    Streaming(TitleUpdate),
}

/// The titles of one connection.
#[derive(Debug, Default)]
struct TitleUpdate {
    /// Time of the next update.
    due_at: Option<Instant>,
    /// A title was sent in this connection.
    is_sent: bool,
    exchange: Option<Exchange>,
}

impl PushSession {
    /// A push that connects at `now`.
    #[must_use]
    pub fn new(config: PushConfig, counters: Arc<PushCounters>, now: Instant) -> Self {
        Self {
            backoff: Backoff::new(config.seed),
            config,
            counters,
            progress: PushProgress::default(),
            step: Step::Waiting(now),
            title: Arc::from(""),
            outputs: VecDeque::new(),
        }
    }

    /// Handles what has happened.
    pub fn handle_input(&mut self, now: Instant, input: PushInput<'_>) {
        match input {
            PushInput::Requested => {
                let timeout = self.config.answer_timeout;
                if let Some(exchange) = self.exchange() {
                    exchange.handle_requested(now, timeout);
                }
            }
            PushInput::RequestFailed(error) => self.end_exchange(now, Err(error)),
            PushInput::Received(bytes) => self.step_exchange(now, |it| it.handle_bytes(now, bytes)),
            PushInput::ReceiveFailed(kind) => {
                self.step_exchange(now, |it| it.handle_error(now, kind));
            }
            PushInput::Serving => self.record_start(now),
            PushInput::ServeFailed(error) => self.fail(now, &error),
            PushInput::Progress { bytes, lagged } => {
                (self.progress.state.bytes, self.progress.state.lagged) = (bytes, lagged);
            }
            PushInput::Ended { error, refusal_status } => {
                let error = match refusal_status {
                    Some(401) => self.unauthorized(),
                    Some(status) => PushError::Refused(status, "during the stream".to_owned()),
                    None => error,
                };
                self.fail(now, &error);
            }
            PushInput::Title(title) => {
                self.title = title;
                if let Step::Streaming(titles) = &mut self.step
                    && self.config.sends_titles
                {
                    titles.due_at = Some(now);
                }
            }
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match &self.step {
            Step::Waiting(_) => {
                self.progress.state.phase = PushPhase::Connecting;
                self.progress.retry_at = None;
                self.request_stream(now, SourceMethod::Put);
            }
            Step::Streaming(TitleUpdate { exchange: None, .. }) => self.request_title(now),
            _ => self.step_exchange(now, |exchange| exchange.handle_timeout(now)),
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<PushOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`PushSession::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.step {
            Step::Waiting(at) => Some(*at),
            Step::Requesting(exchange) => Some(exchange.deadline()),
            Step::HandingOver => None,
            Step::Streaming(titles) => {
                titles.exchange.as_ref().map(Exchange::deadline).or(titles.due_at)
            }
        }
    }

    /// The state, for users to read.
    #[must_use]
    pub const fn progress(&self) -> &PushProgress {
        &self.progress
    }

    fn exchange(&mut self) -> Option<&mut Exchange> {
        match &mut self.step {
            Step::Requesting(exchange) => Some(exchange),
            Step::Streaming(titles) => titles.exchange.as_mut(),
            Step::Waiting(_) | Step::HandingOver => None,
        }
    }

    fn step_exchange(
        &mut self,
        now: Instant,
        step: impl FnOnce(&mut Exchange) -> Option<Result<SourceResponse, PushError>>,
    ) {
        if let Some(result) = self.exchange().and_then(step) {
            self.end_exchange(now, result);
        }
    }

    fn end_exchange(&mut self, now: Instant, result: Result<SourceResponse, PushError>) {
        match &mut self.step {
            Step::Requesting(exchange) => {
                let method = exchange.method();
                self.end_stream_request(now, method, result);
            }
            Step::Streaming(titles) => {
                if titles.exchange.take().is_some() {
                    self.outputs.push_back(PushOutput::Close);
                    self.end_title_request(now, result);
                }
            }
            Step::Waiting(_) | Step::HandingOver => {}
        }
    }

    /// Asks the server to accept the stream.
    fn request_stream(&mut self, now: Instant, method: SourceMethod) {
        let PushConfig { target, password, about, agent, .. } = &self.config;
        match target.source_request(method, password.as_deref(), about, agent) {
            Ok(request) => {
                self.step = Step::Requesting(Exchange::new(method, now));
                self.outputs.push_back(PushOutput::Request(request));
            }
            Err(why) => self.fail(now, &PushError::Request(why)),
        }
    }

    fn end_stream_request(
        &mut self,
        now: Instant,
        method: SourceMethod,
        result: Result<SourceResponse, PushError>,
    ) {
        let error = match result {
            Ok(SourceResponse::Accepted) => {
                self.step = Step::HandingOver;
                return self.outputs.push_back(PushOutput::Serve);
            }
            Ok(SourceResponse::MethodNotSupported) if method == SourceMethod::Put => {
                return self.request_stream(now, SourceMethod::Source);
            }
            Ok(SourceResponse::Unauthorized) => self.unauthorized(),
            Ok(SourceResponse::MountInUse) => PushError::MountInUse,
            Ok(SourceResponse::MethodNotSupported) => PushError::MethodUnsupported,
            Ok(SourceResponse::Refused(status, reason)) => PushError::Refused(status, reason),
            Ok(_) => PushError::InvalidAnswer,
            Err(error) => error,
        };
        self.fail(now, &error);
    }

    const fn unauthorized(&self) -> PushError {
        let is_said = self.config.password.is_some();
        if is_said { PushError::WrongPassword } else { PushError::NoPassword }
    }

    fn record_start(&mut self, now: Instant) {
        let due_at = self.config.sends_titles.then_some(now);
        self.step = Step::Streaming(TitleUpdate { due_at, ..TitleUpdate::default() });
        self.backoff.succeeded(now);
        self.counters.connects.fetch_add(1, Ordering::Relaxed);
        self.progress.since = Some(now);
        let state = &mut self.progress.state;
        state.phase = PushPhase::Pushing;
        state.connects += 1;
        (state.bytes, state.lagged) = (0, 0);
    }

    /// Sends the current title to the server.
    fn request_title(&mut self, now: Instant) {
        let Step::Streaming(titles) = &mut self.step else { return };
        titles.due_at = None;
        if self.title.is_empty() && !titles.is_sent {
            // No title was sent, so none needs to be cleared.
            return;
        }
        let PushConfig { target, password, agent, .. } = &self.config;
        match target.metadata_request(password.as_deref(), &self.title, agent) {
            Ok(request) => {
                titles.exchange = Some(Exchange::new(SourceMethod::Source, now));
                self.outputs.push_back(PushOutput::Request(request));
            }
            Err(why) => self.end_title_request(now, Err(PushError::Request(why))),
        }
    }

    fn end_title_request(&mut self, now: Instant, result: Result<SourceResponse, PushError>) {
        let Step::Streaming(titles) = &mut self.step else { return };
        let error = match result {
            Ok(SourceResponse::Accepted) => None,
            Ok(SourceResponse::Unauthorized) => Some(PushError::WrongPassword),
            Ok(SourceResponse::Refused(status, reason)) => Some(PushError::Refused(status, reason)),
            Ok(_) => Some(PushError::InvalidAnswer),
            Err(error) => Some(error),
        };
        let Self { counters, progress, .. } = self;
        let count = if error.is_none() { &counters.titles } else { &counters.titles_failed };
        count.fetch_add(1, Ordering::Relaxed);
        if error.is_none() {
            titles.is_sent = true;
        } else {
            // A title that has changed meanwhile is due already.
            titles.due_at.get_or_insert(now + TITLE_RETRY);
        }
        progress.state.title_error = error.map(|error| error.to_string());
    }

    /// Closes what is open, and schedules the next attempt.
    fn fail(&mut self, now: Instant, error: &PushError) {
        let is_permanent = error.is_permanent();
        if is_permanent {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        if let Some(count) = self.counters.failures.get(error.counter_index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let retry_at = self.backoff.retry_at();
        self.step = Step::Waiting(retry_at);
        self.outputs.push_back(PushOutput::Close);
        (self.progress.since, self.progress.retry_at) = (None, Some(retry_at));
        let state = &mut self.progress.state;
        state.phase = if is_permanent { PushPhase::Refused } else { PushPhase::Waiting };
        state.failures += 1;
        state.error = Some(error.to_string());
    }
}

/// Pause before a failed title update is repeated.
const TITLE_RETRY: Span = Span::from_secs(30);

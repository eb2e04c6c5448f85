//! Pushes a station's stream to an Icecast server: connects, sends the request, hands the socket to
//! a reactor, and reconnects when the stream breaks off.
//!
//! ```text
//!  here (control runtime): DNS, TCP, TLS, request, answer
//!     | socket, TLS state
//!     v
//!  audio: the rendition in the configured container; a reactor serves the socket like a listener
//!     | end, bytes
//!     v
//!  here: a pause, and again from the beginning
//! ```
//!
//! Each push has one task, which is idle most of the time. It ends when the other ends of its
//! channels are dropped. libshout could do the protocol, but would block a thread for each stream.

mod error;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_config::PushSettings;
use aulos_core::{Backoff, Codec, Instant, Span};
use aulos_io::SystemClock;
use aulos_io::reactor::{
    AddressPermit, MediaSocket, PushMonitor, PushReporter, SessionEndCause, push_channel,
};
use aulos_proto::icecast::{SourceMethod, SourceResponse, StreamMetadata};
use aulos_rt::channel::{Receiver, Sender, bounded};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::dial::{DialedStream, Dialer};
use crate::radio::BackgroundTask;
use error::{COUNTER_NAMES, PushError};

/// State of a push, for users to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

/// Phase of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// Counters of all pushes; never reset.
#[derive(Debug, Default)]
struct PushCounters {
    connects: AtomicU64,
    titles: AtomicU64,
    titles_failed: AtomicU64,
    failures: [AtomicU64; COUNTER_NAMES.len()],
}

/// Handle to the state of one push.
#[derive(Clone, Debug, Default)]
pub(crate) struct PushStatusHandle(Arc<Mutex<PushProgress>>);

#[derive(Debug, Default)]
struct PushProgress {
    state: PushState,
    since: Option<Instant>,
    retry_at: Option<Instant>,
}

impl PushStatusHandle {
    /// The current state.
    pub(crate) fn state(&self) -> PushState {
        let now = SystemClock::now();
        let progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        PushState {
            since: progress.since.map(|since| now.since(since)),
            retry_in: progress.retry_at.map(|at| at.since(now)),
            ..progress.state.clone()
        }
    }

    fn change(&self, change: impl FnOnce(&mut PushProgress)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A connection that is ready for the stream.
#[derive(Debug)]
pub(crate) struct OpenedPush {
    pub(crate) socket: MediaSocket,
    pub(crate) line: PushReporter,
}

/// The parts of one push, for the threads that run them. It ends when `opened` is dropped.
pub(crate) struct PushParts {
    /// For the audio side: sockets to serve.
    pub(crate) opened: Receiver<OpenedPush>,
    /// For the status.
    pub(crate) status: PushStatusHandle,
    /// Receives the current title.
    pub(crate) titles: watch::Sender<Arc<str>>,
    /// For the control runtime.
    pub(crate) task: BackgroundTask,
}

/// Pushes streams; one per server.
#[derive(Debug, Default)]
pub(crate) struct PushClient {
    dialer: Arc<Dialer>,
    totals: Arc<PushCounters>,
}

impl PushClient {
    /// Starts a push of a programme described by `about`; `seed` randomizes its pauses.
    pub(crate) fn start(&self, push: &PushSettings, about: StreamMetadata, seed: u64) -> PushParts {
        let (orders, opened) = bounded(1);
        let (titles, title_receiver) = watch::channel(Arc::from(""));
        let watch = PushStatusHandle::default();
        let task = PushTask {
            push: push.clone(),
            about,
            dialer: Arc::clone(&self.dialer),
            totals: Arc::clone(&self.totals),
            watch: watch.clone(),
            opened: orders,
            titles: title_receiver,
            title_due_at: None,
            title_sent: false,
            backoff: Backoff::new(seed),
        };
        PushParts { opened, status: watch, titles, task: Box::pin(task.run()) }
    }

    /// The counters of all pushes, under stable names.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let totals = &self.totals;
        let mut all = vec![
            ("push_connects", read(&totals.connects)),
            ("push_titles", read(&totals.titles)),
            ("push_titles_failed", read(&totals.titles_failed)),
        ];
        all.extend(COUNTER_NAMES.into_iter().zip(totals.failures.iter().map(read)));
        all
    }
}

struct PushTask {
    push: PushSettings,
    about: StreamMetadata,
    dialer: Arc<Dialer>,
    totals: Arc<PushCounters>,
    watch: PushStatusHandle,
    opened: Sender<OpenedPush>,
    titles: watch::Receiver<Arc<str>>,
    /// Time of the next title update.
    title_due_at: Option<Instant>,
    /// A title was sent in this connection.
    title_sent: bool,
    backoff: Backoff,
}

impl PushTask {
    async fn run(mut self) {
        while !self.opened.is_closed() {
            self.watch.change(|progress| {
                progress.state.phase = PushPhase::Connecting;
                progress.retry_at = None;
            });
            let result = tokio::select! {
                result = self.connect() => result,
                () = until_closed(&self.opened) => return,
            };
            let failure = match result {
                Ok(socket) => match self.stream(socket).await {
                    Some(failure) => failure,
                    None => return,
                },
                Err(failure) => failure,
            };
            self.wait_for_retry(&failure).await;
        }
    }

    /// Asks the server to accept the stream.
    async fn connect(&self) -> Result<MediaSocket, PushError> {
        match self.request_stream(SourceMethod::Put).await {
            Err(PushError::MethodUnsupported) => self.request_stream(SourceMethod::Source).await,
            done => done,
        }
    }

    async fn request_stream(&self, way: SourceMethod) -> Result<MediaSocket, PushError> {
        let password = self.push.password.0.as_deref();
        let head = self.push.target.source_request(way, password, &self.about, AGENT);
        let head = head.map_err(PushError::Request)?;
        let (wire, answer) = self.request(&head, way).await?;
        match answer {
            SourceResponse::Accepted => {}
            SourceResponse::Unauthorized => return Err(self.unauthorized()),
            SourceResponse::MountInUse => return Err(PushError::MountInUse),
            SourceResponse::MethodNotSupported => return Err(PushError::MethodUnsupported),
            SourceResponse::Refused(status, reason) => {
                return Err(PushError::Refused(status, reason));
            }
            _ => return Err(PushError::InvalidAnswer),
        }
        let broke = |error: std::io::Error| PushError::Io(error.kind());
        let (socket, tls) = wire.into_parts().map_err(broke)?;
        let address = socket.peer_addr().map_err(broke)?;
        Ok(MediaSocket::new(socket, address, AddressPermit::default()).with_client_tls(tls))
    }

    /// Sends a request to the server and reads the answer.
    async fn request(
        &self,
        text: &str,
        asked: SourceMethod,
    ) -> Result<(DialedStream, SourceResponse), PushError> {
        let target = &self.push.target;
        let reached = self.dialer.dial(target.secure, &target.host, target.port);
        let reached = timeout(CONNECT_TIMEOUT, reached).await.map_err(|_| PushError::TimedOut)?;
        let mut wire = reached.map_err(|error| PushError::from_dial(error, target))?;
        let answer = async {
            wire.write_all(text.as_bytes()).await.map_err(|error| PushError::Io(error.kind()))?;
            read_response(&mut wire, asked).await
        };
        let answer = timeout(RESPONSE_TIMEOUT, answer).await.map_err(|_| PushError::TimedOut)??;
        Ok((wire, answer))
    }

    /// Serves the stream until it breaks off; `None` when there is nothing more to do.
    async fn stream(&mut self, socket: MediaSocket) -> Option<PushError> {
        let in_stream = self.push.codec.codec() == Codec::Opus;
        let (line, mut sent) = push_channel(self.push.titles && in_stream);
        if self.opened.try_send(OpenedPush { socket, line }).is_err() {
            return Some(PushError::Busy);
        }
        self.record_start();
        let tells = self.push.titles && !in_stream;
        (self.title_due_at, self.title_sent) = (tells.then(SystemClock::now), false);
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                cause = sent.end_cause() => {
                    self.update_progress(&sent);
                    return (!self.opened.is_closed()).then(|| self.error_of_end(cause, sent.refusal_status()));
                }
                _ = ticks.tick() => {
                    self.update_progress(&sent);
                    if self.opened.is_closed() {
                        return None;
                    }
                    if tells && self.titles.has_changed().unwrap_or(false) {
                        self.title_due_at = Some(SystemClock::now());
                    }
                    if self.title_due_at.is_some_and(|at| at <= SystemClock::now()) {
                        self.send_title().await;
                    }
                }
            }
        }
    }

    /// The error of a stream that ended; `no` is a status that the server sent in the middle of it.
    fn error_of_end(&self, cause: Option<SessionEndCause>, no: Option<u16>) -> PushError {
        match no {
            Some(401) => self.unauthorized(),
            Some(status) => PushError::Refused(status, "during the stream".to_owned()),
            None => PushError::from_end(cause),
        }
    }

    const fn unauthorized(&self) -> PushError {
        let is_said = self.push.password.0.is_some();
        if is_said { PushError::WrongPassword } else { PushError::NoPassword }
    }

    fn record_start(&mut self) {
        let now = SystemClock::now();
        self.backoff.succeeded(now);
        self.totals.connects.fetch_add(1, Ordering::Relaxed);
        tracing::info!(url = %self.push.target, "push started");
        self.watch.change(|progress| {
            progress.since = Some(now);
            progress.state.phase = PushPhase::Pushing;
            progress.state.connects += 1;
            (progress.state.bytes, progress.state.lagged) = (0, 0);
        });
    }

    fn update_progress(&self, sent: &PushMonitor) {
        self.watch.change(|progress| {
            (progress.state.bytes, progress.state.lagged) = (sent.bytes(), sent.lagged());
        });
    }

    /// Sends the current title to the server.
    async fn send_title(&mut self) {
        let song = Arc::clone(&self.titles.borrow_and_update());
        self.title_due_at = None;
        if song.is_empty() && !self.title_sent {
            // No title was sent, so none needs to be cleared.
            return;
        }
        let request =
            self.push.target.metadata_request(self.push.password.0.as_deref(), &song, AGENT);
        let answer = match request {
            Ok(request) => self.request(&request, SourceMethod::Source).await,
            Err(why) => Err(PushError::Request(why)),
        };
        let error = match answer {
            Ok((_, SourceResponse::Accepted)) => None,
            Ok((_, SourceResponse::Unauthorized)) => Some(PushError::WrongPassword.to_string()),
            Ok((_, SourceResponse::Refused(status, reason))) => {
                Some(PushError::Refused(status, reason).to_string())
            }
            Ok(_) => Some(PushError::InvalidAnswer.to_string()),
            Err(failure) => Some(failure.to_string()),
        };
        let totals = &self.totals;
        let count = if error.is_none() { &totals.titles } else { &totals.titles_failed };
        count.fetch_add(1, Ordering::Relaxed);
        self.title_sent |= error.is_none();
        self.title_due_at = error.as_ref().map(|_| SystemClock::now() + TITLE_RETRY);
        self.watch.change(|progress| progress.state.title_error = error);
    }

    /// Waits until the next attempt.
    async fn wait_for_retry(&mut self, failure: &PushError) {
        let now = SystemClock::now();
        let (lasting, before) = (failure.is_permanent(), self.watch.state().error);
        if lasting {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        let error = failure.to_string();
        if before.as_ref() != Some(&error) {
            tracing::warn!(url = %self.push.target, error, "push failed; retrying");
        }
        if let Some(count) = self.totals.failures.get(failure.counter_index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let retry_at = self.backoff.retry_at();
        self.watch.change(|progress| {
            (progress.since, progress.retry_at) = (None, Some(retry_at));
            progress.state.phase = if lasting { PushPhase::Refused } else { PushPhase::Waiting };
            progress.state.failures += 1;
            progress.state.error = Some(error);
        });
        tokio::select! {
            () = sleep(retry_at.since(now).into()) => {}
            () = until_closed(&self.opened) => {}
        }
    }
}

/// Reads an answer, including the body of a refusal, if there is one.
async fn read_response(
    wire: &mut DialedStream,
    asked: SourceMethod,
) -> Result<SourceResponse, PushError> {
    let (mut read, mut refusal) = (Vec::new(), None);
    loop {
        let mut piece = [0; 1_024];
        let more = wire.read(&mut piece);
        let count = match &refusal {
            None => more.await.map_err(|error| PushError::Io(error.kind()))?,
            // The status counts, however reading the body ends.
            Some(_) => timeout(REASON_TIMEOUT, more).await.map_or(0, |count| count.unwrap_or(0)),
        };
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
        match (SourceResponse::parse(&read, asked).map_err(|_| PushError::InvalidAnswer)?, count) {
            (None, 0) => return Err(PushError::InvalidAnswer),
            (None, _) => {}
            (Some(answer @ SourceResponse::Refused(..)), 1..) if read.len() < MAX_REASON_BYTES => {
                refusal = Some(answer);
            }
            (Some(answer), _) => return Ok(answer),
        }
    }
}

/// Waits until the stream is no longer wanted.
async fn until_closed(opened: &Sender<OpenedPush>) {
    while !opened.is_closed() {
        sleep(POLL_INTERVAL).await;
    }
}

/// User agent of the requests.
const AGENT: &str = concat!("aulos/", env!("CARGO_PKG_VERSION"));

/// Interval at which the progress is read.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time-outs of the connection, TLS included, and of the answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

/// Pause before a failed title update is repeated.
const TITLE_RETRY: Span = Span::from_secs(30);

/// Time-out and maximum length of the body of a refusal.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REASON_BYTES: usize = 4 << 10;

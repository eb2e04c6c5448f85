//! Pushes a station's stream to an Icecast server: performs the I/O of a [`PushSession`].
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
//! channels are dropped.

#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_config::PushSettings;
use aulos_control::backend::BackgroundTask;
use aulos_core::{Instant, Span, StreamContainer};
use aulos_io::SystemClock;
use aulos_io::reactor::{
    AddressPermit, MediaSocket, PushMonitor, PushReporter, SessionEndCause, push_channel,
};
use aulos_proto::icecast::{IcecastUrl, StreamMetadata};
use aulos_rt::channel::{Receiver, Sender, bounded};
use aulos_session::push::{
    PushConfig, PushCounters, PushError, PushInput, PushOutput, PushProgress, PushSession,
    PushState,
};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::dial::{DialError, DialedStream, Dialer};

/// Handle to the state of one push.
#[derive(Clone, Debug, Default)]
pub(crate) struct PushStatusHandle(Arc<Mutex<PushProgress>>);

impl PushStatusHandle {
    /// The current state.
    pub(crate) fn state(&self) -> PushState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).state(SystemClock::now())
    }

    /// Publishes the progress, and returns whether its error is a new one.
    fn publish(&self, progress: &PushProgress) -> bool {
        let mut published = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = published.error() != progress.error();
        published.clone_from(progress);
        is_new
    }
}

/// A connection that is ready for the stream.
#[derive(Debug)]
pub(crate) struct OpenedPush {
    pub(crate) socket: MediaSocket,
    pub(crate) line: PushReporter,
}

/// The parts of one push, for the threads that run them. It ends when `opened` is dropped.
pub(crate) struct PushHandles {
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
    pub(crate) fn start(
        &self,
        push: &PushSettings,
        target: &IcecastUrl,
        about: StreamMetadata,
        seed: u64,
    ) -> PushHandles {
        let (orders, opened) = bounded(1);
        let (titles, title_receiver) = watch::channel(Arc::from(""));
        let watch = PushStatusHandle::default();
        let in_stream = push.codec.codec().info().container == StreamContainer::Ogg;
        let config = PushConfig {
            target: target.clone(),
            password: push.password.0.clone(),
            about,
            agent: AGENT,
            sends_titles: push.titles && !in_stream,
            answer_timeout: RESPONSE_TIMEOUT,
            seed,
        };
        let now = SystemClock::now();
        let task = PushTask {
            target: target.clone(),
            session: PushSession::new(config, Arc::clone(&self.totals), now),
            chained: push.titles && in_stream,
            dialer: Arc::clone(&self.dialer),
            watch: watch.clone(),
            opened: orders,
            titles: title_receiver,
            connection: Connection::Closed,
            monitor: None,
        };
        PushHandles { opened, status: watch, titles, task: Box::pin(task.run()) }
    }

    /// The counters of all pushes, under stable names.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.totals.counters()
    }
}

struct PushTask {
    target: IcecastUrl,
    session: PushSession,
    /// Whether titles are part of the stream.
    chained: bool,
    dialer: Arc<Dialer>,
    watch: PushStatusHandle,
    opened: Sender<OpenedPush>,
    titles: watch::Receiver<Arc<str>>,
    /// The connection of the current request.
    connection: Connection,
    /// The stream, while it is served.
    monitor: Option<PushMonitor>,
}

enum Connection {
    Closed,
    Requesting(Pin<Box<dyn Future<Output = Result<DialedStream, PushError>> + Send>>),
    Open(DialedStream),
}

/// What a [`PushTask`] waits for.
enum PushWait {
    Requested(Result<DialedStream, PushError>),
    Read(io::Result<usize>),
    Ended(Option<SessionEndCause>),
    Timeout,
    Tick,
}

impl PushTask {
    async fn run(mut self) {
        let mut piece = [0; 1_024];
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.opened.is_closed() {
            while let Some(output) = self.session.poll_output() {
                self.perform(output);
            }
            if self.watch.publish(self.session.progress())
                && let Some(error) = self.session.progress().error()
            {
                tracing::warn!(url = %self.target, error, "push failed; retrying");
            }
            let event = self.wait(&mut ticks, &mut piece).await;
            let now = SystemClock::now();
            match event {
                PushWait::Requested(Ok(wire)) => {
                    self.connection = Connection::Open(wire);
                    self.session.handle_input(now, PushInput::Requested);
                }
                PushWait::Requested(Err(error)) => {
                    self.session.handle_input(now, PushInput::RequestFailed(error));
                }
                PushWait::Read(Ok(count)) => {
                    let bytes = piece.get(..count).unwrap_or_default();
                    self.session.handle_input(now, PushInput::Received(bytes));
                }
                PushWait::Read(Err(error)) => {
                    self.session.handle_input(now, PushInput::ReceiveFailed(error.kind()));
                }
                PushWait::Ended(_) if self.opened.is_closed() => return,
                PushWait::Ended(cause) => self.end(now, cause),
                PushWait::Timeout => self.session.handle_timeout(now),
                PushWait::Tick => self.poll_stream(now),
            }
        }
    }

    fn perform(&mut self, output: PushOutput) {
        match output {
            PushOutput::Request(request) => {
                let requested =
                    request_stream(Arc::clone(&self.dialer), self.target.clone(), request);
                self.connection = Connection::Requesting(Box::pin(requested));
            }
            PushOutput::Serve => {
                let input = match self.serve() {
                    Ok(()) => PushInput::Serving,
                    Err(error) => PushInput::ServeFailed(error),
                };
                self.session.handle_input(SystemClock::now(), input);
            }
            PushOutput::Close => self.connection = Connection::Closed,
        }
    }

    /// Hands the accepted connection to a reactor.
    fn serve(&mut self) -> Result<(), PushError> {
        let broke = |error: io::Error| PushError::Io(error.kind());
        let Connection::Open(wire) = std::mem::replace(&mut self.connection, Connection::Closed)
        else {
            return Err(PushError::Busy);
        };
        let (socket, tls) = wire.into_parts().map_err(broke)?;
        let address = socket.peer_addr().map_err(broke)?;
        let socket =
            MediaSocket::new(socket, address, AddressPermit::default()).with_client_tls(tls);
        let (line, monitor) = push_channel(self.chained);
        self.opened.try_send(OpenedPush { socket, line }).map_err(|_| PushError::Busy)?;
        self.monitor = Some(monitor);
        tracing::info!(target: "push", url = %self.target, "started");
        Ok(())
    }

    async fn wait(&mut self, ticks: &mut Interval, piece: &mut [u8]) -> PushWait {
        let timeout = self.session.poll_timeout().map(|at| at.since(SystemClock::now()).as_nanos());
        let pause =
            Duration::from_nanos(timeout.map_or(0, |span| u64::try_from(span).unwrap_or(0)));
        let Self { connection, monitor, .. } = self;
        let connected = async {
            match connection {
                Connection::Closed => std::future::pending().await,
                Connection::Requesting(requested) => PushWait::Requested(requested.await),
                Connection::Open(wire) => PushWait::Read(wire.read(piece).await),
            }
        };
        let ended = async {
            match monitor {
                Some(monitor) => monitor.end_cause().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = connected => event,
            cause = ended => PushWait::Ended(cause),
            () = sleep(pause), if timeout.is_some() => PushWait::Timeout,
            _ = ticks.tick() => PushWait::Tick,
        }
    }

    fn end(&mut self, now: Instant, cause: Option<SessionEndCause>) {
        self.report_progress(now);
        let monitor = self.monitor.take();
        let refusal_status = monitor.and_then(|monitor| monitor.refusal_status());
        let error = match cause {
            Some(SessionEndCause::Closed) => PushError::HungUp,
            Some(SessionEndCause::NotReading) => PushError::NotReading,
            None | Some(SessionEndCause::Kicked) => PushError::Busy,
            Some(_) => PushError::Broken,
        };
        self.session.handle_input(now, PushInput::Ended { error, refusal_status });
    }

    fn poll_stream(&mut self, now: Instant) {
        self.report_progress(now);
        if self.titles.has_changed().unwrap_or(false) {
            let title = Arc::clone(&self.titles.borrow_and_update());
            self.session.handle_input(now, PushInput::Title(title));
        }
    }

    fn report_progress(&mut self, now: Instant) {
        if let Some(monitor) = &self.monitor {
            let (bytes, lagged) = (monitor.bytes(), monitor.lagged());
            self.session.handle_input(now, PushInput::Progress { bytes, lagged });
        }
    }
}

/// Connects to the server and sends a request.
async fn request_stream(
    dialer: Arc<Dialer>,
    target: IcecastUrl,
    request: String,
) -> Result<DialedStream, PushError> {
    let reached = dialer.dial(target.secure, &target.host, target.port).await;
    let mut wire = reached.map_err(|error| match error {
        DialError::Name => PushError::Name(target.host.clone()),
        DialError::Busy => PushError::Busy,
        DialError::Connect(kind) => PushError::Connect(kind),
        DialError::Tls(why) => PushError::Tls(why),
    })?;
    wire.write_all(request.as_bytes()).await.map_err(|error| PushError::Io(error.kind()))?;
    Ok(wire)
}

/// User agent of the requests.
const AGENT: &str = concat!("aulos/", env!("CARGO_PKG_VERSION"));

/// Interval at which the progress and the title are read.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time-out of an answer.
const RESPONSE_TIMEOUT: Span = Span::from_secs(if cfg!(test) { 2 } else { 10 });

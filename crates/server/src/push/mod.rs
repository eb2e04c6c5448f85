//! Pushes: finds an Icecast server, says what it wants to hear, lets a reactor send it a station's
//! stream, and comes again when that breaks off.
//!
//! ```text
//!  here (control runtime): name, TCP, TLS, request, answer
//!     | socket, TLS state
//!     v
//!  audio: the rendition in the wished container; a reactor serves the socket like a listener
//!     | "it is over", bytes
//!     v
//!  here: a pause, and again from the beginning
//! ```
//!
//! One task for each push, which waits nearly all of its life. It ends when whoever holds its other
//! ends lets them go. libshout would do the talking, and block a thread for each stream.

mod failure;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_config::Push;
use aulos_core::{Codec, Instant, Span};
use aulos_io::SystemClock;
use aulos_io::feed::Backoff;
use aulos_io::reactor::{AddressPermit, LeaveCause, MediaSocket, PushLine, PushWatch, push_line};
use aulos_proto::icecast::{About, Answer, Way};
use aulos_rt::channel::{Receiver, Sender, bounded};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::dial::{Dialer, Wire};
use crate::radio::Chore;
use failure::{CAUSES, Failure};

/// How a push does, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushState {
    /// What it does.
    pub phase: Phase,
    /// What was wrong last, and what to do about it; none while it has never failed.
    pub error: Option<String>,
    /// For how long the server has been taking the stream.
    pub since: Option<Span>,
    /// Bytes that this connection has taken.
    pub bytes: u64,
    /// Chunks that the server was too slow for, in this connection.
    pub lagged: u64,
    /// When it is tried again.
    pub retry_in: Option<Span>,
    /// Streams that began.
    pub connects: u64,
    /// Times that the server could not be had, said no, or broke off.
    pub failures: u64,
    /// What was wrong with the last title that was told beside the stream.
    pub title_error: Option<String>,
}

/// What a push does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It asks the server.
    #[default]
    Connecting,
    /// The server takes the stream.
    Pushing,
    /// It could not be had, or broke off, and is tried again.
    Waiting,
    /// The server says no, which somebody has to mend; it is tried again, but seldom.
    Refused,
}

impl Phase {
    /// In one word.
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

/// What all pushes of a house did; never counts down.
#[derive(Debug, Default)]
struct Totals {
    connects: AtomicU64,
    titles: AtomicU64,
    titles_failed: AtomicU64,
    failures: [AtomicU64; CAUSES.len()],
}

/// What can be seen of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    state: PushState,
    since: Option<Instant>,
    retry_at: Option<Instant>,
}

impl Watch {
    /// How it goes.
    pub(crate) fn state(&self) -> PushState {
        let now = SystemClock::now();
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        PushState {
            since: seen.since.map(|since| now.since(since)),
            retry_in: seen.retry_at.map(|at| at.since(now)),
            ..seen.state.clone()
        }
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A server that waits for the stream.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) socket: MediaSocket,
    pub(crate) line: PushLine,
}

/// One push, whose parts go to where they run. It ends when `opened` is dropped.
pub(crate) struct Outgoing {
    /// For the audio: sockets that are to be served.
    pub(crate) opened: Receiver<Opened>,
    /// For the status.
    pub(crate) watch: Watch,
    /// Where it hears what is played.
    pub(crate) titles: watch::Sender<Arc<str>>,
    /// For the control runtime.
    pub(crate) chore: Chore,
}

/// Pushes streams; one for a house.
#[derive(Debug, Default)]
pub(crate) struct Pusher {
    dialer: Arc<Dialer>,
    totals: Arc<Totals>,
}

impl Pusher {
    /// A push of a programme that is `about` this; `seed` is where its pauses get their chance from.
    pub(crate) fn push(&self, push: &Push, about: About, seed: u64) -> Outgoing {
        let (orders, opened) = bounded(1);
        let (titles, told) = watch::channel(Arc::from(""));
        let watch = Watch::default();
        let task = Task {
            push: push.clone(),
            about,
            dialer: Arc::clone(&self.dialer),
            totals: Arc::clone(&self.totals),
            watch: watch.clone(),
            opened: orders,
            titles: told,
            tell_at: None,
            told: false,
            backoff: Backoff::new(seed),
        };
        Outgoing { opened, watch, titles, chore: Box::pin(task.run()) }
    }

    /// What all of them did, by names that never change.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let totals = &self.totals;
        let mut all = vec![
            ("push_connects", read(&totals.connects)),
            ("push_titles", read(&totals.titles)),
            ("push_titles_failed", read(&totals.titles_failed)),
        ];
        all.extend(CAUSES.into_iter().zip(totals.failures.iter().map(read)));
        all
    }
}

struct Task {
    push: Push,
    about: About,
    dialer: Arc<Dialer>,
    totals: Arc<Totals>,
    watch: Watch,
    opened: Sender<Opened>,
    titles: watch::Receiver<Arc<str>>,
    /// When the server is to be told what is played.
    tell_at: Option<Instant>,
    /// It was told something in this connection.
    told: bool,
    backoff: Backoff,
}

impl Task {
    async fn run(mut self) {
        while !self.opened.is_closed() {
            self.watch.change(|seen| {
                seen.state.phase = Phase::Connecting;
                seen.retry_at = None;
            });
            let begun = tokio::select! {
                begun = self.begin() => begun,
                () = gone(&self.opened) => return,
            };
            let failure = match begun {
                Ok(socket) => match self.play(socket).await {
                    Some(failure) => failure,
                    None => return,
                },
                Err(failure) => failure,
            };
            self.pause(&failure).await;
        }
    }

    /// Asks the server to take the stream.
    async fn begin(&self) -> Result<MediaSocket, Failure> {
        match self.ask(Way::Put).await {
            Err(Failure::OtherWay) => self.ask(Way::Source).await,
            done => done,
        }
    }

    async fn ask(&self, way: Way) -> Result<MediaSocket, Failure> {
        let password = self.push.password.0.as_deref();
        let head = self.push.target.begin(way, password, &self.about, AGENT);
        let head = head.map_err(Failure::Request)?;
        let (wire, answer) = self.request(&head, way).await?;
        match answer {
            Answer::Go => {}
            Answer::Unauthorized => return Err(self.unauthorized()),
            Answer::Taken => return Err(Failure::Taken),
            Answer::OtherWay => return Err(Failure::OtherWay),
            Answer::Refused(status, said) => return Err(Failure::Refused(status, said)),
            _ => return Err(Failure::Answer),
        }
        let broke = |error: std::io::Error| Failure::Io(error.kind());
        let (socket, tls) = wire.into_parts().map_err(broke)?;
        let address = socket.peer_addr().map_err(broke)?;
        Ok(MediaSocket::new(socket, address, AddressPermit::default()).with_client_tls(tls))
    }

    /// Says something to the server, and hears its answer.
    async fn request(&self, text: &str, asked: Way) -> Result<(Wire, Answer), Failure> {
        let target = &self.push.target;
        let reached = self.dialer.reach(target.secure, &target.host, target.port);
        let reached = timeout(REACH, reached).await.map_err(|_| Failure::TimedOut)?;
        let mut wire = reached.map_err(|error| Failure::of_dial(error, target))?;
        let answer = async {
            wire.write_all(text.as_bytes()).await.map_err(|error| Failure::Io(error.kind()))?;
            hear(&mut wire, asked).await
        };
        let answer = timeout(ANSWER, answer).await.map_err(|_| Failure::TimedOut)??;
        Ok((wire, answer))
    }

    /// Lets it be sent until it breaks off; `None` when there is nothing more to do.
    async fn play(&mut self, socket: MediaSocket) -> Option<Failure> {
        let in_stream = self.push.codec.codec() == Codec::Opus;
        let (line, mut sent) = push_line(self.push.titles && in_stream);
        if self.opened.try_send(Opened { socket, line }).is_err() {
            return Some(Failure::Busy);
        }
        self.begun();
        let tells = self.push.titles && !in_stream;
        (self.tell_at, self.told) = (tells.then(SystemClock::now), false);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                cause = sent.over() => {
                    self.look(&sent);
                    return (!self.opened.is_closed()).then(|| self.ended(cause, sent.no()));
                }
                _ = looks.tick() => {
                    self.look(&sent);
                    if self.opened.is_closed() {
                        return None;
                    }
                    if tells && self.titles.has_changed().unwrap_or(false) {
                        self.tell_at = Some(SystemClock::now());
                    }
                    if self.tell_at.is_some_and(|at| at <= SystemClock::now()) {
                        self.tell().await;
                    }
                }
            }
        }
    }

    /// Why a stream is over that had begun; `no` is what the server said in its middle.
    fn ended(&self, cause: Option<LeaveCause>, no: Option<u16>) -> Failure {
        match no {
            Some(401) => self.unauthorized(),
            Some(status) => Failure::Refused(status, "in the middle of the stream".to_owned()),
            None => Failure::of_end(cause),
        }
    }

    const fn unauthorized(&self) -> Failure {
        let is_said = self.push.password.0.is_some();
        if is_said { Failure::WrongPassword } else { Failure::NoPassword }
    }

    fn begun(&mut self) {
        let now = SystemClock::now();
        self.backoff.succeeded(now);
        self.totals.connects.fetch_add(1, Ordering::Relaxed);
        tracing::info!("{} takes the stream", self.push.target);
        self.watch.change(|seen| {
            seen.since = Some(now);
            seen.state.phase = Phase::Pushing;
            seen.state.connects += 1;
            (seen.state.bytes, seen.state.lagged) = (0, 0);
        });
    }

    fn look(&self, sent: &PushWatch) {
        self.watch.change(|seen| {
            (seen.state.bytes, seen.state.lagged) = (sent.bytes(), sent.lagged());
        });
    }

    /// Tells the server what is played.
    async fn tell(&mut self) {
        let song = Arc::clone(&self.titles.borrow_and_update());
        self.tell_at = None;
        if song.is_empty() && !self.told {
            // Nothing was said, so nothing is to be taken back.
            return;
        }
        let request = self.push.target.tell(self.push.password.0.as_deref(), &song, AGENT);
        let answer = match request {
            Ok(request) => self.request(&request, Way::Source).await,
            Err(why) => Err(Failure::Request(why)),
        };
        let error = match answer {
            Ok((_, Answer::Go)) => None,
            Ok((_, Answer::Unauthorized)) => Some(Failure::WrongPassword.to_string()),
            Ok((_, Answer::Refused(status, said))) => {
                Some(Failure::Refused(status, said).to_string())
            }
            Ok(_) => Some(Failure::Answer.to_string()),
            Err(failure) => Some(failure.to_string()),
        };
        let totals = &self.totals;
        let count = if error.is_none() { &totals.titles } else { &totals.titles_failed };
        count.fetch_add(1, Ordering::Relaxed);
        self.told |= error.is_none();
        self.tell_at = error.as_ref().map(|_| SystemClock::now() + TELL_AGAIN);
        self.watch.change(|seen| seen.state.title_error = error);
    }

    /// Waits as long as it takes until it makes sense to try again.
    async fn pause(&mut self, failure: &Failure) {
        let now = SystemClock::now();
        let (lasting, before) = (failure.is_lasting(), self.watch.state().error);
        if lasting {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        let error = failure.to_string();
        if before.as_ref() != Some(&error) {
            tracing::warn!("{}: {error}", self.push.target);
        }
        if let Some(count) = self.totals.failures.get(failure.cause()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let retry_at = self.backoff.retry_at();
        self.watch.change(|seen| {
            (seen.since, seen.retry_at) = (None, Some(retry_at));
            seen.state.phase = if lasting { Phase::Refused } else { Phase::Waiting };
            seen.state.failures += 1;
            seen.state.error = Some(error);
        });
        let pause = u64::try_from(retry_at.since(now).as_nanos()).unwrap_or(0);
        tokio::select! {
            () = sleep(Duration::from_nanos(pause)) => {}
            () = gone(&self.opened) => {}
        }
    }
}

/// Hears an answer, and of a refusal the words that stand below it, if they come.
async fn hear(wire: &mut Wire, asked: Way) -> Result<Answer, Failure> {
    let (mut read, mut heard) = (Vec::new(), None);
    loop {
        let mut piece = [0; 1_024];
        let more = wire.read(&mut piece);
        let count = match &heard {
            None => more.await.map_err(|error| Failure::Io(error.kind()))?,
            // What has been said counts, however this ends.
            Some(_) => timeout(WORDS, more).await.map_or(0, |count| count.unwrap_or(0)),
        };
        read.extend_from_slice(piece.get(..count).unwrap_or_default());
        match (Answer::parse(&read, asked).map_err(|_| Failure::Answer)?, count) {
            (None, 0) => return Err(Failure::Answer),
            (None, _) => {}
            (Some(answer @ Answer::Refused(..)), 1..) if read.len() < MAX_WORDS => {
                heard = Some(answer);
            }
            (Some(answer), _) => return Ok(answer),
        }
    }
}

/// Waits until nobody wants the stream any more.
async fn gone(opened: &Sender<Opened>) {
    while !opened.is_closed() {
        sleep(LOOK).await;
    }
}

/// Who we say that we are.
const AGENT: &str = concat!("aulos/", env!("CARGO_PKG_VERSION"));

/// How often it is looked how it goes.
const LOOK: Duration = Duration::from_millis(250);

/// How long it may take to reach a server, TLS and all, and how long that may take to answer.
const REACH: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

/// After how long a title is told again that could not be told.
const TELL_AGAIN: Span = Span::from_secs(30);

/// How long the words of a refusal are waited for, and how many bytes of them.
const WORDS: Duration = Duration::from_secs(1);
const MAX_WORDS: usize = 4 << 10;

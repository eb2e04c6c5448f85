//! Web radio: finds a stream behind an address, lets a reactor play it, and finds it again when it
//! breaks off.
//!
//! ```text
//!  fetch (control runtime): name, TCP, TLS, request, head, redirects, playlists
//!     | socket, TLS state, bytes read so far
//!     v
//!  HttpFeed (a reactor): body, chunks, titles --> StreamSource (codec pool) --> station
//!     | "it broke off"
//!     v
//!  here: a pause, and again from the beginning
//! ```
//!
//! One task for each source, which waits nearly all of its life. It ends when its station is gone.

mod error;
mod fetch;
mod scope;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aulos_core::Instant;
use aulos_engine::source::SourceItem;
use aulos_engine::standby::StandbyHandle;
use aulos_io::SystemClock;
use aulos_io::decode::StreamInfo;
use aulos_io::feed::{
    Backoff, HttpBodyEnd, HttpFeeder, HttpFeederCommand, StreamParts, StreamSource, StreamState,
};
use aulos_proto::http::{HttpUrl, MAX_PLAYLIST_ENTRIES};
use aulos_proto::titles::TrackMetadata;
use aulos_rt::LatestReader;
use aulos_rt::channel::{Receiver, Sender, bounded};
use aulos_rt::ring::Consumer;

use error::RadioError;
use fetch::{OpenedStream, StreamFetcher};

/// Something that the control runtime is to run.
pub type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What web radio does, for people to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RadioState {
    /// What it does.
    pub phase: RadioPhase,
    /// Why it does not play, as long as it does not.
    pub reason: Option<String>,
    /// What the station says of itself.
    pub station_info: RadioInfo,
    /// What is played, as far as it was told.
    pub title: Option<TrackMetadata>,
    /// What the sound is.
    pub info: Option<StreamInfo>,
    /// Bodies that began.
    pub connects: u64,
    /// Times that it could not be had, or broke off.
    pub failures: u64,
    /// Redirects that were followed.
    pub redirects: u64,
    /// Times that the next packet had to be looked for.
    pub resyncs: u64,
    /// Packets that were damaged.
    pub damaged: u64,
}

/// What web radio does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RadioPhase {
    /// It looks for the stream.
    #[default]
    Connecting,
    /// It plays.
    Playing,
    /// It could not be had, or broke off, and is tried again.
    Waiting,
    /// It was a file, and is over.
    Finished,
    /// It is not needed, and stands by cold.
    Standby,
}

impl RadioPhase {
    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Playing => "playing",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Standby => "resting",
        }
    }
}

/// What a station says of itself in the head of its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RadioInfo {
    /// Where the stream was found, behind redirects and playlists, without its password.
    pub url: Option<String>,
    /// `icy-name`.
    pub name: Option<String>,
    /// `icy-genre`.
    pub genre: Option<String>,
    /// `icy-description`.
    pub description: Option<String>,
    /// `icy-br`: kilobits per second.
    pub bitrate: Option<String>,
    /// `Content-Type`, which the bytes may contradict.
    pub content_type: Option<String>,
}

/// What all web radio of a house did; never counts down.
#[derive(Debug, Default)]
pub struct RadioCounters {
    connects: AtomicU64,
    redirects: AtomicU64,
    failures: [AtomicU64; error::COUNTER_NAMES.len()],
}

impl RadioCounters {
    /// By names that never change.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = vec![
            ("radio_connects", read(&self.connects)),
            ("radio_redirects", read(&self.redirects)),
        ];
        all.extend(error::COUNTER_NAMES.into_iter().zip(self.failures.iter().map(read)));
        all
    }

    fn count_failure(&self, failure: &RadioError) {
        if let Some(count) = self.failures.get(failure.counter_index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What can be seen of one.
#[derive(Clone, Debug, Default)]
pub struct RadioStatusHandle(Arc<Mutex<RadioState>>);

impl RadioStatusHandle {
    /// How it goes.
    #[must_use]
    pub fn state(&self) -> RadioState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut RadioState)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// One source of web radio, whose parts go to where they run.
pub struct RadioParts {
    /// For a reactor.
    pub feed: HttpFeeder,
    /// For the codec pool.
    pub source: StreamSource,
    /// For the station.
    pub items: Consumer<SourceItem>,
    /// For the status.
    pub status: RadioStatusHandle,
    /// For the control runtime.
    pub task: BackgroundTask,
}

impl std::fmt::Debug for RadioParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Radio").field("watch", &self.status).finish_non_exhaustive()
    }
}

/// Finds streams; one for a house.
#[derive(Debug, Default)]
pub struct RadioClient {
    fetcher: Arc<StreamFetcher>,
    totals: Arc<RadioCounters>,
}

impl RadioClient {
    /// A source that plays what is at `url`, while `keeper` says that somebody needs it; `seed` is
    /// where its pauses get their chance from.
    #[must_use]
    pub fn open(&self, url: HttpUrl, keeper: Option<StandbyHandle>, seed: u64) -> RadioParts {
        let StreamParts { writer, source, items, state, titles } = StreamParts::new();
        let (orders, ordered) = bounded(MAX_ORDERS);
        let (reporter, reports) = bounded(MAX_REPORTS);
        let (teller, told) = bounded(MAX_TITLES);
        let (asker, needs) = bounded(MAX_ORDERS);
        let watch = RadioStatusHandle::default();
        let task = RadioTask {
            url,
            fetcher: Arc::clone(&self.fetcher),
            totals: Arc::clone(&self.totals),
            watch: watch.clone(),
            orders,
            reports,
            icy_titles: told,
            titles,
            state,
            backoff: Backoff::new(seed),
            unplayable: HashSet::new(),
            need_changes: needs,
            needed: keeper.is_none(),
        };
        let feed = HttpFeeder::new(writer, ordered, reporter, teller);
        let feed = match keeper {
            Some(keeper) => feed.with_standby(keeper, asker),
            None => feed,
        };
        RadioParts { feed, source, items, status: watch, task: Box::pin(task.run()) }
    }

    /// What all of them did.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.totals.counters()
    }
}

struct RadioTask {
    url: HttpUrl,
    fetcher: Arc<StreamFetcher>,
    totals: Arc<RadioCounters>,
    watch: RadioStatusHandle,
    orders: Sender<HttpFeederCommand>,
    reports: Receiver<HttpBodyEnd>,
    /// Titles beside the sound, and in it.
    icy_titles: Receiver<TrackMetadata>,
    titles: Receiver<TrackMetadata>,
    state: LatestReader<StreamState>,
    backoff: Backoff,
    /// Addresses whose sound cannot be played, until all others have failed too.
    unplayable: HashSet<HttpUrl>,
    /// Whether somebody needs it, as the feed says it.
    need_changes: Receiver<bool>,
    needed: bool,
}

/// How a body ended.
enum PlayEnd {
    /// It broke off, or could not be had.
    Failed(RadioError),
    /// Nobody needs it now.
    NotNeeded,
    /// It is a file that is over, or the station is gone.
    Finished,
}

impl RadioTask {
    async fn run(mut self) {
        while !self.orders.is_closed() {
            if !self.needed {
                self.watch.change(|state| (state.phase, state.title) = (RadioPhase::Standby, None));
                self.wait(None).await;
                continue;
            }
            // However often it is needed and not: a server that has failed is not asked sooner.
            if !self.backoff.is_due(SystemClock::now()) {
                self.wait(Some(self.backoff.retry_at())).await;
                continue;
            }
            self.watch.change(|state| state.phase = RadioPhase::Connecting);
            let opened = tokio::select! {
                opened = self.fetcher.open(&self.url, &self.unplayable, &self.watch, &self.totals) => opened,
                Some(needed) = poll_fn(|context| self.need_changes.poll_recv(context)) => {
                    self.needed = needed;
                    continue;
                }
                () = until_closed(&self.orders) => return,
            };
            let end = match opened {
                Ok(opened) => self.play(opened).await,
                Err(failure) => PlayEnd::Failed(failure),
            };
            match end {
                PlayEnd::Failed(failure) => self.handle_failure(&failure),
                PlayEnd::NotNeeded => {}
                PlayEnd::Finished => return,
            }
        }
    }

    /// Waits until then, or until it is said whether it is needed; without a time only for that.
    async fn wait(&mut self, until: Option<Instant>) {
        let span = until.map(|until| until.since(SystemClock::now()).as_nanos());
        let pause = Duration::from_nanos(span.map_or(0, |span| u64::try_from(span).unwrap_or(0)));
        tokio::select! {
            () = tokio::time::sleep(pause), if until.is_some() => {}
            Some(needed) = poll_fn(|context| self.need_changes.poll_recv(context)) => self.needed = needed,
            () = until_closed(&self.orders) => {}
        }
    }

    /// Lets it play until it breaks off, is over, or is not needed any more.
    async fn play(&mut self, opened: OpenedStream) -> PlayEnd {
        match self.play_body(opened).await {
            Some(failure) => PlayEnd::Failed(failure),
            None if self.needed => PlayEnd::Finished,
            None => PlayEnd::NotNeeded,
        }
    }

    /// Lets it play until it breaks off; `None` when there is nothing more to do for now.
    async fn play_body(&mut self, opened: OpenedStream) -> Option<RadioError> {
        let OpenedStream { body, about, url } = opened;
        // Whatever was reported of the body before.
        while self.reports.try_recv().is_ok() {}
        let StreamState { body: before, counts, .. } = *self.state.read();
        if self.orders.try_send(HttpFeederCommand::Play(Box::new(body))).is_err() {
            return Some(RadioError::Busy);
        }
        self.record_start(about);
        let (mut finished, mut broken) = (false, None);
        let mut looks = tokio::time::interval(POLL_INTERVAL);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let Self { reports, icy_titles: told, titles, need_changes: needs, .. } = self;
            tokio::select! {
                report = poll_fn(|context| reports.poll_recv(context)) => match report? {
                    HttpBodyEnd::Ended => finished = true,
                    // Before anything was heard the decoder is asked first: it may be a web page.
                    HttpBodyEnd::Broken(fault) if self.state.read().counts.packets == counts.packets => {
                        broken = Some((RadioError::Body(fault), LAST_POLLS));
                    }
                    HttpBodyEnd::Broken(fault) => return Some(RadioError::Body(fault)),
                },
                Some(needed) = poll_fn(|context| needs.poll_recv(context)) => {
                    self.needed = needed;
                    if !needed {
                        return None;
                    }
                }
                Some(title) = poll_fn(|context| told.poll_recv(context)) => self.set_title(title),
                Some(title) = poll_fn(|context| titles.poll_recv(context)) => self.set_title(title),
                _ = looks.tick() => {
                    let state = self.poll_decoder();
                    if state.body > before && let Some(error) = state.error {
                        self.orders.try_send(HttpFeederCommand::Stop).ok();
                        self.unplayable.insert(url);
                        return Some(RadioError::Undecodable(error));
                    }
                    if let Some((failure, left)) = &mut broken {
                        *left -= 1;
                        if *left == 0 {
                            return Some(failure.clone());
                        }
                    }
                    let over = finished && state.finished;
                    if over {
                        self.watch.change(|state| state.phase = RadioPhase::Finished);
                    }
                    if over || self.orders.is_closed() {
                        return None;
                    }
                }
            }
        }
    }

    fn record_start(&mut self, about: RadioInfo) {
        self.backoff.succeeded(SystemClock::now());
        self.totals.connects.fetch_add(1, Ordering::Relaxed);
        self.watch.change(|state| {
            state.phase = RadioPhase::Playing;
            (state.reason, state.title) = (None, None);
            state.station_info = about;
            state.connects += 1;
        });
    }

    /// Asks the decoder how it goes, and shows it.
    fn poll_decoder(&mut self) -> StreamState {
        let state = *self.state.read();
        self.watch.change(|seen| {
            seen.info = state.info;
            seen.resyncs = state.counts.resyncs;
            seen.damaged = state.counts.damaged;
        });
        state
    }

    fn set_title(&self, title: TrackMetadata) {
        self.watch.change(|state| state.title = Some(title));
    }

    /// It could not be had, or broke off: says when it makes sense to try again.
    fn handle_failure(&mut self, failure: &RadioError) {
        let now = SystemClock::now();
        // A server that leads somewhere else each time must not have us run after it.
        let others = matches!(failure, RadioError::Undecodable(_))
            && self.unplayable.len() < MAX_PLAYLIST_ENTRIES;
        let nothing_else = matches!(failure, RadioError::NothingPlayable);
        if others {
            // Another entry of the playlist is tried at once; if there is none, that is told next.
        } else if failure.is_lasting() {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        if !others {
            self.unplayable.clear();
        }
        if !nothing_else {
            self.totals.count_failure(failure);
        }
        self.watch.change(|state| {
            state.phase = RadioPhase::Waiting;
            state.failures += u64::from(!nothing_else);
            // What cannot be played is the better answer than that there is nothing else.
            if !nothing_else || state.reason.is_none() {
                state.reason = Some(failure.to_string());
            }
            state.title = None;
        });
    }
}

/// Waits until the station is gone.
async fn until_closed(orders: &Sender<HttpFeederCommand>) {
    while !orders.is_closed() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// How often a decoder is asked how it goes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How often a decoder is asked about a body that broke off before it was heard.
const LAST_POLLS: u32 = 2;

/// Orders, reports and titles that wait.
const MAX_ORDERS: usize = 4;
const MAX_REPORTS: usize = 4;
const MAX_TITLES: usize = 8;

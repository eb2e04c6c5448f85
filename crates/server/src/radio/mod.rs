//! Web radio client: connects to a stream, hands it to a reactor, and reconnects when it breaks
//! off.
//!
//! ```text
//!  fetch (control runtime): DNS, TCP, TLS, request, head, redirects, playlists
//!     | socket, TLS state, bytes read so far
//!     v
//!  HttpFeeder (a reactor): body, chunks, titles --> StreamSource (codec pool) --> station
//!     | broken off
//!     v
//!  here: a pause, and again from the beginning
//! ```
//!
//! HLS goes another way: control fetches its segments whole, and the feeder releases them in real
//! time ([`aulos_session::hls_source`]).
//!
//! Each source has one task, which is idle most of the time. It ends with its station.
//!
//! The sound of an announcement comes the same way, but ends: see [`ClipClient`].

mod clip;
mod fetch;
mod hls;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aulos_control::backend::{BackgroundTask, RadioPhase};
use aulos_core::{Instant, ReconnectBackoff, Span};
use aulos_engine::source::SourceItem;
use aulos_engine::standby::StandbyHandle;
use aulos_files::source::{StreamParts, StreamSource};
use aulos_io::SystemClock;
use aulos_io::feed::{HttpBodyEnd, HttpBodyError, HttpFeeder, HttpFeederCommand, StreamState};
use aulos_proto::http::{HttpUrl, MAX_PLAYLIST_ENTRIES};
use aulos_proto::titles::{TitleCharset, TrackMetadata};
use aulos_rt::LatestReader;
use aulos_rt::channel::{Receiver, Sender, bounded};
use aulos_rt::ring::Consumer;
use aulos_session::hls_source::{HlsAddress, VariantChoice};
use aulos_session::radio::{RadioError, RadioInfo};

pub use clip::{ClipClient, ClipHandles, ClipKind, ClipState};
pub use status::{RadioCounters, RadioStatusHandle};

use fetch::{FetchResult, OpenedStream, StreamFetcher, open_body};

/// The parts of one web radio source, for the threads that run them.
pub struct RadioHandles {
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

impl std::fmt::Debug for RadioHandles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Radio").field("watch", &self.status).finish_non_exhaustive()
    }
}

/// Connects web radio sources; one per server.
#[derive(Debug)]
pub struct RadioClient {
    fetcher: Arc<StreamFetcher>,
    /// For the playlists, keys and segments of HLS.
    resources: Arc<StreamFetcher>,
    totals: Arc<RadioCounters>,
}

impl Default for RadioClient {
    fn default() -> Self {
        let resources = Arc::new(StreamFetcher::of_resources());
        Self { fetcher: Arc::default(), resources, totals: Arc::default() }
    }
}

impl RadioClient {
    /// Creates a source that plays `url` while `standby` requests it; `charset` is that of titles
    /// that are not UTF-8, `variant` the variant of HLS, and `seed` randomizes its pauses.
    #[must_use]
    pub fn open(
        &self,
        url: HttpUrl,
        (charset, variant): (TitleCharset, VariantChoice),
        standby: Option<StandbyHandle>,
        seed: u64,
    ) -> RadioHandles {
        let StreamParts { writer, source, items, state, titles } = StreamParts::new();
        let (orders, ordered) = bounded(MAX_ORDERS);
        let (reporter, reports) = bounded(MAX_REPORTS);
        let (icy_title_sender, icy_titles) = bounded(MAX_TITLES);
        let (need_sender, needs) = bounded(MAX_ORDERS);
        let watch = RadioStatusHandle::default();
        let task = RadioTask {
            url,
            charset,
            variant,
            fetcher: Arc::clone(&self.fetcher),
            resources: Arc::clone(&self.resources),
            totals: Arc::clone(&self.totals),
            watch: watch.clone(),
            orders,
            reports,
            icy_titles,
            titles,
            state,
            backoff: ReconnectBackoff::new(seed),
            unplayable: HashSet::new(),
            need_changes: needs,
            needed: standby.is_none(),
        };
        let feed = HttpFeeder::new(writer, ordered, reporter, icy_title_sender);
        let feed = match standby {
            Some(standby) => feed.with_standby(standby, need_sender),
            None => feed,
        };
        RadioHandles { feed, source, items, status: watch, task: Box::pin(task.run()) }
    }

    /// The counters of all sources.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.totals.counters()
    }
}

struct RadioTask {
    url: HttpUrl,
    charset: TitleCharset,
    variant: VariantChoice,
    fetcher: Arc<StreamFetcher>,
    resources: Arc<StreamFetcher>,
    totals: Arc<RadioCounters>,
    watch: RadioStatusHandle,
    orders: Sender<HttpFeederCommand>,
    reports: Receiver<HttpBodyEnd>,
    /// Titles beside the audio, and inside it.
    icy_titles: Receiver<TrackMetadata>,
    titles: Receiver<TrackMetadata>,
    state: LatestReader<StreamState>,
    backoff: ReconnectBackoff,
    /// URLs whose audio cannot be played, until all others have failed as well.
    unplayable: HashSet<HttpUrl>,
    /// Whether the source is needed, as reported by the feed.
    need_changes: Receiver<bool>,
    needed: bool,
}

/// How playing a body ended.
enum PlayEnd {
    /// It broke off, or could not be opened.
    Failed(RadioError),
    /// It is not needed now.
    NotNeeded,
    /// It was a file that has ended, or the station is gone.
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
            // However often the need changes: a server that has failed is not contacted sooner.
            if !self.backoff.is_due(SystemClock::now()) {
                self.wait(Some(self.backoff.retry_at())).await;
                continue;
            }
            self.watch.change(|state| state.phase = RadioPhase::Connecting);
            let opened = tokio::select! {
                opened = open(&self.fetcher, &self.url, &self.unplayable, (&self.watch, &self.totals)) => opened,
                Some(needed) = poll_fn(|context| self.need_changes.poll_recv(context)) => {
                    self.needed = needed;
                    continue;
                }
                () = until_closed(&self.orders) => return,
            };
            let end = match opened {
                Ok(Opened::Stream(opened)) => self.play(*opened).await,
                Ok(Opened::Hls(address)) => {
                    let end = self.play_hls(address).await;
                    self.watch.change(|state| state.hls = None);
                    end
                }
                Err(failure) => PlayEnd::Failed(failure),
            };
            match end {
                PlayEnd::Failed(failure) => self.handle_failure(&failure),
                PlayEnd::NotNeeded => {}
                PlayEnd::Finished => return,
            }
        }
    }

    /// Waits until then, or until the need changes; without a time only for the latter.
    async fn wait(&mut self, until: Option<Instant>) {
        let pause = until.map_or(Span::ZERO, |until| until.since(SystemClock::now()));
        tokio::select! {
            () = tokio::time::sleep(pause.into()), if until.is_some() => {}
            Some(needed) = poll_fn(|context| self.need_changes.poll_recv(context)) => self.needed = needed,
            () = until_closed(&self.orders) => {}
        }
    }

    /// Plays until it breaks off, ends, or is not needed any more.
    async fn play(&mut self, opened: OpenedStream) -> PlayEnd {
        match self.play_body(opened).await {
            Some(failure) => PlayEnd::Failed(failure),
            None if self.needed => PlayEnd::Finished,
            None => PlayEnd::NotNeeded,
        }
    }

    /// Plays until it breaks off; `None` when there is nothing more to do for now.
    async fn play_body(&mut self, opened: OpenedStream) -> Option<RadioError> {
        let OpenedStream { mut body, about, url } = opened;
        body.body.set_title_charset(self.charset);
        // Discard reports on the previous body.
        while self.reports.try_recv().is_ok() {}
        let before = *self.state.read();
        if self.orders.try_send(HttpFeederCommand::Play(Box::new(body))).is_err() {
            return Some(RadioError::Busy);
        }
        self.record_start(about);
        let (mut finished, mut broken) = (false, None);
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let Self { reports, icy_titles, titles, need_changes: needs, .. } = self;
            tokio::select! {
                report = poll_fn(|context| reports.poll_recv(context)) => match report? {
                    HttpBodyEnd::Ended => finished = true,
                    // Before any audio was decoded the decoder's verdict comes first: it may be a
                    // web page.
                    HttpBodyEnd::Broken(fault) if self.state.read().counts.packets == before.counts.packets => {
                        broken = Some((body_error(fault), LAST_POLLS));
                    }
                    HttpBodyEnd::Broken(fault) => return Some(body_error(fault)),
                },
                Some(needed) = poll_fn(|context| needs.poll_recv(context)) => {
                    self.needed = needed;
                    if !needed {
                        return None;
                    }
                }
                Some(title) = poll_fn(|context| icy_titles.poll_recv(context)) => self.set_title(title),
                Some(title) = poll_fn(|context| titles.poll_recv(context)) => self.set_title(title),
                _ = ticks.tick() => {
                    let state = match self.check_decoder(&before, &url) {
                        Ok(state) => state,
                        Err(failure) => return Some(failure),
                    };
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

    fn record_start(&self, about: RadioInfo) {
        self.totals.connects.fetch_add(1, Ordering::Relaxed);
        self.watch.change(|state| {
            state.phase = RadioPhase::Playing;
            (state.reason, state.title, state.is_permanent) = (None, None, false);
            state.retry_at = None;
            state.station_info = about;
            state.connects += 1;
        });
    }

    /// Reads the decoder's state, and publishes it.
    /// Reads the state of the decoder, which may not be able to decode what came from `url` after
    /// the state `before`.
    fn check_decoder(
        &mut self,
        before: &StreamState,
        url: &HttpUrl,
    ) -> Result<StreamState, RadioError> {
        let state = self.poll_decoder();
        // A server that answers without audio has not worked.
        if state.counts.packets != before.counts.packets {
            self.backoff.succeeded(SystemClock::now());
        }
        if state.body > before.body
            && let Some(error) = state.error
        {
            self.orders.try_send(HttpFeederCommand::Stop).ok();
            self.unplayable.insert(url.clone());
            return Err(RadioError::Undecodable(error.to_string()));
        }
        Ok(state)
    }

    fn poll_decoder(&mut self) -> StreamState {
        let state = *self.state.read();
        self.watch.change(|published| {
            published.info = state.info;
            published.resyncs = state.counts.resyncs;
            published.damaged = state.counts.damaged;
            published.codec_panics = state.counts.codec_panics;
        });
        state
    }

    fn set_title(&self, title: TrackMetadata) {
        self.watch.change(|state| state.title = Some(title));
    }

    /// Schedules the next attempt after a failure.
    fn handle_failure(&mut self, failure: &RadioError) {
        let now = SystemClock::now();
        // A server with ever-changing redirects must not keep us busy.
        let others = matches!(failure, RadioError::Undecodable(_))
            && self.unplayable.len() < MAX_PLAYLIST_ENTRIES;
        let nothing_else = matches!(failure, RadioError::NothingPlayable);
        if others {
            // Another entry of the playlist is tried at once; if there is none, that is reported
            // next.
        } else if failure.is_absence() {
            self.backoff.absent(now);
        } else if failure.is_permanent() {
            self.backoff.refused(now);
        } else {
            self.backoff.failed(now);
        }
        let is_permanent =
            failure.is_permanent() && !(failure.is_absence() && self.backoff.is_expected_back(now));
        if !others {
            self.unplayable.clear();
        }
        let retry_at = self.backoff.retry_at();
        if !nothing_else {
            self.totals.count_failure(failure);
        }
        self.watch.change(|state| {
            state.phase = RadioPhase::Waiting;
            state.failures += u64::from(!nothing_else);
            // "Cannot be played" is a better reason than "nothing else there".
            if !nothing_else || state.reason.is_none() {
                state.reason = Some(failure.to_string());
            }
            state.title = None;
            state.retry_at = Some(retry_at);
            state.is_permanent = is_permanent && !others;
        });
    }
}

/// What an address leads to.
enum Opened {
    Stream(Box<OpenedStream>),
    Hls(HlsAddress),
}

/// Fetches a stream, and counts the redirects on the way.
async fn open(
    fetcher: &StreamFetcher,
    url: &HttpUrl,
    unplayable: &HashSet<HttpUrl>,
    (watch, totals): (&RadioStatusHandle, &RadioCounters),
) -> Result<Opened, RadioError> {
    let mut redirected = || {
        watch.change(|state| state.redirects += 1);
        totals.redirects.fetch_add(1, Ordering::Relaxed);
    };
    match fetcher.open(url, unplayable, None, &mut redirected).await? {
        FetchResult::Stream(opened, stream) => {
            open_body(*opened, stream).map(|opened| Opened::Stream(Box::new(opened)))
        }
        FetchResult::Hls(address) => Ok(Opened::Hls(address)),
    }
}

/// The error of a body that broke off.
const fn body_error(fault: HttpBodyError) -> RadioError {
    match fault {
        HttpBodyError::Stalled => RadioError::Stalled,
        HttpBodyError::InvalidChunks => RadioError::InvalidChunks,
        HttpBodyError::Io(kind) => RadioError::Io(kind),
        _ => RadioError::HungUp,
    }
}

/// Waits until the station is gone.
async fn until_closed(orders: &Sender<HttpFeederCommand>) {
    while !orders.is_closed() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Interval at which the decoder's state is read.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Number of reads of the decoder's state after a body broke off before any audio.
const LAST_POLLS: u32 = 2;

/// Capacities of the queues of orders, reports and titles.
const MAX_ORDERS: usize = 4;
const MAX_REPORTS: usize = 4;
const MAX_TITLES: usize = 8;

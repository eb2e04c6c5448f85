//! Plays HLS: fetches what an [`HlsClient`] asks for, and passes segments to the feeder.

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use aulos_control::backend::{HlsSourceState, RadioPhase};
use aulos_core::Span;
use aulos_io::SystemClock;
use aulos_io::feed::{HttpFeederCommand, SegmentItem, SegmentQueue, StreamState, segment_channel};
use aulos_proto::http::HttpUrl;
use aulos_proto::titles::TrackMetadata;
use aulos_session::hls_source::{HeldMedia, HlsAddress, HlsClient, HlsInput, HlsOutput};
use aulos_session::radio::{RadioError, RadioInfo};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{POLL_INTERVAL, PlayEnd, RadioTask};

/// An HLS stream that is played.
struct HlsPlayback {
    /// The address of the playlist.
    url: HttpUrl,
    client: HlsClient,
    about: RadioInfo,
    fetching: Option<Pin<Box<dyn Future<Output = HlsInput> + Send>>>,
    /// There once the target duration is known.
    queue: Option<SegmentQueue>,
    /// What the queue has no room for.
    waiting: VecDeque<SegmentItem>,
    /// What was passed on so far.
    sent: HeldMedia,
    /// Titles, and the media before them.
    titles: VecDeque<(Span, TrackMetadata)>,
    has_ended: bool,
}

impl RadioTask {
    /// Plays the stream at `address` until it fails, ends, or is not needed any more.
    pub(super) async fn play_hls(&mut self, address: HlsAddress) -> PlayEnd {
        let about = RadioInfo { url: Some(address.url.to_string()), ..RadioInfo::default() };
        let url = address.url.clone();
        let client = HlsClient::new(address, self.variant, SystemClock::now());
        let mut playback = HlsPlayback {
            url,
            client,
            about,
            fetching: None,
            queue: None,
            waiting: VecDeque::new(),
            sent: HeldMedia::default(),
            titles: VecDeque::new(),
            has_ended: false,
        };
        let before = *self.state.read();
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(failure) = self.carry_out(&mut playback) {
                return PlayEnd::Failed(failure);
            }
            let timer = playback.client.poll_timeout();
            let pause = timer.map(|at| Duration::from(at.since(SystemClock::now())));
            let Self { titles, need_changes: needs, .. } = self;
            tokio::select! {
                input = async {
                    match &mut playback.fetching {
                        Some(fetching) => fetching.await,
                        None => pending().await,
                    }
                } => {
                    playback.fetching = None;
                    playback.client.handle_input(SystemClock::now(), input);
                }
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {
                    playback.client.handle_timeout(SystemClock::now());
                }
                Some(needed) = poll_fn(|context| needs.poll_recv(context)) => {
                    self.needed = needed;
                    if !needed {
                        return PlayEnd::NotNeeded;
                    }
                }
                Some(title) = poll_fn(|context| titles.poll_recv(context)) => self.set_title(title),
                _ = ticks.tick() => {
                    if let Some(end) = self.poll_playback(&mut playback, &before) {
                        return end;
                    }
                }
            }
        }
    }

    /// Does what the client asks for.
    fn carry_out(&self, playback: &mut HlsPlayback) -> Option<RadioError> {
        while let Some(output) = playback.client.poll_output() {
            match output {
                HlsOutput::Fetch(request) => {
                    let fetcher = Arc::clone(&self.resources);
                    let task = async move { fetcher.fetch_resource(&request).await };
                    playback.fetching = Some(Box::pin(task));
                }
                HlsOutput::Segment(segment) => {
                    if playback.queue.is_none() {
                        let (queue, feed) = segment_channel(playback.client.status().target);
                        let play = HttpFeederCommand::PlaySegments(Box::new(feed));
                        if self.orders.try_send(play).is_err() {
                            return Some(RadioError::Busy);
                        }
                        playback.queue = Some(queue);
                        self.record_start(playback.about.clone());
                    }
                    let sent = &mut playback.sent;
                    sent.media += segment.missing + segment.duration;
                    sent.bytes += segment.bytes.len() as u64;
                    sent.segments += 1;
                    playback.waiting.push_back(SegmentItem::Segment(segment));
                }
                HlsOutput::Title(title) => playback.titles.push_back((playback.sent.media, title)),
                HlsOutput::Ended => {
                    playback.has_ended = true;
                    playback.waiting.push_back(SegmentItem::End);
                }
                HlsOutput::Failed(error) => return Some(error),
            }
        }
        playback.pass_on();
        None
    }

    /// Reads the states of the decoder and of the feed, and publishes them.
    fn poll_playback(
        &mut self,
        playback: &mut HlsPlayback,
        before: &StreamState,
    ) -> Option<PlayEnd> {
        let now = SystemClock::now();
        let state = match self.check_decoder(before, &playback.url) {
            Ok(state) => state,
            Err(failure) => return Some(PlayEnd::Failed(failure)),
        };
        if let Some(queue) = &mut playback.queue {
            let feed = queue.state();
            let HeldMedia { media, bytes, segments } = playback.sent;
            let held = HeldMedia {
                media: media - feed.released,
                bytes: bytes.saturating_sub(feed.released_bytes),
                segments: segments.saturating_sub(feed.released_segments),
            };
            playback.client.handle_input(now, HlsInput::Held(held));
            while let Some((at, _)) = playback.titles.front()
                && *at <= feed.released
                && let Some((_, title)) = playback.titles.pop_front()
            {
                self.set_title(title);
            }
            let counts = playback.client.status();
            self.watch.change(|published| {
                let (reserve, dry_runs) = (held.media, feed.dry_runs);
                let pace_ppm = feed.pace_ppm;
                published.hls = Some(HlsSourceState { counts, reserve, dry_runs, pace_ppm });
            });
        }
        let is_over = playback.has_ended && playback.waiting.is_empty() && state.finished;
        if is_over {
            self.watch.change(|state| state.phase = RadioPhase::Finished);
        }
        (is_over || self.orders.is_closed()).then_some(PlayEnd::Finished)
    }
}

impl HlsPlayback {
    /// Passes on what the queue has room for.
    fn pass_on(&mut self) {
        let Some(queue) = &self.queue else { return };
        while let Some(item) = self.waiting.pop_front() {
            if let Err(item) = queue.push(item) {
                return self.waiting.push_front(item);
            }
        }
    }
}

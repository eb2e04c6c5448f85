//! The job of the codec pool that plays a playlist.

use core::fmt;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aulos_core::{Block, Db, Frames, Instant, Lufs, MediaTime, Span};
use aulos_engine::loudness::Loudness;
use aulos_engine::source::{BLOCK_SAMPLES, SourceItem};
use aulos_engine::standby::{StandbyHandle, StandbyRequest};
use aulos_io::{Job, JobStatus, SourcePath, SystemClock};
use aulos_rt::ring::{Consumer, Producer, ring};
use aulos_rt::{LatestReader, Pool};
use aulos_session::playlist::{PlaylistConfig, PlaylistQueue, TrackRef, UPCOMING};

use super::gain::{PlaylistLoudness, measured_gain, partly_measured_gain};
use super::mixer::{MixStatus, PlaylistMixer};
use super::status::{
    PlaylistHandle, PlaylistTrackInfo, SkippedFile, StatusPublisher, status_channel,
};
use super::track::PlaylistTrack;
use super::watch::WatchedList;
use crate::decode::{FileDecodeOptions, OpenError, RateAndLayout};
use crate::record::wall_clock;
use crate::source::FileMeter;

/// What a playlist plays, and how.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "configuration makes it")]
pub struct PlaylistOptions {
    /// A folder, or a list file (M3U, PLS, XSPF).
    pub path: SourcePath,
    /// A folder or list file with jingles.
    pub jingles: Option<SourcePath>,
    /// The order of the files.
    pub order: PlaylistConfig,
    /// How long two files overlap; zero for none, without a gap.
    pub crossfade: Span,
    /// How the files get the same loudness.
    pub loudness: PlaylistLoudness,
    /// That loudness.
    pub target: Lufs,
}

/// The ends of a new playlist.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "it is there to be taken apart")]
pub struct PlaylistParts {
    /// For the codec pool.
    pub source: PlaylistSource,
    /// For the station, as a source on demand.
    pub items: Consumer<SourceItem>,
    /// For status displays and commands.
    pub handle: PlaylistHandle,
}

/// A job of the codec pool: decodes the files of a playlist for as long as the station exists.
pub struct PlaylistSource {
    options: PlaylistOptions,
    format: RateAndLayout,
    queue: PlaylistQueue,
    tracks: WatchedList,
    jingles: Option<WatchedList>,
    mixer: PlaylistMixer,
    preparing: Option<PreparingTrack>,
    pool: Pool<Block>,
    items: Producer<SourceItem>,
    /// The frames of the blocks in the ring, the oldest first.
    in_ring: VecDeque<u64>,
    standby: Option<StandbyHandle>,
    publisher: StatusPublisher,
    current: Option<(PlaylistTrackInfo, u64)>,
    /// Files in a row that could not be opened, and when the next one is tried.
    failed: u32,
    retry_at: Instant,
    has_ended: bool,
    report: Option<SkipReport>,
}

/// Receives a file that was skipped, and why.
type SkipReport = Box<dyn FnMut(&Path, &str) + Send>;

/// A file that is measured before it is played.
struct PreparingTrack {
    track: PlaylistTrack,
    meter: Box<FileMeter>,
    result: LatestReader<Option<Loudness>>,
}

impl PlaylistSource {
    /// The job, the consumer for the station and the handle. Blocks have this rate and layout;
    /// `seed` determines the random order.
    #[must_use]
    #[allow(clippy::new_ret_no_self, reason = "it comes with its other ends")]
    pub fn new(options: PlaylistOptions, format: RateAndLayout, seed: u64) -> PlaylistParts {
        // The end mark needs a slot besides the blocks.
        let (items, consumer) = ring(PLAYLIST_BLOCKS + 1);
        let pool =
            Pool::new(PLAYLIST_BLOCKS, || Block::with_capacity(format.0, format.1, BLOCK_SAMPLES));
        let (publisher, handle) = status_channel();
        let source = Self {
            format,
            queue: PlaylistQueue::new(&options.order, seed),
            tracks: WatchedList::new(options.path.clone()),
            jingles: options.jingles.clone().map(WatchedList::new),
            mixer: PlaylistMixer::new(format, options.crossfade),
            preparing: None,
            pool,
            items,
            in_ring: VecDeque::with_capacity(PLAYLIST_BLOCKS),
            standby: None,
            publisher,
            current: None,
            failed: 0,
            retry_at: Instant::ZERO,
            has_ended: false,
            report: None,
            options,
        };
        PlaylistParts { source, items: consumer, handle }
    }

    /// Connects it to the station's stand-by control. In cold stand-by its files are closed; it
    /// continues with the next one.
    #[must_use]
    pub fn with_standby(mut self, standby: StandbyHandle) -> Self {
        self.standby = Some(standby);
        self
    }

    /// Calls `report` for each file that is skipped, with the reason. On a thread of the codec
    /// pool.
    #[must_use]
    pub fn with_report(mut self, report: impl FnMut(&Path, &str) + Send + 'static) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    fn update_lists(&mut self, now: Instant) {
        if let Some(numbers) = self.tracks.step(now) {
            let renumbered = |old: u32| numbers.get(old as usize).copied().flatten();
            self.queue.set_tracks(self.tracks.len(), renumbered);
        }
        if let Some(jingles) = &mut self.jingles
            && let Some(numbers) = jingles.step(now)
        {
            let renumbered = |old: u32| numbers.get(old as usize).copied().flatten();
            self.queue.set_jingles(jingles.len(), renumbered);
        }
    }

    /// Opens the next file when it is time, and measures it.
    fn prepare(&mut self, now: Instant) {
        if self.preparing.is_none() && self.mixer.wants_track(PREPARE_AHEAD) {
            for _ in 0..MAX_OPENS {
                if self.open_next(now) {
                    break;
                }
            }
        }
        if let Some(preparing) = &mut self.preparing
            && preparing.meter.step() == JobStatus::Done
            && let Some(PreparingTrack { mut track, mut result, .. }) = self.preparing.take()
        {
            let measured = result.read().unwrap_or(Loudness::NONE);
            track.set_gain(measured_gain(measured, self.options.target));
            self.mixer.set_next(track);
        }
    }

    /// The next file is needed before it has been measured; false if there is none.
    fn end_measurement(&mut self) -> bool {
        let Some(PreparingTrack { mut track, mut meter, .. }) = self.preparing.take() else {
            return false;
        };
        let measured = meter.take_partial().unwrap_or(Loudness::NONE);
        track.set_gain(partly_measured_gain(measured, self.options.target));
        self.mixer.set_next(track);
        true
    }

    /// Opens the next file; false if the one after it is to be tried at once.
    fn open_next(&mut self, now: Instant) -> bool {
        if now < self.retry_at {
            return true;
        }
        let Some(chosen) = self.queue.next(local_minute()) else { return true };
        let (list, number) = match (chosen, &self.jingles) {
            (TrackRef::Jingle(number), Some(jingles)) => (jingles, number),
            (TrackRef::Track(number) | TrackRef::Jingle(number), _) => (&self.tracks, number),
        };
        let Some(path) = list.path(number) else { return true };
        let is_jingle = matches!(chosen, TrackRef::Jingle(_));
        match PlaylistTrack::open(&path, is_jingle, self.format) {
            Ok(track) => {
                self.failed = 0;
                self.publisher.change(|status| status.played += 1);
                self.level(track, &path);
                true
            }
            Err(error) => {
                self.skipped(Arc::new(PathBuf::from(&*path)), error.to_string());
                self.failed += 1;
                if error == OpenError::NoSuchFile {
                    self.tracks.check_now();
                }
                // None can be opened: do not occupy the disk.
                if self.failed >= self.tracks.len().min(MAX_FAILED) {
                    (self.failed, self.retry_at) = (0, now + RETRY_PAUSE);
                    return true;
                }
                false
            }
        }
    }

    /// Sets the gain of a file, or begins to measure it.
    fn level(&mut self, mut track: PlaylistTrack, path: &SourcePath) {
        let PlaylistOptions { loudness, target, .. } = self.options;
        if let Some(gain) = loudness.tagged(path, target) {
            // Measured as one channel and played on both: twice the power.
            let both = track.is_mono() && self.format.1.channels() > 1;
            track.set_gain(if both { Db::new(gain.get() - MONO_ON_TWO_DB) } else { gain });
        } else if loudness.measures() {
            let shape = (self.format.1, false);
            let options = FileDecodeOptions::default();
            let (meter, result) = FileMeter::new(path.clone(), options, shape, LONGEST_MEASURED);
            self.preparing = Some(PreparingTrack { track, meter: Box::new(meter), result });
            return;
        }
        self.mixer.set_next(track);
    }

    fn skipped(&mut self, path: Arc<PathBuf>, reason: String) {
        if let Some(report) = &mut self.report {
            report(&path, &reason);
        }
        self.publisher.change(|status| {
            status.skipped += 1;
            status.last_skipped = Some(SkippedFile { path, reason });
        });
    }

    /// Fills the ring.
    fn decode(&mut self, now: Instant) {
        for _ in 0..PLAYLIST_BLOCKS {
            if self.items.free() < 2 {
                return;
            }
            self.prepare(now);
            let Some(mut block) = self.pool.take() else { return };
            block.reset(self.format.0, self.format.1);
            block.pts = MediaTime::ZERO + Frames(self.mixer.position());
            block.received = Instant::ZERO;
            let frames = BLOCK_SAMPLES / self.format.1.channels();
            block.resize(Frames::from(frames));
            let is_last = self.preparing.is_none() && self.tracks.is_read() && self.is_over();
            let (rendered, status) = self.mixer.render(block.samples_mut(), is_last);
            if let Some((path, error)) = self.mixer.take_failure() {
                self.skipped(path, error.to_string());
            }
            if rendered > 0 {
                block.resize(Frames::from(rendered));
                self.in_ring.push_back(rendered as u64);
                // There was room before.
                drop(self.items.push(SourceItem::Block(block)));
            }
            if status == MixStatus::NeedsTrack && self.end_measurement() {
                continue;
            }
            if status == MixStatus::NeedsTrack {
                if is_last && rendered == 0 && !self.has_ended {
                    self.has_ended = true;
                    drop(self.items.push(SourceItem::End));
                }
                return;
            }
        }
    }

    /// Whether the list has been played once and does not repeat.
    fn is_over(&self) -> bool {
        self.tracks.len() > 0 && self.queue.upcoming().next().is_none()
    }

    fn publish(&mut self) {
        // What the station has taken.
        let queued = self.items.capacity() - self.items.free();
        while self.in_ring.len() > queued {
            self.in_ring.pop_front();
        }
        let played = self.mixer.position() - self.in_ring.iter().sum::<u64>();
        let mut new_title = None;
        while let Some(start) = self.mixer.take_start(played) {
            new_title = start.title.or(new_title);
            self.current = Some((start.info, start.position));
        }
        let rate = self.format.0;
        let at = |start: u64| rate.span(Frames(played.saturating_sub(start)));
        let current = self.current.as_ref().map(|(info, start)| (info.clone(), at(*start)));
        let next = self.queue.upcoming().take(UPCOMING);
        let next = next.filter_map(|number| self.tracks.path(number)).map(|it| PathBuf::from(&*it));
        let next = next.collect();
        let problem = self.tracks.problem().or_else(|| {
            let jingles = self.jingles.as_ref().and_then(WatchedList::problem);
            jingles.map(|problem| format!("jingles: {problem}"))
        });
        self.publisher.change(|status| {
            status.files = self.tracks.len();
            status.title = new_title.or_else(|| status.title.take());
            (status.current, status.next, status.problem) = (current, next, problem);
        });
    }
}

impl Job for PlaylistSource {
    fn step(&mut self) -> JobStatus {
        if self.items.is_abandoned() {
            return JobStatus::Done;
        }
        self.step_at(SystemClock::now());
        JobStatus::Pending
    }
}

impl PlaylistSource {
    /// A step at this local time.
    pub(super) fn step_at(&mut self, now: Instant) {
        self.update_lists(now);
        let is_closed =
            self.standby.as_mut().is_some_and(|it| it.request() == StandbyRequest::Close);
        if is_closed {
            self.mixer.close();
            self.preparing = None;
        } else if !self.has_ended {
            if self.publisher.take_skips() {
                self.mixer.skip();
            }
            self.decode(now);
        }
        self.publish();
    }
}

impl fmt::Debug for PlaylistSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaylistSource").field("path", &self.options.path).finish_non_exhaustive()
    }
}

/// The local time in minutes since a midnight.
fn local_minute() -> i64 {
    let clock = wall_clock();
    (clock.utc.as_nanos() + clock.offset.as_nanos()).div_euclid(NANOS_PER_MINUTE)
}

const NANOS_PER_MINUTE: i64 = 60_000_000_000;

/// More than a second at 48 kHz stereo; the codec pool steps each job ten times per second.
const PLAYLIST_BLOCKS: usize = 16;

/// The next file is opened this long before the end of the one that plays: time to measure it, at
/// a hundred times its speed.
const PREPARE_AHEAD: Span = Span::from_secs(15);

/// The part of a file that is measured.
const LONGEST_MEASURED: Span = Span::from_secs(600);

/// Files that are opened in a step.
const MAX_OPENS: usize = 4;

/// After this many files in a row that cannot be opened, or the whole list, it waits.
const MAX_FAILED: u32 = 50;
const RETRY_PAUSE: Span = Span::from_secs(5);

/// The loudness of one channel on two loudspeakers, relative to one (ITU-R BS.1770-5).
const MONO_ON_TWO_DB: f64 = 3.01;

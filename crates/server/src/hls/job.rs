//! Makes the segments of a station, as a job of the codec pool: encoders allocate.

use std::sync::{Arc, Mutex, PoisonError};

use aulos_core::{Frames, MediaTime};
use aulos_engine::fanout::TimedChunk;
use aulos_engine::recorder::{RecordTapReader, WallClock};
use aulos_files::record::wall_clock;
use aulos_io::{Job, JobStatus};
use aulos_rt::ring::Consumer;
use aulos_session::hls::{ChunkFeed, HlsWindow, OutputGrid, SampleKind, Segmenter, SegmenterStats};

use super::counts::HlsCounts;
use super::title::HlsTitle;

/// Where the sound comes from.
pub(super) enum HlsFeed {
    /// The output of the station.
    Output(RecordTapReader, OutputGrid),
    /// Its chunks.
    Chunks(Consumer<TimedChunk>, ChunkFeed),
}

/// Makes segments.
pub(super) struct HlsJob {
    feed: HlsFeed,
    segmenter: Segmenter,
    window: Arc<Mutex<HlsWindow>>,
    title: HlsTitle,
    samples: Vec<f32>,
    counts: Arc<HlsCounts>,
    counted: SegmenterStats,
}

impl HlsJob {
    pub(super) fn new(
        feed: HlsFeed,
        segmenter: Segmenter,
        window: Arc<Mutex<HlsWindow>>,
        title: HlsTitle,
        counts: Arc<HlsCounts>,
    ) -> Self {
        let counted = SegmenterStats::default();
        Self { feed, segmenter, window, title, samples: Vec::new(), counts, counted }
    }

    fn take_sound(&mut self, clock: WallClock) {
        match &mut self.feed {
            HlsFeed::Output(tap, grid) => loop {
                self.samples.clear();
                let Some(run) = tap.read(&mut self.samples) else { return };
                let utc = clock.utc_at(run.timeline.local_at(run.pts)).as_nanos();
                let at = grid.place(&run, utc);
                self.segmenter.push(at, &self.samples, SampleKind::Genuine);
            },
            HlsFeed::Chunks(chunks, feed) => {
                while let Some(TimedChunk { chunk, timestamp, origin, .. }) = chunks.pop() {
                    let recorded = origin.map_or(timestamp, |origin| origin.recorded);
                    let utc = clock.utc_at(recorded).as_nanos();
                    let offset = feed.push(chunk.payload(), origin, utc, &mut self.segmenter);
                    if let Some(offset) = offset {
                        lock(&self.window).set_date_offset(offset);
                    }
                }
            }
        }
    }

    fn set_title(&mut self) {
        let Some(at) = self.segmenter.position() else { return };
        let Some(title) = self.title.take() else { return };
        let id = title_id(at);
        self.segmenter.set_title(id, at, &title);
        lock(&self.window).set_title(id, at, &title);
    }

    fn store(&mut self) {
        while let Some(set) = self.segmenter.poll_output() {
            lock(&self.window).push(set);
        }
    }

    fn count(&mut self) {
        let now = self.segmenter.stats();
        self.counts.add(self.counted, now);
        self.counted = now;
    }
}

impl Job for HlsJob {
    fn step(&mut self) -> JobStatus {
        let is_over = match &self.feed {
            HlsFeed::Output(tap, _) => tap.is_abandoned(),
            HlsFeed::Chunks(chunks, _) => chunks.is_abandoned(),
        };
        self.take_sound(wall_clock());
        self.store();
        self.set_title();
        self.count();
        if is_over { JobStatus::Done } else { JobStatus::Pending }
    }
}

/// The number of a title that begins at this place: each title has another one, also after a
/// restart of the server.
fn title_id(at: MediaTime) -> u32 {
    let [.., a, b, c, d] = (at.0 / TITLE_GRID.0).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// A poisoned lock is taken all the same: a change of a window is complete or not begun.
fn lock(window: &Mutex<HlsWindow>) -> std::sync::MutexGuard<'_, HlsWindow> {
    window.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The unit of a title's number: a tenth of a second at 48,000 Hz, so that numbers of different
/// titles differ for years.
const TITLE_GRID: Frames = Frames(4_800);

//! HLS out: the job that makes segments, the windows that clients get them from, and the sessions
//! of clients.
//!
//! ```text
//!  station -- RecordTap or chunks --> HlsJob (codec pool) --> HlsWindow <-- http::hls
//! ```
//!
//! A window outlives its station: one that is replaced with the same settings goes on in it, with
//! a discontinuity.

mod counts;
mod job;
mod publish;
pub(crate) mod sessions;
mod title;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aulos_config::{HlsSettings, StationSettings};
use aulos_control::backend::HlsTargetState;
use aulos_core::Span;
use aulos_engine::fanout::TimedChunk;
use aulos_engine::output_bus::BusOutput;
use aulos_engine::recorder::{TapPoint, record_tap};
use aulos_io::{Job, encoder};
use aulos_rt::ring::Consumer;
use aulos_session::hls::{ChunkFeed, HlsFormat, HlsWindow, OutputGrid, Segmenter, WindowConfig};

use crate::upload::UploadWorker;
use counts::HlsCounts;
use job::{HlsFeed, HlsJob};
use publish::Publications;
pub(crate) use title::HlsTitle;

/// The windows of all stations with HLS.
#[derive(Debug, Default)]
pub(crate) struct HlsTable {
    open: Mutex<HashMap<String, OpenWindow>>,
    counts: Arc<HlsCounts>,
}

/// A window and its copies.
#[derive(Debug)]
struct OpenWindow {
    window: Arc<Mutex<HlsWindow>>,
    publications: Publications,
}

/// HLS of a station that is being started.
pub(crate) struct HlsParts {
    /// For the station's output bus; none where its chunks are read.
    pub(crate) tap: Option<BusOutput>,
    /// For the codec pool.
    pub(crate) job: Box<dyn Job>,
    /// For its titles.
    pub(crate) title: HlsTitle,
}

impl HlsTable {
    /// The window of a station.
    pub(crate) fn window(&self, station: &str) -> Option<Arc<Mutex<HlsWindow>>> {
        self.lock().get(station).map(|open| Arc::clone(&open.window))
    }

    /// The state of each folder and storage to which HLS of a station is written.
    pub(crate) fn target_states(&self, station: &str) -> Vec<HlsTargetState> {
        self.lock().get(station).map_or_else(Vec::new, |open| open.publications.states())
    }

    /// Makes the parts of a station's HLS. `chunks` are those of a station that passes what another
    /// server sends ([`reads_chunks`]); uploads run on `worker`.
    ///
    /// # Errors
    /// When an encoder cannot be made, or a copy cannot be started.
    pub(crate) fn start(
        &self,
        station: &StationSettings,
        settings: &HlsSettings,
        chunks: Option<Consumer<TimedChunk>>,
        worker: &mut UploadWorker,
    ) -> io::Result<HlsParts> {
        // The titles of two servers are not set at the same sample.
        let has_events = chunks.is_none();
        let make = |format: &HlsFormat| {
            encoder::make_encoder(format.codec, format.spec, format.frame).ok()
        };
        let HlsSettings { renditions, segment, .. } = settings;
        let segmenter = Segmenter::new(renditions.clone(), *segment, has_events, make);
        let segmenter = segmenter.ok_or_else(|| io::Error::other("no encoder for HLS"))?;
        let window = self.open(&station.name, settings, worker)?;
        let chunk_feed = || ChunkFeed::new(station.codec.codec(), station.spec);
        let (feed, tap) = match chunks.and_then(|chunks| Some((chunks, chunk_feed()?))) {
            Some((chunks, feed)) => (HlsFeed::Chunks(chunks, feed), None),
            None => {
                let (rate, layout) = (station.spec.rate, station.spec.layout);
                let (tap, reader) = record_tap(TapPoint::Output, rate, layout, CAPACITY);
                (HlsFeed::Output(reader, OutputGrid::default()), Some(tap.into()))
            }
        };
        let title = HlsTitle::default();
        let job = HlsJob::new(feed, segmenter, window, title.clone(), Arc::clone(&self.counts));
        Ok(HlsParts { tap, job: Box::new(job), title })
    }

    /// Removes the window of a station without HLS.
    pub(crate) fn remove(&self, station: &str) {
        self.lock().remove(station);
    }

    /// Counters for the status; their names are stable.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 4] {
        self.counts.values()
    }

    fn open(
        &self,
        station: &str,
        settings: &HlsSettings,
        worker: &mut UploadWorker,
    ) -> io::Result<Arc<Mutex<HlsWindow>>> {
        let HlsSettings { renditions, segment, listed, paired, .. } = settings;
        let config = WindowConfig {
            formats: renditions.clone(),
            segment: *segment,
            listed: *listed,
            first_listed: if *paired { WindowConfig::MIN_LISTED } else { 1 },
        };
        let mut all = self.lock();
        if let Some(open) = all.get_mut(station) {
            let mut window = open.window.lock().unwrap_or_else(PoisonError::into_inner);
            if *window.config() == config {
                window.restart();
                drop(window);
                if !open.publications.matches(settings) {
                    open.publications =
                        Publications::start(station, settings, &open.window, worker)?;
                }
                return Ok(Arc::clone(&open.window));
            }
        }
        let window = HlsWindow::new(config).ok_or_else(|| io::Error::other("no init segment"))?;
        let window = Arc::new(Mutex::new(window));
        let publications = Publications::start(station, settings, &window, worker)?;
        let open = OpenWindow { window: Arc::clone(&window), publications };
        all.insert(station.to_owned(), open);
        Ok(window)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenWindow>> {
        // A poisoned lock is taken all the same: each change is a single step.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether HLS of this station is made from its chunks, which another server has encoded.
pub(crate) fn reads_chunks(station: &StationSettings) -> bool {
    let passes = station.sources.iter().any(|source| source.config.is_passed());
    let codec = station.codec.codec();
    station.hls.is_some() && passes && ChunkFeed::new(codec, station.spec).is_some()
}

/// Twenty times the interval at which the codec pool visits its jobs.
const CAPACITY: Span = Span::from_secs(2);

//! Recorders of stations, as far as the audio knows of them.
//!
//! A recorder outlives the station that it listens to: when that begins anew, it gets another spool
//! and goes on in a new file. One whose folder cannot be had is tried again, because a disk that is
//! not there at the start is mounted later, and the station must not wait for it.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use aulos_config::{RecorderSettings, Station};
use aulos_core::{Instant, MediaTime, Span};
use aulos_engine::output_bus::OutputBusHandle;
use aulos_engine::recorder::{
    CommandError, CommandTime, DEFAULT_CAPACITY, RecordTapReader, RecorderCommand, TapPoint,
    record_tap,
};
use aulos_io::SystemClock;
use aulos_io::record::{Deck, Event, Heir, MarkerRequest, Recorders, Wish};
use aulos_rt::channel::Receiver;

use super::{AudioState, take_matching};
use crate::recording::{Happened, Recorded, RecorderState};
use crate::upload::{UploadWorker, Uploader};

/// What all recorders of a house share.
#[derive(Debug, Default)]
pub(super) struct RecorderManager {
    /// None before the first recorder: a house that records nothing has no thread for it.
    recorders: Option<(Recorders, Receiver<Event>)>,
    /// Of which station each recorder is or was, and where its files go.
    known: HashMap<String, KnownRecorder>,
    /// Where uploads run.
    upload_worker: UploadWorker,
}

#[derive(Debug)]
struct KnownRecorder {
    station: String,
    uploader: Option<Uploader>,
}

/// A recorder of a station that runs.
#[derive(Debug)]
pub(super) struct StationRecorder {
    config: RecorderSettings,
    slot: RecorderSlot,
}

/// What it is, named by what is waited for.
#[derive(Debug)]
enum RecorderSlot {
    /// Nothing.
    Open(Deck),
    /// Another try.
    Unavailable { trouble: String, retry_at: Instant },
}

/// Begins every recorder of a station that has begun.
pub(super) fn start(number: usize, inner: &mut AudioState) {
    let wanted = inner.station(number).map(|running| running.config.records.clone());
    change(inner, number, &wanted.unwrap_or_default());
}

/// Lets a station that runs be recorded by these from now on; what is the same goes on.
pub(super) fn change(inner: &mut AudioState, number: usize, wanted: &[RecorderSettings]) {
    let Some(running) = inner.station(number) else { return };
    running.config.records = wanted.to_vec();
    let mut old = std::mem::take(&mut running.recordings);
    let mut all = Vec::new();
    for record in wanted {
        let kept = take_matching(&mut old, |one| one.config.is_continued_by(record));
        all.push(match kept {
            Some(mut kept) => {
                if let RecorderSlot::Open(deck) = &kept.slot {
                    deck.set_rotation(record.keeping.rotation);
                    deck.set_retention(record.retention);
                }
                kept.config = record.clone();
                kept
            }
            None => {
                let tape = open_slot(record, number, inner);
                StationRecorder { config: record.clone(), slot: tape }
            }
        });
    }
    if let Some(running) = inner.station(number) {
        running.recordings = all;
    }
}

/// Lets the recorders of a station go on with the one that has taken its place.
pub(super) fn reattach(inner: &mut AudioState, number: usize, old: Vec<StationRecorder>) {
    let Some(running) = inner.station(number) else { return };
    let config = running.config.clone();
    for recording in &old {
        if let RecorderSlot::Open(deck) = &recording.slot
            && config.records.iter().any(|record| recording.config.is_continued_by(record))
            && let Some(spool) = open_tap(&mut running.output_bus, &config, recording.config.source)
        {
            deck.replace(spool);
        }
    }
    running.recordings = old;
    change(inner, number, &config.records);
}

/// Tries again what could not be begun.
pub(super) fn retry(inner: &mut AudioState) {
    let now = SystemClock::now();
    for number in 0..inner.stations.len() {
        let Some(running) = inner.station(number) else { continue };
        let due = running.recordings.iter().position(
            |one| matches!(one.slot, RecorderSlot::Unavailable { retry_at, .. } if now >= retry_at),
        );
        let Some(due) = due else { continue };
        let record = running.recordings[due].config.clone();
        let tape = open_slot(&record, number, inner);
        if let Some(one) = inner.station(number).and_then(|running| running.recordings.get_mut(due))
        {
            one.slot = tape;
        }
    }
}

/// Tells a recorder to do something; gives the exact frame of the station at which it does.
pub(super) fn send_command(
    inner: &mut AudioState,
    (number, recorder): (usize, usize),
    command: RecorderCommand,
    when: CommandTime,
) -> Result<Option<MediaTime>, String> {
    let running = inner.station(number).ok_or("the station is gone")?;
    match running.recordings.get(recorder).map(|recording| &recording.slot) {
        None => Err("the recorder is gone".to_owned()),
        Some(RecorderSlot::Unavailable { trouble, .. }) => Err(trouble.clone()),
        Some(RecorderSlot::Open(deck)) => {
            deck.tell(command, when).map_err(|why: CommandError| why.to_string())
        }
    }
}

/// Asks a recorder for a marker.
pub(super) fn mark(
    inner: &mut AudioState,
    (number, recorder): (usize, usize),
    label: &str,
    when: CommandTime,
) -> Result<Arc<MarkerRequest>, String> {
    let running = inner.station(number).ok_or("the station is gone")?;
    match running.recordings.get(recorder).map(|recording| &recording.slot) {
        None => Err("the recorder is gone".to_owned()),
        Some(RecorderSlot::Unavailable { trouble, .. }) => Err(trouble.clone()),
        Some(RecorderSlot::Open(deck)) => deck.mark(label, when).map_err(|why| why.to_string()),
    }
}

/// What has happened to recorders since the last time.
pub(super) fn take_events(inner: &mut AudioState) -> Vec<Recorded> {
    let mut all = Vec::new();
    let studio = &mut inner.recorder_manager;
    let Some((_, events)) = &mut studio.recorders else { return all };
    while let Ok(event) = events.try_recv() {
        let Some(known) = studio.known.get(&*event.recorder) else { continue };
        let (station, recorder) = (known.station.clone(), event.recorder.to_string());
        all.push(Recorded { station, recorder, what: Happened::Recorder(event.what) });
    }
    for (recorder, known) in &studio.known {
        for event in known.uploader.iter().flat_map(Uploader::take_events) {
            let (station, recorder) = (known.station.clone(), recorder.clone());
            all.push(Recorded { station, recorder, what: Happened::Upload(event) });
        }
    }
    all
}

/// Ends every recorder: what has been heard is written, as far as that takes no longer than `limit`.
pub(super) fn stop(inner: &mut AudioState, limit: Span) {
    for running in inner.stations.iter_mut().flatten() {
        running.recordings.clear();
    }
    if let Some((mut recorders, _events)) = inner.recorder_manager.recorders.take() {
        for name in recorders.stop(limit) {
            tracing::error!(recorder = name, "the recording could not be written to its end");
        }
    }
}

impl StationRecorder {
    pub(super) fn status(&self, studio: &RecorderManager) -> RecorderState {
        let state = match &self.slot {
            RecorderSlot::Open(deck) => RecorderState::from(deck.status()),
            RecorderSlot::Unavailable { trouble, .. } => {
                RecorderState { trouble: Some(trouble.clone()), ..RecorderState::default() }
            }
        };
        let uploader =
            studio.known.get(&self.config.name).and_then(|known| known.uploader.as_ref());
        RecorderState { upload: uploader.map(Uploader::state), ..state }
    }
}

fn open_slot(record: &RecorderSettings, number: usize, inner: &mut AudioState) -> RecorderSlot {
    match open_recorder(record, number, inner) {
        Ok(deck) => {
            if record.start {
                // It has just begun, so it is idle.
                let _ = deck.tell(RecorderCommand::Start, CommandTime::Now);
            }
            RecorderSlot::Open(deck)
        }
        Err(error) => {
            let trouble = format!("cannot record to {}: {error}", record.dir.display());
            tracing::warn!(recorder = record.name, "{trouble}");
            RecorderSlot::Unavailable { trouble, retry_at: SystemClock::now() + RETRY_INTERVAL }
        }
    }
}

fn open_recorder(
    record: &RecorderSettings,
    number: usize,
    inner: &mut AudioState,
) -> Result<Deck, String> {
    if inner.recorder_manager.recorders.is_none() {
        inner.recorder_manager.recorders = Some(Recorders::start().map_err(error_text)?);
    }
    let uploader = match &record.upload {
        None => None,
        Some(upload) => {
            let spool = record.dir.join(UPLOAD_DIR).join(&record.name);
            let (uploader, chore) =
                Uploader::new(upload, &record.dir, &spool).map_err(error_text)?;
            inner.recorder_manager.upload_worker.spawn(chore).map_err(error_text)?;
            Some(uploader)
        }
    };
    let running = inner.station(number).ok_or("the station is gone")?;
    let station = running.config.name.clone();
    let spool = open_tap(&mut running.output_bus, &running.config, record.source);
    let spool = spool.ok_or("the station is busy")?;
    let wish = Wish {
        name: record.name.clone(),
        folder: record.dir.clone(),
        pattern: record.pattern.clone(),
        format: record.format,
        config: record.keeping,
        retention: record.retention,
        safety: record.safety,
        sidecar: true,
        heir: uploader.clone().map(|uploader| Arc::new(UploadObserver(uploader)) as Arc<dyn Heir>),
    };
    let known = KnownRecorder { station, uploader };
    let studio = &mut inner.recorder_manager;
    let Some((recorders, _)) = &mut studio.recorders else { return Err(String::new()) };
    let deck = recorders.add(wish, spool).map_err(|error| error.to_string())?;
    studio.known.insert(record.name.clone(), known);
    Ok(deck)
}

fn error_text(error: io::Error) -> String {
    error.to_string()
}

/// Carries complete files away.
#[derive(Debug)]
struct UploadObserver(Uploader);

impl Heir for UploadObserver {
    fn completes(&self, file: &Path, sidecar: &Path) {
        if let Err(error) = self.0.add(file, Some(sidecar)) {
            tracing::error!(file = %file.display(), %error, "a recording will not be uploaded");
        }
    }

    fn needs(&self, file: &Path) -> bool {
        self.0.is_waiting(file)
    }
}

/// An ear on a station; none while that is behind with its orders.
fn open_tap(
    outlets: &mut OutputBusHandle,
    config: &Station,
    source: Option<usize>,
) -> Option<RecordTapReader> {
    let side = source.map_or(TapPoint::Output, TapPoint::Input);
    let (pickup, spool) = record_tap(side, config.spec.rate, config.spec.layout, DEFAULT_CAPACITY);
    outlets.add(pickup).map(|_| spool)
}

/// A disk that is not there is looked for so often.
const RETRY_INTERVAL: Span = Span::from_secs(5);

/// Below a recorder's folder: what is still to be uploaded.
const UPLOAD_DIR: &str = ".upload";

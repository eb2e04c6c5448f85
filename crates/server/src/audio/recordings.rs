//! Recorders of stations, on the audio side.
//!
//! A recorder outlives the station that it records: when the station is replaced, the recorder gets
//! a new tap and continues in a new file. If its folder cannot be opened, the recorder retries,
//! because a disk that is missing at startup may be mounted later; the station does not wait for
//! it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use aulos_config::{RecorderSettings, StationSettings};
use aulos_control::backend::{RecordingEventKind, StationRecorderEvent};
use aulos_core::{Instant, MediaTime, Span};
use aulos_engine::recorder::{
    CommandError, CommandTime, DEFAULT_CAPACITY, RecordTapReader, RecorderCommand, TapPoint,
    record_tap,
};
use aulos_engine::station::StationHandle;
use aulos_files::logger::LoggerIndex;
use aulos_files::record::{
    CompletionObserver, FileOperation, MarkerRequest, RecorderEventKind, RecorderFault,
    RecorderHandle, RecorderService, RecordingConfig,
};
use aulos_io::SystemClock;

use super::log_watch::LogWatch;
use super::state::{AudioState, take_matching};
use super::station_recorder::{KnownRecorder, RecorderSlot, StationRecorder};
use crate::upload::Uploader;

/// Starts every recorder of a new station.
pub(super) fn start(number: usize, inner: &mut AudioState) {
    let wanted = inner.station(number).map(|running| running.config.records.clone());
    change(inner, number, &wanted.unwrap_or_default());
}

/// Replaces the recorders of a running station; unchanged ones continue.
pub(super) fn change(inner: &mut AudioState, number: usize, wanted: &[RecorderSettings]) {
    let Some(running) = inner.station(number) else { return };
    running.config.records = wanted.to_vec();
    let mut old = std::mem::take(&mut running.recordings);
    let mut all = Vec::new();
    for record in wanted {
        let kept = take_matching(&mut old, |one| one.config.is_continued_by(record));
        all.push(match kept {
            Some(mut kept) => {
                if let RecorderSlot::Open(handle) = &kept.slot {
                    handle.set_rotation(record.recording.recorder.rotation);
                    handle.set_retention(record.recording.retention);
                }
                kept.config = record.clone();
                kept
            }
            None => {
                let slot = open_slot(record, number, inner, None);
                StationRecorder { config: record.clone(), slot }
            }
        });
    }
    if let Some(running) = inner.station(number) {
        running.recordings = all;
    }
}

/// Moves the recorders of a replaced station to its successor.
pub(super) fn reattach(inner: &mut AudioState, number: usize, old: Vec<StationRecorder>) {
    let Some(running) = inner.station(number) else { return };
    let config = running.config.clone();
    for recording in &old {
        if let RecorderSlot::Open(handle) = &recording.slot
            && config.records.iter().any(|record| recording.config.is_continued_by(record))
            && let Some(tap_reader) =
                open_tap(&mut running.handle, &config, recording.config.source)
        {
            handle.replace_tap(tap_reader);
        }
    }
    running.recordings = old;
    change(inner, number, &config.records);
}

/// Opens recorders again whose retry time has come.
pub(super) fn retry(inner: &mut AudioState) {
    let now = SystemClock::now();
    for number in 0..inner.stations.len() {
        let Some(running) = inner.station(number) else { continue };
        let due = running.recordings.iter().enumerate().find_map(|(at, one)| match one.slot {
            RecorderSlot::Unavailable { retry_at, since, .. } if now >= retry_at => {
                Some((at, one.config.clone(), since))
            }
            _ => None,
        });
        let Some((due, record, since)) = due else { continue };
        let slot = open_slot(&record, number, inner, Some(since));
        if let Some(one) = inner.station(number).and_then(|running| running.recordings.get_mut(due))
        {
            one.slot = slot;
        }
    }
}

/// Sends a command to a recorder; returns the frame of the station at which it takes effect.
pub(super) fn send_command(
    inner: &mut AudioState,
    (number, recorder): (usize, usize),
    command: RecorderCommand,
    when: CommandTime,
) -> Result<Option<MediaTime>, String> {
    let running = inner.station(number).ok_or("the station has been removed")?;
    match running.recordings.get(recorder).map(|recording| &recording.slot) {
        None => Err("the recorder has been removed".to_owned()),
        Some(RecorderSlot::Unavailable { trouble, .. }) => Err(trouble.clone()),
        Some(RecorderSlot::Open(handle)) => {
            handle.command(command, when).map_err(|why: CommandError| why.to_string())
        }
    }
}

/// Requests a marker from a recorder.
pub(super) fn mark(
    inner: &mut AudioState,
    (number, recorder): (usize, usize),
    label: &str,
    when: CommandTime,
) -> Result<Arc<MarkerRequest>, String> {
    let running = inner.station(number).ok_or("the station has been removed")?;
    match running.recordings.get(recorder).map(|recording| &recording.slot) {
        None => Err("the recorder has been removed".to_owned()),
        Some(RecorderSlot::Unavailable { trouble, .. }) => Err(trouble.clone()),
        Some(RecorderSlot::Open(handle)) => {
            handle.add_marker(label, when).map_err(|why| why.to_string())
        }
    }
}

/// Takes the events of all recorders since the last call.
pub(super) fn take_events(inner: &mut AudioState) -> Vec<StationRecorderEvent> {
    let manager = &mut inner.recorder_manager;
    let mut all = std::mem::take(&mut manager.events);
    let Some((_, events)) = &mut manager.recorders else { return all };
    while let Ok(event) = events.try_recv() {
        let Some(known) = manager.known.get_mut(&*event.recorder) else { continue };
        let gap = known.logger.as_mut().and_then(|log| log.handle_event(&event));
        let (station, recorder) = (known.station.clone(), event.recorder.to_string());
        for kind in [Some(RecordingEventKind::Recorder(event.kind)), gap].into_iter().flatten() {
            let (station, recorder) = (station.clone(), recorder.clone());
            all.push(StationRecorderEvent { station, recorder, kind });
        }
    }
    let now = SystemClock::now();
    for (recorder, known) in &mut manager.known {
        for kind in known.logger.as_mut().map(|log| log.poll(now)).unwrap_or_default() {
            let (station, recorder) = (known.station.clone(), recorder.clone());
            all.push(StationRecorderEvent { station, recorder, kind });
        }
        for event in known.uploader.iter().flat_map(Uploader::take_events) {
            let (station, recorder) = (known.station.clone(), recorder.clone());
            all.push(StationRecorderEvent {
                station,
                recorder,
                kind: RecordingEventKind::Upload(event),
            });
        }
    }
    all
}

/// Stops every recorder; completes their files, as long as one is completed within `limit`.
pub(super) fn stop(inner: &mut AudioState, limit: Span) {
    for running in inner.stations.iter_mut().flatten() {
        running.recordings.clear();
    }
    if let Some((mut recorders, _events)) = inner.recorder_manager.recorders.take() {
        for name in recorders.stop(limit) {
            tracing::error!(
                recorder = name,
                "the end of the recording could not be written; its file ends with .part and is \
                 completed at the next start"
            );
        }
    }
}

/// `since` is when the folder was found to be unusable before.
fn open_slot(
    record: &RecorderSettings,
    number: usize,
    inner: &mut AudioState,
    since: Option<Instant>,
) -> RecorderSlot {
    let now = SystemClock::now();
    match open_recorder(record, number, inner, since.map(|since| now - since)) {
        Ok(handle) => {
            if record.start {
                // A new recorder is idle, so the command cannot be refused.
                let _ = handle.command(RecorderCommand::Start, CommandTime::Now);
            }
            if since.is_some() {
                add_event(inner, number, record, RecorderEventKind::Recovered);
            }
            RecorderSlot::Open(handle)
        }
        Err(error) => {
            let RecordingConfig { folder, name, .. } = &record.recording;
            let trouble = format!("cannot record to {}: {error}", folder.display());
            if since.is_none() {
                tracing::warn!(recorder = name, dir = %folder.display(), %error, "cannot record");
                let (operation, path) = (FileOperation::Create, folder.clone());
                let fault =
                    RecorderFault { operation, path, error: Arc::new(io::Error::other(error)) };
                add_event(inner, number, record, RecorderEventKind::Failed(fault));
            }
            let (retry_at, since) = (now + RETRY_INTERVAL, since.unwrap_or(now));
            RecorderSlot::Unavailable { trouble, retry_at, since }
        }
    }
}

/// Adds an event of a recorder that has no thread.
fn add_event(
    inner: &mut AudioState,
    number: usize,
    record: &RecorderSettings,
    kind: RecorderEventKind,
) {
    let Some(station) = inner.station(number).map(|running| running.config.name.clone()) else {
        return;
    };
    let (recorder, kind) = (record.recording.name.clone(), RecordingEventKind::Recorder(kind));
    inner.recorder_manager.events.push(StationRecorderEvent { station, recorder, kind });
}

fn open_recorder(
    record: &RecorderSettings,
    number: usize,
    inner: &mut AudioState,
    waited: Option<Span>,
) -> Result<RecorderHandle, String> {
    if inner.recorder_manager.recorders.is_none() {
        inner.recorder_manager.recorders = Some(RecorderService::start().map_err(error_text)?);
    }
    let uploader = match &record.upload {
        None => None,
        Some(upload) => {
            let RecordingConfig { folder, name, .. } = &record.recording;
            let upload_dir = folder.join(UPLOAD_DIR).join(name);
            let (uploader, task) =
                Uploader::new(upload, folder, &upload_dir).map_err(error_text)?;
            inner.recorder_manager.upload_worker.spawn(task).map_err(error_text)?;
            Some(uploader)
        }
    };
    let running = inner.station(number).ok_or("the station has been removed")?;
    let station = running.config.name.clone();
    let tap_reader = open_tap(&mut running.handle, &running.config, record.source);
    let tap_reader =
        tap_reader.ok_or("the station has no free slot for a recorder; try again later")?;
    let logger = record.is_logger.then(|| Arc::new(logger_index(&record.recording)));
    let upload = uploader.clone().map(UploadObserver);
    let observers = [
        upload.map(|upload| Arc::new(upload) as Arc<dyn CompletionObserver>),
        logger.clone().map(|index| index as Arc<dyn CompletionObserver>),
    ];
    let observers = observers.into_iter().flatten().collect();
    let logger = logger.map(|index| LogWatch::new(index, waited));
    let known = KnownRecorder { station, uploader, logger };
    let manager = &mut inner.recorder_manager;
    let Some((recorders, _)) = &mut manager.recorders else { return Err(String::new()) };
    let handle = recorders
        .add(RecordingConfig { waited, ..record.recording.clone() }, observers, tap_reader)
        .map_err(|error| error.to_string())?;
    manager.known.insert(record.recording.name.clone(), known);
    Ok(handle)
}

/// The index of a log, whose errors are logged.
fn logger_index(recording: &RecordingConfig) -> LoggerIndex {
    let (name, folder) = (recording.name.clone(), recording.folder.display().to_string());
    LoggerIndex::new(&recording.folder, &recording.name, move |error| {
        tracing::error!(
            recorder = name,
            dir = folder,
            %error,
            "the index of the log cannot be written; it is completed with the next file"
        );
    })
}

fn error_text(error: io::Error) -> String {
    error.to_string()
}

/// Queues completed files for upload.
#[derive(Debug)]
struct UploadObserver(Uploader);

impl CompletionObserver for UploadObserver {
    fn notify_complete(&self, file: &Path, sidecar: &Path) {
        if let Err(error) = self.0.add(file, Some(sidecar)) {
            tracing::error!(file = %file.display(), %error, "a recording cannot be queued for upload");
        }
    }

    fn is_needed(&self, file: &Path) -> bool {
        self.0.is_waiting(file)
    }
}

/// Adds a record tap to a station; none while it has no free slot.
fn open_tap(
    handle: &mut StationHandle,
    config: &StationSettings,
    source: Option<usize>,
) -> Option<RecordTapReader> {
    let side = source.map_or(TapPoint::Output, TapPoint::Input);
    let (tap, tap_reader) =
        record_tap(side, config.spec.rate, config.spec.layout, DEFAULT_CAPACITY);
    handle.add_output(tap).ok().map(|_| tap_reader)
}

/// Time between two attempts to open a recorder.
const RETRY_INTERVAL: Span = Span::from_secs(5);

/// The upload journal, in a subfolder of the recorder's folder.
const UPLOAD_DIR: &str = ".upload";

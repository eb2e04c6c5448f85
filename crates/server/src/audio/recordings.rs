//! Recorders of stations, as far as the audio knows of them.
//!
//! A recorder outlives the station that it listens to: when that begins anew, it gets another spool
//! and goes on in a new file. One whose folder cannot be had is tried again, because a disk that is
//! not there at the start is mounted later, and the station must not wait for it.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use aulos_config::{Record, Station};
use aulos_core::{Instant, MediaTime, Span};
use aulos_engine::outlet::Outlets;
use aulos_engine::recorder::{Command, DEFAULT_ROOM, Refused, Side, Spool, When, pickup};
use aulos_io::SystemClock;
use aulos_io::record::{Deck, Event, Heir, Recorders, Wish};
use aulos_rt::channel::Receiver;

use super::{Inner, take_same};
use crate::recording::{Happened, Recorded, RecorderState};
use crate::upload::{Porter, Uploader};

/// What all recorders of a house share.
#[derive(Debug, Default)]
pub(super) struct Studio {
    /// None before the first recorder: a house that records nothing has no thread for it.
    recorders: Option<(Recorders, Receiver<Event>)>,
    /// Of which station each recorder is or was, and where its files go.
    known: HashMap<String, Known>,
    /// Where uploads run.
    porter: Porter,
}

#[derive(Debug)]
struct Known {
    station: String,
    uploader: Option<Uploader>,
}

/// A recorder of a station that runs.
#[derive(Debug)]
pub(super) struct Recording {
    config: Record,
    tape: Tape,
}

/// What it is, named by what is waited for.
#[derive(Debug)]
enum Tape {
    /// Nothing.
    Deck(Deck),
    /// Another try.
    Missing { trouble: String, retry_at: Instant },
}

/// Begins every recorder of a station that has begun.
pub(super) fn start(number: usize, inner: &mut Inner) {
    let wanted = inner.station(number).map(|running| running.config.records.clone());
    change(inner, number, &wanted.unwrap_or_default());
}

/// Lets a station that runs be recorded by these from now on; what is the same goes on.
pub(super) fn change(inner: &mut Inner, number: usize, wanted: &[Record]) {
    let Some(running) = inner.station(number) else { return };
    running.config.records = wanted.to_vec();
    let mut old = std::mem::take(&mut running.recordings);
    let mut all = Vec::new();
    for record in wanted {
        let kept = take_same(&mut old, |one| one.config.is_recorded_as(record));
        all.push(match kept {
            Some(mut kept) => {
                if let Tape::Deck(deck) = &kept.tape {
                    deck.set_rotation(record.keeping.rotation);
                    deck.set_retention(record.retention);
                }
                kept.config = record.clone();
                kept
            }
            None => {
                let tape = begin(record, number, inner);
                Recording { config: record.clone(), tape }
            }
        });
    }
    if let Some(running) = inner.station(number) {
        running.recordings = all;
    }
}

/// Lets the recorders of a station go on with the one that has taken its place.
pub(super) fn take_over(inner: &mut Inner, number: usize, old: Vec<Recording>) {
    let Some(running) = inner.station(number) else { return };
    let config = running.config.clone();
    for recording in &old {
        if let Tape::Deck(deck) = &recording.tape
            && config.records.iter().any(|record| recording.config.is_recorded_as(record))
            && let Some(spool) = listen(&mut running.outlets, &config, recording.config.source)
        {
            deck.replace(spool);
        }
    }
    running.recordings = old;
    change(inner, number, &config.records);
}

/// Tries again what could not be begun.
pub(super) fn retry(inner: &mut Inner) {
    let now = SystemClock::now();
    for number in 0..inner.stations.len() {
        let Some(running) = inner.station(number) else { continue };
        let due = running
            .recordings
            .iter()
            .position(|one| matches!(one.tape, Tape::Missing { retry_at, .. } if now >= retry_at));
        let Some(due) = due else { continue };
        let record = running.recordings[due].config.clone();
        let tape = begin(&record, number, inner);
        if let Some(one) = inner.station(number).and_then(|running| running.recordings.get_mut(due))
        {
            one.tape = tape;
        }
    }
}

/// Tells a recorder to do something; gives the exact frame of the station at which it does.
pub(super) fn tell(
    inner: &mut Inner,
    (number, recorder): (usize, usize),
    command: Command,
    when: When,
) -> Result<Option<MediaTime>, String> {
    let running = inner.station(number).ok_or("the station is gone")?;
    match running.recordings.get(recorder).map(|recording| &recording.tape) {
        None => Err("the recorder is gone".to_owned()),
        Some(Tape::Missing { trouble, .. }) => Err(trouble.clone()),
        Some(Tape::Deck(deck)) => deck.tell(command, when).map_err(|why: Refused| why.to_string()),
    }
}

/// What has happened to recorders since the last time.
pub(super) fn events(inner: &mut Inner) -> Vec<Recorded> {
    let mut all = Vec::new();
    let studio = &mut inner.studio;
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
pub(super) fn stop(inner: &mut Inner, limit: Span) {
    for running in inner.stations.iter_mut().flatten() {
        running.recordings.clear();
    }
    if let Some((mut recorders, _events)) = inner.studio.recorders.take() {
        for name in recorders.stop(limit) {
            tracing::error!(recorder = name, "the recording could not be written to its end");
        }
    }
}

impl Recording {
    pub(super) fn status(&self, studio: &Studio) -> RecorderState {
        let state = match &self.tape {
            Tape::Deck(deck) => RecorderState::from(deck.status()),
            Tape::Missing { trouble, .. } => {
                RecorderState { trouble: Some(trouble.clone()), ..RecorderState::default() }
            }
        };
        let uploader =
            studio.known.get(&self.config.name).and_then(|known| known.uploader.as_ref());
        RecorderState { upload: uploader.map(Uploader::state), ..state }
    }
}

fn begin(record: &Record, number: usize, inner: &mut Inner) -> Tape {
    match open(record, number, inner) {
        Ok(deck) => {
            if record.start {
                // It has just begun, so it is idle.
                let _ = deck.tell(Command::Start, When::Now);
            }
            Tape::Deck(deck)
        }
        Err(error) => {
            let trouble = format!("cannot record to {}: {error}", record.dir.display());
            tracing::warn!(recorder = record.name, "{trouble}");
            Tape::Missing { trouble, retry_at: SystemClock::now() + RETRY }
        }
    }
}

fn open(record: &Record, number: usize, inner: &mut Inner) -> Result<Deck, String> {
    if inner.studio.recorders.is_none() {
        inner.studio.recorders = Some(Recorders::start().map_err(said)?);
    }
    let uploader = match &record.upload {
        None => None,
        Some(upload) => {
            let spool = record.dir.join(SPOOL).join(&record.name);
            let (uploader, chore) = Uploader::new(upload, &record.dir, &spool).map_err(said)?;
            inner.studio.porter.run(chore).map_err(said)?;
            Some(uploader)
        }
    };
    let running = inner.station(number).ok_or("the station is gone")?;
    let station = running.config.name.clone();
    let spool = listen(&mut running.outlets, &running.config, record.source);
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
        heir: uploader.clone().map(|uploader| Arc::new(Carrier(uploader)) as Arc<dyn Heir>),
    };
    let known = Known { station, uploader };
    let studio = &mut inner.studio;
    let Some((recorders, _)) = &mut studio.recorders else { return Err(String::new()) };
    let deck = recorders.add(wish, spool).map_err(|error| error.to_string())?;
    studio.known.insert(record.name.clone(), known);
    Ok(deck)
}

fn said(error: io::Error) -> String {
    error.to_string()
}

/// Carries complete files away.
#[derive(Debug)]
struct Carrier(Uploader);

impl Heir for Carrier {
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
fn listen(outlets: &mut Outlets, config: &Station, source: Option<usize>) -> Option<Spool> {
    let side = source.map_or(Side::Output, Side::Input);
    let (pickup, spool) = pickup(side, config.spec.rate, config.spec.layout, DEFAULT_ROOM);
    outlets.add(pickup).map(|_| spool)
}

/// A disk that is not there is looked for so often.
const RETRY: Span = Span::from_secs(5);

/// Below a recorder's folder: what is still to be uploaded.
const SPOOL: &str = ".upload";

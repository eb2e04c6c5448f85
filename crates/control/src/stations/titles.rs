//! The titles of stations, and players that report them without a control script: librespot and
//! shairport-sync.
//!
//! Each station with such a player has a task that reads the player's FIFO and reports like a
//! control script. The audio backend starts the player and restarts it; the player never waits for
//! this task.

pub(crate) mod history;
pub(crate) mod json;
pub(crate) mod now_playing;
pub(crate) mod shown;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aulos_config::{StationSettings, TitleFifo, TitleFormat};
use aulos_io::feed::make_fifo;
use aulos_proto::titles::{
    AirplayMetadataParser, LibrespotLogParser, PlaybackEvent, TrackMetadata,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::backend::SourceState;
use crate::control::counters::count;
use crate::control::state::Control;
use crate::events::history::{EventKind, EventSeverity, NewEvent};
use crate::stations::slot::ScriptEvent;
use crate::stations::titles::json::{metadata, seconds};
pub use history::TitleHistory;
use shown::NewTitle;
pub use shown::ShownTitle;

/// Delay before a FIFO that cannot be read is opened again.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which the player is checked: the FIFO stays open when it ends.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes per read: the usual size of a FIFO.
const READ_SIZE: usize = 64 << 10;

/// The title FIFOs to read, each with its stream. A control script has precedence.
pub fn title_sources(stations: &[Arc<StationSettings>]) -> Vec<(String, TitleFifo)> {
    let mut title_sources = Vec::new();
    for station in stations.iter().filter(|station| station.plugin.is_none()) {
        for source in &station.sources {
            if let Some(titles) = source.config.titles() {
                title_sources.push((station.name.clone(), titles.clone()));
            }
        }
    }
    title_sources
}

/// Shows a title that automation has reported, when the sound that enters the station now goes out.
/// Nothing happens without a station of this name.
pub fn report(control: &Control, station: &str, title: TrackMetadata, next: Option<String>) {
    let new = NewTitle { title, next, source: None };
    control.change(|subjects| {
        let Some((number, _)) = subjects.stations.find(station) else { return };
        let effects = subjects.stations.queue_title(number, new, control.outside());
        control.apply_effects(subjects, effects, None);
    });
}

/// The titles of a station from now on, the present one first; `None` without such a station. It
/// ends with the station.
pub fn subscribe(
    control: &Control,
    station: &str,
) -> Option<watch::Receiver<Option<Arc<ShownTitle>>>> {
    control.lock().stations.find(station).map(|(_, slot)| slot.titles.subscribe())
}

/// What became of a title at an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputOutcome {
    /// It was sent.
    Sent,
    /// It was sent, and the one before was not.
    SentAgain,
    /// It could not be sent, or the connection has ended, and why.
    Failed(String),
    /// The same, and the attempt before had failed too.
    FailedAgain,
}

/// Counts what became of a title at an output; an output that fails or works again has an event.
pub fn report_output(control: &Control, station: &str, output: &str, outcome: OutputOutcome) {
    let counters = &control.counters;
    let (counter, event) = match outcome {
        OutputOutcome::Sent => (&counters.title_outputs_sent, None),
        OutputOutcome::SentAgain => {
            tracing::info!(stream = station, output, "titles are sent again");
            let text = "titles are sent again".to_owned();
            (&counters.title_outputs_sent, Some((EventSeverity::Info, text)))
        }
        OutputOutcome::Failed(error) => {
            tracing::warn!(stream = station, output, error, "cannot send titles; retrying");
            let text = format!("titles cannot be sent: {error}");
            (&counters.title_outputs_failed, Some((EventSeverity::Warning, text)))
        }
        OutputOutcome::FailedAgain => (&counters.title_outputs_failed, None),
    };
    count(counter);
    if let Some((severity, text)) = event {
        let (kind, station) = (EventKind::Output, Some(station.to_owned()));
        control.events.add(NewEvent { kind, severity, station, subject: output.to_owned(), text });
    }
}

/// What to add to the file of each station's titles, of the stations that are wanted.
pub fn take_unsaved(control: &Control, is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut subjects = control.lock();
    let slots = subjects.stations.slots_mut().filter(|slot| is_wanted(&slot.station.name));
    let lines = slots
        .filter_map(|slot| Some((slot.station.name.clone(), slot.titles.history.take_unsaved()?)));
    lines.collect()
}

/// Whether the player that writes into a FIFO has ended or cannot be started.
fn has_lost_player(control: &Control, stream: &str, fifo: &Path) -> bool {
    let subjects = control.lock();
    let Some((number, slot)) = subjects.stations.find(stream) else { return false };
    let mut titles = slot.station.sources.iter().map(|source| source.config.titles());
    let at = titles.position(|titles| titles.is_some_and(|titles| titles.fifo == fifo));
    let sources = control.backend.status(number).sources;
    at.is_some_and(|at| matches!(sources.get(at), Some(SourceState::Failed(_))))
}

/// Reads a player's titles until the future is dropped.
pub async fn run(control: Arc<Control>, stream: String, titles: TitleFifo) {
    loop {
        if let Err(error) = read(&control, &stream, &titles).await {
            let fifo = titles.fifo.display();
            tracing::warn!(stream, %error, "cannot read titles from {fifo}");
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn read(control: &Control, stream: &str, titles: &TitleFifo) -> io::Result<()> {
    let mut fifo = open(&titles.fifo)?;
    let mut reader = TitleReader::new(titles.kind);
    let mut playing = PlaybackState::default();
    let mut block = vec![0; READ_SIZE];
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let mut changed = false;
        let count = tokio::select! {
            read = fifo.read(&mut block) => read?,
            _ = checks.tick() => {
                if playing.is_current() && has_lost_player(control, stream, &titles.fifo) {
                    changed = playing.update(PlaybackEvent::Stopped);
                }
                0
            }
        };
        reader
            .push(block.get(..count).unwrap_or_default(), |event| changed |= playing.update(event));
        if changed {
            control.handle_script(stream, ScriptEvent::Properties(playing.properties()));
        }
    }
}

/// Opens the FIFO for writing too, so that it never reports end of file when the player exits.
fn open(path: &Path) -> io::Result<pipe::Receiver> {
    make_fifo(path).map_err(|error| io::Error::other(error.to_string()))?;
    pipe::OpenOptions::new().read_write(true).open_receiver(path)
}

enum TitleReader {
    Librespot(LibrespotLogParser),
    Airplay(AirplayMetadataParser),
}

impl TitleReader {
    fn new(kind: TitleFormat) -> Self {
        match kind {
            TitleFormat::Librespot => Self::Librespot(LibrespotLogParser::default()),
            TitleFormat::Airplay => Self::Airplay(AirplayMetadataParser::default()),
        }
    }

    fn push(&mut self, bytes: &[u8], emit: impl FnMut(PlaybackEvent)) {
        match self {
            Self::Librespot(reader) => reader.push(bytes, emit),
            Self::Airplay(reader) => reader.push(bytes, emit),
        }
    }
}

/// What is known of the current title.
#[derive(Debug, Default)]
struct PlaybackState {
    status: &'static str,
    title: TrackMetadata,
    /// Seconds.
    position: Option<f64>,
    /// Base64, with the extension of its format.
    picture: Option<(String, &'static str)>,
}

impl PlaybackState {
    /// Whether a player has reported something since it stopped.
    fn is_current(&self) -> bool {
        self.status != "stopped"
            && (!self.status.is_empty() || self.title != TrackMetadata::default())
    }

    /// Takes over an event; returns whether something changed.
    fn update(&mut self, event: PlaybackEvent) -> bool {
        match event {
            PlaybackEvent::Title(title) => (self.title, self.position) = (title, None),
            PlaybackEvent::Picture(picture) => {
                let end = if picture.starts_with(b"\x89PNG") { "png" } else { "jpg" };
                self.picture = (!picture.is_empty()).then(|| (STANDARD.encode(picture), end));
            }
            PlaybackEvent::Position(position, duration) => {
                self.position = Some(seconds(position));
                self.title.duration = Some(duration);
            }
            PlaybackEvent::Playing => self.status = "playing",
            PlaybackEvent::Paused => self.status = "paused",
            PlaybackEvent::Stopped => {
                *self = Self { status: "stopped", ..Self::default() };
            }
        }
        true
    }

    /// The properties in a control script's format.
    fn properties(&self) -> Map<String, Value> {
        let mut metadata = metadata(&self.title);
        if let Some((data, end)) = &self.picture {
            metadata.insert("artData".to_owned(), json!({ "data": data, "extension": end }));
        }
        let mut properties = Map::new();
        if !self.status.is_empty() {
            properties.insert("playbackStatus".to_owned(), json!(self.status));
        }
        if let Some(position) = self.position {
            properties.insert("position".to_owned(), json!(position));
        }
        properties.insert("metadata".to_owned(), Value::Object(metadata));
        properties
    }
}

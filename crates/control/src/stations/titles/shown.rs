//! The titles of a station on their way to its listeners.
//!
//! ```text
//!  report, file, source --> TitleQueue (until their sound goes out) --> properties, ICY, HLS
//!                                                                   |-> TitleHistory
//!                                                                   '-> ShownTitle: SSE, outputs
//! ```
//!
//! A title is known when its sound enters the server. That sound is in the buffer in front of the
//! switch and in the look-ahead of the normalizer for up to seconds, so the title waits as long.

use std::collections::VecDeque;
use std::sync::Arc;

use aulos_config::StationSettings;
use aulos_core::{Instant, MediaTime, SampleRate, Span};
use aulos_proto::titles::{NowPlaying, TrackMetadata, clean_text};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::backend::StationReport;
use crate::clients::registry::WallTime;
use crate::stations::titles::history::TitleHistory;
use crate::stations::titles::json::title_and_artist;

/// A title as it is shown.
#[derive(Debug)]
pub struct ShownTitle {
    /// What is shown.
    pub playing: NowPlaying,
    /// Wall time at which its first frame left the station.
    pub at: WallTime,
    /// Media time of that frame.
    pub frame: MediaTime,
    /// The rate of the frames.
    pub rate: SampleRate,
    /// From then until synchronised players play it.
    pub buffer: Span,
}

/// What a station shows, what it will show, and what it has shown.
#[derive(Debug, Default)]
pub(crate) struct StationTitles {
    pub(crate) history: TitleHistory,
    /// What follows, as it was reported with the present title.
    pub(crate) next: Option<String>,
    queue: TitleQueue,
    shown: watch::Sender<Option<Arc<ShownTitle>>>,
}

/// A title and what follows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NewTitle {
    pub(crate) title: TrackMetadata,
    pub(crate) next: Option<String>,
    /// The source that has it; none for a report.
    pub(crate) source: Option<usize>,
}

/// Titles whose sound has not gone out yet.
#[derive(Debug, Default)]
struct TitleQueue(VecDeque<(Instant, NewTitle)>);

impl StationTitles {
    /// With what was shown before a restart.
    pub(crate) fn with_history(history: TitleHistory) -> Self {
        Self { history, ..Self::default() }
    }

    /// What is shown from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<ShownTitle>>> {
        self.shown.subscribe()
    }

    /// Takes a title whose sound goes out after `latency`; those to show now come from
    /// [`StationTitles::take_due`].
    pub(crate) fn queue(&mut self, now: Instant, latency: Span, title: NewTitle) {
        self.queue.push(now + latency, title);
    }

    /// Whether no title waits for its sound.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.0.is_empty()
    }

    /// The next title to show now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<NewTitle> {
        self.queue.take_due(now)
    }

    /// Leaves out the titles of a source that has gone off air; true if there were any.
    pub(crate) fn forget_source(&mut self) -> bool {
        let before = self.queue.0.len();
        self.queue.0.retain(|(_, title)| title.source.is_none());
        self.queue.0.len() < before
    }

    /// Takes over what is shown, for the history and for all that follow.
    pub(crate) fn show(
        &mut self,
        station: &StationSettings,
        status: &StationReport,
        (properties, next): (&Map<String, Value>, Option<String>),
        (now, listeners): (WallTime, usize),
    ) {
        self.history.update(now, properties, listeners);
        let playing =
            NowPlaying { station: station.name.clone(), title: metadata(properties), next };
        let is_same = |known: &Arc<ShownTitle>| known.playing == playing;
        if self.shown.borrow().as_ref().is_some_and(is_same) {
            return;
        }
        self.shown.send_replace(Some(Arc::new(ShownTitle {
            playing,
            at: now,
            frame: status.machine.position,
            rate: station.spec.rate,
            buffer: Span::from_millis(i64::from(station.buffer_ms)),
        })));
    }
}

impl TitleQueue {
    fn push(&mut self, due: Instant, title: NewTitle) {
        // The buffer may have become shorter; titles keep their order.
        let due = self.0.back().map_or(due, |(last, _)| due.max(*last));
        if self.0.len() >= MAX_WAITING {
            self.0.pop_front();
        }
        self.0.push_back((due, title));
    }

    fn take_due(&mut self, now: Instant) -> Option<NewTitle> {
        let is_due = self.0.front().is_some_and(|(due, _)| *due <= now + EARLY);
        is_due.then(|| self.0.pop_front())?.map(|(_, title)| title)
    }
}

/// How long what enters a station now takes to its output. `source` has the title; without one it
/// was reported, which says nothing of a file or generator of this server.
pub(crate) fn latency(
    station: &StationSettings,
    status: &StationReport,
    source: Option<usize>,
) -> Span {
    let active = status.machine.active;
    let Some(active) = active.filter(|active| source.is_none_or(|source| source == *active)) else {
        return Span::ZERO;
    };
    let of_active = station.sources.get(active);
    if source.is_none() && of_active.is_none_or(|source| source.config.is_on_demand()) {
        return Span::ZERO;
    }
    let buffered = status.machine.inputs.get(active).map_or(Span::ZERO, |input| input.buffered);
    let look_ahead = status
        .machine
        .normalizer
        .map_or(Span::ZERO, |normalizer| station.spec.rate.span(normalizer.latency));
    buffered + look_ahead
}

/// The metadata of a stream's properties.
fn metadata(properties: &Map<String, Value>) -> TrackMetadata {
    let (title, artist) = title_and_artist(properties);
    let field = |name: &str| properties.get("metadata").and_then(|all| all.get(name));
    let clean = |text: String| clean_text(text.as_bytes());
    let duration = field("duration").and_then(Value::as_f64).filter(|length| *length > 0.0);
    TrackMetadata {
        title: title.and_then(clean),
        artist: artist.and_then(clean),
        album: field("album").and_then(Value::as_str).map(str::to_owned).and_then(clean),
        duration: duration.map(Span::from_secs_f64),
        ..TrackMetadata::default()
    }
}

/// Half a [`TICK`](crate::TICK), so that a title is early as often as it is late.
const EARLY: Span = Span::from_millis(50);

/// Titles on their way: more than buffers of seconds have of a real programme.
const MAX_WAITING: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn title(name: &str, source: Option<usize>) -> NewTitle {
        let title = TrackMetadata { title: Some(name.to_owned()), ..TrackMetadata::default() };
        NewTitle { title, next: None, source }
    }

    fn at(millis: i64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn a_title_waits_until_its_sound_goes_out() {
        let mut titles = StationTitles::default();
        titles.queue(at(0), Span::from_millis(400), title("a", None));
        titles.queue(at(200), Span::from_millis(100), title("b", Some(1)));
        titles.queue(at(300), Span::ZERO, title("c", None));
        assert_eq!(titles.take_due(at(340)), None);
        let mut due = || titles.take_due(at(360))?.title.title;
        // Of those that would pass others the order stays.
        assert_eq!(
            [due(), due(), due(), due()].map(Option::unwrap_or_default),
            ["a", "b", "c", ""]
        );
    }

    #[test]
    fn a_title_of_a_source_that_has_gone_off_air_is_not_shown() {
        let mut titles = StationTitles::default();
        titles.queue(at(0), Span::ZERO, title("a", Some(0)));
        titles.queue(at(0), Span::ZERO, title("b", None));
        assert!(titles.forget_source() && !titles.forget_source());
        assert_eq!(titles.take_due(at(0)), Some(title("b", None)));
        assert_eq!(titles.take_due(at(0)), None);
    }

    #[test]
    fn the_queue_does_not_grow() {
        let mut titles = StationTitles::default();
        for number in 0..100 {
            titles.queue(at(0), Span::from_secs(1), title(&number.to_string(), None));
        }
        assert_eq!(titles.queue.0.len(), MAX_WAITING);
        assert_eq!(titles.take_due(at(1_000)), Some(title("84", None)));
    }
}

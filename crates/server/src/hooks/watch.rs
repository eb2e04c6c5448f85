//! What of a station is worth an alarm: from what is seen ten times a second to events.
//!
//! Each event is an edge, and the way back is another event with a bar of its own, so that a level
//! that stands at a bar does not ring all night. The engine's switch decides for itself and much
//! faster; this looks at what came of it, where it goes out.

use std::collections::VecDeque;

use aulos_config::Station;
use aulos_core::{Db, Instant, Span};
use aulos_dsp::normalize::Mode;

use super::News;
use crate::house::{StationState, StationStatus, Switched};

/// Looks after one station.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// What has failed and is not back yet: the best one of it.
    lost: Option<Lost>,
    hearing: Hearing,
    /// Since when the engine says that its source cannot be heard.
    found: Option<Instant>,
    peaks: Peaks,
    news: VecDeque<News>,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    rank: usize,
    since: Instant,
}

/// What goes out, named by what is waited for.
#[derive(Clone, Copy, Debug, Default)]
enum Hearing {
    /// Quiet.
    #[default]
    Sound,
    /// Enough of it.
    Quiet { since: Instant },
    /// Sound.
    Silent { since: Instant },
    /// Enough of that.
    Sounding { silent_since: Instant, since: Instant },
}

#[derive(Debug, Default)]
struct Peaks {
    /// Of the whole, at the last look.
    whole: Option<Db>,
    told: Option<Instant>,
    /// Since it was told.
    worst: Option<Db>,
    times: u64,
}

/// What is seen of a station.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'a> {
    /// Another source is heard.
    Switched(Switched),
    /// What it published.
    Status(&'a StationStatus),
}

impl Watch {
    /// Takes what is seen.
    pub(crate) fn handle_input(&mut self, now: Instant, station: &Station, seen: Seen<'_>) {
        match seen {
            Seen::Switched(switched) => self.switched(now, station, switched),
            Seen::Status(status) if status.state == StationState::Stopped => {}
            Seen::Status(status) => {
                self.listen(now, station, status);
                self.measure(now, station, status);
            }
        }
    }

    /// The next event; to be taken until there is none.
    pub(crate) fn poll_output(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn switched(&mut self, now: Instant, station: &Station, switched: Switched) {
        let Switched { from, to, cause } = switched;
        // The last resort is the worst of all.
        let rank = |source: Option<usize>| source.unwrap_or(usize::MAX);
        let (before, after) = (rank(from), rank(to));
        let name = |index: Option<usize>| named(station, index);
        let failed = !IN_ORDER.contains(&cause);
        if after > before && (failed || to.is_none() && cause != "manual") {
            let lost = self.lost.get_or_insert(Lost { rank: before, since: now });
            lost.rank = lost.rank.min(before);
            self.news.push_back(News::Fallback { from: name(from), to: name(to), cause });
        } else if after < before
            && let Some(lost) = self.lost
        {
            let complete = after <= lost.rank;
            if complete {
                self.lost = None;
            }
            if complete || !failed {
                let after = now.since(lost.since);
                let (from, to) = (name(from), name(to));
                self.news.push_back(News::Recovered { from, to, cause, after, complete });
            }
        }
    }

    fn listen(&mut self, now: Instant, station: &Station, status: &StationStatus) {
        let level = level(status);
        let bar = station.silence.below;
        // The engine knows better where a value does not move, or a source has a bar of its own.
        let mute = status.state == StationState::Silent && status.active.is_some();
        self.found = if mute { Some(self.found.unwrap_or(now)) } else { None };
        let quiet = mute || level.get() < bar.get();
        let loud = !mute && level.get() > bar.get() + HYSTERESIS_DB;
        self.hearing = match self.hearing {
            Hearing::Sound if quiet => Hearing::Quiet { since: now },
            Hearing::Quiet { .. } if !quiet => Hearing::Sound,
            Hearing::Quiet { since } if self.is_long(now, since, station) => {
                let cause = if status.active.is_some() { "silent" } else { "last resort" };
                let source = named(station, status.active);
                self.news.push_back(News::Silence { source, cause, lasted: now.since(since) });
                Hearing::Silent { since }
            }
            Hearing::Silent { since } if loud => {
                Hearing::Sounding { silent_since: since, since: now }
            }
            Hearing::Sounding { silent_since, .. } if !loud => {
                Hearing::Silent { since: silent_since }
            }
            Hearing::Sounding { silent_since, since } if now.since(since) >= SOUNDING => {
                let lasted = since.since(silent_since);
                self.news.push_back(News::Sound { source: named(station, status.active), lasted });
                Hearing::Sound
            }
            same => same,
        };
    }

    fn is_long(&self, now: Instant, since: Instant, station: &Station) -> bool {
        let found = self.found.is_some_and(|found| now.since(found) >= GRACE);
        found || now.since(since) >= station.silence.span + GRACE
    }

    fn measure(&mut self, now: Instant, station: &Station, status: &StationStatus) {
        let peaks = &mut self.peaks;
        let loudness = &status.loudness;
        // A look can miss a tenth of a second; the peak of the whole misses none that is higher.
        let risen = loudness.true_peak.filter(|peak| peaks.whole.is_none_or(|whole| *peak > whole));
        peaks.whole = loudness.true_peak;
        let ceiling = ceiling(station);
        let all = [risen, loudness.current_true_peak];
        let over = all.into_iter().flatten().filter(|peak| *peak > ceiling);
        let Some(peak) = over.reduce(louder) else { return };
        let worst = louder(peaks.worst.unwrap_or(peak), peak);
        (peaks.worst, peaks.times) = (Some(worst), peaks.times + 1);
        if peaks.told.is_some_and(|told| now.since(told) < OVER_PAUSE) {
            return;
        }
        let source = named(station, status.active);
        let times = std::mem::take(&mut peaks.times);
        (peaks.told, peaks.worst) = (Some(now), None);
        self.news.push_back(News::OverCeiling { source, peak: worst, ceiling, times });
    }
}

/// What the true peak of a station may reach: a tenth of a decibel above its normaliser's ceiling, as
/// far as that has one, because nobody measures finer.
fn ceiling(station: &Station) -> Db {
    match &station.sound.normalize {
        Some(wish) if wish.mode != Mode::GainOnly => wish.settings.ceiling + TOLERANCE,
        _ => Db::ZERO,
    }
}

/// Above a normaliser's ceiling.
const TOLERANCE: Db = Db::new(0.1);

fn named(station: &Station, index: Option<usize>) -> Option<String> {
    index.and_then(|index| station.sources.get(index)).map(|source| source.name.clone())
}

/// The peak of what goes out: of the last 100 ms, which is nothing where that was digital silence;
/// before there are as many, what falls slowly.
fn level(status: &StationStatus) -> Db {
    let loudness = &status.loudness;
    if loudness.measured > Span::ZERO {
        return loudness.current_sample_peak.unwrap_or(Db::SILENCE);
    }
    status.levels.iter().copied().reduce(louder).unwrap_or(Db::SILENCE)
}

fn louder(one: Db, other: Db) -> Db {
    if other > one { other } else { one }
}

/// Causes that are no source's fault.
const IN_ORDER: [&str; 4] = ["first", "better", "ended", "manual"];
/// Sound is so much louder than silence (the engine's switch has the same bar) ...
const HYSTERESIS_DB: f64 = 6.0;
/// ... for so long.
const SOUNDING: Span = Span::from_millis(500);
/// Silence that the switch ends by another source, after the same time, is not told.
const GRACE: Span = Span::from_millis(500);
/// A peak that comes with every beat is told so rarely.
const OVER_PAUSE: Span = Span::from_secs(60);

//! What of a station is worth an alarm: from what is seen ten times a second to events.
//!
//! Each event is an edge, and the way back is another event with a bar of its own, so that a level
//! that stands at a bar does not ring all night. The engine's switch decides for itself and much
//! faster; this looks at what came of it, where it goes out.

use std::collections::VecDeque;

use aulos_config::Station;
use aulos_core::{Db, Instant, Span};
use aulos_dsp::normalize::Mode;

use super::HookEvent;
use crate::backend::{SourceSwitch, StationState, StationStatus};

/// Looks after one station.
#[derive(Debug, Default)]
pub(crate) struct StationWatch {
    /// What has failed and is not back yet: the best one of it.
    lost_source: Option<LostSource>,
    audibility: Audibility,
    /// Since when the engine says that its source cannot be heard.
    mute_since: Option<Instant>,
    peaks: PeakState,
    news: VecDeque<HookEvent>,
}

#[derive(Clone, Copy, Debug)]
struct LostSource {
    rank: usize,
    since: Instant,
}

/// What goes out, named by what is waited for.
#[derive(Clone, Copy, Debug, Default)]
enum Audibility {
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
struct PeakState {
    /// Of the whole, at the last look.
    whole: Option<Db>,
    reported_at: Option<Instant>,
    /// Since it was told.
    worst: Option<Db>,
    times: u64,
}

/// What is seen of a station.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Observation<'a> {
    /// Another source is heard.
    Switched(SourceSwitch),
    /// What it published.
    Status(&'a StationStatus),
}

impl StationWatch {
    /// Takes what is seen.
    pub(crate) fn handle_input(&mut self, now: Instant, station: &Station, seen: Observation<'_>) {
        match seen {
            Observation::Switched(switched) => self.handle_switch(now, station, switched),
            Observation::Status(status) if status.state == StationState::Stopped => {}
            Observation::Status(status) => {
                self.check_silence(now, station, status);
                self.check_peak(now, station, status);
            }
        }
    }

    /// The next event; to be taken until there is none.
    pub(crate) fn poll_output(&mut self) -> Option<HookEvent> {
        self.news.pop_front()
    }

    fn handle_switch(&mut self, now: Instant, station: &Station, switched: SourceSwitch) {
        let SourceSwitch { from, to, cause } = switched;
        // The last resort is the worst of all.
        let rank = |source: Option<usize>| source.unwrap_or(usize::MAX);
        let (before, after) = (rank(from), rank(to));
        let name = |index: Option<usize>| source_name(station, index);
        let failed = !NORMAL_CAUSES.contains(&cause);
        if after > before && (failed || to.is_none() && cause != "manual") {
            let lost = self.lost_source.get_or_insert(LostSource { rank: before, since: now });
            lost.rank = lost.rank.min(before);
            self.news.push_back(HookEvent::Fallback { from: name(from), to: name(to), cause });
        } else if after < before
            && let Some(lost) = self.lost_source
        {
            let complete = after <= lost.rank;
            if complete {
                self.lost_source = None;
            }
            if complete || !failed {
                let after = now.since(lost.since);
                let (from, to) = (name(from), name(to));
                self.news.push_back(HookEvent::Recovered { from, to, cause, after, complete });
            }
        }
    }

    fn check_silence(&mut self, now: Instant, station: &Station, status: &StationStatus) {
        let level = level(status);
        let bar = station.silence.below;
        // The engine knows better where a value does not move, or a source has a bar of its own.
        let mute = status.state == StationState::Silent && status.active.is_some();
        self.mute_since = if mute { Some(self.mute_since.unwrap_or(now)) } else { None };
        let quiet = mute || level.get() < bar.get();
        let loud = !mute && level.get() > bar.get() + HYSTERESIS_DB;
        self.audibility = match self.audibility {
            Audibility::Sound if quiet => Audibility::Quiet { since: now },
            Audibility::Quiet { .. } if !quiet => Audibility::Sound,
            Audibility::Quiet { since } if self.is_confirmed(now, since, station) => {
                let cause = if status.active.is_some() { "silent" } else { "last resort" };
                let source = source_name(station, status.active);
                self.news.push_back(HookEvent::Silence { source, cause, lasted: now.since(since) });
                Audibility::Silent { since }
            }
            Audibility::Silent { since } if loud => {
                Audibility::Sounding { silent_since: since, since: now }
            }
            Audibility::Sounding { silent_since, .. } if !loud => {
                Audibility::Silent { since: silent_since }
            }
            Audibility::Sounding { silent_since, since }
                if now.since(since) >= SOUND_CONFIRMATION =>
            {
                let lasted = since.since(silent_since);
                self.news.push_back(HookEvent::Sound {
                    source: source_name(station, status.active),
                    lasted,
                });
                Audibility::Sound
            }
            same => same,
        };
    }

    fn is_confirmed(&self, now: Instant, since: Instant, station: &Station) -> bool {
        let found = self.mute_since.is_some_and(|found| now.since(found) >= SWITCH_GRACE);
        found || now.since(since) >= station.silence.span + SWITCH_GRACE
    }

    fn check_peak(&mut self, now: Instant, station: &Station, status: &StationStatus) {
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
        if peaks.reported_at.is_some_and(|told| now.since(told) < OVER_CEILING_INTERVAL) {
            return;
        }
        let source = source_name(station, status.active);
        let times = std::mem::take(&mut peaks.times);
        (peaks.reported_at, peaks.worst) = (Some(now), None);
        self.news.push_back(HookEvent::OverCeiling { source, peak: worst, ceiling, times });
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

fn source_name(station: &Station, index: Option<usize>) -> Option<String> {
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
const NORMAL_CAUSES: [&str; 4] = ["first", "better", "ended", "manual"];
/// Sound is so much louder than silence (the engine's switch has the same bar) ...
const HYSTERESIS_DB: f64 = 6.0;
/// ... for so long.
const SOUND_CONFIRMATION: Span = Span::from_millis(500);
/// Silence that the switch ends by another source, after the same time, is not told.
const SWITCH_GRACE: Span = Span::from_millis(500);
/// A peak that comes with every beat is told so rarely.
const OVER_CEILING_INTERVAL: Span = Span::from_secs(60);

//! Derives hook events from a station's status, which is polled ten times a second.
//!
//! Each event is an edge, and its reverse has a threshold of its own (hysteresis), so that a level
//! near a threshold does not trigger all night. The engine's switch decides independently and much
//! faster; this module observes the result at the output.

use std::collections::VecDeque;

use aulos_config::StationSettings;
use aulos_core::{Db, Instant, Span};
use aulos_dsp::normalize::LookAhead;

use super::HookEvent;
use super::insert_watch::InsertWatch;
use crate::backend::{InputChange, StationReport, StationState, SwitchCause};

/// Watches one station.
#[derive(Debug, Default)]
pub(crate) struct StationWatch {
    /// The best source that has failed and not recovered yet.
    lost_source: Option<LostSource>,
    /// The source to which the schedule gave precedence when the status was read last.
    scheduled: Option<usize>,
    audibility: Audibility,
    /// Time since which the engine reports its source as inaudible.
    mute_since: Option<Instant>,
    peaks: PeakState,
    insert: InsertWatch,
    events: VecDeque<HookEvent>,
}

#[derive(Clone, Copy, Debug)]
struct LostSource {
    rank: usize,
    since: Instant,
}

/// State of the output, named by what is audible.
#[derive(Clone, Copy, Debug, Default)]
enum Audibility {
    /// Audible.
    #[default]
    Sound,
    /// Quiet, but not for long enough yet.
    Quiet { since: Instant },
    /// Silent.
    Silent { since: Instant },
    /// Audible again, but not for long enough yet.
    Sounding { silent_since: Instant, since: Instant },
}

#[derive(Debug, Default)]
struct PeakState {
    /// The overall peak at the last poll.
    whole: Option<Db>,
    reported_at: Option<Instant>,
    /// Since the last report.
    worst: Option<Db>,
    times: u64,
}

/// An observation of a station.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Observation<'a> {
    /// The source on air changed.
    Switched(InputChange),
    /// Its status.
    Status(&'a StationReport),
}

impl StationWatch {
    /// Handles an observation.
    pub(crate) fn handle_input(
        &mut self,
        now: Instant,
        station: &StationSettings,
        observation: Observation<'_>,
    ) {
        match observation {
            Observation::Switched(switched) => self.handle_switch(now, station, switched),
            Observation::Status(status) if status.state == StationState::Stopped => {}
            Observation::Status(status) => {
                self.follow_schedule(now, station, status);
                self.check_silence(now, station, status);
                self.check_peak(now, station, status);
                self.events.extend(self.insert.handle_report(now, status.insert.as_ref()));
            }
        }
    }

    /// The next event; call until it returns `None`.
    pub(crate) fn poll_output(&mut self) -> Option<HookEvent> {
        self.events.pop_front()
    }

    /// Whether the output has been silent for the configured time.
    pub(crate) const fn is_silent(&self) -> bool {
        matches!(self.audibility, Audibility::Silent { .. } | Audibility::Sounding { .. })
    }

    /// Whether a source has failed that another one stands in for.
    pub(crate) const fn is_on_fallback(&self) -> bool {
        self.lost_source.is_some()
    }

    fn handle_switch(&mut self, now: Instant, station: &StationSettings, switched: InputChange) {
        let InputChange { from, to, cause } = switched;
        // The scheduled source comes before all others, and the last resort has the lowest priority.
        let scheduled = self.scheduled;
        let rank = |source: Option<usize>| match source {
            None => usize::MAX,
            source if source == scheduled => 0,
            Some(index) => index + 1,
        };
        let (before, after) = (rank(from), rank(to));
        let name = |index: Option<usize>| source_name(station, index);
        let failed = !matches!(
            cause,
            SwitchCause::First
                | SwitchCause::Better
                | SwitchCause::Ended
                | SwitchCause::Manual
                | SwitchCause::Schedule
        );
        if after > before && (failed || to.is_none() && cause != SwitchCause::Manual) {
            let lost = self.lost_source.get_or_insert(LostSource { rank: before, since: now });
            lost.rank = lost.rank.min(before);
            self.events.push_back(HookEvent::Fallback { from: name(from), to: name(to), cause });
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
                self.events.push_back(HookEvent::Recovered { from, to, cause, after, complete });
            }
        }
    }

    /// A scheduled source that has failed is missed until its time is over.
    fn follow_schedule(&mut self, now: Instant, station: &StationSettings, status: &StationReport) {
        let before = std::mem::replace(&mut self.scheduled, status.machine.scheduled);
        if before.is_some()
            && before != self.scheduled
            && let Some(lost) = self.lost_source.take_if(|lost| lost.rank == 0)
        {
            let (playing, after) =
                (source_name(station, status.machine.active), now.since(lost.since));
            self.events.push_back(HookEvent::Recovered {
                from: playing.clone(),
                to: playing,
                cause: SwitchCause::Schedule,
                after,
                complete: true,
            });
        }
    }

    fn check_silence(&mut self, now: Instant, station: &StationSettings, status: &StationReport) {
        let level = level(status);
        let bar = station.silence.threshold;
        // The engine also detects a constant value, and a source may have a threshold of its own.
        let mute = status.state == StationState::Silent && status.machine.active.is_some();
        self.mute_since = if mute { Some(self.mute_since.unwrap_or(now)) } else { None };
        let quiet = mute || level.get() < bar.get();
        let loud = !mute && level.get() > bar.get() + HYSTERESIS_DB;
        self.audibility = match self.audibility {
            Audibility::Sound if quiet => Audibility::Quiet { since: now },
            Audibility::Quiet { .. } if !quiet => Audibility::Sound,
            Audibility::Quiet { since } if self.is_confirmed(now, since, station) => {
                let cause = if status.machine.active.is_some() { "silent" } else { "last resort" };
                let source = source_name(station, status.machine.active);
                self.events.push_back(HookEvent::Silence {
                    source,
                    cause,
                    lasted: now.since(since),
                });
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
                self.events.push_back(HookEvent::Sound {
                    source: source_name(station, status.machine.active),
                    lasted,
                });
                Audibility::Sound
            }
            same => same,
        };
    }

    fn is_confirmed(&self, now: Instant, since: Instant, station: &StationSettings) -> bool {
        let mute_long =
            self.mute_since.is_some_and(|mute_long| now.since(mute_long) >= SWITCH_GRACE);
        mute_long || now.since(since) >= station.silence.duration + SWITCH_GRACE
    }

    fn check_peak(&mut self, now: Instant, station: &StationSettings, status: &StationReport) {
        let peaks = &mut self.peaks;
        let loudness = &status.machine.loudness;
        // A poll can miss a tenth of a second; the overall peak misses no new maximum.
        let risen = loudness.true_peak.filter(|peak| peaks.whole.is_none_or(|whole| *peak > whole));
        peaks.whole = loudness.true_peak;
        let ceiling = ceiling(station);
        let all = [risen, loudness.current_true_peak];
        let over = all.into_iter().flatten().filter(|peak| *peak > ceiling);
        let Some(peak) = over.reduce(louder) else { return };
        let worst = louder(peaks.worst.unwrap_or(peak), peak);
        (peaks.worst, peaks.times) = (Some(worst), peaks.times + 1);
        if peaks.reported_at.is_some_and(|reported| now.since(reported) < OVER_CEILING_INTERVAL) {
            return;
        }
        let source = source_name(station, status.machine.active);
        let times = std::mem::take(&mut peaks.times);
        (peaks.reported_at, peaks.worst) = (Some(now), None);
        self.events.push_back(HookEvent::OverCeiling { source, peak: worst, ceiling, times });
    }
}

/// The permitted true peak of a station: a tenth of a decibel above its normalizer's ceiling, if it
/// has one, because meters are not more accurate.
fn ceiling(station: &StationSettings) -> Db {
    match &station.sound.normalize {
        Some(config) if config.mode != LookAhead::GainOnly => config.settings.ceiling + TOLERANCE,
        _ => Db::ZERO,
    }
}

/// Tolerance above a normalizer's ceiling.
const TOLERANCE: Db = Db::new(0.1);

fn source_name(station: &StationSettings, index: Option<usize>) -> Option<String> {
    index.and_then(|index| station.sources.get(index)).map(|source| source.name.clone())
}

/// Peak level of the output: of the last 100 ms, which is absent for digital silence; before the
/// first 100 ms, the decaying peak.
fn level(status: &StationReport) -> Db {
    let loudness = &status.machine.loudness;
    if loudness.measured > Span::ZERO {
        return loudness.current_sample_peak.unwrap_or(Db::SILENCE);
    }
    status.machine.level.peaks().iter().copied().reduce(louder).unwrap_or(Db::SILENCE)
}

fn louder(one: Db, other: Db) -> Db {
    if other > one { other } else { one }
}

/// Hysteresis of the silence threshold (the same as in the engine's switch) ...
const HYSTERESIS_DB: f64 = 6.0;
/// ... and the time for which sound must last.
const SOUND_CONFIRMATION: Span = Span::from_millis(500);
/// Grace period for the switch to replace a silent source, which takes the same time-out, without
/// an event.
const SWITCH_GRACE: Span = Span::from_millis(500);
/// Minimum interval of over-ceiling events, for a peak that recurs with every beat.
const OVER_CEILING_INTERVAL: Span = Span::from_secs(60);

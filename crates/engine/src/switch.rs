//! Selects the input on air.
//!
//! The switch evaluates facts about each input (buffer level, last arrival, audibility) and returns
//! changes; it touches no sample and reads no clock. A change leaves no gap, because the decision
//! falls while the failed input still has audio in its buffer: the time-out is shorter than the
//! buffer, and the rest is cross-faded into the next input.
//!
//! ```text
//!  Disabled <-> Connecting -> Priming -> Healthy <-> Suspect -> Failed -> Backoff -> Connecting
//! ```
//!
//! A new or returning input is trusted at once if it never played or closed cleanly. After a
//! failure it must run for a while first, and twice as long after each further failure; otherwise a
//! flapping source would make the output flap. A source that ran well for that long and then sent
//! nothing for as long has paused, not failed.

mod input;
mod input_health_tracker;
mod schedule;

use aulos_core::{Instant, Span};

pub use input::{
    DEFAULT_STARTUP_WAIT, FailbackMode, FailureCounts, InputFacts, InputFault, InputHealth,
    MAX_FAILBACK_DELAY, SwitchConfig,
};
pub use schedule::{MAX_SCHEDULED_CHANGES, ScheduledChange, SwitchSchedule};

use crate::standby::Standby;
use input_health_tracker::InputHealthTracker;
use schedule::ScheduledInput;

/// Why the input on air changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SwitchCause {
    /// No input was on air.
    First,
    /// An input of higher priority is available.
    Better,
    /// The sender closed cleanly and its audio has been played.
    Ended,
    /// Nothing arrived within the time-out.
    Late,
    /// Its audio was silent.
    Silent,
    /// It sent a constant value.
    Dc,
    /// One of its channels was silent while another one was not.
    DeadChannel,
    /// Its sender broke off.
    Error,
    /// It was requested.
    Manual,
    /// An entry of the schedule began or ended, or its input has recovered.
    Schedule,
}

impl SwitchCause {
    /// Every cause, in numerical order.
    pub const ALL: [Self; 10] = [
        Self::First,
        Self::Better,
        Self::Ended,
        Self::Late,
        Self::Silent,
        Self::Dc,
        Self::DeadChannel,
        Self::Error,
        Self::Manual,
        Self::Schedule,
    ];

    /// Its name in messages, hooks and the control API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Better => "better",
            Self::Ended => "ended",
            Self::Late => "late",
            Self::Silent => "silent",
            Self::Dc => "dc",
            Self::DeadChannel => "dead channel",
            Self::Error => "error",
            Self::Manual => "manual",
            Self::Schedule => "schedule",
        }
    }
}

impl From<InputFault> for SwitchCause {
    fn from(fault: InputFault) -> Self {
        match fault {
            InputFault::Late => Self::Late,
            InputFault::Silent => Self::Silent,
            InputFault::Dc => Self::Dc,
            InputFault::DeadChannel => Self::DeadChannel,
            InputFault::Error => Self::Error,
        }
    }
}

/// A change of the input on air; `None` is the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputChange {
    /// The input that was on air.
    pub from: Option<usize>,
    /// The input that is on air now.
    pub to: Option<usize>,
    /// Why it changed.
    pub cause: SwitchCause,
}

/// A request for one input. It holds until it expires, is reset, an entry of the schedule begins,
/// or the input fails or ends after it has played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// The requested input.
    pub input: usize,
    /// When it expires; `None` is never.
    pub until: Option<Instant>,
}

/// Chooses among inputs; the first one has the highest priority.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    inputs: Vec<InputHealthTracker>,
    active: Option<usize>,
    /// The input that ran dry on air, until that is reported as a change.
    underrun_input: Option<usize>,
    preference: Option<Preference>,
    /// The preferred input has played because of the preference.
    preferred_played: bool,
    scheduled: ScheduledInput,
    /// Time of the first decision, if there was one.
    first_decision: Option<Instant>,
    /// An input has been on air.
    started: bool,
}

impl Switch {
    /// A switch for `inputs` inputs, with none on air.
    #[must_use]
    pub fn new(config: SwitchConfig, inputs: usize) -> Self {
        Self {
            config,
            inputs: vec![InputHealthTracker::NEW; inputs],
            active: None,
            underrun_input: None,
            preference: None,
            preferred_played: false,
            scheduled: ScheduledInput::default(),
            first_decision: None,
            started: false,
        }
    }

    /// Evaluates the facts of every input; returns the change of the input on air, if there is one.
    ///
    /// # Real-time
    /// One pass over the inputs.
    pub fn decide(&mut self, now: Instant, facts: &[InputFacts]) -> Option<InputChange> {
        let began = *self.first_decision.get_or_insert(now);
        for (record, facts) in self.inputs.iter_mut().zip(facts) {
            record.observe(&self.config, now, facts);
        }
        let preferred = self.preferred(now, facts);
        let patience = self.config.startup_wait;
        let waits = !self.started && patience.is_none_or(|patience| now.since(began) < patience);
        let to = match preferred {
            Some(preferred) => Some(preferred),
            // Only the first input may play while the startup wait lasts.
            None if waits => Some(self.first()).filter(|first| self.is_good(*first)),
            None => self.scheduled().or_else(|| self.choose(facts)),
        };
        self.update_needed(now, waits, facts);
        let rescheduled = core::mem::take(&mut self.scheduled.changed);
        if to == self.active && self.underrun_input.is_none() {
            return None;
        }
        let starved = self.underrun_input.take();
        let from = starved.or(self.active);
        // An underrun is the cause, whatever has arrived for that input since.
        let cause = match starved {
            Some(_) => SwitchCause::Late,
            None => {
                let by_schedule = rescheduled || (to.is_some() && to == self.scheduled.input());
                self.cause(from, to, preferred, by_schedule)
            }
        };
        self.active = to;
        self.started |= to.is_some();
        if let Some(record) = to.and_then(|to| self.inputs.get_mut(to))
            && self.config.failback == FailbackMode::Manual
        {
            record.barred = false;
        }
        Some(InputChange { from: from.filter(|from| Some(*from) != to), to, cause })
    }

    /// Continues with other inputs, or with the same ones in another order: input n is from now on
    /// what input `inputs[n]` was, or a new one.
    pub fn rearrange(&mut self, inputs: &[Option<usize>]) {
        let moved = |old: Option<usize>| {
            old.and_then(|old| inputs.iter().position(|input| *input == Some(old)))
        };
        self.active = moved(self.active);
        self.underrun_input = moved(self.underrun_input);
        self.preference = self.preference.and_then(|preference| {
            let input = moved(Some(preference.input))?;
            Some(Preference { input, ..preference })
        });
        self.scheduled.rearrange(moved);
        let record = |old: &Option<usize>| {
            old.and_then(|old| self.inputs.get(old).copied()).unwrap_or(InputHealthTracker::NEW)
        };
        self.inputs = inputs.iter().map(record).collect();
    }

    /// Reports that `input` ran dry on air without having ended.
    pub fn report_underrun(&mut self, now: Instant, input: usize) {
        if let Some(record) = self.inputs.get_mut(input) {
            record.fail(&self.config, now, InputFault::Late);
        }
        if self.active == Some(input) {
            self.underrun_input = self.active.take();
        }
    }

    /// Sets or resets the preferred input. `None` lets the switch choose, and lifts the bar of
    /// every input that does not return by itself.
    pub fn set_preference(&mut self, preference: Option<Preference>) {
        self.preference = preference.filter(|preference| preference.input < self.inputs.len());
        self.preferred_played = false;
        if self.preference.is_none() {
            self.inputs.iter_mut().for_each(|record| record.barred = false);
        }
    }

    /// Replaces the schedule. An input that does not exist is none.
    pub fn set_schedule(&mut self, schedule: SwitchSchedule) {
        self.scheduled.replace(schedule);
    }

    /// Carries out the changes of the schedule that are due at `time`. The beginning of an entry
    /// ends a preference.
    ///
    /// # Real-time
    /// Constant time.
    pub fn follow_schedule(&mut self, time: Instant) {
        if self.scheduled.advance(time) {
            self.preference = None;
        }
    }

    /// The input to which the schedule gives precedence now.
    #[must_use]
    pub const fn scheduled_input(&self) -> Option<usize> {
        self.scheduled.input()
    }

    /// When the next change of the schedule is due.
    #[must_use]
    pub fn next_scheduled(&self) -> Option<Instant> {
        self.scheduled.next()
    }

    /// The active preference.
    #[must_use]
    pub const fn preference(&self) -> Option<Preference> {
        self.preference
    }

    /// The input on air; `None` is the last resort.
    #[must_use]
    pub const fn active(&self) -> Option<usize> {
        self.active
    }

    /// Health of `input`; an unknown one is disabled.
    #[must_use]
    pub fn health(&self, input: usize) -> InputHealth {
        self.inputs.get(input).map_or(InputHealth::Disabled, |record| record.health)
    }

    /// Whether `input` must be open, decoded and buffered now.
    #[must_use]
    pub fn is_needed(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|record| record.needed)
    }

    /// Whether `input` has been ready to go on air at least once.
    #[must_use]
    pub fn has_started(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|record| record.has_started)
    }

    /// Failure counts of `input`.
    #[must_use]
    pub fn failures(&self, input: usize) -> FailureCounts {
        self.inputs.get(input).map_or(FailureCounts::NONE, |record| record.failures)
    }

    /// The preferred input, if it can play; drops a preference that is over.
    fn preferred(&mut self, now: Instant, facts: &[InputFacts]) -> Option<usize> {
        let Preference { input, until } = self.preference?;
        let (health, facts) = (self.health(input), facts.get(input)?);
        let playable = match health {
            InputHealth::Healthy { .. } => true,
            InputHealth::Priming { .. } => {
                let sounds = facts.fault(now).is_none() || !self.preferred_played;
                sounds && facts.is_primed()
            }
            // A preferred input may play before it has sound, but is not kept on air once it has
            // played and fallen silent.
            InputHealth::Suspect(_) => !self.preferred_played && facts.is_sending(now),
            _ => false,
        };
        if until.is_some_and(|until| now >= until) || (self.preferred_played && !playable) {
            self.preference = None;
            return None;
        }
        self.preferred_played |= playable && !matches!(health, InputHealth::Suspect(_));
        playable.then_some(input)
    }

    /// The scheduled input, if it can play. It is not barred: the schedule asks for it.
    fn scheduled(&self) -> Option<usize> {
        self.scheduled.input().filter(|input| self.is_healthy(*input))
    }

    /// The input of the highest priority.
    fn first(&self) -> usize {
        self.scheduled.input().filter(|input| *input < self.inputs.len()).unwrap_or(0)
    }

    fn choose(&self, facts: &[InputFacts]) -> Option<usize> {
        let first = |is: &dyn Fn(&InputHealthTracker, &InputFacts) -> bool| {
            self.inputs.iter().zip(facts).position(|(record, facts)| is(record, facts))
        };
        let stays = self.active.filter(|active| self.is_healthy(*active));
        // A barred input does not take over, but stays on air if it is there. Unless the mode is
        // `Never`, it may be used when no other input is healthy.
        let strict = self.config.failback == FailbackMode::Never || stays.is_some();
        let is_good = |input: &usize| self.is_good(*input) || (!strict && self.is_healthy(*input));
        let good = (0..self.inputs.len()).find(is_good);
        let good = stays.into_iter().chain(good).min();
        let healthy = || first(&|record, _| matches!(record.health, InputHealth::Healthy { .. }));
        let playing_on = || self.active.filter(|&active| has_sound(facts, active));
        let audible = || {
            first(&|record, facts| match record.health {
                InputHealth::Suspect(InputFault::Late | InputFault::Error) => false,
                InputHealth::Suspect(_) => facts.buffered > Span::ZERO,
                _ => false,
            })
        };
        let primed = || {
            first(&|record, facts| match record.health {
                InputHealth::Priming { .. } => facts.is_primed(),
                _ => false,
            })
        };
        good.or_else(healthy).or_else(playing_on).or_else(audible).or_else(primed)
    }

    fn is_healthy(&self, input: usize) -> bool {
        matches!(self.health(input), InputHealth::Healthy { .. })
    }

    fn is_good(&self, input: usize) -> bool {
        self.is_healthy(input) && self.inputs.get(input).is_some_and(|record| !record.barred)
    }

    /// Updates which inputs are needed: the one on air, the preferred one, the scheduled one, and
    /// those that may have to play because no input before them is healthy.
    fn update_needed(&mut self, now: Instant, waits: bool, facts: &[InputFacts]) {
        let wanted = [
            self.active,
            self.preference.map(|preferred| preferred.input),
            self.scheduled.input(),
            self.scheduled.coming(now),
        ];
        let first = self.first();
        let mut covered = false;
        for (index, (record, facts)) in self.inputs.iter_mut().zip(facts).enumerate() {
            let needed = !covered && (index == first || !waits);
            record.needed =
                facts.standby == Standby::Hot || needed || wanted.contains(&Some(index));
            covered |= matches!(record.health, InputHealth::Healthy { .. });
        }
    }

    fn cause(
        &self,
        from: Option<usize>,
        to: Option<usize>,
        preferred: Option<usize>,
        by_schedule: bool,
    ) -> SwitchCause {
        let Some(from) = from else { return SwitchCause::First };
        match self.health(from) {
            InputHealth::Suspect(fault) | InputHealth::Failed(fault) => fault.into(),
            InputHealth::Backoff => {
                self.failures(from).last.map_or(SwitchCause::Error, SwitchCause::from)
            }
            _ if preferred.is_some() => SwitchCause::Manual,
            _ if by_schedule => SwitchCause::Schedule,
            _ if to.is_none_or(|to| to > from) => SwitchCause::Ended,
            _ => SwitchCause::Better,
        }
    }
}

fn has_sound(facts: &[InputFacts], input: usize) -> bool {
    facts.get(input).is_some_and(|facts| facts.buffered > Span::ZERO)
}

#[cfg(test)]
mod tests;

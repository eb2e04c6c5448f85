//! Which input is on air.
//!
//! The switch sees facts (how much is buffered, when something last arrived, whether it can be
//! heard) and answers with changes; it touches no sample and knows no clock. The gap is zero frames
//! because the decision falls while the failed input still has sound in its buffer: the time-out is
//! shorter than the buffer, and what remains is cross-faded into the next input.
//!
//! ```text
//!  Disabled <-> Connecting -> Priming -> Healthy <-> Suspect -> Failed -> Backoff -> Connecting
//! ```
//!
//! A new or returning input is trusted at once when it was never heard or closed cleanly; after a
//! failure it has to run for a while first, and for twice as long after each further one, or a
//! source that flaps would make the output flap. A source that was well for that while, and then sent
//! nothing for as long, has paused and not failed.

mod input_record;

use aulos_core::{Instant, Span};
use aulos_dsp::silence::SilenceVerdict;

use crate::source::Pacing;
use crate::standby::{LinkState, Standby};
use input_record::InputRecord;

/// The wishes of the switch. `Default` has the values of the configuration's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long an input that has failed must run before it may take over from another one; doubled
    /// with each further failure, up to [`MAX_HOLD_IN`].
    pub failback_delay: Span,
    /// What happens when an input is back that has failed.
    pub failback: FailbackMode,
    /// How long the first input is waited for at the start before another one may play; none is
    /// until it comes.
    pub startup_wait: Option<Span>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            failback_delay: Span::from_secs(5),
            failback: FailbackMode::Auto,
            startup_wait: Some(DEFAULT_STARTUP_WAIT),
        }
    }
}

/// What happens when an input is well again after a failure, and a worse one plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailbackMode {
    /// It takes over when it has proved itself.
    #[default]
    Auto,
    /// The worse one plays on until it fails, or somebody lets the switch choose again.
    Manual,
    /// It is not played again while anything else has sound, until somebody lets the switch choose.
    Never,
}

/// What is true of one input now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFacts {
    /// Who paces it.
    pub pacing: Pacing,
    /// How much sound waits in it.
    pub buffered: Span,
    /// How much has to wait in it before it begins: how long it is delayed, and longer than its
    /// time-out.
    pub prime_target: Span,
    /// Its buffer is at its bound: the sender waits for us, so it cannot be late.
    pub full: bool,
    /// The sender has closed cleanly.
    pub ended: bool,
    /// The sender is gone without having closed cleanly.
    pub lost: bool,
    /// When something last arrived, if ever.
    pub last_arrival: Option<Instant>,
    /// A live input fails when nothing has arrived for this long.
    pub timeout: Span,
    /// Whether what it sends can be heard.
    pub verdict: SilenceVerdict,
    /// How ready it is kept while it is not needed.
    pub standby: Standby,
    /// What is known of the other end.
    pub link: LinkState,
}

/// Why an input is not to be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFault {
    /// Nothing arrived within the time-out.
    Late,
    /// What it sent could not be heard.
    Silent,
    /// It sent a value that does not move.
    Dc,
    /// One of its channels was silent while another one sounded.
    DeadChannel,
    /// The sender broke off: a program that failed, a connection that was reset, a damaged file.
    Error,
}

/// What an input is worth to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputHealth {
    /// It is not needed, and does not play until it is.
    Disabled,
    /// Nothing has come, or everything that came has been played.
    Connecting,
    /// Sound is coming, not enough or not for long enough yet.
    Priming {
        /// Since when it has been coming without a pause.
        since: Instant,
    },
    /// May be on air.
    Healthy {
        /// Since when.
        since: Instant,
    },
    /// There is sound in it, and a reason to play another one.
    Suspect(InputFault),
    /// It stopped, and nothing is left of it.
    Failed(InputFault),
    /// It failed, and is opened again after a pause.
    Backoff,
}

/// Why the input on air changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SwitchCause {
    /// Nothing was on air.
    First,
    /// An input of higher priority is there.
    Better,
    /// The sender closed cleanly and its sound has been played.
    Ended,
    /// Nothing arrived within the time-out.
    Late,
    /// What it sent could not be heard.
    Silent,
    /// What it sent did not move.
    Dc,
    /// One of its channels was silent while another one sounded.
    DeadChannel,
    /// Its sender broke off.
    Error,
    /// Somebody wished it.
    Manual,
}

impl SwitchCause {
    /// Every cause, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::First,
        Self::Better,
        Self::Ended,
        Self::Late,
        Self::Silent,
        Self::Dc,
        Self::DeadChannel,
        Self::Error,
        Self::Manual,
    ];
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

/// The input on air changes; `None` is the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputChange {
    /// Who was on air.
    pub from: Option<usize>,
    /// Who is on air now.
    pub to: Option<usize>,
    /// Why.
    pub cause: SwitchCause,
}

/// Somebody's wish for one input. It holds until its time is over, it is taken back, or the input
/// fails or ends after it has been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Which one.
    pub input: usize,
    /// Until when; none is until one of the others.
    pub until: Option<Instant>,
}

/// Chooses among inputs, the first having the highest priority.
#[derive(Debug)]
pub struct Switch {
    config: Config,
    inputs: Vec<InputRecord>,
    active: Option<usize>,
    /// Who was on air until it ran dry, and the world has not been told yet.
    underrun_input: Option<usize>,
    preference: Option<Preference>,
    /// The input that is preferred has been heard for that reason.
    preferred_played: bool,
    /// When it first had to decide; none is not yet.
    first_decision: Option<Instant>,
    /// Something has been on air.
    started: bool,
}

impl Switch {
    /// A switch for `inputs` inputs, with nothing on air.
    #[must_use]
    pub fn new(config: Config, inputs: usize) -> Self {
        Self {
            config,
            inputs: vec![InputRecord::NEW; inputs],
            active: None,
            underrun_input: None,
            preference: None,
            preferred_played: false,
            first_decision: None,
            started: false,
        }
    }

    /// Takes the facts of every input and answers whether another one goes on air.
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
            // The first one, if it is there; whoever is behind it has to wait.
            None if waits => self.is_good(0).then_some(0),
            None => self.choose(facts),
        };
        self.update_needed(waits, facts);
        if to == self.active && self.underrun_input.is_none() {
            return None;
        }
        let starved = self.underrun_input.take();
        let from = starved.or(self.active);
        // Whatever has come for one that ran dry since, it ran dry.
        let cause = match starved {
            Some(_) => SwitchCause::Late,
            None => self.cause(from, to, preferred),
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

    /// Says that `input` ran dry on air without having ended.
    pub fn report_underrun(&mut self, now: Instant, input: usize) {
        if let Some(record) = self.inputs.get_mut(input) {
            record.fail(&self.config, now, InputFault::Late);
        }
        if self.active == Some(input) {
            self.underrun_input = self.active.take();
        }
    }

    /// Prefers one input from now on; `None` lets the switch choose, and forgives every input that
    /// is not to come back by itself.
    pub fn set_preference(&mut self, preference: Option<Preference>) {
        self.preference = preference.filter(|wish| wish.input < self.inputs.len());
        self.preferred_played = false;
        if self.preference.is_none() {
            self.inputs.iter_mut().for_each(|record| record.barred = false);
        }
    }

    /// The wish that holds.
    #[must_use]
    pub const fn preference(&self) -> Option<Preference> {
        self.preference
    }

    /// Who is on air; `None` is the last resort.
    #[must_use]
    pub const fn active(&self) -> Option<usize> {
        self.active
    }

    /// The health of `input`; one that does not exist is disabled.
    #[must_use]
    pub fn health(&self, input: usize) -> InputHealth {
        self.inputs.get(input).map_or(InputHealth::Disabled, |record| record.health)
    }

    /// Whether `input` has to be open, decoded and buffered now.
    #[must_use]
    pub fn is_needed(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|record| record.needed)
    }

    /// What has gone wrong with `input`.
    #[must_use]
    pub fn failures(&self, input: usize) -> FailureCounts {
        self.inputs.get(input).map_or(FailureCounts::NONE, |record| record.failures)
    }

    /// The input that somebody wishes, if it can be played; ends wishes that are over.
    fn preferred(&mut self, now: Instant, facts: &[InputFacts]) -> Option<usize> {
        let Preference { input, until } = self.preference?;
        let (health, facts) = (self.health(input), facts.get(input)?);
        let playable = match health {
            InputHealth::Healthy { .. } => true,
            InputHealth::Priming { .. } => {
                let sounds = facts.fault(now).is_none() || !self.preferred_played;
                sounds && facts.is_primed()
            }
            // Who wishes an input before it sounds gets it; who was heard is not kept when silent.
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

    fn choose(&self, facts: &[InputFacts]) -> Option<usize> {
        let first = |is: &dyn Fn(&InputRecord, &InputFacts) -> bool| {
            self.inputs.iter().zip(facts).position(|(record, facts)| is(record, facts))
        };
        let stays = self.active.filter(|active| self.is_healthy(*active));
        // What is barred does not take over, and plays on when it is on air. Unless it is barred for
        // ever, it is as good as any other when there is need.
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

    /// Says who has to be awake: what is on air or wished, and what may be needed because nothing
    /// before it is well.
    fn update_needed(&mut self, waits: bool, facts: &[InputFacts]) {
        let (active, wish) = (self.active, self.preference.map(|wish| wish.input));
        let mut covered = false;
        for (index, (record, facts)) in self.inputs.iter_mut().zip(facts).enumerate() {
            let needed = !covered && (index == 0 || !waits);
            record.needed = facts.standby == Standby::Hot
                || needed
                || active == Some(index)
                || wish == Some(index);
            covered |= matches!(record.health, InputHealth::Healthy { .. });
        }
    }

    fn cause(
        &self,
        from: Option<usize>,
        to: Option<usize>,
        preferred: Option<usize>,
    ) -> SwitchCause {
        let Some(from) = from else { return SwitchCause::First };
        match self.health(from) {
            InputHealth::Suspect(fault) | InputHealth::Failed(fault) => fault.into(),
            InputHealth::Backoff => {
                self.failures(from).last.map_or(SwitchCause::Error, SwitchCause::from)
            }
            _ if preferred.is_some() => SwitchCause::Manual,
            _ if to.is_none_or(|to| to > from) => SwitchCause::Ended,
            _ => SwitchCause::Better,
        }
    }
}

impl InputFacts {
    fn is_primed(&self) -> bool {
        let wanted = match self.pacing {
            Pacing::Live | Pacing::LocalClock | Pacing::Streamed => self.prime_target,
            Pacing::OnDemand => Span::from_nanos(1),
        };
        self.buffered >= wanted || self.full || (self.ended && self.buffered > Span::ZERO)
    }

    /// What is wrong with it now. A sender that has stopped is worse than one that is silent.
    fn fault(&self, now: Instant) -> Option<InputFault> {
        if !self.is_sending(now) {
            return Some(if self.lost { InputFault::Error } else { InputFault::Late });
        }
        match self.verdict {
            SilenceVerdict::Silent => Some(InputFault::Silent),
            SilenceVerdict::Dc => Some(InputFault::Dc),
            SilenceVerdict::DeadChannel => Some(InputFault::DeadChannel),
            _ => None,
        }
    }

    /// Whether it has not stopped without a word.
    fn is_sending(&self, now: Instant) -> bool {
        !self.lost
            && (self.pacing == Pacing::OnDemand
                || self.ended
                || self.full
                || (!self.is_nearly_empty() && self.has_recent_arrival(now)))
    }

    fn has_recent_arrival(&self, now: Instant) -> bool {
        self.last_arrival.is_some_and(|last| now.since(last) <= self.max_gap())
    }

    /// A stream that comes more slowly than it is played is late before nothing is left of it.
    fn is_nearly_empty(&self) -> bool {
        self.pacing == Pacing::Streamed && self.buffered < LATE_BUFFER / 2
    }

    /// How long nothing may come. Between two lumps of a stream that is as long as it was delayed
    /// for, and no longer than its sound lasts.
    fn max_gap(&self) -> Span {
        if self.pacing == Pacing::Streamed && self.buffered > LATE_BUFFER {
            self.timeout.max(self.prime_target)
        } else {
            self.timeout
        }
    }
}

/// What has gone wrong with an input since the start, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureCounts {
    /// Nothing arrived within the time-out.
    pub late: u64,
    /// It could not be heard.
    pub silent: u64,
    /// It sent a value that does not move.
    pub dc: u64,
    /// One channel was silent while another one sounded.
    pub dead_channel: u64,
    /// The sender broke off.
    pub error: u64,
    /// It came and went so quickly that it was not trusted any more.
    pub flaps: u64,
    /// What was wrong the last time.
    pub last: Option<InputFault>,
}

impl FailureCounts {
    /// Nothing has gone wrong.
    pub const NONE: Self =
        Self { late: 0, silent: 0, dc: 0, dead_channel: 0, error: 0, flaps: 0, last: None };
}

fn has_sound(facts: &[InputFacts], input: usize) -> bool {
    facts.get(input).is_some_and(|facts| facts.buffered > Span::ZERO)
}

/// What is left of a stream when it counts as late, so that the next input follows without a hole.
const LATE_BUFFER: Span = Span::from_millis(200);

/// A first input that is live and well is there by then.
pub const DEFAULT_STARTUP_WAIT: Span = Span::from_secs(1);

/// However often an input has failed, it need not run for longer than this, unless it was wished.
pub const MAX_FAILBACK_DELAY: Span = Span::from_secs(60);

#[cfg(test)]
mod tests;

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

mod record;

use aulos_core::{Instant, Span};
use aulos_dsp::silence::Verdict;

use crate::source::Pacing;
use crate::standby::{Link, Standby};
use record::Record;

/// The wishes of the switch. `Default` has the values of the configuration's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long an input that has failed must run before it may take over from another one; doubled
    /// with each further failure, up to [`MAX_HOLD_IN`].
    pub hold_in: Span,
    /// What happens when an input is back that has failed.
    pub comeback: Comeback,
    /// How long the first input is waited for at the start before another one may play; none is
    /// until it comes.
    pub patience: Option<Span>,
}

impl Default for Config {
    fn default() -> Self {
        Self { hold_in: Span::from_secs(5), comeback: Comeback::Auto, patience: Some(PATIENCE) }
    }
}

/// What happens when an input is well again after a failure, and a worse one plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comeback {
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
pub struct Facts {
    /// Who paces it.
    pub pacing: Pacing,
    /// How much sound waits in it.
    pub buffered: Span,
    /// How much has to wait in it before it begins: how long it is delayed, and longer than its
    /// time-out.
    pub wanted: Span,
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
    pub verdict: Verdict,
    /// How ready it is kept while it is not needed.
    pub standby: Standby,
    /// What is known of the other end.
    pub link: Link,
}

/// Why an input is not to be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
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
pub enum Health {
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
    Suspect(Fault),
    /// It stopped, and nothing is left of it.
    Failed(Fault),
    /// It failed, and is opened again after a pause.
    Backoff,
}

/// Why the input on air changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
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

impl Cause {
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

impl From<Fault> for Cause {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Late => Self::Late,
            Fault::Silent => Self::Silent,
            Fault::Dc => Self::Dc,
            Fault::DeadChannel => Self::DeadChannel,
            Fault::Error => Self::Error,
        }
    }
}

/// The input on air changes; `None` is the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Who was on air.
    pub from: Option<usize>,
    /// Who is on air now.
    pub to: Option<usize>,
    /// Why.
    pub cause: Cause,
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
    inputs: Vec<Record>,
    active: Option<usize>,
    /// Who was on air until it ran dry, and the world has not been told yet.
    dropped: Option<usize>,
    preference: Option<Preference>,
    /// The input that is preferred has been heard for that reason.
    heard: bool,
    /// When it first had to decide; none is not yet.
    began: Option<Instant>,
    /// Something has been on air.
    started: bool,
}

impl Switch {
    /// A switch for `inputs` inputs, with nothing on air.
    #[must_use]
    pub fn new(config: Config, inputs: usize) -> Self {
        Self {
            config,
            inputs: vec![Record::NEW; inputs],
            active: None,
            dropped: None,
            preference: None,
            heard: false,
            began: None,
            started: false,
        }
    }

    /// Takes the facts of every input and answers whether another one goes on air.
    ///
    /// # Real-time
    /// One pass over the inputs.
    pub fn decide(&mut self, now: Instant, facts: &[Facts]) -> Option<Changed> {
        let began = *self.began.get_or_insert(now);
        for (record, facts) in self.inputs.iter_mut().zip(facts) {
            record.observe(&self.config, now, facts);
        }
        let preferred = self.preferred(now, facts);
        let patience = self.config.patience;
        let waits = !self.started && patience.is_none_or(|patience| now.since(began) < patience);
        let to = match preferred {
            Some(preferred) => Some(preferred),
            // The first one, if it is there; whoever is behind it has to wait.
            None if waits => self.is_good(0).then_some(0),
            None => self.choose(facts),
        };
        self.wake(waits, facts);
        if to == self.active && self.dropped.is_none() {
            return None;
        }
        let starved = self.dropped.take();
        let from = starved.or(self.active);
        // Whatever has come for one that ran dry since, it ran dry.
        let cause = match starved {
            Some(_) => Cause::Late,
            None => self.cause(from, to, preferred),
        };
        self.active = to;
        self.started |= to.is_some();
        if let Some(record) = to.and_then(|to| self.inputs.get_mut(to))
            && self.config.comeback == Comeback::Manual
        {
            record.barred = false;
        }
        Some(Changed { from: from.filter(|from| Some(*from) != to), to, cause })
    }

    /// Says that `input` ran dry on air without having ended.
    pub fn starved(&mut self, now: Instant, input: usize) {
        if let Some(record) = self.inputs.get_mut(input) {
            record.fail(&self.config, now, Fault::Late);
        }
        if self.active == Some(input) {
            self.dropped = self.active.take();
        }
    }

    /// Prefers one input from now on; `None` lets the switch choose, and forgives every input that
    /// is not to come back by itself.
    pub fn prefer(&mut self, preference: Option<Preference>) {
        self.preference = preference.filter(|wish| wish.input < self.inputs.len());
        self.heard = false;
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
    pub fn health(&self, input: usize) -> Health {
        self.inputs.get(input).map_or(Health::Disabled, |record| record.health)
    }

    /// Whether `input` has to be open, decoded and buffered now.
    #[must_use]
    pub fn is_wanted(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|record| record.awake)
    }

    /// What has gone wrong with `input`.
    #[must_use]
    pub fn failures(&self, input: usize) -> Failures {
        self.inputs.get(input).map_or(Failures::NONE, |record| record.failures)
    }

    /// The input that somebody wishes, if it can be played; ends wishes that are over.
    fn preferred(&mut self, now: Instant, facts: &[Facts]) -> Option<usize> {
        let Preference { input, until } = self.preference?;
        let (health, facts) = (self.health(input), facts.get(input)?);
        let playable = match health {
            Health::Healthy { .. } => true,
            Health::Priming { .. } => {
                let sounds = facts.fault(now).is_none() || !self.heard;
                sounds && facts.is_primed()
            }
            // Who wishes an input before it sounds gets it; who was heard is not kept when silent.
            Health::Suspect(_) => !self.heard && facts.is_sending(now),
            _ => false,
        };
        if until.is_some_and(|until| now >= until) || (self.heard && !playable) {
            self.preference = None;
            return None;
        }
        self.heard |= playable && !matches!(health, Health::Suspect(_));
        playable.then_some(input)
    }

    fn choose(&self, facts: &[Facts]) -> Option<usize> {
        let first = |is: &dyn Fn(&Record, &Facts) -> bool| {
            self.inputs.iter().zip(facts).position(|(record, facts)| is(record, facts))
        };
        let stays = self.active.filter(|active| self.is_healthy(*active));
        // What is barred does not take over, and plays on when it is on air. Unless it is barred for
        // ever, it is as good as any other when there is need.
        let strict = self.config.comeback == Comeback::Never || stays.is_some();
        let is_good = |input: &usize| self.is_good(*input) || (!strict && self.is_healthy(*input));
        let good = (0..self.inputs.len()).find(is_good);
        let good = stays.into_iter().chain(good).min();
        let healthy = || first(&|record, _| matches!(record.health, Health::Healthy { .. }));
        let playing_on = || self.active.filter(|&active| has_sound(facts, active));
        let audible = || {
            first(&|record, facts| match record.health {
                Health::Suspect(Fault::Late | Fault::Error) => false,
                Health::Suspect(_) => facts.buffered > Span::ZERO,
                _ => false,
            })
        };
        let primed = || {
            first(&|record, facts| match record.health {
                Health::Priming { .. } => facts.is_primed(),
                _ => false,
            })
        };
        good.or_else(healthy).or_else(playing_on).or_else(audible).or_else(primed)
    }

    fn is_healthy(&self, input: usize) -> bool {
        matches!(self.health(input), Health::Healthy { .. })
    }

    fn is_good(&self, input: usize) -> bool {
        self.is_healthy(input) && self.inputs.get(input).is_some_and(|record| !record.barred)
    }

    /// Says who has to be awake: what is on air or wished, and what may be needed because nothing
    /// before it is well.
    fn wake(&mut self, waits: bool, facts: &[Facts]) {
        let (active, wish) = (self.active, self.preference.map(|wish| wish.input));
        let mut covered = false;
        for (index, (record, facts)) in self.inputs.iter_mut().zip(facts).enumerate() {
            let needed = !covered && (index == 0 || !waits);
            record.awake = facts.standby == Standby::Hot
                || needed
                || active == Some(index)
                || wish == Some(index);
            covered |= matches!(record.health, Health::Healthy { .. });
        }
    }

    fn cause(&self, from: Option<usize>, to: Option<usize>, preferred: Option<usize>) -> Cause {
        let Some(from) = from else { return Cause::First };
        match self.health(from) {
            Health::Suspect(fault) | Health::Failed(fault) => fault.into(),
            Health::Backoff => self.failures(from).last.map_or(Cause::Error, Cause::from),
            _ if preferred.is_some() => Cause::Manual,
            _ if to.is_none_or(|to| to > from) => Cause::Ended,
            _ => Cause::Better,
        }
    }
}

impl Facts {
    fn is_primed(&self) -> bool {
        let wanted = match self.pacing {
            Pacing::Live | Pacing::House | Pacing::Streamed => self.wanted,
            Pacing::OnDemand => Span::from_nanos(1),
        };
        self.buffered >= wanted || self.full || (self.ended && self.buffered > Span::ZERO)
    }

    /// What is wrong with it now. A sender that has stopped is worse than one that is silent.
    fn fault(&self, now: Instant) -> Option<Fault> {
        if !self.is_sending(now) {
            return Some(if self.lost { Fault::Error } else { Fault::Late });
        }
        match self.verdict {
            Verdict::Silent => Some(Fault::Silent),
            Verdict::Dc => Some(Fault::Dc),
            Verdict::DeadChannel => Some(Fault::DeadChannel),
            _ => None,
        }
    }

    /// Whether it has not stopped without a word.
    fn is_sending(&self, now: Instant) -> bool {
        !self.lost
            && (self.pacing == Pacing::OnDemand
                || self.ended
                || self.full
                || (!self.is_spent() && self.is_heard_of(now)))
    }

    fn is_heard_of(&self, now: Instant) -> bool {
        self.last_arrival.is_some_and(|last| now.since(last) <= self.patience())
    }

    /// A stream that comes more slowly than it is played is late before nothing is left of it.
    fn is_spent(&self) -> bool {
        self.pacing == Pacing::Streamed && self.buffered < LAST_WORDS / 2
    }

    /// How long nothing may come. Between two lumps of a stream that is as long as it was delayed
    /// for, and no longer than its sound lasts.
    fn patience(&self) -> Span {
        if self.pacing == Pacing::Streamed && self.buffered > LAST_WORDS {
            self.timeout.max(self.wanted)
        } else {
            self.timeout
        }
    }
}

/// What has gone wrong with an input since the start, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
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
    pub last: Option<Fault>,
}

impl Failures {
    /// Nothing has gone wrong.
    pub const NONE: Self =
        Self { late: 0, silent: 0, dc: 0, dead_channel: 0, error: 0, flaps: 0, last: None };
}

fn has_sound(facts: &[Facts], input: usize) -> bool {
    facts.get(input).is_some_and(|facts| facts.buffered > Span::ZERO)
}

/// What is left of a stream when it counts as late, so that the next input follows without a hole.
const LAST_WORDS: Span = Span::from_millis(200);

/// A first input that is live and well is there by then.
pub const PATIENCE: Span = Span::from_secs(1);

/// However often an input has failed, it need not run for longer than this, unless it was wished.
pub const MAX_HOLD_IN: Span = Span::from_secs(60);

#[cfg(test)]
mod tests;

//! Which input is on air.
//!
//! The switch sees facts (how much is buffered, when something last arrived) and answers with
//! changes; it touches no sample and knows no clock. The gap is zero frames because the decision
//! falls while the failed input still has sound in its buffer: the time-out is shorter than the
//! buffer, and what remains is cross-faded into the next input.
//!
//! A new or returning input is trusted at once when it was never heard or closed cleanly; after a
//! failure it has to run for a while first, or a source that flaps would make the output flap.

use aulos_core::{Instant, Span};

use crate::source::Pacing;

/// The wishes of the switch. `Default` has the values of the configuration's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long live inputs are delayed; longer than their time-out.
    pub input_buffer: Span,
    /// How long an input that has failed must run before it may take over from another one.
    pub hold_in: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { input_buffer: Span::from_millis(400), hold_in: Span::from_secs(5) }
    }
}

/// What is true of one input now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Who paces it.
    pub pacing: Pacing,
    /// How much sound waits in it.
    pub buffered: Span,
    /// Its buffer is at its bound: the sender waits for us, so it cannot be late.
    pub full: bool,
    /// The sender has closed cleanly.
    pub ended: bool,
    /// When something last arrived, if ever.
    pub last_arrival: Option<Instant>,
    /// A live input fails when nothing has arrived for this long.
    pub timeout: Span,
    /// What it sends cannot be heard, and has not been for long.
    pub silent: bool,
}

/// What an input is worth to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing has come, or everything that came has been played.
    Idle,
    /// Sound is coming, not enough yet.
    Priming {
        /// Since when it has been coming without a pause.
        since: Instant,
        /// It has failed before and has to prove itself.
        suspect: bool,
    },
    /// May be on air.
    Healthy,
    /// It stopped without a word.
    Failed,
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

/// Chooses among inputs, the first having the highest priority.
#[derive(Debug)]
pub struct Switch {
    config: Config,
    inputs: Vec<Health>,
    active: Option<usize>,
    /// Who was on air until it ran dry, and the world has not been told yet.
    dropped: Option<usize>,
}

impl Switch {
    /// A switch for `inputs` inputs, with nothing on air.
    #[must_use]
    pub fn new(config: Config, inputs: usize) -> Self {
        Self { config, inputs: vec![Health::Idle; inputs], active: None, dropped: None }
    }

    /// Takes the facts of every input and answers whether another one goes on air.
    ///
    /// # Real-time
    /// One pass over the inputs.
    pub fn decide(&mut self, now: Instant, facts: &[Facts]) -> Option<Changed> {
        for (health, facts) in self.inputs.iter_mut().zip(facts) {
            *health = self.config.next_health(*health, now, facts);
        }
        let to = self.choose(facts);
        if to == self.active && self.dropped.is_none() {
            return None;
        }
        let from = self.dropped.take().or(self.active);
        let cause = match from.map(|from| (from, self.health(from))) {
            None => Cause::First,
            Some((_, Health::Failed)) => Cause::Late,
            Some((from, _)) if is_silent(facts, from) => Cause::Silent,
            Some((from, _)) if to.is_none_or(|to| to > from) => Cause::Ended,
            Some(_) => Cause::Better,
        };
        self.active = to;
        Some(Changed { from: from.filter(|from| Some(*from) != to), to, cause })
    }

    /// Says that `input` ran dry on air without having ended.
    pub fn starved(&mut self, input: usize) {
        if let Some(health) = self.inputs.get_mut(input) {
            *health = Health::Failed;
        }
        if self.active == Some(input) {
            self.dropped = self.active.take();
        }
    }

    /// Who is on air; `None` is the last resort.
    #[must_use]
    pub const fn active(&self) -> Option<usize> {
        self.active
    }

    /// The health of `input`; an input that does not exist is idle.
    #[must_use]
    pub fn health(&self, input: usize) -> Health {
        self.inputs.get(input).copied().unwrap_or(Health::Idle)
    }

    fn choose(&self, facts: &[Facts]) -> Option<usize> {
        let healthy = self.inputs.iter().position(|health| *health == Health::Healthy);
        let audible = facts
            .iter()
            .zip(&self.inputs)
            .position(|(facts, health)| *health == Health::Healthy && !facts.silent);
        let playing_on = || self.active.filter(|&active| has_sound(facts, active));
        let suspect = || {
            facts.iter().zip(&self.inputs).position(|(facts, health)| match health {
                Health::Priming { .. } => facts.is_primed(self.config.input_buffer),
                _ => false,
            })
        };
        audible.or_else(playing_on).or(healthy).or_else(suspect)
    }
}

impl Config {
    fn next_health(&self, health: Health, now: Instant, facts: &Facts) -> Health {
        let dry = facts.buffered <= Span::ZERO;
        match health {
            Health::Idle if dry => Health::Idle,
            Health::Idle => self.primed(now, facts, now, false),
            Health::Priming { .. } if dry && facts.ended => Health::Idle,
            // It never was on air, so nothing has failed; it only has to begin again.
            Health::Priming { suspect, .. } if facts.is_late(now) => {
                Health::Priming { since: now, suspect }
            }
            Health::Priming { since, suspect } => self.primed(now, facts, since, suspect),
            Health::Healthy if facts.ended && dry => Health::Idle,
            Health::Healthy if facts.is_late(now) => Health::Failed,
            Health::Healthy => Health::Healthy,
            Health::Failed if facts.ended && dry => Health::Idle,
            Health::Failed if dry || facts.is_late(now) => Health::Failed,
            Health::Failed => Health::Priming { since: now, suspect: true },
        }
    }

    fn primed(&self, now: Instant, facts: &Facts, since: Instant, suspect: bool) -> Health {
        let proven = !suspect || now.since(since) >= self.hold_in;
        let waited = now.since(since) >= self.input_buffer && facts.buffered >= ENOUGH;
        if proven && (waited || facts.is_primed(self.input_buffer)) {
            Health::Healthy
        } else {
            Health::Priming { since, suspect }
        }
    }
}

impl Facts {
    fn is_primed(&self, input_buffer: Span) -> bool {
        let wanted = match self.pacing {
            Pacing::Live | Pacing::House => input_buffer,
            Pacing::OnDemand => Span::from_nanos(1),
        };
        self.buffered >= wanted || self.full || (self.ended && self.buffered > Span::ZERO)
    }

    fn is_late(&self, now: Instant) -> bool {
        self.pacing != Pacing::OnDemand
            && !self.ended
            && !self.full
            && self.last_arrival.is_none_or(|last| now.since(last) > self.timeout)
    }
}

fn is_silent(facts: &[Facts], input: usize) -> bool {
    facts.get(input).is_some_and(|facts| facts.silent)
}

fn has_sound(facts: &[Facts], input: usize) -> bool {
    facts.get(input).is_some_and(|facts| facts.buffered > Span::ZERO)
}

/// A live input that has been coming for as long as the buffer may start with this much in it: it
/// cannot be expected to hold more, if its sender hands sound over in real time.
const ENOUGH: Span = Span::from_millis(200);

#[cfg(test)]
mod tests;

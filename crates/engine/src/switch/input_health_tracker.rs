//! The switch's record of one input: its health, and the history that decides whether it is
//! trusted.

use aulos_core::{Instant, Span};

use super::{
    FailbackMode, FailureCounts, InputFacts, InputFault, InputHealth, MAX_FAILBACK_DELAY,
    SwitchConfig,
};
use crate::source::Pacing;
use crate::standby::LinkState;

/// One input, as the switch sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputHealthTracker {
    pub(super) health: InputHealth,
    pub(super) failures: FailureCounts,
    /// It has failed, and the configuration does not let it return by itself.
    pub(super) barred: bool,
    /// It has been ready to go on air at least once.
    pub(super) has_started: bool,
    /// It must be open and buffered.
    pub(super) needed: bool,
    /// Time that it must run before it is trusted.
    failback_delay: Span,
    /// Failures without a minute of health between them.
    strikes: u32,
    /// Consecutive clean ends of short sessions, and the time of the last one.
    short_sessions: u32,
    ended_at: Instant,
    /// Start of its health, kept while it is suspect.
    well_since: Instant,
    /// Time at which it stopped after it had been healthy for the failback delay.
    paused: Option<Instant>,
}

impl InputHealthTracker {
    pub(super) const NEW: Self = Self {
        health: InputHealth::Connecting,
        failures: FailureCounts::NONE,
        barred: false,
        has_started: false,
        needed: true,
        failback_delay: Span::ZERO,
        strikes: 0,
        short_sessions: 0,
        ended_at: Instant::ZERO,
        well_since: Instant::ZERO,
        paused: None,
    };

    /// Updates the health from the current facts.
    pub(super) fn observe(&mut self, config: &SwitchConfig, now: Instant, facts: &InputFacts) {
        let dry = facts.buffered <= Span::ZERO;
        let gone = facts.ended && dry;
        let stopped = match facts.fault(now) {
            Some(fault @ (InputFault::Late | InputFault::Error)) => Some(fault),
            _ => None,
        };
        match self.health {
            _ if !self.needed => self.health = InputHealth::Disabled,
            InputHealth::Failed(_) if gone => self.handle_end(config, now),
            InputHealth::Disabled
            | InputHealth::Connecting
            | InputHealth::Failed(_)
            | InputHealth::Backoff
                if dry =>
            {
                self.update_empty(facts);
            }
            // The rest of a sender that stopped does not start a new session.
            InputHealth::Failed(_) | InputHealth::Backoff if stopped.is_some() => {}
            InputHealth::Failed(_) | InputHealth::Backoff => {
                self.resume(config, now);
                self.prime(now, facts, now);
            }
            InputHealth::Disabled | InputHealth::Connecting => {
                self.check_for_flapping(config, now);
                self.prime(now, facts, now);
            }
            InputHealth::Priming { .. } if gone => {
                self.ended_at = now;
                self.health = InputHealth::Connecting;
            }
            // It was never on air, so nothing has failed; it starts again. An input on probation
            // must run without interruption.
            InputHealth::Priming { .. } if stopped.is_some() || self.is_interrupted(now, facts) => {
                self.health = InputHealth::Priming { since: now };
            }
            InputHealth::Priming { since } => self.prime(now, facts, since),
            InputHealth::Healthy { .. } | InputHealth::Suspect(_) if gone => {
                self.handle_end(config, now);
            }
            InputHealth::Healthy { .. } | InputHealth::Suspect(_) => {
                self.update_playing(config, now, facts, dry);
            }
        }
    }

    /// Takes it off air at once.
    pub(super) fn fail(&mut self, config: &SwitchConfig, now: Instant, fault: InputFault) {
        if matches!(self.health, InputHealth::Healthy { .. }) {
            self.count_failure(config, now, fault);
        }
        let fault = match self.health {
            InputHealth::Suspect(known) => known,
            _ => fault,
        };
        self.health = InputHealth::Failed(fault);
    }

    /// Its buffer is empty: the state of the link is all that is known.
    fn update_empty(&mut self, facts: &InputFacts) {
        self.health = match (self.health, facts.link) {
            (_, LinkState::Broken) => InputHealth::Backoff,
            (InputHealth::Failed(fault), _) => InputHealth::Failed(fault),
            _ => InputHealth::Connecting,
        };
    }

    /// Audio arrives. An input with several short sessions in a row must stay on first.
    fn check_for_flapping(&mut self, config: &SwitchConfig, now: Instant) {
        if now.since(self.ended_at) >= config.failback_delay {
            (self.short_sessions, self.failback_delay) = (0, Span::ZERO);
        } else if self.short_sessions >= MAX_SHORT_SESSIONS && self.failback_delay == Span::ZERO {
            self.short_sessions = 0;
            self.failures.flaps += 1;
            self.penalize_failure(config);
        }
    }

    /// It sends again. An input that was healthy for long and then stopped for as long had paused,
    /// as a player does. That does not make the output flap, so it is trusted as after a clean end.
    fn resume(&mut self, config: &SwitchConfig, now: Instant) {
        let Some(paused) = self.paused.take() else { return };
        if now.since(paused) >= config.failback_delay {
            self.failback_delay = Span::ZERO;
            self.strikes = self.strikes.saturating_sub(1);
        }
    }

    fn prime(&mut self, now: Instant, facts: &InputFacts, since: Instant) {
        let run = now.since(since);
        let waited = run >= facts.prime_target && facts.buffered >= MIN_PRIMED_BUFFER;
        if run >= self.failback_delay && (waited || facts.is_primed()) {
            self.failback_delay = Span::ZERO;
            self.well_since = now;
            self.has_started = true;
            self.health = InputHealth::Healthy { since: now };
            // Silence at the start does not count as a failure.
            if let Some(fault) = facts.fault(now) {
                self.health = InputHealth::Suspect(fault);
            }
        } else {
            self.health = InputHealth::Priming { since };
        }
    }

    /// It has been healthy, and audio is left.
    fn update_playing(
        &mut self,
        config: &SwitchConfig,
        now: Instant,
        facts: &InputFacts,
        dry: bool,
    ) {
        let fault = facts.fault(now);
        match (self.health, fault) {
            (InputHealth::Healthy { .. }, None) => {}
            (InputHealth::Suspect(_), None) if self.failback_delay > Span::ZERO => {
                self.resume(config, now);
                self.health = InputHealth::Priming { since: now };
            }
            (_, None) => {
                self.well_since = now;
                self.health = InputHealth::Healthy { since: now };
            }
            (InputHealth::Healthy { .. }, Some(fault)) => {
                self.count_failure(config, now, fault);
                self.health = InputHealth::Suspect(fault);
            }
            (_, Some(fault)) => {
                // An input that fell silent first and stops now has failed as well.
                if fault.is_stop() && !self.is_stopped() {
                    self.count_failure(config, now, fault);
                }
                self.health = InputHealth::Suspect(fault);
            }
        }
        if let (true, InputHealth::Suspect(fault)) = (dry, self.health)
            && facts.pacing != Pacing::OnDemand
        {
            self.health = InputHealth::Failed(fault);
        }
    }

    /// Its sender has closed cleanly, and all audio has been played.
    fn handle_end(&mut self, config: &SwitchConfig, now: Instant) {
        let short = now.since(self.well_since) < config.failback_delay;
        self.short_sessions = if short { self.short_sessions + 1 } else { 0 };
        (self.ended_at, self.failback_delay) = (now, Span::ZERO);
        self.health = InputHealth::Connecting;
    }

    fn is_interrupted(&self, now: Instant, facts: &InputFacts) -> bool {
        self.failback_delay > Span::ZERO && (facts.ended || facts.fault(now).is_some())
    }

    fn count_failure(&mut self, config: &SwitchConfig, now: Instant, fault: InputFault) {
        let count = match fault {
            InputFault::Late => &mut self.failures.late,
            InputFault::Silent => &mut self.failures.silent,
            InputFault::Dc => &mut self.failures.dc,
            InputFault::DeadChannel => &mut self.failures.dead_channel,
            InputFault::Error => &mut self.failures.error,
        };
        *count += 1;
        self.failures.last = Some(fault);
        let well = now.since(self.well_since);
        self.paused = (fault == InputFault::Late && well >= config.failback_delay).then_some(now);
        if well >= FORGIVEN_AFTER {
            self.strikes = 0;
        }
        // Silence may be a pause: an input that paused returns with the first sound, unless it
        // flaps.
        if fault != InputFault::Silent || well < config.failback_delay {
            self.penalize_failure(config);
        }
    }

    fn penalize_failure(&mut self, config: &SwitchConfig) {
        let longest = config.failback_delay.max(MAX_FAILBACK_DELAY);
        let mut hold_in = config.failback_delay;
        (0..self.strikes.min(MAX_DOUBLINGS))
            .for_each(|_| hold_in = (hold_in + hold_in).min(longest));
        self.failback_delay = hold_in;
        self.strikes = self.strikes.saturating_add(1);
        self.barred = config.failback != FailbackMode::Auto;
    }

    const fn is_stopped(&self) -> bool {
        matches!(self.health, InputHealth::Suspect(InputFault::Late | InputFault::Error))
    }
}

impl InputFault {
    /// Nothing more arrives, whatever the buffer holds.
    const fn is_stop(self) -> bool {
        matches!(self, Self::Late | Self::Error)
    }
}

/// Buffer level at which a live input may start after it has been arriving for its delay: more
/// cannot be expected if its sender delivers in real time.
const MIN_PRIMED_BUFFER: Span = Span::from_millis(200);

/// After this time in health the next failure counts as the first one.
const FORGIVEN_AFTER: Span = Span::from_secs(60);

/// Short sessions that may follow each other, as with doorbell announcements.
const MAX_SHORT_SESSIONS: u32 = 3;

/// An hour is 2^10 times the shortest failback delay of a few seconds.
const MAX_DOUBLINGS: u32 = 16;

//! What the switch knows of one input: its health, and what it has done to be trusted or not.

use aulos_core::{Instant, Span};

use super::{Comeback, Config, Facts, Failures, Fault, Health, MAX_HOLD_IN};
use crate::source::Pacing;
use crate::standby::Link;

/// One input, as the switch sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) health: Health,
    pub(super) failures: Failures,
    /// It has failed, and the configuration does not let it come back by itself.
    pub(super) barred: bool,
    /// It has to be open and buffered.
    pub(super) awake: bool,
    /// For how long it has to run before it is trusted.
    hold_in: Span,
    /// Failures without a minute of health between them.
    strikes: u32,
    /// Clean ends in a row of senders that did not stay, and when the last of them was.
    visits: u32,
    left: Instant,
    /// Since when it has been well, also while it is suspect.
    well_since: Instant,
    /// When it stopped without a word after it had been well for as long as it takes.
    paused: Option<Instant>,
}

impl Record {
    pub(super) const NEW: Self = Self {
        health: Health::Connecting,
        failures: Failures::NONE,
        barred: false,
        awake: true,
        hold_in: Span::ZERO,
        strikes: 0,
        visits: 0,
        left: Instant::ZERO,
        well_since: Instant::ZERO,
        paused: None,
    };

    /// Takes the facts of now.
    pub(super) fn observe(&mut self, config: &Config, now: Instant, facts: &Facts) {
        let dry = facts.buffered <= Span::ZERO;
        let gone = facts.ended && dry;
        let stopped = match facts.fault(now) {
            Some(fault @ (Fault::Late | Fault::Error)) => Some(fault),
            _ => None,
        };
        match self.health {
            _ if !self.awake => self.health = Health::Disabled,
            Health::Failed(_) if gone => self.end(config, now),
            Health::Disabled | Health::Connecting | Health::Failed(_) | Health::Backoff if dry => {
                self.rest(facts);
            }
            // What is left of a sender that stopped does not begin anything.
            Health::Failed(_) | Health::Backoff if stopped.is_some() => {}
            Health::Failed(_) | Health::Backoff => {
                self.resume(config, now);
                self.prime(now, facts, now);
            }
            Health::Disabled | Health::Connecting => {
                self.begin(config, now);
                self.prime(now, facts, now);
            }
            Health::Priming { .. } if gone => {
                self.left = now;
                self.health = Health::Connecting;
            }
            // It never was on air, so nothing has failed; it only has to begin again. Who has to
            // prove himself does so without a pause.
            Health::Priming { .. } if stopped.is_some() || self.is_interrupted(now, facts) => {
                self.health = Health::Priming { since: now };
            }
            Health::Priming { since } => self.prime(now, facts, since),
            Health::Healthy { .. } | Health::Suspect(_) if gone => self.end(config, now),
            Health::Healthy { .. } | Health::Suspect(_) => self.weigh(config, now, facts, dry),
        }
    }

    /// It is to be taken off the air at once.
    pub(super) fn fail(&mut self, config: &Config, now: Instant, fault: Fault) {
        if matches!(self.health, Health::Healthy { .. }) {
            self.strike(config, now, fault);
        }
        let fault = match self.health {
            Health::Suspect(known) => known,
            _ => fault,
        };
        self.health = Health::Failed(fault);
    }

    /// Nothing is in it: what the other end says is all that is known.
    fn rest(&mut self, facts: &Facts) {
        self.health = match (self.health, facts.link) {
            (_, Link::Broken) => Health::Backoff,
            (Health::Failed(fault), _) => Health::Failed(fault),
            _ => Health::Connecting,
        };
    }

    /// Something comes. Who has come and gone a few times in a row has to stay first.
    fn begin(&mut self, config: &Config, now: Instant) {
        if now.since(self.left) >= config.hold_in {
            (self.visits, self.hold_in) = (0, Span::ZERO);
        } else if self.visits >= MAX_VISITS && self.hold_in == Span::ZERO {
            self.visits = 0;
            self.failures.flaps += 1;
            self.distrust(config);
        }
    }

    /// It sends again. Who was well for long, and then stopped for as long, had paused, as a player
    /// does: that does not make the output flap, so it is trusted as after a clean end.
    fn resume(&mut self, config: &Config, now: Instant) {
        let Some(paused) = self.paused.take() else { return };
        if now.since(paused) >= config.hold_in {
            self.hold_in = Span::ZERO;
            self.strikes = self.strikes.saturating_sub(1);
        }
    }

    fn prime(&mut self, now: Instant, facts: &Facts, since: Instant) {
        let run = now.since(since);
        let waited = run >= facts.wanted && facts.buffered >= ENOUGH;
        if run >= self.hold_in && (waited || facts.is_primed()) {
            self.hold_in = Span::ZERO;
            self.well_since = now;
            self.health = Health::Healthy { since: now };
            // Silence that it has brought along is not yet a reason for anything.
            if let Some(fault) = facts.fault(now) {
                self.health = Health::Suspect(fault);
            }
        } else {
            self.health = Health::Priming { since };
        }
    }

    /// It has been well, and there is more of it.
    fn weigh(&mut self, config: &Config, now: Instant, facts: &Facts, dry: bool) {
        let fault = facts.fault(now);
        match (self.health, fault) {
            (Health::Healthy { .. }, None) => {}
            (Health::Suspect(_), None) if self.hold_in > Span::ZERO => {
                self.resume(config, now);
                self.health = Health::Priming { since: now };
            }
            (_, None) => {
                self.well_since = now;
                self.health = Health::Healthy { since: now };
            }
            (Health::Healthy { .. }, Some(fault)) => {
                self.strike(config, now, fault);
                self.health = Health::Suspect(fault);
            }
            (_, Some(fault)) => {
                // A sender that fell silent first and stops now has failed as well.
                if fault.is_stop() && !self.is_stopped() {
                    self.strike(config, now, fault);
                }
                self.health = Health::Suspect(fault);
            }
        }
        if let (true, Health::Suspect(fault)) = (dry, self.health)
            && facts.pacing != Pacing::OnDemand
        {
            self.health = Health::Failed(fault);
        }
    }

    /// Its sender has closed cleanly, and all has been played.
    fn end(&mut self, config: &Config, now: Instant) {
        let short = now.since(self.well_since) < config.hold_in;
        self.visits = if short { self.visits + 1 } else { 0 };
        (self.left, self.hold_in) = (now, Span::ZERO);
        self.health = Health::Connecting;
    }

    fn is_interrupted(&self, now: Instant, facts: &Facts) -> bool {
        self.hold_in > Span::ZERO && (facts.ended || facts.fault(now).is_some())
    }

    fn strike(&mut self, config: &Config, now: Instant, fault: Fault) {
        let count = match fault {
            Fault::Late => &mut self.failures.late,
            Fault::Silent => &mut self.failures.silent,
            Fault::Dc => &mut self.failures.dc,
            Fault::DeadChannel => &mut self.failures.dead_channel,
            Fault::Error => &mut self.failures.error,
        };
        *count += 1;
        self.failures.last = Some(fault);
        let well = now.since(self.well_since);
        self.paused = (fault == Fault::Late && well >= config.hold_in).then_some(now);
        if well >= FORGIVEN_AFTER {
            self.strikes = 0;
        }
        // Silence may be a pause: who paused comes back with the first sound, unless he flaps.
        if fault != Fault::Silent || well < config.hold_in {
            self.distrust(config);
        }
    }

    fn distrust(&mut self, config: &Config) {
        let longest = config.hold_in.max(MAX_HOLD_IN);
        let mut hold_in = config.hold_in;
        (0..self.strikes.min(MAX_DOUBLINGS))
            .for_each(|_| hold_in = (hold_in + hold_in).min(longest));
        self.hold_in = hold_in;
        self.strikes = self.strikes.saturating_add(1);
        self.barred = config.comeback != Comeback::Auto;
    }

    const fn is_stopped(&self) -> bool {
        matches!(self.health, Health::Suspect(Fault::Late | Fault::Error))
    }
}

impl Fault {
    /// Nothing more comes, whatever is still there.
    const fn is_stop(self) -> bool {
        matches!(self, Self::Late | Self::Error)
    }
}

/// A live input that has been coming for as long as the buffer may start with this much in it: it
/// cannot be expected to hold more, if its sender hands sound over in real time.
const ENOUGH: Span = Span::from_millis(200);

/// After so much health the next failure is the first one again.
const FORGIVEN_AFTER: Span = Span::from_secs(60);

/// So many senders may come and go in quick succession, as somebody does who rings a bell.
const MAX_VISITS: u32 = 3;

/// An hour is 2^10 times the least hold-in of a few seconds.
const MAX_DOUBLINGS: u32 = 16;

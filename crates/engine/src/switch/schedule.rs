//! The input to which a schedule gives precedence.
//!
//! Changes are known before they are due, because they apply at a frame inside a quantum, and
//! whoever plans them looks only some times a second. They are times and not commands: a plan that
//! comes late or twice changes nothing that has been carried out.

use aulos_core::{Instant, Span};

/// A change of the scheduled input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledChange {
    /// From when on it applies; the past is at once.
    pub at: Instant,
    /// The input that has precedence over the others while it is healthy; `None`: none has.
    pub input: Option<usize>,
    /// The number of the entry that begins, different for each beginning. It ends a preference,
    /// once. `None` where an entry ends or goes on.
    pub begins: Option<u64>,
}

/// The changes that are known, in order of time: the one in effect, and the next one.
pub type SwitchSchedule = [Option<ScheduledChange>; MAX_SCHEDULED_CHANGES];

/// Changes of a schedule that a switch knows in advance.
pub const MAX_SCHEDULED_CHANGES: usize = 2;

/// Carries out the changes that are due.
#[derive(Debug, Default)]
pub(super) struct ScheduledInput {
    pending: SwitchSchedule,
    input: Option<usize>,
    begun: Option<u64>,
    /// It has changed since the last decision of the switch.
    pub(super) changed: bool,
}

impl ScheduledInput {
    /// Replaces the changes to come; without any, no input has precedence.
    pub(super) fn replace(&mut self, schedule: SwitchSchedule) {
        self.pending = schedule;
        if schedule.iter().all(Option::is_none) {
            self.set(None);
        }
    }

    /// Carries out what is due at `time`; returns whether an entry began.
    pub(super) fn advance(&mut self, time: Instant) -> bool {
        let mut begins = false;
        for index in 0..self.pending.len() {
            let Some(change) = self.pending[index].take_if(|change| change.at <= time) else {
                continue;
            };
            self.set(change.input);
            if change.begins.is_some() && change.begins != self.begun {
                self.begun = change.begins;
                begins = true;
            }
        }
        begins
    }

    /// The input that has precedence.
    pub(super) const fn input(&self) -> Option<usize> {
        self.input
    }

    /// When the next change is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.pending.iter().flatten().map(|change| change.at).min()
    }

    /// The input of a change that is so near that its source has to be open.
    pub(super) fn coming(&self, now: Instant) -> Option<usize> {
        let near = |change: &&ScheduledChange| change.at - now <= OPEN_BEFORE;
        self.pending.iter().flatten().find(near)?.input
    }

    /// Renumbers the inputs.
    pub(super) fn rearrange(&mut self, moved: impl Fn(Option<usize>) -> Option<usize>) {
        self.input = moved(self.input);
        for change in self.pending.iter_mut().flatten() {
            change.input = moved(change.input);
        }
    }

    fn set(&mut self, input: Option<usize>) {
        self.changed |= self.input != input;
        self.input = input;
    }
}

/// How long before its time a source on standby is opened: enough for a name, a connection and the
/// buffer of a web radio.
const OPEN_BEFORE: Span = Span::from_secs(15);

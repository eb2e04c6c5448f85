//! What the switch is told about its inputs, what it concludes, and its configuration.

use aulos_core::{Instant, Span};
use aulos_dsp::silence::SilenceVerdict;

use crate::source::Pacing;
use crate::standby::{LinkState, Standby};

/// Configuration of the switch. `Default` has the defaults of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Time that a failed input must run before it may take over from another one; doubled with
    /// each further failure, up to [`MAX_FAILBACK_DELAY`].
    pub failback_delay: Span,
    /// Reaction to the recovery of a failed input.
    pub failback: FailbackMode,
    /// Time at startup during which only the first input may go on air; `None` waits until it does.
    pub startup_wait: Option<Span>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            failback_delay: Span::from_secs(5),
            failback: FailbackMode::Auto,
            startup_wait: Some(DEFAULT_STARTUP_WAIT),
        }
    }
}

/// Reaction when a failed input of higher priority has recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailbackMode {
    /// It takes over after the failback delay.
    #[default]
    Auto,
    /// The lower-priority input plays until it fails or the preference is reset.
    Manual,
    /// It does not play again while another input has audio, until the preference is reset.
    Never,
}

/// Current facts about one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFacts {
    /// Which clock paces it.
    pub pacing: Pacing,
    /// Amount of audio in its buffer.
    pub buffered: Span,
    /// Buffer level required to start: its delay, which is longer than its time-out.
    pub prime_target: Span,
    /// Its buffer is full: the sender waits for us, so it cannot be late.
    pub full: bool,
    /// The sender has closed cleanly.
    pub ended: bool,
    /// The sender was lost without a clean close.
    pub lost: bool,
    /// Time of the last arrival, if any.
    pub last_arrival: Option<Instant>,
    /// A live input fails when nothing has arrived for this long.
    pub timeout: Span,
    /// Whether its audio is audible.
    pub verdict: SilenceVerdict,
    /// Readiness while it is not needed.
    pub standby: Standby,
    /// State of its connection.
    pub link: LinkState,
}

/// Why an input should not play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFault {
    /// Nothing arrived within the time-out.
    Late,
    /// Its audio was silent.
    Silent,
    /// It sent a constant value.
    Dc,
    /// One of its channels was silent while another one was not.
    DeadChannel,
    /// The sender broke off: a program failed, a connection was reset, a file is damaged.
    Error,
}

/// Health of an input, as the switch judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputHealth {
    /// It is not needed, and does not play until it is.
    Disabled,
    /// Nothing has arrived, or everything that arrived has been played.
    Connecting,
    /// Audio arrives, but not enough or not for long enough yet.
    Priming {
        /// Start of the uninterrupted audio.
        since: Instant,
    },
    /// It may go on air.
    Healthy {
        /// Start of this state.
        since: Instant,
    },
    /// It has audio, but also a fault that favours another input.
    Suspect(InputFault),
    /// It stopped, and its buffer is empty.
    Failed(InputFault),
    /// It failed, and is opened again after a pause.
    Backoff,
}

impl InputFacts {
    pub(super) fn is_primed(&self) -> bool {
        let wanted = match self.pacing {
            Pacing::Live | Pacing::LocalClock | Pacing::Streamed => self.prime_target,
            Pacing::OnDemand => Span::from_nanos(1),
        };
        self.buffered >= wanted || self.full || (self.ended && self.buffered > Span::ZERO)
    }

    /// The current fault. A sender that has stopped is worse than one that is silent.
    pub(super) fn fault(&self, now: Instant) -> Option<InputFault> {
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

    /// Whether the sender has not stopped unexpectedly.
    pub(super) fn is_sending(&self, now: Instant) -> bool {
        !self.lost
            && (self.pacing == Pacing::OnDemand
                || self.ended
                || self.full
                || (!self.is_nearly_empty() && self.has_recent_arrival(now)))
    }

    pub(super) fn has_recent_arrival(&self, now: Instant) -> bool {
        self.last_arrival.is_some_and(|last| now.since(last) <= self.max_gap())
    }

    /// A stream that arrives more slowly than it is played counts as late before its buffer is
    /// empty.
    fn is_nearly_empty(&self) -> bool {
        self.pacing == Pacing::Streamed && self.buffered < LATE_BUFFER / 2
    }

    /// The longest permitted gap between arrivals. Between two bursts of a stream it is the input's
    /// delay, as long as its audio lasts.
    fn max_gap(&self) -> Span {
        if self.pacing == Pacing::Streamed && self.buffered > LATE_BUFFER {
            self.timeout.max(self.prime_target)
        } else {
            self.timeout
        }
    }
}

/// Failures of an input since the start, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureCounts {
    /// Nothing arrived within the time-out.
    pub late: u64,
    /// It was silent.
    pub silent: u64,
    /// It sent a constant value.
    pub dc: u64,
    /// One channel was silent while another one was not.
    pub dead_channel: u64,
    /// The sender broke off.
    pub error: u64,
    /// It connected and ended so often in a short time that it lost its trust.
    pub flaps: u64,
    /// The last fault.
    pub last: Option<InputFault>,
}

impl FailureCounts {
    /// No failures.
    pub const NONE: Self =
        Self { late: 0, silent: 0, dc: 0, dead_channel: 0, error: 0, flaps: 0, last: None };
}

/// Rest of a stream's buffer at which it counts as late, so that the next input follows without a
/// gap.
const LATE_BUFFER: Span = Span::from_millis(200);

/// Upper limit of the doubled failback delay; an input that is preferred may play earlier.
pub const MAX_FAILBACK_DELAY: Span = Span::from_secs(60);

/// A healthy live first input has started by then.
pub const DEFAULT_STARTUP_WAIT: Span = Span::from_secs(1);

//! Decides when the processed programme is heard, and with which latency.
//!
//! Everything is counted in frames of the station, so that a test needs no time. The latency is the
//! greatest delay with which processed frames have come back during a settling time, and a margin.
//! It only grows: a shorter one would skip audio and save nothing.

use aulos_core::{Frames, MediaTime, SampleRate, Span};

/// What has come back by the end of a quantum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The end of the frames that have come without a gap; `None` before the first.
    pub(super) end: Option<MediaTime>,
    /// They do not continue those of the last quantum: another run of the program.
    pub(super) is_broken: bool,
}

/// The part that decides.
#[derive(Debug)]
pub(super) struct Bypass {
    quantum: Frames,
    /// What a fade needs.
    reserve: Frames,
    margin: Frames,
    /// Latencies are multiples of it.
    step: Frames,
    greatest: Frames,
    settling_time: Frames,
    latency: Frames,
    is_fixed: bool,
    state: State,
    /// Bypasses because of late frames, without a minute of processing between.
    late: u32,
    /// The latency that the last settling time has asked for in vain.
    refused: Option<Frames>,
    healthy: Frames,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has come back since the last bypass.
    Waiting,
    /// Frames come back; the greatest delay so far.
    Settling { since: MediaTime, greatest: Frames },
    /// The processed programme is heard.
    Processing { since: MediaTime },
}

impl Bypass {
    /// A machine that begins with the bypass. A given latency is kept from the first frame on.
    pub(super) fn new(
        rate: SampleRate,
        quantum: Frames,
        reserve: Frames,
        latency: Option<Frames>,
    ) -> Self {
        Self {
            quantum,
            reserve,
            margin: rate.frames(MARGIN),
            step: rate.frames(STEP),
            greatest: rate.frames(MAX_LATENCY),
            settling_time: rate.frames(SETTLING),
            latency: latency.unwrap_or_default(),
            is_fixed: latency.is_some(),
            state: State::Waiting,
            late: 0,
            refused: None,
            healthy: rate.frames(HEALTHY_FOR),
        }
    }

    /// Whether the processed programme is to be heard.
    pub(super) const fn is_processing(&self) -> bool {
        matches!(self.state, State::Processing { .. })
    }

    /// The latency of both programmes.
    pub(super) const fn latency(&self) -> Frames {
        self.latency
    }

    /// The latency without which the program is too late: more than was configured, or than any
    /// insert may have.
    pub(super) const fn refused(&self) -> Option<Frames> {
        self.refused
    }

    /// Decides for the quantum that begins at `at`. `may_begin` is false while a fade is under way.
    /// Returns whether the processed programme has to be left because of late frames.
    pub(super) fn handle_quantum(
        &mut self,
        at: MediaTime,
        arrival: Arrival,
        may_begin: bool,
    ) -> bool {
        let end = at + self.quantum;
        let lag = arrival.end.map(|arrived| Frames(end.0.saturating_sub(arrived.0)));
        if let State::Processing { since } = self.state {
            // This quantum, and the fade that begins with the next one at the latest.
            if lag.is_some_and(|lag| lag + self.reserve <= self.latency) {
                return false;
            }
            self.late =
                if at.since(since) >= self.healthy { 0 } else { self.late.saturating_add(1) };
            self.state = State::Waiting;
            return true;
        }
        let Some(lag) = lag.filter(|lag| *lag <= self.greatest) else {
            self.state = State::Waiting;
            return false;
        };
        self.state = match self.state {
            // The first half shows what a start or a stall has left over.
            State::Settling { since, .. }
                if !arrival.is_broken && at.since(since) < Frames(self.settling_time.0 / 2) =>
            {
                State::Settling { since, greatest: lag }
            }
            State::Settling { since, greatest } if !arrival.is_broken => {
                State::Settling { since, greatest: greatest.max(lag) }
            }
            _ => State::Settling { since: at, greatest: lag },
        };
        if let State::Settling { since, greatest } = self.state
            && at.since(since) >= Frames(self.settling_time.0 << self.late.min(MAX_DOUBLINGS))
        {
            self.settle(at, greatest, may_begin);
        }
        false
    }

    fn settle(&mut self, at: MediaTime, greatest: Frames, may_begin: bool) {
        let needed = greatest + self.reserve;
        if needed > self.latency {
            let step = self.step.0.max(1);
            let wanted = Frames((needed + self.margin).0.div_ceil(step) * step);
            if self.is_fixed || wanted > self.greatest {
                // Perhaps the next settling time finds less.
                self.refused = Some(if self.is_fixed { needed } else { wanted });
                self.state = State::Settling { since: at, greatest: Frames::ZERO };
                return;
            }
            if may_begin {
                self.latency = wanted;
            }
        } else if may_begin {
            self.refused = None;
            self.state = State::Processing { since: at };
        }
    }
}

/// How long frames must come back before they are heard; it doubles with each bypass because of
/// late ones.
const SETTLING: Span = Span::from_millis(1_000);
/// 64 seconds in all.
const MAX_DOUBLINGS: u32 = 6;
/// Processing for so long makes earlier bypasses void.
const HEALTHY_FOR: Span = Span::from_secs(60);
/// For a thread that the scheduler runs later than in the settling time.
const MARGIN: Span = Span::from_millis(50);
/// So that a program that is started again mostly finds the same latency.
const STEP: Span = Span::from_millis(10);
/// Processors for stations have some tenths of a second; a client's buffer is a second.
pub(super) const MAX_LATENCY: Span = Span::from_secs(2);

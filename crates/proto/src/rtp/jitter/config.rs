//! What a jitter buffer is told.

use aulos_core::Span;

/// What kind of buffer it is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterConfig {
    /// Units of timestamps per second, 1 to 1,000,000.
    pub clock_rate: u32,
    /// How many packets it holds, 8 to 4,096; rounded up to a power of two.
    pub slots: usize,
    /// What it is for.
    pub mode: JitterMode,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum JitterMode {
    /// Packets come out when they are to be heard.
    Playout(DelayPolicy),
    /// Packets come out in order, as soon as they can.
    Relay {
        /// The longest that a packet waits for one before it.
        hold: Span,
    },
}

/// How much later than the fastest packets sound is played.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DelayPolicy {
    /// Always the same.
    Fixed(Span),
    /// As much as the network needs.
    Adaptive {
        /// The part of the packets that is to come in time, 0.5 to 0.9999.
        quantile: f32,
        /// Never less than this.
        least: Span,
        /// Never more than this.
        most: Span,
        /// What to begin with.
        first: Span,
    },
}

impl DelayPolicy {
    /// 99.5 % in time, up to 200 ms; it begins with 40 ms.
    pub const ADAPTIVE: Self = Self::Adaptive {
        quantile: 0.995,
        least: Span::ZERO,
        most: Span::from_millis(200),
        first: Span::from_millis(40),
    };
}

impl DelayPolicy {
    /// The longest that it can be.
    pub(super) const fn most(&self) -> Span {
        match *self {
            Self::Fixed(delay) => delay,
            Self::Adaptive { most, .. } => most,
        }
    }
}

/// The mode with everything in range, the longest delay, the one to begin with, and the quantile.
pub(super) fn sanitize(mode: JitterMode) -> (JitterMode, Span, Span, f32) {
    let within = |span: Span| span.clamp(Span::ZERO, MAX_DELAY);
    match mode {
        JitterMode::Playout(DelayPolicy::Fixed(delay)) => {
            let delay = within(delay);
            (JitterMode::Playout(DelayPolicy::Fixed(delay)), delay, delay, RELAY_QUANTILE)
        }
        JitterMode::Playout(DelayPolicy::Adaptive { quantile, least, most, first }) => {
            let quantile = if quantile >= 0.5 { quantile.min(0.9999) } else { 0.5 };
            let (most, least) = (within(most), within(least).min(within(most)));
            let first = within(first).clamp(least, most);
            let delay = DelayPolicy::Adaptive { quantile, least, most, first };
            (JitterMode::Playout(delay), most, first, quantile)
        }
        JitterMode::Relay { hold } => {
            let hold = within(hold);
            (JitterMode::Relay { hold }, hold, hold, RELAY_QUANTILE)
        }
    }
}

/// The longest delay that can be asked for.
pub const MAX_DELAY: Span = Span::from_secs(10);

/// A relay's patience: for nearly everyone.
const RELAY_QUANTILE: f32 = 0.999;

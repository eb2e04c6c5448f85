//! Configuration of a jitter buffer.

use aulos_core::Span;

/// Configuration of a jitter buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterConfig {
    /// Timestamp ticks per second, 1 to 1,000,000.
    pub clock_rate: u32,
    /// Capacity in packets, 8 to 4,096; rounded up to a power of two.
    pub slots: usize,
    /// Mode of operation.
    pub mode: JitterMode,
}

/// Mode of operation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum JitterMode {
    /// Packets come out at their playout time.
    Playout(DelayPolicy),
    /// Packets come out in sequence, as soon as possible.
    Relay {
        /// Maximum time for which a packet waits for a missing one before it.
        hold: Span,
    },
}

/// Playout delay, relative to the fastest packets.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DelayPolicy {
    /// Constant delay.
    Fixed(Span),
    /// Delay that follows the network.
    Adaptive {
        /// Share of the packets that must arrive in time, 0.5 to 0.9999.
        quantile: f32,
        /// Minimum delay.
        min: Span,
        /// Maximum delay.
        max: Span,
        /// Initial delay.
        first: Span,
    },
}

impl DelayPolicy {
    /// 99.5 % in time, up to 200 ms, initially 40 ms.
    pub const ADAPTIVE: Self = Self::Adaptive {
        quantile: 0.995,
        min: Span::ZERO,
        max: Span::from_millis(200),
        first: Span::from_millis(40),
    };
}

impl DelayPolicy {
    /// Maximum delay.
    pub(super) const fn max_delay(&self) -> Span {
        match *self {
            Self::Fixed(delay) => delay,
            Self::Adaptive { max, .. } => max,
        }
    }
}

/// Returns the mode with clamped values, the maximum delay, the initial delay, and the quantile.
pub(super) fn sanitize(mode: JitterMode) -> (JitterMode, Span, Span, f32) {
    let within = |span: Span| span.clamp(Span::ZERO, MAX_DELAY);
    match mode {
        JitterMode::Playout(DelayPolicy::Fixed(delay)) => {
            let delay = within(delay);
            (JitterMode::Playout(DelayPolicy::Fixed(delay)), delay, delay, RELAY_QUANTILE)
        }
        JitterMode::Playout(DelayPolicy::Adaptive { quantile, min, max, first }) => {
            let quantile = if quantile >= 0.5 { quantile.min(0.9999) } else { 0.5 };
            let (max, min) = (within(max), within(min).min(within(max)));
            let first = within(first).clamp(min, max);
            let delay = DelayPolicy::Adaptive { quantile, min, max, first };
            (JitterMode::Playout(delay), max, first, quantile)
        }
        JitterMode::Relay { hold } => {
            let hold = within(hold);
            (JitterMode::Relay { hold }, hold, hold, RELAY_QUANTILE)
        }
    }
}

/// Maximum of a configured delay.
pub const MAX_DELAY: Span = Span::from_secs(10);

/// Share of the packets for which a relay waits.
const RELAY_QUANTILE: f32 = 0.999;

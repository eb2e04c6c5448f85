//! Configuration of a meter.

use core::fmt;
use core::ops::BitOr;

use aulos_core::{ChannelLayout, MAX_CHANNELS, SampleRate};

use super::ChannelPosition;
use crate::simd::SimdLevel;

/// A set of measures; a measure that is not in the set costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MeterMode(u8);

impl MeterMode {
    /// Loudness of the last 400 ms.
    pub const MOMENTARY: Self = Self(1);
    /// Loudness of the last 3 s; includes momentary.
    pub const SHORT_TERM: Self = Self(2 | 1);
    /// Loudness of the whole programme, gated; includes momentary.
    pub const INTEGRATED: Self = Self(4 | 1);
    /// Loudness range of the whole programme; includes short-term.
    pub const RANGE: Self = Self(8 | 2 | 1);
    /// The maximum sample of each channel.
    pub const SAMPLE_PEAK: Self = Self(16);
    /// The maximum value between samples as well; includes sample peak.
    pub const TRUE_PEAK: Self = Self(32 | 16);
    /// The exact maxima of momentary and, if it is measured, short-term loudness, over windows that
    /// end at any frame.
    pub const MAXIMA: Self = Self(64 | 1);
    /// All measures.
    pub const ALL: Self = Self(127);

    /// Whether all of `other` is in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for MeterMode {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for MeterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(MeterMode, &str); 7] = [
            (MeterMode::MOMENTARY, "momentary"),
            (MeterMode::SHORT_TERM, "short-term"),
            (MeterMode::INTEGRATED, "integrated"),
            (MeterMode::RANGE, "range"),
            (MeterMode::SAMPLE_PEAK, "sample peak"),
            (MeterMode::TRUE_PEAK, "true peak"),
            (MeterMode::MAXIMA, "maxima"),
        ];
        let names = NAMES.iter().filter(|(mode, _)| self.contains(*mode)).map(|(_, name)| name);
        f.debug_set().entries(names).finish()
    }
}

/// History of a programme, for integrated loudness and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeterHistory {
    /// Exact, the last `ms` milliseconds; all memory is allocated at construction, 88 bytes per
    /// second.
    Bounded {
        /// Milliseconds.
        ms: u64,
    },
    /// Exact, a limited number of values; adding frames allocates until the limits are reached.
    Entries {
        /// Gating blocks, ten a second.
        blocks: usize,
        /// Short-term values, at the rate of [`RangeHop`].
        ranges: usize,
    },
    /// Exact and unlimited; adding frames then allocates now and then.
    Unbounded,
    /// In 1,000 bins of 0.1 LU, without a time limit, in 16 kB; integrated loudness is then within
    /// 0.05 LU.
    Histogram,
}

/// Interval of the short-term values for the loudness range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeHop {
    /// Every second, as libebur128 and what is based on it.
    Second,
    /// Every 100 ms, as FFmpeg; recommended by EBU Tech 3342.
    Tenth,
}

/// Handling of samples that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NonFinitePolicy {
    /// They are measured as silence, and counted.
    Silence,
    /// They contaminate their channel's filter for good, as in libebur128: windows read NaN,
    /// integrated loudness and range keep their values. Peaks ignore NaN.
    Propagate,
}

/// Implementation of the measurement; all give the same figures to 1e-9 LU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MeterKernel {
    /// The fastest that this processor supports.
    Best,
    /// One sample after the other.
    Scalar,
    /// At most AVX2.
    Avx2,
}

impl MeterKernel {
    pub(super) fn level(self) -> SimdLevel {
        let available = SimdLevel::available();
        let most = match self {
            Self::Best => available.len(),
            Self::Scalar => 1,
            Self::Avx2 => 2,
        };
        available[available.len().min(most) - 1]
    }
}

/// Configuration of a [`Meter`](super::Meter).
#[derive(Clone, Debug)]
pub struct MeterConfig {
    /// Frames per second.
    pub rate: SampleRate,
    /// The position of each channel: 1 to 64 of them.
    pub positions: Vec<ChannelPosition>,
    /// What is measured.
    pub mode: MeterMode,
    /// Length of the history. Default: 24 hours.
    pub history: MeterHistory,
    /// The longest window that can be read, in milliseconds, at most [`MAX_WINDOW_MS`]; never
    /// shorter than the mode needs. Default: 0.
    pub max_window_ms: u32,
    /// Interval of the values for the loudness range. Default: every second.
    pub range_hop: RangeHop,
    /// Handling of samples that are not finite. Default: silence.
    pub non_finite: NonFinitePolicy,
    /// Whether [`Meter::last_true_peak`](super::Meter::last_true_peak) is exact as well, which
    /// costs time because fewer samples can be skipped. Default: no.
    pub call_peaks: bool,
    /// Whether energies are kept for each hundredth of a second only, and not for each frame: 40 kB
    /// instead of 1.2 MB for 3 s at 48 kHz, and less work. Integrated loudness, range, and
    /// momentary and short-term loudness at the end of a hop are the same. Maxima are those of the
    /// windows that end at a hundredth of a second, and the edge of a window that ends between two
    /// of them is interpolated. For the many meters of a server. Default: no.
    pub coarse: bool,
    /// Implementation, for tests and benchmarks. Default: the best.
    pub kernel: MeterKernel,
}

impl MeterConfig {
    /// All defaults, with the layout's default channel positions.
    #[must_use]
    pub fn new(rate: SampleRate, layout: ChannelLayout, mode: MeterMode) -> Self {
        Self {
            rate,
            positions: ChannelPosition::default_for(layout),
            mode,
            history: MeterHistory::Bounded { ms: DAY_MS },
            max_window_ms: 0,
            range_hop: RangeHop::Second,
            non_finite: NonFinitePolicy::Silence,
            call_peaks: false,
            coarse: false,
            kernel: MeterKernel::Best,
        }
    }

    pub(super) fn validate(&self) -> Result<(), InvalidMeterConfig> {
        let channels = self.positions.len();
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(InvalidMeterConfig::Channels(channels));
        }
        if channels > 1 && self.positions.contains(&ChannelPosition::DualMono) {
            return Err(InvalidMeterConfig::DualMono(channels));
        }
        if self.max_window_ms > MAX_WINDOW_MS {
            return Err(InvalidMeterConfig::Window(self.max_window_ms));
        }
        Ok(())
    }
}

/// The longest window that can be configured: an hour, 1.4 GB of energies at 48 kHz.
pub const MAX_WINDOW_MS: u32 = 3_600_000;

const DAY_MS: u64 = 86_400_000;

/// Error: invalid configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidMeterConfig {
    /// No channels, or more than 64; holds the number.
    Channels(usize),
    /// Dual mono is for one channel; holds the number of channels.
    DualMono(usize),
    /// A window longer than [`MAX_WINDOW_MS`]; holds its length in milliseconds.
    Window(u32),
}

impl fmt::Display for InvalidMeterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channels(n) => write!(f, "{n} channels: expected 1 to {MAX_CHANNELS}"),
            Self::DualMono(n) => write!(f, "dual mono needs one channel, not {n}"),
            Self::Window(ms) => write!(f, "a window of {ms} ms is longer than {MAX_WINDOW_MS} ms"),
        }
    }
}

impl core::error::Error for InvalidMeterConfig {}

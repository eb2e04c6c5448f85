//! What a client's sound is made of, and the level that it can reach.

use core::fmt;

use aulos_core::{ChannelMap, Db, SampleRate, Span};

use crate::equalizer::{Biquad, EqualizerBand, HIGHEST, InvalidBand, MAX_BANDS};

/// Highest preamplification, in either direction.
pub const MAX_PREAMP: Db = Db::new(40.0);

/// Highest gain of a channel, in either direction.
pub const MAX_CHANNEL_GAIN: Db = Db::new(24.0);

/// Longest delay of a channel: what sound needs for 34 m.
pub const MAX_DELAY: Span = Span::from_millis(100);

/// The sound of a client.
///
/// On a station with one channel, `left` is its processing. On one with more than two, channels
/// beyond the second are processed like the first two if these are equal, and otherwise only get
/// the preamplification.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a chain is written down as a whole")]
pub struct SoundChain {
    /// Gain of all channels; none lowers the programme by as much as the response rises above
    /// 0 dB, if [`Headroom::Lower`] says so.
    pub preamp: Option<Db>,
    /// What keeps a response above 0 dB from clipping.
    pub headroom: Headroom,
    /// The channels that the client plays.
    pub map: ChannelMap,
    /// Processing of the first channel after the map.
    pub left: ChannelChain,
    /// Processing of the second one.
    pub right: ChannelChain,
}

/// No value of a valid chain is NaN.
impl Eq for SoundChain {}

/// The processing of one channel.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a chain is written down as a whole")]
pub struct ChannelChain {
    /// Gain, up to [`MAX_CHANNEL_GAIN`] in either direction.
    pub gain: Db,
    /// Delay, 0 to [`MAX_DELAY`]; only the difference between the channels is audible, because
    /// clients play in sync.
    pub delay: Span,
    /// Up to [`MAX_BANDS`] filters in series.
    pub bands: Vec<EqualizerBand>,
}

/// What keeps a response above 0 dB from clipping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headroom {
    /// The programme is lowered by the highest gain of the response, where no preamplification is
    /// given.
    #[default]
    Lower,
    /// A limiter follows, with the ceiling of the station.
    Limiter,
}

impl Headroom {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Lower, Self::Limiter];

    /// Name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Limiter => "limiter",
        }
    }
}

impl SoundChain {
    /// A chain with the same processing for both channels.
    #[must_use]
    pub fn of_bands(bands: Vec<EqualizerBand>) -> Self {
        let both = ChannelChain { bands, ..ChannelChain::default() };
        Self { left: both.clone(), right: both, ..Self::default() }
    }

    /// Checks every value at this rate.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn validate(&self, rate: SampleRate) -> Result<(), InvalidChain> {
        let preamp = self.preamp.unwrap_or(Db::ZERO);
        if !is_within(preamp, MAX_PREAMP) {
            return Err(InvalidChain::Preamp(preamp));
        }
        for channel in [&self.left, &self.right] {
            if !is_within(channel.gain, MAX_CHANNEL_GAIN) {
                return Err(InvalidChain::Gain(channel.gain));
            }
            if !(Span::ZERO..=MAX_DELAY).contains(&channel.delay) {
                return Err(InvalidChain::Delay(channel.delay));
            }
            if channel.bands.len() > MAX_BANDS {
                return Err(InvalidChain::TooManyBands(channel.bands.len()));
            }
            for (index, band) in channel.bands.iter().enumerate() {
                band.validate(rate).map_err(|wrong| InvalidChain::Band(index + 1, wrong))?;
            }
        }
        Ok(())
    }

    /// The preamplification that applies at this rate, in dB.
    #[must_use]
    pub fn effective_preamp(&self, rate: SampleRate) -> Db {
        match (self.preamp, self.headroom) {
            (Some(preamp), _) => preamp,
            (None, Headroom::Limiter) => Db::ZERO,
            (None, Headroom::Lower) => Db::new(-self.bare_peak(rate).max(0.0)),
        }
    }

    /// The highest gain of the response, preamplification included, in dB.
    #[must_use]
    pub fn peak(&self, rate: SampleRate) -> Db {
        Db::new(self.bare_peak(rate) + self.effective_preamp(rate).get())
    }

    /// The gain of left and right at a frequency, preamplification included, in dB.
    #[must_use]
    pub fn response(&self, hz: f64, rate: SampleRate) -> [Db; 2] {
        let preamp = self.effective_preamp(rate).get();
        [&self.left, &self.right].map(|one| Db::new(preamp + one.response_db(hz, rate)))
    }

    /// The highest gain without preamplification, in dB: on a grid, and around every band's
    /// frequency, where narrow bands add up.
    fn bare_peak(&self, rate: SampleRate) -> f64 {
        let top = GRID_TO_HZ.min(HIGHEST * f64::from(rate.hz()));
        let grid = frequencies(GRID_FROM_HZ, top, GRID_POINTS);
        let around = self.bands().flat_map(|band| {
            [-0.5, -0.25, 0.0, 0.25, 0.5].map(|part| band.hz * (part / band.q).exp())
        });
        let probes: Vec<f64> = grid.chain(around.filter(|hz| *hz <= top)).collect();
        let channels = [&self.left, &self.right].into_iter();
        let gains = channels.flat_map(|one| probes.iter().map(|hz| one.response_db(*hz, rate)));
        gains.fold(f64::NEG_INFINITY, f64::max)
    }

    fn bands(&self) -> impl Iterator<Item = &EqualizerBand> {
        self.left.bands.iter().chain(&self.right.bands)
    }
}

impl ChannelChain {
    /// A delay of so many milliseconds, to the nearest nanosecond.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "it saturates, and is checked later")]
    pub fn delay_of_ms(ms: f64) -> Span {
        Span::from_nanos((ms * 1e6).round() as i64)
    }

    /// Its delay in milliseconds, which [`Self::delay_of_ms`] reads back.
    #[must_use]
    pub fn delay_ms(&self) -> f64 {
        self.delay.as_secs_f64() * 1e3
    }

    /// The bands that exist at this rate: a band near or above half of it has nothing to filter.
    pub(super) fn bands_at(&self, rate: SampleRate) -> impl Iterator<Item = &EqualizerBand> {
        let top = HIGHEST * f64::from(rate.hz());
        self.bands.iter().filter(move |band| band.hz <= top).take(MAX_BANDS)
    }

    fn response_db(&self, hz: f64, rate: SampleRate) -> f64 {
        let rate_hz = f64::from(rate.hz());
        let gain = |band| Biquad::design(band, rate_hz).magnitude(hz, rate_hz);
        let product: f64 = self.bands_at(rate).map(gain).product();
        self.gain.get() + 20.0 * product.max(SILENT).log10()
    }
}

/// Frequencies at equal ratios, both ends included.
#[allow(clippy::cast_precision_loss, reason = "few points")]
fn frequencies(from: f64, to: f64, points: usize) -> impl Iterator<Item = f64> {
    let step = (to / from).ln() / (points.max(2) - 1) as f64;
    (0..points).map(move |point| from * (step * point as f64).exp())
}

/// The frequencies at which a response is shown: 64 from 20 Hz to 20 kHz, or to below half of the
/// rate.
pub fn response_frequencies(rate: SampleRate) -> impl Iterator<Item = f64> {
    frequencies(GRID_FROM_HZ, GRID_TO_HZ.min(HIGHEST * f64::from(rate.hz())), SHOWN_POINTS)
}

fn is_within(gain: Db, most: Db) -> bool {
    gain.get().abs() <= most.get()
}

/// The grid on which the peak of a response is searched for.
const GRID_FROM_HZ: f64 = 20.0;
const GRID_TO_HZ: f64 = 20_000.0;
const GRID_POINTS: usize = 512;
const SHOWN_POINTS: usize = 64;
/// A notch has no finite level at its frequency.
const SILENT: f64 = 1e-15;

/// Error: a value of a chain out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidChain {
    /// The preamplification.
    Preamp(Db),
    /// The gain of a channel.
    Gain(Db),
    /// The delay of a channel.
    Delay(Span),
    /// More than [`MAX_BANDS`] bands on a channel.
    TooManyBands(usize),
    /// A value of the band of this number, from 1.
    Band(usize, InvalidBand),
}

impl fmt::Display for InvalidChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |f: &mut fmt::Formatter<'_>, name, db: Db, most: Db| {
            let (db, most) = (db.get(), most.get());
            write!(f, "{name}: {db} dB is not between -{most} and {most}")
        };
        match self {
            Self::Preamp(db) => within(f, "preamp_db", *db, MAX_PREAMP),
            Self::Gain(db) => within(f, "gain_db", *db, MAX_CHANNEL_GAIN),
            Self::Delay(delay) => {
                let (ms, most) = (delay.as_secs_f64() * 1e3, MAX_DELAY.as_millis());
                write!(f, "delay_ms: {ms} ms is not between 0 and {most}")
            }
            Self::TooManyBands(count) => {
                write!(f, "{count} bands on a channel: at most {MAX_BANDS} are possible")
            }
            Self::Band(number, wrong) => write!(f, "band {number}: {wrong}"),
        }
    }
}

impl core::error::Error for InvalidChain {}

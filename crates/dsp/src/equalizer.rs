//! A parametric equalizer: a cascade of second-order filters.
//!
//! The filters are those of Robert Bristow-Johnson, "Cookbook formulae for audio EQ biquad filter
//! coefficients", in the transposed direct form II with coefficients and state in f64: at 192 kHz a
//! band at 20 Hz has poles within a thousandth of the unit circle, where f32 would add noise.
//!
//! When bands change, the old and the new cascade both process the signal, with a crossfade between
//! them. Interpolating the coefficients from sample to sample was rejected: between cascades of
//! different filter types there is no path that is stable throughout, and a state that fits the old
//! filter rings in the new one.

use core::f64::consts::PI;
use core::fmt;

use aulos_core::{ChannelLayout, Db, Frames, SampleRate, Span};

use crate::Crossfade;

/// Filter type of a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterType {
    /// Raises or lowers the level around the frequency.
    Peaking,
    /// Raises or lowers the level below it.
    LowShelf,
    /// Raises or lowers the level above it.
    HighShelf,
    /// Attenuates below it, by 12 dB an octave.
    HighPass,
    /// Attenuates above it, by 12 dB an octave.
    LowPass,
    /// Removes the frequency.
    Notch,
    /// Turns the phase by 180 degrees at it and leaves every level as it is.
    AllPass,
}

impl FilterType {
    /// All filter types.
    pub const ALL: [Self; 7] = [
        Self::Peaking,
        Self::LowShelf,
        Self::HighShelf,
        Self::HighPass,
        Self::LowPass,
        Self::Notch,
        Self::AllPass,
    ];

    /// Name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peaking => "peaking",
            Self::LowShelf => "low-shelf",
            Self::HighShelf => "high-shelf",
            Self::HighPass => "high-pass",
            Self::LowPass => "low-pass",
            Self::Notch => "notch",
            Self::AllPass => "all-pass",
        }
    }

    /// Whether the type uses the band's gain.
    #[must_use]
    pub const fn has_gain(self) -> bool {
        matches!(self, Self::Peaking | Self::LowShelf | Self::HighShelf)
    }
}

/// One filter of an equalizer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a band is written down as a whole")]
pub struct EqualizerBand {
    /// Filter type.
    pub filter_type: FilterType,
    /// Frequency: the center of a peak, notch or all-pass, the -3 dB point of a high-pass or low-pass at a q
    /// of 0.7071, the midpoint of a shelf's slope. 10 Hz to 0.45 times the sample rate.
    pub hz: f64,
    /// Gain, -24 to +24 dB; ignored by high-pass, low-pass, notch and all-pass.
    pub gain: Db,
    /// Quality factor, 0.1 to 20; higher is narrower.
    pub q: f64,
}

/// Maximum number of bands of an equalizer.
pub const MAX_BANDS: usize = 16;

/// Bounds of a band's frequency (the upper one relative to the rate), gain and q.
const LOWEST_HZ: f64 = 10.0;
pub(crate) const HIGHEST: f64 = 0.45;
pub(crate) const GAIN_DB: f64 = 24.0;
pub(crate) const Q: (f64, f64) = (0.1, 20.0);

impl EqualizerBand {
    /// Checks whether the band is valid at this rate.
    ///
    /// # Errors
    /// [`InvalidBand`] names the invalid value and its bounds.
    pub fn validate(&self, rate: SampleRate) -> Result<(), InvalidBand> {
        let highest = HIGHEST * f64::from(rate.hz());
        for (name, value, min, max, unit) in [
            ("hz", self.hz, LOWEST_HZ, highest, "Hz"),
            ("gain_db", self.gain.get(), -GAIN_DB, GAIN_DB, "dB"),
            ("q", self.q, Q.0, Q.1, ""),
        ] {
            if !(min..=max).contains(&value) {
                return Err(InvalidBand { name, value, min, max, unit });
            }
        }
        Ok(())
    }
}

/// Error: a band value out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidBand {
    /// Name of the value: `hz`, `gain_db` or `q`.
    pub name: &'static str,
    /// The offending value.
    pub value: f64,
    /// Lower bound.
    pub min: f64,
    /// Upper bound.
    pub max: f64,
    /// Unit of all three.
    pub unit: &'static str,
}

impl fmt::Display for InvalidBand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, min, max, unit } = self;
        let space = if unit.is_empty() { "" } else { " " };
        write!(f, "{name}: {value}{space}{unit} is not between {min} and {max}")
    }
}

impl core::error::Error for InvalidBand {}

/// Up to [`MAX_BANDS`] bands in series, the same for all channels.
///
/// Without bands, the signal passes bit-exact. Samples that are not finite become silence.
///
/// # Real-time
/// Allocates at construction only.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Db, SampleRate};
/// use aulos_dsp::equalizer::{Equalizer, EqualizerBand, FilterType};
///
/// let mut equalizer = Equalizer::new(SampleRate::HZ_48000, ChannelLayout::MONO);
/// let filter_type = FilterType::HighPass;
/// let rumble = EqualizerBand { filter_type, hz: 80.0, gain: Db::ZERO, q: 0.7071 };
/// equalizer.set(&[rumble])?;
/// let mut sound = [0.5; 48_000];
/// equalizer.process(&mut sound);
/// assert!(sound[47_999].abs() < 1e-6, "a constant is below 80 Hz");
/// # Ok::<(), aulos_dsp::equalizer::InvalidBand>(())
/// ```
#[derive(Clone, Debug)]
pub struct Equalizer {
    rate: SampleRate,
    channels: usize,
    current: FilterCascade,
    /// The previous cascade: it processes the signal until it is faded out.
    outgoing: FilterCascade,
    fade: Option<BandFade>,
    /// The bands to apply after the present fade.
    next: Option<FilterSet>,
    /// Some frames of the previous cascade's output.
    scratch: Box<[f32]>,
}

#[derive(Clone, Debug)]
struct BandFade {
    /// Frames for which the new cascade still runs muted, so that its transient response is over.
    warm: Frames,
    curve: Crossfade,
}

/// The coefficients of the bands.
#[derive(Clone, Copy, Debug)]
struct FilterSet {
    filters: [Biquad; MAX_BANDS],
    count: usize,
}

#[derive(Clone, Debug)]
struct FilterCascade {
    bands: FilterSet,
    /// Two values of each channel in each band.
    state: Box<[[f64; 2]]>,
}

impl Equalizer {
    /// An equalizer without bands.
    #[must_use]
    pub fn new(rate: SampleRate, layout: ChannelLayout) -> Self {
        let channels = layout.channels();
        let bands = FilterSet { filters: [Biquad::PASS; MAX_BANDS], count: 0 };
        let current = FilterCascade { bands, state: vec![[0.0; 2]; MAX_BANDS * channels].into() };
        Self {
            rate,
            channels,
            outgoing: current.clone(),
            current,
            fade: None,
            next: None,
            scratch: vec![0.0; RUN * channels].into(),
        }
    }

    /// Sets other bands from the next frame on, with a fade of 100 ms; those beyond [`MAX_BANDS`]
    /// are ignored.
    ///
    /// # Errors
    /// [`InvalidBand`] for the first invalid value; nothing has changed then.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn set(&mut self, bands: &[EqualizerBand]) -> Result<(), InvalidBand> {
        bands.iter().try_for_each(|band| band.validate(self.rate))?;
        let mut new = FilterSet { filters: [Biquad::PASS; MAX_BANDS], count: 0 };
        for (filter, band) in new.filters.iter_mut().zip(bands) {
            *filter = Biquad::design(band, f64::from(self.rate.hz()));
            new.count += 1;
        }
        if self.fade.is_some() {
            self.next = Some(new);
        } else {
            self.begin_fade(new);
        }
        Ok(())
    }

    /// Filters interleaved frames in place. An incomplete frame at the end stays as it is.
    ///
    /// # Real-time
    /// Does not allocate; some ten operations per sample and band, twice as many while bands
    /// change.
    pub fn process(&mut self, block: &mut [f32]) {
        if self.is_idle() {
            return;
        }
        let whole = block.len() / self.channels * self.channels;
        for run in block[..whole].chunks_mut(RUN * self.channels) {
            self.run(run);
        }
    }

    /// Whether the signal passes unchanged.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.current.bands.count == 0 && self.fade.is_none()
    }

    /// Clears the filter states; the bands stay.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset(&mut self) {
        self.current.state.fill([0.0; 2]);
        self.outgoing.state.fill([0.0; 2]);
    }

    fn begin_fade(&mut self, new: FilterSet) {
        core::mem::swap(&mut self.current, &mut self.outgoing);
        self.current.bands = new;
        self.current.state.fill([0.0; 2]);
        let frames = self.rate.frames(FADE);
        self.fade = Some(BandFade { warm: frames, curve: Crossfade::linear(frames) });
    }

    fn run(&mut self, run: &mut [f32]) {
        run.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        let Some(fade) = &mut self.fade else {
            return self.current.process(run, self.channels);
        };
        let going = &mut self.scratch[..run.len()];
        going.copy_from_slice(run);
        self.outgoing.process(going, self.channels);
        self.current.process(run, self.channels);
        let unheard = fade.warm.as_usize().saturating_mul(self.channels).min(run.len());
        run[..unheard].copy_from_slice(&going[..unheard]);
        fade.warm -= Frames::from(unheard / self.channels);
        fade.curve.mix(&going[unheard..], &mut run[unheard..], self.channels);
        if fade.curve.remaining() == Frames::ZERO {
            self.fade = None;
            if let Some(next) = self.next.take() {
                self.begin_fade(next);
            }
        }
    }
}

impl FilterCascade {
    #[allow(clippy::cast_possible_truncation, reason = "sound is f32")]
    fn process(&mut self, run: &mut [f32], channels: usize) {
        let filters = &self.bands.filters[..self.bands.count];
        for (filter, states) in filters.iter().zip(self.state.chunks_exact_mut(channels)) {
            let Biquad { b, a } = *filter;
            for frame in run.chunks_exact_mut(channels) {
                for (sample, [one, two]) in frame.iter_mut().zip(states.iter_mut()) {
                    let x = f64::from(*sample);
                    let y = b[0] * x + *one;
                    *one = b[1] * x - a[0] * y + *two;
                    *two = b[2] * x - a[1] * y;
                    *sample = y as f32;
                }
            }
            // The decay would end in denormal numbers, which are a hundred times slower.
            for value in states.iter_mut().flatten().filter(|value| value.abs() < INAUDIBLE) {
                *value = 0.0;
            }
        }
    }
}

/// `y[n] = b0 x[n] + b1 x[n-1] + b2 x[n-2] - a1 y[n-1] - a2 y[n-2]`, all divided by a0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Biquad {
    pub(crate) b: [f64; 3],
    pub(crate) a: [f64; 2],
}

impl Biquad {
    pub(crate) const PASS: Self = Self { b: [1.0, 0.0, 0.0], a: [0.0, 0.0] };

    pub(crate) fn design(band: &EqualizerBand, rate: f64) -> Self {
        let (sin, cos) = (2.0 * PI * band.hz / rate).sin_cos();
        let alpha = sin / (2.0 * band.q);
        let gain = 10f64.powf(band.gain.get() / 40.0);
        let (b, a) = match band.filter_type {
            FilterType::Peaking => (
                [1.0 + alpha * gain, -2.0 * cos, 1.0 - alpha * gain],
                [1.0 + alpha / gain, -2.0 * cos, 1.0 - alpha / gain],
            ),
            FilterType::LowShelf => Self::shelf(gain, cos, alpha, 1.0),
            FilterType::HighShelf => Self::shelf(gain, cos, alpha, -1.0),
            FilterType::LowPass => {
                let edge = (1.0 - cos) / 2.0;
                ([edge, 1.0 - cos, edge], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
            }
            FilterType::HighPass => {
                let edge = f64::midpoint(1.0, cos);
                ([edge, -1.0 - cos, edge], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
            }
            FilterType::Notch => ([1.0, -2.0 * cos, 1.0], [1.0 + alpha, -2.0 * cos, 1.0 - alpha]),
            FilterType::AllPass => {
                ([1.0 - alpha, -2.0 * cos, 1.0 + alpha], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
            }
        };
        Self { b: b.map(|b| b / a[0]), a: [a[1] / a[0], a[2] / a[0]] }
    }

    /// The magnitude of its response at this frequency.
    pub(crate) fn magnitude(&self, hz: f64, rate: f64) -> f64 {
        let (sin, cos) = (2.0 * PI * hz / rate).sin_cos();
        let (sin2, cos2) = (2.0 * sin * cos, 1.0 - 2.0 * sin * sin);
        let polynomial =
            |c: [f64; 3]| f64::hypot(c[0] + c[1] * cos + c[2] * cos2, c[1] * sin + c[2] * sin2);
        polynomial(self.b) / polynomial([1.0, self.a[0], self.a[1]])
    }

    /// Low and high shelf differ in the sign of the cosine, and of the middle terms.
    fn shelf(gain: f64, cos: f64, alpha: f64, side: f64) -> ([f64; 3], [f64; 3]) {
        let (up, down, cos) = (gain + 1.0, gain - 1.0, side * cos);
        let slope = 2.0 * gain.sqrt() * alpha;
        (
            [
                gain * (up - down * cos + slope),
                side * 2.0 * gain * (down - up * cos),
                gain * (up - down * cos - slope),
            ],
            [up + down * cos + slope, side * -2.0 * (down + up * cos), up + down * cos - slope],
        )
    }
}

/// How long new bands run muted, and how long the crossfade then takes.
const FADE: Span = Span::from_millis(50);
/// Frames that are filtered at once.
pub(crate) const RUN: usize = 256;
/// -600 dB.
pub(crate) const INAUDIBLE: f64 = 1e-30;

#[cfg(test)]
mod tests;

//! A parametric equaliser: a row of second-order filters.
//!
//! The filters are those of Robert Bristow-Johnson, "Cookbook formulae for audio EQ biquad filter
//! coefficients", in the transposed direct form II with coefficients and state in f64: at 192 kHz a
//! band at 20 Hz has poles within a thousandth of the unit circle, and f32 would put noise into it.
//!
//! When bands change, the old and the new row both hear the sound and one is faded into the other.
//! To move the coefficients from sample to sample was rejected: a row of another shape has no way
//! from the old one that is stable throughout, and a state that fits the old filter rings in the new.

use core::f64::consts::PI;
use core::fmt;

use aulos_core::{ChannelLayout, Db, Frames, SampleRate, Span};

use crate::Crossfade;

/// What a band does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterType {
    /// Raises or lowers what is around the frequency.
    Peaking,
    /// Raises or lowers what is below it.
    LowShelf,
    /// Raises or lowers what is above it.
    HighShelf,
    /// Takes away what is below it, by 12 dB an octave.
    HighPass,
    /// Takes away what is above it, by 12 dB an octave.
    LowPass,
    /// Takes away what is at it.
    Notch,
}

impl FilterType {
    /// Every shape.
    pub const ALL: [Self; 6] = [
        Self::Peaking,
        Self::LowShelf,
        Self::HighShelf,
        Self::HighPass,
        Self::LowPass,
        Self::Notch,
    ];

    /// What it is called in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peaking => "peaking",
            Self::LowShelf => "low-shelf",
            Self::HighShelf => "high-shelf",
            Self::HighPass => "high-pass",
            Self::LowPass => "low-pass",
            Self::Notch => "notch",
        }
    }

    /// Whether its gain says anything.
    #[must_use]
    pub const fn has_gain(self) -> bool {
        matches!(self, Self::Peaking | Self::LowShelf | Self::HighShelf)
    }
}

/// One filter of an equaliser.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a band is written down as a whole")]
pub struct EqualizerBand {
    /// What it does.
    pub filter_type: FilterType,
    /// Where: the middle of a peak or notch, the -3 dB point of a pass at a q of 0.7071, the middle
    /// of a shelf's slope. 10 Hz to 0.45 times the sample rate.
    pub hz: f64,
    /// By how much, -24 to +24 dB; of passes and notches it says nothing.
    pub gain: Db,
    /// How narrow, 0.1 to 20.
    pub q: f64,
}

/// The most bands of an equaliser.
pub const MAX_BANDS: usize = 16;

/// Bounds of a band's frequency (the upper one as a share of the rate), gain and q.
const LOWEST_HZ: f64 = 10.0;
const HIGHEST: f64 = 0.45;
const GAIN_DB: f64 = 24.0;
const Q: (f64, f64) = (0.1, 20.0);

impl EqualizerBand {
    /// Whether there can be such a band at this rate.
    ///
    /// # Errors
    /// [`InvalidBand`] names what cannot be, and its bounds.
    pub fn validate(&self, rate: SampleRate) -> Result<(), InvalidBand> {
        let highest = HIGHEST * f64::from(rate.hz());
        for (name, value, least, most, unit) in [
            ("hz", self.hz, LOWEST_HZ, highest, "Hz"),
            ("gain_db", self.gain.get(), -GAIN_DB, GAIN_DB, "dB"),
            ("q", self.q, Q.0, Q.1, ""),
        ] {
            if !(least..=most).contains(&value) {
                return Err(InvalidBand { name, value, least, most, unit });
            }
        }
        Ok(())
    }
}

/// A value that a band cannot have.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct InvalidBand {
    /// Which: `hz`, `gain_db` or `q`.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The lowest that it may have.
    pub least: f64,
    /// The highest.
    pub most: f64,
    /// What all three are counted in.
    pub unit: &'static str,
}

impl fmt::Display for InvalidBand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, least, most, unit } = self;
        let space = if unit.is_empty() { "" } else { " " };
        write!(f, "{name}: {value}{space}{unit} is not between {least} and {most}")
    }
}

impl core::error::Error for InvalidBand {}

/// Up to [`MAX_BANDS`] bands, one behind the other, for all channels alike.
///
/// Without bands, sound passes bit by bit. What is not finite is silence.
///
/// # Real-time
/// Allocates at construction only.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, Db, SampleRate};
/// use aulos_dsp::equaliser::{Band, Equaliser, Shape};
///
/// let mut equaliser = Equaliser::new(SampleRate::STUDIO, ChannelLayout::MONO);
/// let rumble = Band { shape: Shape::HighPass, hz: 80.0, gain: Db::ZERO, q: 0.7071 };
/// equaliser.set(&[rumble])?;
/// let mut sound = [0.5; 48_000];
/// equaliser.process(&mut sound);
/// assert!(sound[47_999].abs() < 1e-6, "a constant is below 80 Hz");
/// # Ok::<(), aulos_dsp::equaliser::InvalidBand>(())
/// ```
#[derive(Clone, Debug)]
pub struct Equalizer {
    rate: SampleRate,
    channels: usize,
    current: FilterCascade,
    /// What goes: it hears on until it is faded out.
    outgoing: FilterCascade,
    fade: Option<BandFade>,
    /// What is to come when the present fade is over.
    next: Option<FilterSet>,
    /// Some frames of what goes.
    scratch: Box<[f32]>,
}

#[derive(Clone, Debug)]
struct BandFade {
    /// How long the new row still hears unheard, so that what it rings on an onset is over.
    warm: Frames,
    curve: Crossfade,
}

/// Coefficients of so many bands.
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
    /// An equaliser without bands.
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

    /// Other bands from the next frame on, the old ones being faded out within 100 ms; those above
    /// [`MAX_BANDS`] are left out.
    ///
    /// # Errors
    /// [`InvalidBand`] for the first that cannot be; nothing has changed then.
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
    /// Does not allocate; some ten operations a sample and band, twice while bands change.
    pub fn process(&mut self, block: &mut [f32]) {
        if self.is_idle() {
            return;
        }
        let whole = block.len() / self.channels * self.channels;
        for run in block[..whole].chunks_mut(RUN * self.channels) {
            self.run(run);
        }
    }

    /// Whether sound passes as it is.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.current.bands.count == 0 && self.fade.is_none()
    }

    /// Forgets all sound; the bands stay.
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
            // What rings out would end in denormal numbers, which cost a hundred times as much.
            for value in states.iter_mut().flatten().filter(|value| value.abs() < INAUDIBLE) {
                *value = 0.0;
            }
        }
    }
}

/// `y[n] = b0 x[n] + b1 x[n-1] + b2 x[n-2] - a1 y[n-1] - a2 y[n-2]`, all divided by a0.
#[derive(Clone, Copy, Debug)]
struct Biquad {
    b: [f64; 3],
    a: [f64; 2],
}

impl Biquad {
    const PASS: Self = Self { b: [1.0, 0.0, 0.0], a: [0.0, 0.0] };

    fn design(band: &EqualizerBand, rate: f64) -> Self {
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
        };
        Self { b: b.map(|b| b / a[0]), a: [a[1] / a[0], a[2] / a[0]] }
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

/// How long new bands hear before they are heard, and how long the old ones are then faded out.
const FADE: Span = Span::from_millis(50);
/// Frames that are filtered at once.
const RUN: usize = 256;
/// -600 dB.
const INAUDIBLE: f64 = 1e-30;

#[cfg(test)]
mod tests;

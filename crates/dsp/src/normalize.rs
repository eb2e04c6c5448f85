//! Live loudness normalisation.
//!
//! ```text
//!  in -> clean -+-> meter -> Controller --+
//!               +-> delay (look-ahead) ---x--> Limiter -> meter -> out
//!                                         gain   |
//!                                                +-> what it took, back to the controller
//! ```
//!
//! [`Normaliser`] works on what is on the air, [`Linear`] on a programme that has been measured
//! before: one gain, and no change of anything else.

mod apply;
mod controller;
mod integration;
mod linear;
mod section;
mod settings;

use core::fmt;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, SampleRate};

pub use linear::{Bound, Linear};
pub use settings::{InvalidSettings, Memory, Mode, Preset, Settings, UnknownPreset};

use crate::Limiter;
use crate::meter::{self, ChannelPosition, Meter, MeterHistory};
use apply::{Delay, Slope};
use controller::Controller;

/// Keeps a programme at one loudness and below a true-peak ceiling, at its own rate.
///
/// As many frames come out as go in, [`Normaliser::latency`] later. Silence and gaps do not move the
/// gain; at the end of a programme, [`Normaliser::drain`] hands out what is still inside.
///
/// # Real-time
/// Allocates at construction only. The work per frame is bounded; ten times a second some
/// microseconds are spent on the gain. About 4 MB for 3 s of stereo at 48 kHz.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, SampleRate};
/// use aulos_dsp::normalize::{Mode, Normaliser, Preset};
///
/// let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
/// let mut normaliser = Normaliser::new(Mode::Full, Preset::R128.settings(), rate, layout)?;
///
/// // A quiet tone; a file has no use for the silence in front, so that is left out.
/// let programme: Vec<f32> = (0..480_000).map(|n| 0.02 * (0.13 * n as f32).sin()).collect();
/// let mut out = Vec::new();
/// for block in programme.chunks(960) {
///     let mut block = block.to_vec();
///     normaliser.process(&mut block);
///     out.extend(block);
/// }
/// out.drain(..normaliser.latency().0 as usize);
/// let mut block = [0.0; 960];
/// loop {
///     let frames = normaliser.drain(&mut block).0 as usize;
///     if frames == 0 {
///         break;
///     }
///     out.extend(&block[..frames]);
/// }
/// assert_eq!(out.len(), programme.len());
/// let lufs = normaliser.statistics().output.integrated.get();
/// assert!((lufs + 23.0).abs() < 0.1, "{lufs}");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normaliser {
    mode: Mode,
    channels: usize,
    hop: usize,
    /// Frames of the hop that is being filled.
    filled: usize,
    input: Meter,
    output: Meter,
    controller: Controller,
    delay: Delay,
    /// Of what goes around gain and limiter.
    around: Delay,
    slope: Slope,
    limiter: Option<Limiter>,
    latency: usize,
    /// Frames until the last one that went in has come out.
    inside: usize,
    /// The limiter's greatest in the last block.
    reduction: Db,
    rejected: u64,
}

impl Normaliser {
    /// A normaliser that has heard nothing, with the places of channels that are customary.
    ///
    /// # Errors
    /// [`CannotNormalise`] for a rate below 8 kHz or above 192 kHz, and for settings that are out of
    /// their bounds.
    pub fn new(
        mode: Mode,
        settings: Settings,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, CannotNormalise> {
        Self::with_positions(mode, settings, rate, ChannelPosition::default_for(layout))
    }

    /// The same for channels that stand elsewhere. Dual mono is asked for in the settings; the place
    /// of a single channel is then that.
    ///
    /// # Errors
    /// [`CannotNormalise`] as for [`Normaliser::new`], and for no channels or more than 64.
    pub fn with_positions(
        mode: Mode,
        settings: Settings,
        rate: SampleRate,
        positions: Vec<ChannelPosition>,
    ) -> Result<Self, CannotNormalise> {
        let unlike =
            |_| CannotNormalise::Meter(meter::InvalidMeterConfig::Channels(positions.len()));
        let layout = ChannelLayout::new(positions.len()).map_err(unlike)?;
        if !(LOWEST_HZ..=HIGHEST_HZ).contains(&rate.hz()) {
            return Err(CannotNormalise::Rate(rate));
        }
        check(&settings, layout.channels())?;
        let meter = new_meter(rate, positions, settings.dual_mono)?;
        let limiter =
            (mode != Mode::GainOnly).then(|| Limiter::new(rate, layout, settings.ceiling));
        let within = limiter.as_ref().map_or(0, |limiter| limiter.latency().as_usize());
        let (channels, hop) = (layout.channels(), meter.hop());
        let ahead = match mode {
            Mode::Full => controller::AHEAD_AT_MOST,
            Mode::Mid => MID_HOPS,
            Mode::Low | Mode::GainOnly => 0,
        };
        let latency = if ahead > 0 { ahead * hop } else { within };
        Ok(Self {
            mode,
            channels,
            hop,
            filled: 0,
            output: meter.clone(),
            input: meter,
            controller: Controller::new(settings, ahead),
            delay: Delay::new(latency - within, channels),
            around: Delay::new(within, channels),
            slope: Slope::at(Db::ZERO),
            limiter,
            latency,
            inside: 0,
            reduction: Db::ZERO,
            rejected: 0,
        })
    }

    /// Whether [`Normaliser::set`] would take these settings with so many channels.
    ///
    /// # Errors
    /// [`CannotNormalise`] when a value is out of its bounds.
    pub fn check(settings: &Settings, layout: ChannelLayout) -> Result<(), CannotNormalise> {
        check(settings, layout.channels())
    }

    /// A normaliser for what follows at another rate or with other channels: settings, level and
    /// gain go on. Sound that is still inside stays in the old one; statistics begin anew, and dual
    /// mono ends with the second channel.
    ///
    /// # Errors
    /// [`CannotNormalise`] as for a new one.
    pub fn successor(
        &self,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, CannotNormalise> {
        let mut settings = self.settings().clone();
        settings.dual_mono &= layout.channels() == 1;
        let mut new = Self::new(self.mode, settings.clone(), rate, layout)?;
        new.controller = self.controller.successor();
        new.controller.set(settings);
        new.slope = Slope::at(new.controller.gain());
        Ok(new)
    }

    /// Changes what is asked for. The gain goes there at the usual slopes, the ceiling holds for
    /// whatever is not yet in the limiter.
    ///
    /// # Errors
    /// [`CannotNormalise`] when a value is out of its bounds; nothing has changed then.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn set(&mut self, settings: Settings) -> Result<(), CannotNormalise> {
        check(&settings, self.channels)?;
        if let Some(limiter) = &mut self.limiter {
            limiter.set_ceiling(settings.ceiling);
        }
        if self.channels == 1 && settings.dual_mono != self.settings().dual_mono {
            let position = if settings.dual_mono {
                ChannelPosition::DualMono
            } else {
                ChannelPosition::CENTER
            };
            for meter in [&mut self.input, &mut self.output] {
                // The channel is there, and it is the only one.
                let _always = meter.set_position(0, position);
            }
        }
        self.controller.set(settings);
        Ok(())
    }

    /// Normalises interleaved frames in place: what comes out went in [`Normaliser::latency`]
    /// before. An incomplete frame at the end stays as it is. A sample that is not finite or above
    /// +20 dBFS is silence, and counted.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn process(&mut self, block: &mut [f32]) {
        let frames = block.len() / self.channels;
        self.inside = if frames > 0 { self.latency } else { self.inside };
        self.hear(&mut block[..frames * self.channels], &mut []);
    }

    /// Does the same, and fills `plain`, which is as long as the block, with what went in: as late as
    /// what comes out, and otherwise as it was. To be called for every block, or for none.
    ///
    /// # Real-time
    /// Does not allocate.
    ///
    /// # Panics
    /// When `plain` is shorter than the block.
    pub fn process_beside(&mut self, block: &mut [f32], plain: &mut [f32]) {
        let whole = block.len() / self.channels * self.channels;
        self.inside = if whole > 0 { self.latency } else { self.inside };
        self.hear(&mut block[..whole], &mut plain[..whole]);
    }

    /// Fills the block with what is still inside, and returns how many frames of it are sound; the
    /// rest is silence. Call it until that is zero; then the normaliser is ready for more, with its
    /// gain as it was.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn drain(&mut self, block: &mut [f32]) -> Frames {
        let frames = (block.len() / self.channels).min(self.inside);
        let (sound, silence) = block.split_at_mut(frames * self.channels);
        sound.fill(0.0);
        silence.fill(0.0);
        self.hear(sound, &mut []);
        self.inside -= frames;
        Frames(frames as u64)
    }

    /// What comes next does not follow what was heard last: throws away what is still inside. Level,
    /// gain and statistics go on.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn interrupt(&mut self) {
        self.controller.interrupt();
        self.clear();
        self.slope = Slope::at(self.controller.gain());
    }

    /// Forgets all sound, its loudness, its statistics and the gain; settings stay.
    pub fn reset(&mut self) {
        self.input.reset();
        self.output.reset();
        self.controller.reset();
        self.clear();
        self.slope = Slope::at(Db::ZERO);
        self.rejected = 0;
    }

    /// By how much the output is late, exactly.
    #[must_use]
    pub const fn latency(&self) -> Frames {
        Frames(self.latency as u64)
    }

    /// What the limiter took in the last call where it took most; zero or less.
    #[must_use]
    pub const fn reduction(&self) -> Db {
        self.reduction
    }

    /// What is asked for.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        self.controller.settings()
    }

    /// The one gain at which what went in would have been as loud as what came out, over as much of
    /// the programme as counts ([`Settings::memory`]): for a fair comparison of the two.
    #[must_use]
    pub fn matching_gain(&self) -> Db {
        self.controller.matching()
    }

    /// What went in, what came out, and what was done.
    ///
    /// # Real-time
    /// Does not allocate; integrated loudness and range take a pass over a histogram.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let limiter = self.limiter.as_ref();
        Statistics {
            input: Figures::of(&self.input),
            output: Figures::of(&self.output),
            gain: self.controller.gain(),
            level: self.controller.level(),
            reduction: self.reduction,
            clamped: limiter.map_or(0, Limiter::clamped),
            rejected: self.rejected,
        }
    }

    fn clear(&mut self) {
        self.delay.clear();
        self.around.clear();
        if let Some(limiter) = &mut self.limiter {
            limiter.reset();
        }
        (self.filled, self.inside) = (0, 0);
    }

    /// `plain` is as long as the block, or empty.
    fn hear(&mut self, block: &mut [f32], plain: &mut [f32]) {
        self.reduction = Db::ZERO;
        let (mut rest, mut plain) = (block, plain);
        while !rest.is_empty() {
            let count = rest.len().min((self.hop - self.filled) * self.channels);
            let (run, behind) = rest.split_at_mut(count);
            let (beside, after) = plain.split_at_mut(count.min(plain.len()));
            self.run(run, beside);
            self.filled += count / self.channels;
            if self.filled == self.hop {
                self.end_hop();
            }
            (rest, plain) = (behind, after);
        }
    }

    /// Some frames of one hop.
    fn run(&mut self, run: &mut [f32], plain: &mut [f32]) {
        self.rejected += clean(run);
        self.input.add(run);
        self.delay.exchange(run);
        if !plain.is_empty() {
            plain.copy_from_slice(run);
            self.around.exchange(plain);
        }
        self.slope.apply(run, self.channels);
        if let Some(limiter) = &mut self.limiter {
            limiter.process(run);
            let reduction = limiter.reduction();
            self.reduction = if reduction < self.reduction { reduction } else { self.reduction };
        }
        self.output.add(run);
    }

    fn end_hop(&mut self) {
        self.filled = 0;
        let energy = |meter: &Meter| meter.window_energy(self.hop).unwrap_or(0.0);
        let gain = self.controller.hop(energy(&self.input), energy(&self.output));
        self.slope.go(Db::new(gain), Frames(self.hop as u64));
    }
}

/// What a normaliser has heard and done.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Of all that went in.
    pub input: Figures,
    /// Of all that came out.
    pub output: Figures,
    /// The gain that is on its way, without the limiter's.
    pub gain: Db,
    /// The loudness that the gain is made for: that of the present stretch of programme.
    pub level: Lufs,
    /// The limiter's greatest reduction in the last block; zero or less.
    pub reduction: Db,
    /// Samples that had to be clipped behind the limiter; there is no reason for any.
    pub clamped: u64,
    /// Samples that were not finite or absurdly great, and became silence.
    pub rejected: u64,
}

/// Loudness and peak of a programme so far.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// Of the last 400 ms.
    pub momentary: Lufs,
    /// Of the last 3 s.
    pub short_term: Lufs,
    /// Of all, gated.
    pub integrated: Lufs,
    /// Loudness range in LU.
    pub range: Db,
    /// The greatest of all channels, in dBTP.
    pub true_peak: Db,
}

impl Figures {
    fn of(meter: &Meter) -> Self {
        let channels = 0..meter.config().positions.len();
        let peak = channels.filter_map(|channel| meter.true_peak(channel)).fold(0.0, f64::max);
        Self {
            momentary: meter.momentary().unwrap_or(Lufs::SILENCE),
            short_term: meter.short_term().unwrap_or(Lufs::SILENCE),
            integrated: meter.integrated().unwrap_or(Lufs::SILENCE),
            range: meter.range().unwrap_or(Db::ZERO),
            true_peak: Db::from_amplitude(peak),
        }
    }
}

/// Why there can be no such normaliser.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CannotNormalise {
    /// A rate for which the gain's windows make no sense.
    Rate(SampleRate),
    /// A setting is out of its bounds.
    Settings(InvalidSettings),
    /// Dual mono is for one channel; holds how many there are.
    DualMono(usize),
    /// More channels than a meter takes.
    Meter(meter::InvalidMeterConfig),
}

impl fmt::Display for CannotNormalise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => {
                let hz = rate.hz();
                write!(f, "{hz} Hz: a normaliser works from {LOWEST_HZ} to {HIGHEST_HZ} Hz")
            }
            Self::Settings(invalid) => invalid.fmt(f),
            Self::DualMono(channels) => write!(f, "dual_mono is for one channel, not {channels}"),
            Self::Meter(invalid) => invalid.fmt(f),
        }
    }
}

impl core::error::Error for CannotNormalise {}

impl From<InvalidSettings> for CannotNormalise {
    fn from(invalid: InvalidSettings) -> Self {
        Self::Settings(invalid)
    }
}

fn check(settings: &Settings, channels: usize) -> Result<(), CannotNormalise> {
    settings.check()?;
    if settings.dual_mono && channels > 1 {
        return Err(CannotNormalise::DualMono(channels));
    }
    Ok(())
}

fn new_meter(
    rate: SampleRate,
    positions: Vec<ChannelPosition>,
    dual_mono: bool,
) -> Result<Meter, CannotNormalise> {
    let mode = meter::MeterMode::INTEGRATED | meter::MeterMode::RANGE | meter::MeterMode::TRUE_PEAK;
    let mut config = meter::MeterConfig::new(rate, ChannelLayout::MONO, mode);
    (config.history, config.dense) = (MeterHistory::Histogram, true);
    config.positions = if dual_mono { vec![ChannelPosition::DualMono] } else { positions };
    Meter::new(config).map_err(CannotNormalise::Meter)
}

/// Silences what no converter ever sent, samples that are not finite or above +20 dBFS; returns how
/// many.
///
/// # Real-time
/// One pass; a second one where there are such samples.
pub fn clean(samples: &mut [f32]) -> u64 {
    // Without a branch, so that it vectorises; NaN is not below the limit either.
    let sane = samples.iter().fold(true, |sane, x| sane & (x.abs() <= ABSURD));
    if sane {
        return 0;
    }
    let mut rejected = 0;
    for sample in samples.iter_mut().filter(|x| x.is_nan() || x.abs() > ABSURD) {
        *sample = 0.0;
        rejected += 1;
    }
    rejected
}

const LOWEST_HZ: u32 = 8_000;
const HIGHEST_HZ: u32 = 192_000;
/// The look-ahead of [`Mode::Mid`], 400 ms.
const MID_HOPS: usize = 4;
/// +20 dBFS.
const ABSURD: f32 = 10.0;

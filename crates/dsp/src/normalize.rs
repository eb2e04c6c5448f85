//! Live loudness normalization.
//!
//! ```text
//!  in -> silence_invalid -+-> meter -> Controller ---+
//!                         +-> delay (look-ahead) ----x--> Limiter -> meter -> out
//!                                            gain          |
//!                          gain reduction, to Controller <-+
//! ```
//!
//! [`Normalizer`] processes a live programme; [`LinearGain`] is one constant gain for a programme
//! that was measured before.

mod apply;
mod controller;
mod integration;
mod linear;
mod section;
mod settings;

use core::fmt;

use aulos_core::{ChannelLayout, Db, Frames, Lufs, SampleRate};

pub use linear::{GainLimit, LinearGain};
pub use settings::{InvalidSetting, LookAhead, Memory, NormalizerPreset, Settings, UnknownPreset};

use crate::Limiter;
use crate::meter::{self, ChannelPosition, Meter, MeterHistory};
use apply::{DelayLine, GainRamp};
use controller::Controller;

/// Keeps a programme at a target loudness and below a true-peak ceiling, at its own rate.
///
/// Output has as many frames as input, [`Normalizer::latency`] later. Silence and gaps do not move
/// the gain; at the end of a programme, [`Normalizer::drain`] returns the delayed rest.
///
/// # Real-time
/// Allocates at construction only. The work per frame is bounded; ten times a second the gain is
/// computed, which takes some microseconds. About 4 MB for 3 s of stereo at 48 kHz.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, SampleRate};
/// use aulos_dsp::normalize::{LookAhead, Normalizer, NormalizerPreset};
///
/// let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::MONO);
/// let mut normalizer = Normalizer::new(LookAhead::Full, NormalizerPreset::R128.settings(), rate, layout)?;
///
/// // A quiet tone; a file has no use for the silence in front, so that is left out.
/// let programme: Vec<f32> = (0..480_000).map(|n| 0.02 * (0.13 * n as f32).sin()).collect();
/// let mut out = Vec::new();
/// for block in programme.chunks(960) {
///     let mut block = block.to_vec();
///     normalizer.process(&mut block);
///     out.extend(block);
/// }
/// out.drain(..normalizer.latency().0 as usize);
/// let mut block = [0.0; 960];
/// loop {
///     let frames = normalizer.drain(&mut block).0 as usize;
///     if frames == 0 {
///         break;
///     }
///     out.extend(&block[..frames]);
/// }
/// assert_eq!(out.len(), programme.len());
/// let lufs = normalizer.statistics().output.integrated.get();
/// assert!((lufs + 23.0).abs() < 0.1, "{lufs}");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normalizer {
    mode: LookAhead,
    channels: usize,
    hop: usize,
    /// Frames in the current hop.
    hop_filled: usize,
    input: Meter,
    output: Meter,
    controller: Controller,
    delay: DelayLine,
    /// Delays the dry signal by the latency of the limiter.
    dry_delay: DelayLine,
    ramp: GainRamp,
    limiter: Option<Limiter>,
    /// The ceiling that the limiter has.
    ceiling: Db,
    latency: usize,
    /// Frames until the last input frame is output.
    pending: usize,
    /// Maximum gain reduction of the limiter in the last block.
    reduction: Db,
    rejected: u64,
}

impl Normalizer {
    /// A normalizer in its initial state, with the default channel positions of the layout.
    ///
    /// # Errors
    /// [`NormalizerError`] for a rate below 8 kHz or above 192 kHz, and for settings that are out
    /// of range.
    pub fn new(
        mode: LookAhead,
        settings: Settings,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, NormalizerError> {
        Self::with_positions(mode, settings, rate, ChannelPosition::default_for(layout))
    }

    /// The same for other channel positions. With `dual_mono` in the settings, the position of a
    /// single channel is replaced.
    ///
    /// # Errors
    /// [`NormalizerError`] as for [`Normalizer::new`], and for no channels or more than 64.
    pub fn with_positions(
        mode: LookAhead,
        settings: Settings,
        rate: SampleRate,
        positions: Vec<ChannelPosition>,
    ) -> Result<Self, NormalizerError> {
        let invalid_layout =
            |_| NormalizerError::Meter(meter::InvalidMeterConfig::Channels(positions.len()));
        let layout = ChannelLayout::new(positions.len()).map_err(invalid_layout)?;
        if !(MIN_RATE_HZ..=MAX_RATE_HZ).contains(&rate.hz()) {
            return Err(NormalizerError::Rate(rate));
        }
        validate(&settings, layout.channels())?;
        let meter = make_meter(rate, positions, settings.dual_mono)?;
        let limiter =
            (mode != LookAhead::GainOnly).then(|| Limiter::new(rate, layout, settings.ceiling));
        let limiter_latency = limiter.as_ref().map_or(0, |limiter| limiter.latency().as_usize());
        let (channels, hop) = (layout.channels(), meter.hop());
        let look_ahead = match mode {
            LookAhead::Full => controller::MAX_LOOK_AHEAD_HOPS,
            LookAhead::Mid => MID_LOOK_AHEAD_HOPS,
            LookAhead::Low | LookAhead::GainOnly => 0,
        };
        let latency = if look_ahead > 0 { look_ahead * hop } else { limiter_latency };
        let ceiling = settings.ceiling;
        let mut new = Self {
            mode,
            channels,
            hop,
            hop_filled: 0,
            output: meter.clone(),
            input: meter,
            controller: Controller::new(settings, look_ahead),
            delay: DelayLine::new(latency - limiter_latency, channels),
            dry_delay: DelayLine::new(limiter_latency, channels),
            ramp: GainRamp::constant(Db::ZERO),
            limiter,
            ceiling,
            latency,
            pending: 0,
            reduction: Db::ZERO,
            rejected: 0,
        };
        new.update_ceiling();
        Ok(new)
    }

    /// Checks whether [`Normalizer::set_settings`] accepts these settings with this layout.
    ///
    /// # Errors
    /// [`NormalizerError`] when a value is out of range.
    pub fn validate(settings: &Settings, layout: ChannelLayout) -> Result<(), NormalizerError> {
        validate(settings, layout.channels())
    }

    /// A normalizer for the same programme at another rate or with other channels, which have their
    /// default positions: settings, level and gain continue. Delayed sound stays in the old
    /// normalizer; statistics start again, and dual mono ends with the second channel.
    ///
    /// # Errors
    /// [`NormalizerError`] as for a new one.
    pub fn successor(
        &self,
        rate: SampleRate,
        layout: ChannelLayout,
    ) -> Result<Self, NormalizerError> {
        self.successor_with_positions(rate, ChannelPosition::default_for(layout))
    }

    /// The same for other channel positions.
    ///
    /// # Errors
    /// [`NormalizerError`] as for a new one.
    pub fn successor_with_positions(
        &self,
        rate: SampleRate,
        positions: Vec<ChannelPosition>,
    ) -> Result<Self, NormalizerError> {
        let mut settings = self.settings().clone();
        settings.dual_mono &= positions.len() == 1;
        let mut new = Self::with_positions(self.mode, settings.clone(), rate, positions)?;
        new.controller = self.controller.successor();
        new.controller.set_settings(settings);
        new.ramp = GainRamp::constant(new.controller.gain());
        new.update_ceiling();
        Ok(new)
    }

    /// Changes the settings. The gain moves to its new value at the usual rates; the ceiling holds
    /// for all sound that is not yet in the limiter.
    ///
    /// # Errors
    /// [`NormalizerError`] when a value is out of range; nothing has changed then.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), NormalizerError> {
        validate(&settings, self.channels)?;
        if self.channels == 1 && settings.dual_mono != self.settings().dual_mono {
            let position = if settings.dual_mono {
                ChannelPosition::DualMono
            } else {
                ChannelPosition::CENTER
            };
            for meter in [&mut self.input, &mut self.output] {
                // The only channel exists, so this cannot fail.
                let _always = meter.set_position(0, position);
            }
        }
        self.controller.set_settings(settings);
        self.update_ceiling();
        Ok(())
    }

    /// Normalizes interleaved frames in place: the output is the input of [`Normalizer::latency`]
    /// before. An incomplete frame at the end is unchanged. A sample that is not finite or above
    /// +20 dBFS is replaced by silence and counted.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn process(&mut self, block: &mut [f32]) {
        let frames = block.len() / self.channels;
        self.pending = if frames > 0 { self.latency } else { self.pending };
        self.process_frames(&mut block[..frames * self.channels], &mut []);
    }

    /// The same, and fills `dry`, which is as long as the block, with the unprocessed input,
    /// delayed as the output is. Must be called for every block or for none.
    ///
    /// # Real-time
    /// Does not allocate.
    ///
    /// # Panics
    /// When `dry` is shorter than the block.
    pub fn process_with_dry(&mut self, block: &mut [f32], dry: &mut [f32]) {
        let samples = block.len() / self.channels * self.channels;
        self.pending = if samples > 0 { self.latency } else { self.pending };
        self.process_frames(&mut block[..samples], &mut dry[..samples]);
    }

    /// Fills the block with delayed sound and returns how many frames of it are sound; the rest is
    /// silence. Call it until it returns zero; the normalizer is then ready for more input, with
    /// its gain unchanged.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn drain(&mut self, block: &mut [f32]) -> Frames {
        let frames = (block.len() / self.channels).min(self.pending);
        let (sound, silence) = block.split_at_mut(frames * self.channels);
        sound.fill(0.0);
        silence.fill(0.0);
        self.process_frames(sound, &mut []);
        self.pending -= frames;
        Frames(frames as u64)
    }

    /// Marks a discontinuity: the next input does not continue the last one. Discards the delayed
    /// sound. Level, gain and statistics continue.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn interrupt(&mut self) {
        self.controller.interrupt();
        self.clear_buffers();
        self.ramp = GainRamp::constant(self.controller.gain());
        self.update_ceiling();
    }

    /// Resets the state, the statistics and the gain; settings stay.
    pub fn reset(&mut self) {
        self.input.reset();
        self.output.reset();
        self.controller.reset();
        self.clear_buffers();
        self.ramp = GainRamp::constant(Db::ZERO);
        self.rejected = 0;
        self.update_ceiling();
    }

    /// Exact delay of the output.
    #[must_use]
    pub const fn latency(&self) -> Frames {
        Frames(self.latency as u64)
    }

    /// Maximum gain reduction of the limiter in the last call; zero or less.
    #[must_use]
    pub const fn reduction(&self) -> Db {
        self.reduction
    }

    /// The current settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        self.controller.settings()
    }

    /// The constant gain at which the input is as loud as the output, over the part of the
    /// programme that counts ([`Settings::memory`]). Used to compare the two at equal loudness.
    #[must_use]
    pub fn matching_gain(&self) -> Db {
        self.controller.matching_gain()
    }

    /// Statistics of input and output.
    ///
    /// # Real-time
    /// Does not allocate; integrated loudness and range each take a pass over a histogram.
    #[must_use]
    pub fn statistics(&self) -> NormalizerStats {
        let limiter = self.limiter.as_ref();
        NormalizerStats {
            input: LoudnessStats::from_meter(&self.input),
            output: LoudnessStats::from_meter(&self.output),
            gain: self.controller.gain(),
            level: self.controller.level(),
            reduction: self.reduction,
            clamped: limiter.map_or(0, Limiter::clamped),
            rejected: self.rejected,
        }
    }

    fn clear_buffers(&mut self) {
        self.delay.clear();
        self.dry_delay.clear();
        if let Some(limiter) = &mut self.limiter {
            limiter.reset();
        }
        (self.hop_filled, self.pending) = (0, 0);
    }

    /// Processes whole frames. `dry` is as long as the block, or empty.
    fn process_frames(&mut self, block: &mut [f32], dry: &mut [f32]) {
        self.reduction = Db::ZERO;
        let (mut rest, mut dry) = (block, dry);
        while !rest.is_empty() {
            let count = rest.len().min((self.hop - self.hop_filled) * self.channels);
            let (part, rest_after) = rest.split_at_mut(count);
            let (dry_part, dry_after) = dry.split_at_mut(count.min(dry.len()));
            self.process_in_hop(part, dry_part);
            self.hop_filled += count / self.channels;
            if self.hop_filled == self.hop {
                self.end_hop();
            }
            (rest, dry) = (rest_after, dry_after);
        }
    }

    /// Processes frames of one hop.
    fn process_in_hop(&mut self, samples: &mut [f32], dry: &mut [f32]) {
        self.rejected += silence_invalid(samples);
        self.input.add(samples);
        self.delay.process(samples);
        if !dry.is_empty() {
            dry.copy_from_slice(samples);
            self.dry_delay.process(dry);
        }
        self.ramp.apply(samples, self.channels);
        if let Some(limiter) = &mut self.limiter {
            limiter.process(samples);
            let reduction = limiter.reduction();
            self.reduction = if reduction < self.reduction { reduction } else { self.reduction };
        }
        self.output.add(samples);
    }

    fn end_hop(&mut self) {
        self.hop_filled = 0;
        let energy = |meter: &Meter| meter.window_energy(self.hop).unwrap_or(0.0);
        let gain = self.controller.process_hop(energy(&self.input), energy(&self.output));
        self.ramp.ramp_to(Db::new(gain), Frames(self.hop as u64));
        self.update_ceiling();
    }

    /// Sets the ceiling of the limiter: lower while the gain is not known, because the limiter has
    /// a delay to act in and the gain of [`LookAhead::Low`] has none.
    fn update_ceiling(&mut self) {
        let Settings { ceiling, target, .. } = *self.controller.settings();
        let at_start = Db::new(target.get() + START_CREST_DB);
        let is_lower = self.controller.is_starting() && at_start < ceiling;
        let ceiling = if is_lower { at_start } else { ceiling };
        if let Some(limiter) = self.limiter.as_mut().filter(|_| self.ceiling != ceiling) {
            limiter.set_ceiling(ceiling);
            self.ceiling = ceiling;
        }
    }
}

/// Statistics of a normalizer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NormalizerStats {
    /// Of all input.
    pub input: LoudnessStats,
    /// Of all output.
    pub output: LoudnessStats,
    /// Gain at the end of the current hop, without the limiter's reduction.
    pub gain: Db,
    /// Loudness of the current section of the programme, from which the gain is computed.
    pub level: Lufs,
    /// Maximum gain reduction of the limiter in the last block; zero or less.
    pub reduction: Db,
    /// Samples that were clipped behind the limiter; expected to be 0.
    pub clamped: u64,
    /// Samples that were not finite or above +20 dBFS, and became silence.
    pub rejected: u64,
}

/// Loudness and peak of a programme so far, according to EBU R 128.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LoudnessStats {
    /// Loudness of the last 400 ms.
    pub momentary: Lufs,
    /// Loudness of the last 3 s.
    pub short_term: Lufs,
    /// Gated loudness of the whole programme.
    pub integrated: Lufs,
    /// Loudness range in LU.
    pub range: Db,
    /// Maximum of all channels, in dBTP.
    pub true_peak: Db,
}

impl LoudnessStats {
    fn from_meter(meter: &Meter) -> Self {
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

/// Why a normalizer cannot be created or changed.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum NormalizerError {
    /// The rate is outside 8 to 192 kHz.
    Rate(SampleRate),
    /// A setting is out of range.
    Settings(InvalidSetting),
    /// `dual_mono` needs one channel; holds the number of channels.
    DualMono(usize),
    /// The channel layout is not supported by the meter.
    Meter(meter::InvalidMeterConfig),
}

impl fmt::Display for NormalizerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => {
                let hz = rate.hz();
                write!(f, "sample rate {hz} Hz is not between {MIN_RATE_HZ} and {MAX_RATE_HZ} Hz")
            }
            Self::Settings(invalid) => invalid.fmt(f),
            Self::DualMono(channels) => {
                write!(f, "`dual_mono` needs one channel, but there are {channels}")
            }
            Self::Meter(invalid) => invalid.fmt(f),
        }
    }
}

impl core::error::Error for NormalizerError {}

impl From<InvalidSetting> for NormalizerError {
    fn from(invalid: InvalidSetting) -> Self {
        Self::Settings(invalid)
    }
}

fn validate(settings: &Settings, channels: usize) -> Result<(), NormalizerError> {
    settings.validate()?;
    if settings.dual_mono && channels > 1 {
        return Err(NormalizerError::DualMono(channels));
    }
    Ok(())
}

fn make_meter(
    rate: SampleRate,
    positions: Vec<ChannelPosition>,
    dual_mono: bool,
) -> Result<Meter, NormalizerError> {
    let mode = meter::MeterMode::INTEGRATED | meter::MeterMode::RANGE | meter::MeterMode::TRUE_PEAK;
    let mut config = meter::MeterConfig::new(rate, ChannelLayout::MONO, mode);
    (config.history, config.coarse) = (MeterHistory::Histogram, true);
    config.positions = if dual_mono { vec![ChannelPosition::DualMono] } else { positions };
    Meter::new(config).map_err(NormalizerError::Meter)
}

/// Replaces samples that are not finite or above +20 dBFS by silence; returns their number.
///
/// # Real-time
/// One pass; a second one if there are such samples.
pub fn silence_invalid(samples: &mut [f32]) -> u64 {
    // Without a branch, so that the loop vectorizes; NaN is not below the limit either.
    let valid = samples.iter().fold(true, |valid, x| valid & (x.abs() <= MAX_AMPLITUDE));
    if valid {
        return 0;
    }
    let mut rejected = 0;
    for sample in samples.iter_mut().filter(|x| x.is_nan() || x.abs() > MAX_AMPLITUDE) {
        *sample = 0.0;
        rejected += 1;
    }
    rejected
}

const MIN_RATE_HZ: u32 = 8_000;
const MAX_RATE_HZ: u32 = 192_000;
/// The look-ahead of [`LookAhead::Mid`], 400 ms.
const MID_LOOK_AHEAD_HOPS: usize = 4;
/// Peaks of a programme that begins, above the target: dense music, the loudest there is, has
/// about as much, and other sound loses a little of its first syllable.
const START_CREST_DB: f64 = 5.0;
/// +20 dBFS.
const MAX_AMPLITUDE: f32 = 10.0;

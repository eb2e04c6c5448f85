//! Loudness and peaks according to ITU-R BS.1770-4 and EBU R 128 (Tech 3341, Tech 3342).
//!
//! ```text
//!  any samples -> StagingBuffers -> K-weighting -> energy of each frame -> SlidingWindows -> M, S,
//!                         |                                                    |          maxima
//!                         +-> Peaks -> sample peak, true peak                  +-> gates -> I, LRA
//! ```
//!
//! A sample is filtered and squared once; energies are kept in three resolutions, so that reading a
//! window costs next to nothing and the greatest window can be found exactly
//! (`docs/decisions/loudness-meter.md`). Figures agree with libebur128 to 1e-9 LU, whatever the
//! size of calls.

mod config;
mod energy_ring;
mod filter;
mod gate;
mod measurement;
mod peaks;
mod position;
mod sample;
#[cfg(test)]
mod tests;
pub(crate) mod weighting;
mod windows;

use aulos_core::{Db, Frames, Lufs, SampleRate};

pub use config::{
    InvalidMeterConfig, MAX_WINDOW_MS, MeterConfig, MeterHistory, MeterKernel, MeterMode,
    NonFinitePolicy, RangeHop,
};
pub use gate::loudness;
pub use measurement::{IncompatibleHistories, MalformedMeasurement, Measurement};
pub use position::ChannelPosition;
pub use sample::MeterSample;

use filter::Filter;
use gate::GatedEnergies;
use peaks::Peaks;
pub(crate) use sample::SampleView;
use sample::{COARSE_RUN, InputSamples, RUN, StagingBuffers};
use windows::{MOMENTARY_HOPS, Maxima, SHORT_TERM_HOPS, SlidingWindows};

/// A loudness meter.
///
/// # Real-time
/// Adding frames and reading momentary and short-term loudness and peaks neither allocates nor
/// waits; integrated loudness takes a pass over the history, the loudness range sorts a copy of it
/// (so it allocates, except with a histogram). With [`MeterHistory::Unbounded`] adding allocates.
///
/// # Examples
/// ```
/// use aulos_core::{ChannelLayout, SampleRate};
/// use aulos_dsp::meter::{Meter, MeterConfig, MeterMode};
///
/// let mode = MeterMode::INTEGRATED;
/// let config = MeterConfig::new(SampleRate::HZ_48000, ChannelLayout::STEREO, mode);
/// let mut meter = Meter::new(config)?;
/// let tone = |n: usize| 0.1 * (0.13 * (n / 2) as f32).sin();
/// meter.add(&(0..2 * 48_000).map(tone).collect::<Vec<_>>());
/// let lufs = meter.integrated().expect("a second of sound").get();
/// assert!((lufs + 20.0).abs() < 0.1, "{lufs}");
/// # Ok::<(), aulos_dsp::meter::InvalidMeterConfig>(())
/// ```
#[derive(Clone, Debug)]
pub struct Meter {
    config: MeterConfig,
    hop: usize,
    /// Frames that are processed at once.
    longest_run: usize,
    staging: StagingBuffers,
    filter: Filter,
    windows: Option<SlidingWindows>,
    peaks: Option<Peaks>,
    /// Hops since the first frame of the programme, and hops stored in the windows.
    hops: u64,
    window_hops: u64,
    /// Whether a value that is not finite has reached the filters.
    contaminated: bool,
    blocks: GatedEnergies,
    ranges: GatedEnergies,
    rejected: u64,
    frames: u64,
}

impl Meter {
    /// A meter in its initial state.
    ///
    /// # Errors
    /// [`InvalidMeterConfig`] names the invalid value.
    pub fn new(config: MeterConfig) -> Result<Self, InvalidMeterConfig> {
        config.validate()?;
        let level = config.kernel.level();
        let channels = config.positions.len();
        let weights = config.positions.iter().map(|position| position.weight()).collect();
        let hz = config.rate.hz();
        let (blocks, ranges) = histories(&config);
        let longest_run = if config.coarse { COARSE_RUN } else { RUN };
        let mut new = Self {
            hop: hop_frames(config.rate),
            longest_run,
            staging: StagingBuffers::new(channels, longest_run),
            filter: Filter::new(f64::from(hz), weights, level),
            windows: None,
            peaks: config.mode.contains(MeterMode::SAMPLE_PEAK).then(|| {
                let true_peak = config.mode.contains(MeterMode::TRUE_PEAK);
                Peaks::new((hz, channels), true_peak, config.call_peaks, longest_run, level)
            }),
            hops: 0,
            window_hops: 0,
            contaminated: false,
            blocks,
            ranges,
            rejected: 0,
            frames: 0,
            config,
        };
        new.windows = new.new_windows();
        Ok(new)
    }

    /// Measures interleaved frames; an incomplete frame at the end is ignored.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn add<S: MeterSample>(&mut self, samples: &[S]) {
        self.process(&InputSamples::Interleaved(samples), true);
    }

    /// Measures one slice per channel; of slices with different lengths, the length of the
    /// shortest.
    ///
    /// # Real-time
    /// Does not allocate.
    ///
    /// # Panics
    /// If there are not as many slices as channels.
    pub fn add_planar<S: MeterSample>(&mut self, planes: &[&[S]]) {
        assert_eq!(planes.len(), self.channels(), "one slice per channel");
        self.process(&InputSamples::Planar(planes), true);
    }

    /// Processes interleaved frames without measuring them, so that the following frames are
    /// measured as their continuation; see [`Meter::begin_piece`].
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn seed<S: MeterSample>(&mut self, samples: &[S]) {
        self.process(&InputSamples::Interleaved(samples), false);
    }

    /// Prepares for a piece of a programme that begins at the frame `start`, a multiple of
    /// [`Meter::hop`]. Returns the frame from which on [`Meter::seed`] must process the audio
    /// before the piece: [`SEED_HOPS`] earlier, or the beginning.
    ///
    /// Pieces measured this way, on any number of cores, and joined with [`Measurement::join`] give
    /// the measurement of the whole. (With 3 s of seed alone, short-term values just after the cut
    /// contain the filters' start: some 1e-9 LU in range and maximum; integrated loudness is exact
    /// with 700 ms.)
    ///
    /// # Examples
    /// ```
    /// use aulos_core::{ChannelLayout, Frames, SampleRate};
    /// use aulos_dsp::meter::{Measurement, Meter, MeterConfig, MeterMode};
    ///
    /// let config = MeterConfig::new(SampleRate::HZ_48000, ChannelLayout::STEREO, MeterMode::ALL);
    /// let tone = |n: usize| (n as f32 / 1e6).min(0.5) * (0.13 * (n / 2) as f32).sin();
    /// let programme: Vec<f32> = (0..2 * 12 * 48_000).map(tone).collect();
    /// let frames = programme.len() / 2;
    ///
    /// // Each piece is a job of its own.
    /// let length = 50 * Meter::new(config.clone())?.hop();
    /// let pieces = (0..frames).step_by(length).map(|start| {
    ///     let mut meter = Meter::new(config.clone()).expect("as before");
    ///     let before = meter.begin_piece(Frames(start as u64)).0 as usize;
    ///     meter.seed(&programme[2 * before..2 * start]);
    ///     meter.add(&programme[2 * start..2 * frames.min(start + length)]);
    ///     meter.measurement()
    /// });
    /// let joined = Measurement::join(pieces)?.expect("at least one piece");
    ///
    /// let mut whole = Meter::new(config.clone())?;
    /// whole.add(&programme);
    /// let whole = whole.measurement();
    /// assert!((joined.integrated() - whole.integrated()).get().abs() < 1e-12);
    /// assert_eq!(joined.true_peak(), whole.true_peak());
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    pub fn begin_piece(&mut self, start: Frames) -> Frames {
        let before = Frames(start.0.saturating_sub((SEED_HOPS * self.hop) as u64));
        self.start_at(before);
        before
    }

    /// Clears all windows and sets the position of the next frame in the programme, rounded down to
    /// a multiple of [`Meter::hop`]. Measured values stay.
    pub fn start_at(&mut self, frame: Frames) {
        self.reset_signal_state();
        self.hops = frame.0 / self.hop as u64;
    }

    /// Resets the meter.
    pub fn reset(&mut self) {
        self.reset_signal_state();
        self.hops = 0;
        if let Some(windows) = &mut self.windows {
            windows.set_maxima(Maxima::default());
        }
        if let Some(peaks) = &mut self.peaks {
            peaks.reset();
        }
        self.blocks.clear();
        self.ranges.clear();
        (self.rejected, self.frames) = (0, 0);
    }

    /// Continues with another rate or other channels. Integrated loudness and range continue;
    /// windows and filters restart, and so do maxima, and peaks if the number of channels changes.
    ///
    /// # Errors
    /// [`InvalidMeterConfig`] names the invalid value; nothing has changed then.
    pub fn change_format(
        &mut self,
        rate: SampleRate,
        positions: &[ChannelPosition],
    ) -> Result<(), InvalidMeterConfig> {
        let config = MeterConfig { rate, positions: positions.to_vec(), ..self.config.clone() };
        let mut new = Self::new(config)?;
        let empty = || GatedEnergies::exact(0, 0);
        new.blocks = core::mem::replace(&mut self.blocks, empty());
        new.ranges = core::mem::replace(&mut self.ranges, empty());
        (new.rejected, new.frames) = (self.rejected, self.frames);
        if let (Some(new), Some(old), true) =
            (&mut new.peaks, &self.peaks, positions.len() == self.channels())
        {
            new.carry_over(old);
        }
        *self = new;
        Ok(())
    }

    /// Changes the position of a channel from now on.
    ///
    /// # Errors
    /// [`InvalidMeterConfig`] if there is no such channel, or if dual mono is not the only one.
    pub fn set_position(
        &mut self,
        channel: usize,
        position: ChannelPosition,
    ) -> Result<(), InvalidMeterConfig> {
        let channels = self.channels();
        if channel >= channels {
            return Err(InvalidMeterConfig::Channels(channel));
        }
        if position == ChannelPosition::DualMono && channels > 1 {
            return Err(InvalidMeterConfig::DualMono(channels));
        }
        self.config.positions[channel] = position;
        self.filter.set_weight(channel, position.weight());
        Ok(())
    }

    /// Sets the longest window that can be read; windows restart.
    ///
    /// # Errors
    /// [`InvalidMeterConfig`] if it is longer than [`MAX_WINDOW_MS`].
    pub fn set_max_window(&mut self, ms: u32) -> Result<(), InvalidMeterConfig> {
        let config = MeterConfig { max_window_ms: ms, ..self.config.clone() };
        config.validate()?;
        self.config = config;
        let maxima = self.windows.as_ref().and_then(SlidingWindows::maxima);
        self.windows = self.new_windows();
        if let Some((windows, maxima)) = self.windows.as_mut().zip(maxima) {
            windows.set_maxima(maxima);
        }
        (self.hops, self.window_hops) = (0, 0);
        Ok(())
    }

    /// Sets the length of the history, dropping the oldest values; only for an exact history.
    pub fn set_history(&mut self, history: MeterHistory) {
        if self.config.history == MeterHistory::Histogram || history == MeterHistory::Histogram {
            return;
        }
        self.config.history = history;
        let (blocks, ranges) = limits(&self.config);
        self.blocks.set_limit(blocks);
        self.ranges.set_limit(ranges);
    }

    /// Loudness of the last 400 ms; `None` if it is not measured. Before the first 400 ms are over,
    /// the time before them counts as silence.
    #[must_use]
    pub fn momentary(&self) -> Option<Lufs> {
        self.window_frames(MOMENTARY_HOPS * self.hop)
    }

    /// Loudness of the last 3 s; `None` if it is not measured.
    #[must_use]
    pub fn short_term(&self) -> Option<Lufs> {
        self.window_frames(SHORT_TERM_HOPS * self.hop)
    }

    /// Loudness of the last `ms` milliseconds; `None` if no window is that long.
    #[must_use]
    pub fn window(&self, ms: u32) -> Option<Lufs> {
        let frames = u64::from(self.config.rate.hz()) * u64::from(ms) / 1000;
        self.window_frames(usize::try_from(frames).ok()?)
    }

    /// The maximum momentary loudness over all 400 ms windows; `None` without
    /// [`MeterMode::MAXIMA`].
    #[must_use]
    pub fn max_momentary(&self) -> Option<Lufs> {
        let energy = self.windows.as_ref()?.maxima()?.momentary;
        Some(self.mean_loudness(energy, MOMENTARY_HOPS * self.hop))
    }

    /// The maximum short-term loudness over all 3 s windows; `None` without [`MeterMode::MAXIMA`]
    /// and [`MeterMode::SHORT_TERM`].
    #[must_use]
    pub fn max_short_term(&self) -> Option<Lufs> {
        let windows = self.windows.as_ref()?;
        let measured = self.config.mode.contains(MeterMode::SHORT_TERM);
        let energy = measured.then(|| windows.maxima())??.short_term;
        Some(self.mean_loudness(energy, SHORT_TERM_HOPS * self.hop))
    }

    /// Integrated loudness, [`Lufs::SILENCE`] if nothing passes the gates; `None` if it is not
    /// measured.
    #[must_use]
    pub fn integrated(&self) -> Option<Lufs> {
        self.measures(MeterMode::INTEGRATED).then(|| integrated_of([self]))
    }

    /// The relative threshold of integrated loudness, -70 LUFS while there is only silence; `None`
    /// if integrated loudness is not measured.
    #[must_use]
    pub fn relative_threshold(&self) -> Option<Lufs> {
        let energy = gate::relative_gate([&self.blocks].into_iter());
        let lufs = Lufs::new(energy.map_or(-70.0, loudness));
        self.measures(MeterMode::INTEGRATED).then_some(lufs)
    }

    /// Loudness range in LU; `None` if it is not measured.
    #[must_use]
    pub fn range(&self) -> Option<Db> {
        self.measures(MeterMode::RANGE).then(|| range_of([self]))
    }

    /// The maximum sample of a channel so far, full scale being 1.0; `None` if there is no such
    /// channel or peaks are not measured.
    #[must_use]
    pub fn sample_peak(&self, channel: usize) -> Option<f64> {
        Some(self.peaks_of(channel, MeterMode::SAMPLE_PEAK)?.sample_peak(channel))
    }

    /// The maximum value at or between the samples of a channel so far; from 192 kHz on, the sample
    /// peak.
    #[must_use]
    pub fn true_peak(&self, channel: usize) -> Option<f64> {
        Some(self.peaks_of(channel, MeterMode::TRUE_PEAK)?.true_peak(channel))
    }

    /// The maximum sample of a channel in the last call.
    #[must_use]
    pub fn last_sample_peak(&self, channel: usize) -> Option<f64> {
        Some(self.peaks_of(channel, MeterMode::SAMPLE_PEAK)?.last_sample_peak(channel))
    }

    /// The true peak of a channel in the last call; `None` without [`MeterConfig::call_peaks`].
    #[must_use]
    pub fn last_true_peak(&self, channel: usize) -> Option<f64> {
        let peaks = self.peaks_of(channel, MeterMode::TRUE_PEAK)?;
        self.config.call_peaks.then(|| peaks.last_true_peak(channel))
    }

    /// The weighted mean square of the last `frames` frames, for [`loudness`]; `None` if no window
    /// is that long. With [`NonFinitePolicy::Propagate`] it may be NaN.
    #[must_use]
    pub fn window_energy(&self, frames: usize) -> Option<f64> {
        let windows = self.windows.as_ref().filter(|w| frames <= w.longest_frames())?;
        #[allow(clippy::cast_precision_loss, reason = "below 2^53 frames")]
        Some(windows.energy(frames) / frames as f64)
    }

    /// The meter's configuration.
    #[must_use]
    pub fn config(&self) -> &MeterConfig {
        &self.config
    }

    /// Frames in 100 ms, rounded: the grid of gating blocks.
    #[must_use]
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// Frames measured so far.
    #[must_use]
    pub fn frames(&self) -> Frames {
        Frames(self.frames)
    }

    /// Number of samples so far that were not finite, and were measured as silence.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    fn channels(&self) -> usize {
        self.config.positions.len()
    }

    fn measures(&self, mode: MeterMode) -> bool {
        self.config.mode.contains(mode)
    }

    fn peaks_of(&self, channel: usize, mode: MeterMode) -> Option<&Peaks> {
        self.peaks.as_ref().filter(|_| channel < self.channels() && self.measures(mode))
    }

    fn window_frames(&self, frames: usize) -> Option<Lufs> {
        Some(Lufs::new(loudness(self.window_energy(frames)?)))
    }

    #[allow(clippy::cast_precision_loss, reason = "a few thousand frames")]
    fn mean_loudness(&self, energy: f64, frames: usize) -> Lufs {
        Lufs::new(loudness(energy / frames as f64))
    }

    fn new_windows(&self) -> Option<SlidingWindows> {
        let mode = self.config.mode;
        let needed =
            if mode.contains(MeterMode::SHORT_TERM) { SHORT_TERM_HOPS } else { MOMENTARY_HOPS };
        let asked = u64::from(self.config.rate.hz()) * u64::from(self.config.max_window_ms) / 1000;
        let asked = usize::try_from(asked).unwrap_or(usize::MAX).div_ceil(self.hop);
        let maxima = mode.contains(MeterMode::MAXIMA);
        let unit = self.filter.unit();
        mode.contains(MeterMode::MOMENTARY).then(|| {
            SlidingWindows::new(self.hop, needed.max(asked), maxima, unit, self.config.coarse)
        })
    }

    fn reset_signal_state(&mut self) {
        self.filter.reset();
        if let Some(windows) = &mut self.windows {
            windows.clear();
        }
        if let Some(peaks) = &mut self.peaks {
            peaks.clear_history();
        }
        self.window_hops = 0;
        self.contaminated = false;
    }

    fn process<S: MeterSample>(&mut self, source: &InputSamples<'_, S>, measure: bool) {
        let (channels, level) = (self.channels(), self.filter.level());
        let frames = source.frames(channels);
        if let Some(peaks) = self.peaks.as_mut().filter(|_| measure) {
            peaks.begin_call(frames);
        }
        let mut staging = core::mem::take(&mut self.staging);
        let mut start = 0;
        while start < frames {
            let most = self.longest_run;
            let room = self.windows.as_ref().map_or(most, SlidingWindows::frames_until_hop);
            let run = (frames - start).min(room).min(most);
            let in_place = source.in_place(start, run, channels);
            if in_place.is_none() {
                staging.copy(source, start, run, channels);
            }
            let mut view = in_place.unwrap_or_else(|| staging.view::<S>(run * channels));
            let sane = S::ALWAYS_FINITE || self.contaminated || self.filter.detects_overflow(view);
            if (!sane && !view.is_squarable(level)) || !self.weigh(view, run) {
                if self.config.non_finite == NonFinitePolicy::Silence {
                    staging.copy(source, start, run, channels);
                    let rejected = staging.clean::<S>(run * channels);
                    self.rejected += if measure { rejected } else { 0 };
                    view = staging.view::<S>(run * channels);
                } else {
                    self.contaminated = true;
                }
                self.weigh(view, run);
            }
            self.run(view, run, measure);
            start += run;
        }
        self.staging = staging;
        if let Some(peaks) = self.peaks.as_mut().filter(|_| measure) {
            peaks.end_call();
        }
        self.frames += if measure { frames as u64 } else { 0 };
    }

    /// Filters a run; if the energy is not finite, returns false with the state unchanged.
    fn weigh(&mut self, view: SampleView<'_>, frames: usize) -> bool {
        let Some(windows) = &mut self.windows else { return true };
        self.filter.save();
        self.filter.energies(view, self.contaminated, windows.write_buffer(frames));
        let fine = windows.sum_written(frames).is_finite() || self.contaminated;
        if !fine {
            self.filter.restore();
        }
        fine
    }

    /// Measures a run that has been filtered.
    fn run(&mut self, view: SampleView<'_>, frames: usize, measure: bool) {
        if let Some(peaks) = &mut self.peaks {
            if measure {
                peaks.process(view);
            } else {
                peaks.seed(view);
            }
        }
        let Some(windows) = &mut self.windows else { return };
        if windows.push(frames, measure) {
            self.hops += 1;
            self.window_hops += 1;
            if measure {
                self.gate();
            }
        }
    }

    /// At the end of a hop: adds the gating block and, if due, the value for the loudness range.
    fn gate(&mut self) {
        let mode = self.config.mode;
        if mode.contains(MeterMode::INTEGRATED) && self.window_hops >= MOMENTARY_HOPS as u64 {
            let energy = self.window_energy(MOMENTARY_HOPS * self.hop);
            self.blocks.push(energy.unwrap_or(f64::NAN));
        }
        let hops = match self.config.range_hop {
            RangeHop::Second => 10,
            RangeHop::Tenth => 1,
        };
        let due = self.hops.is_multiple_of(hops) && self.window_hops >= SHORT_TERM_HOPS as u64;
        if mode.contains(MeterMode::RANGE) && due {
            let energy = self.window_energy(SHORT_TERM_HOPS * self.hop);
            self.ranges.push(energy.unwrap_or(f64::NAN));
        }
    }
}

/// Integrated loudness over several programmes, as if one followed the other; meters that do not
/// measure it count as silent.
#[must_use]
pub fn integrated_of<'a>(meters: impl IntoIterator<Item = &'a Meter, IntoIter: Clone>) -> Lufs {
    let lists = meters.into_iter().map(|meter| &meter.blocks);
    gate::integrated(lists).map_or(Lufs::SILENCE, |energy| Lufs::new(loudness(energy)))
}

/// Loudness range in LU over several programmes.
#[must_use]
pub fn range_of<'a>(meters: impl IntoIterator<Item = &'a Meter, IntoIter: Clone>) -> Db {
    Db::new(gate::range(meters.into_iter().map(|meter| &meter.ranges)))
}

/// Number of hops before a piece that [`Meter::seed`] should process: the 3 s of the longest
/// window, and 400 ms for the filters to settle.
pub const SEED_HOPS: usize = SHORT_TERM_HOPS + MOMENTARY_HOPS;

fn hop_frames(rate: SampleRate) -> usize {
    usize::try_from((rate.hz() + 5) / 10).unwrap_or(1)
}

/// Number of values that the exact histories keep.
fn limits(config: &MeterConfig) -> (usize, usize) {
    let per_range = match config.range_hop {
        RangeHop::Second => 1000,
        RangeHop::Tenth => 100,
    };
    match config.history {
        MeterHistory::Bounded { ms } => {
            let entries = |each: u64| usize::try_from((ms / each).max(1)).unwrap_or(usize::MAX);
            (entries(100), entries(per_range))
        }
        MeterHistory::Entries { blocks, ranges } => (blocks.max(1), ranges.max(1)),
        _ => (usize::MAX, usize::MAX),
    }
}

fn histories(config: &MeterConfig) -> (GatedEnergies, GatedEnergies) {
    if config.history == MeterHistory::Histogram {
        return (GatedEnergies::histogram(), GatedEnergies::histogram());
    }
    let bounded = matches!(config.history, MeterHistory::Bounded { .. });
    let (blocks, ranges) = limits(config);
    let exact = |limit: usize, mode| {
        let reserved = if bounded && config.mode.contains(mode) { limit } else { 0 };
        GatedEnergies::exact(limit, reserved)
    };
    (exact(blocks, MeterMode::INTEGRATED), exact(ranges, MeterMode::RANGE))
}

//! The normalizer between its ports.

use aulos_core::{ChannelLayout, Db, Frames, Lufs, SampleRate};
use aulos_dsp::GainRamp;
use aulos_dsp::normalize::{Memory, Normalizer, NormalizerError, Settings};

use crate::table::{
    CEILING, DUAL_MONO, ENABLED, FALL, GATE, MAX_GAIN, MEMORY, MIN_GAIN, MODE, MODES, RANGE, RESET,
    RISE, TARGET,
};
use crate::{BLOCK_FRAMES, Processor};

/// A normalizer for each look-ahead, because a new one allocates: 3 MB for stereo at 48 kHz, and
/// the delay lines of those that were used.
#[derive(Debug)]
pub(crate) struct NormalizerProcessor {
    modes: [Normalizer; MODES.len()],
    /// The one that processes.
    current: usize,
    /// The one that the host has chosen.
    chosen: usize,
    channels: usize,
    fade: Frames,
    controls: Vec<f32>,
    /// The next controls take effect without fades.
    fresh: bool,
    /// Gain of the normalized sound, and of the input, delayed as it is.
    wet: GainRamp,
    dry: GainRamp,
    delayed: Vec<f32>,
    /// Around a change of the look-ahead: the input of the new one begins, the output of the old
    /// one ends.
    begin: GainRamp,
    end: GainRamp,
    /// Where `wet` and `end` go.
    goals: (f32, f32),
    reports: ReportClock,
    levels: [f32; 7],
}

impl NormalizerProcessor {
    pub(crate) fn new(rate: SampleRate, layout: ChannelLayout) -> Result<Self, NormalizerError> {
        let make = |mode| Normalizer::new(mode, Settings::default(), rate, layout);
        let [full, mid, low, gain_only] = MODES;
        let modes = [make(full)?, make(mid)?, make(low)?, make(gain_only)?];
        Ok(Self {
            modes,
            current: 0,
            chosen: 0,
            channels: layout.channels(),
            fade: Frames(u64::from(rate.hz() / FADES_PER_SECOND)),
            controls: Vec::with_capacity(DUAL_MONO + 1),
            fresh: true,
            wet: GainRamp::at(1.0),
            dry: GainRamp::at(0.0),
            delayed: vec![0.0; BLOCK_FRAMES * layout.channels()],
            begin: GainRamp::at(1.0),
            end: GainRamp::at(1.0),
            goals: (1.0, 1.0),
            reports: ReportClock::new(rate),
            levels: [0.0; 7],
        })
    }

    /// Once the old normalizer is silent, the new one starts with nothing delayed.
    fn change_mode(&mut self) {
        let silent = self.end.remaining() == Frames::ZERO && self.end.gain() <= 0.0;
        if self.chosen == self.current || !silent {
            return;
        }
        self.current = self.chosen;
        self.modes[self.current].interrupt();
        self.begin = GainRamp::at(0.0);
        self.begin.ramp_to(1.0, self.fade);
        self.end = GainRamp::at(1.0);
    }
}

impl Processor for NormalizerProcessor {
    fn reset(&mut self) {
        self.modes.iter_mut().for_each(Normalizer::reset);
        self.fresh = true;
        (self.begin, self.end) = (GainRamp::at(1.0), GainRamp::at(1.0));
        self.reports.reset();
    }

    fn set_controls(&mut self, controls: &[f32]) {
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
        let known = self.controls.len() == controls.len();
        if known && !self.fresh && self.controls.iter().zip(controls).all(same) {
            return;
        }
        let was_reset = known && self.controls[RESET] > 0.0;
        self.controls.clear();
        self.controls.extend_from_slice(controls);
        let settings = settings(controls);
        for normalizer in &mut self.modes {
            // All values are in range, so this cannot fail.
            let _always = normalizer.set_settings(settings.clone());
        }
        if controls[RESET] > 0.0 && !was_reset {
            self.modes.iter_mut().for_each(Normalizer::reset);
            self.reports.reset();
        }
        let enabled = controls[ENABLED];
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 3")]
        let mode = controls[MODE] as usize;
        self.chosen = mode.min(MODES.len() - 1);
        if self.fresh {
            self.fresh = false;
            self.current = self.chosen;
            (self.wet, self.dry) = (GainRamp::at(enabled), GainRamp::at(1.0 - enabled));
            self.goals = (enabled, 1.0);
            return;
        }
        let end = if self.chosen == self.current { 1.0 } else { 0.0 };
        // Each ramp is begun once: other controls may move with every block.
        if self.goals != (enabled, end) {
            self.goals = (enabled, end);
            self.wet.ramp_to(enabled, self.fade);
            self.dry.ramp_to(1.0 - enabled, self.fade);
            self.end.ramp_to(end, self.fade);
        }
    }

    fn process(&mut self, block: &mut [f32]) {
        self.change_mode();
        self.begin.apply(block, self.channels);
        let delayed = &mut self.delayed[..block.len()];
        self.modes[self.current].process_with_dry(block, delayed);
        // Both ramps end in the same frame.
        if !self.wet.is_unity() {
            self.wet.apply(block, self.channels);
            self.dry.apply(delayed, self.channels);
            block.iter_mut().zip(&*delayed).for_each(|(out, dry)| *out += dry);
        }
        self.end.apply(block, self.channels);
        self.reports.advance(block.len() / self.channels);
    }

    fn report(&mut self, outputs: &mut [f32]) {
        let normalizer = &self.modes[self.current];
        if self.reports.is_due() {
            let now = normalizer.statistics();
            self.levels = [
                now.gain.get(),
                now.reduction.get(),
                now.output.momentary.get(),
                now.output.short_term.get(),
                now.output.integrated.get(),
                now.output.range.get(),
                now.output.true_peak.get(),
            ]
            .map(to_port);
        }
        #[allow(clippy::cast_precision_loss, reason = "below 2^24")]
        let latency = normalizer.latency().0 as f32;
        for (output, value) in outputs.iter_mut().zip(self.levels.into_iter().chain([latency])) {
            *output = value;
        }
    }
}

/// Reading all statistics takes passes over histograms: it is done ten times a second.
#[derive(Debug)]
pub(crate) struct ReportClock {
    interval: usize,
    frames: usize,
}

impl ReportClock {
    pub(crate) fn new(rate: SampleRate) -> Self {
        let interval = rate.hz() as usize / 10;
        Self { interval, frames: interval }
    }

    /// The next report is due at once.
    pub(crate) fn reset(&mut self) {
        self.frames = self.interval;
    }

    pub(crate) fn advance(&mut self, frames: usize) {
        self.frames += frames;
    }

    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.frames >= self.interval;
        self.frames = if due { 0 } else { self.frames };
        due
    }
}

/// A measured value for a port; the range of the port replaces infinity.
#[allow(clippy::cast_possible_truncation, reason = "ports are f32")]
pub(crate) const fn to_port(value: f64) -> f32 {
    value as f32
}

fn settings(controls: &[f32]) -> Settings {
    let value = |place: usize| f64::from(controls[place]);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "10 to 600")]
    let seconds = controls[MEMORY] as u32;
    Settings {
        target: Lufs::new(value(TARGET)),
        tolerance: Db::new(value(RANGE)),
        ceiling: Db::new(value(CEILING)),
        min_gain: Db::new(value(MIN_GAIN)),
        max_gain: Db::new(value(MAX_GAIN)),
        max_rise: Db::new(value(RISE).max(LEAST_SPEED)),
        max_fall: Db::new(value(FALL).max(LEAST_SPEED)),
        gate: Lufs::new(value(GATE)),
        memory: Memory::Sliding { seconds },
        dual_mono: controls.get(DUAL_MONO).is_some_and(|on| *on > 0.0),
    }
}

/// The bound of a setting, which the nearest f32 could be below.
const LEAST_SPEED: f64 = 0.1;

/// A fade of 10 ms is heard as none.
const FADES_PER_SECOND: u32 = 100;

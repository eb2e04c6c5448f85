//! Loudness of a running stream: a meter, and its last figures.
//!
//! The meter itself is in `dsp`. This module adds what an endless programme needs: figures that are
//! updated once in 100 ms of audio, or once a second, and not at every call; windows that are
//! invalid until they are full; pauses of the sender that separate old audio from new; and a
//! bounded history. The station measures on its own thread (`docs/decisions/loudness-meter.md`).

use aulos_core::{ChannelLayout, Db, Lufs, SampleRate, Span};
use aulos_dsp::meter::{ChannelPosition, Meter, MeterConfig, MeterHistory, MeterMode, RangeHop};

/// Figures after EBU R 128. A figure that does not exist, such as that of silence, is absent; none
/// is infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loudness {
    /// Duration of the measured audio.
    pub measured: Span,
    /// M: of the last 400 ms; absent before that much was measured.
    pub momentary: Option<Lufs>,
    /// S: of the last 3 s; absent before that much was measured.
    pub short_term: Option<Lufs>,
    /// I: of everything measured, gated.
    pub integrated: Option<Lufs>,
    /// LRA, in LU; absent below 3 s.
    pub range: Option<Db>,
    /// The maximum M of any 400 ms.
    pub max_momentary: Option<Lufs>,
    /// The maximum S of any 3 s.
    pub max_short_term: Option<Lufs>,
    /// The maximum at or between the samples of any channel, in dBTP.
    pub true_peak: Option<Db>,
    /// The maximum sample of any channel, in dBFS.
    pub sample_peak: Option<Db>,
    /// The true peak of the last 100 ms, in dBTP.
    pub current_true_peak: Option<Db>,
    /// The sample peak of the last 100 ms, in dBFS.
    pub current_sample_peak: Option<Db>,
}

impl Loudness {
    /// Nothing has been measured.
    pub const NONE: Self = Self {
        measured: Span::ZERO,
        momentary: None,
        short_term: None,
        integrated: None,
        range: None,
        max_momentary: None,
        max_short_term: None,
        true_peak: None,
        sample_peak: None,
        current_true_peak: None,
        current_sample_peak: None,
    };
}

/// A meter for continuous audio, for months if need be.
#[derive(Debug)]
pub struct LoudnessMeter {
    meter: Meter,
    dual_mono: bool,
    loudness: Loudness,
    /// Frames of the current 100 ms, and their peaks.
    filled: usize,
    true_peak: f64,
    sample_peak: f64,
    /// Hops since the windows were reset.
    hops: u64,
}

impl LoudnessMeter {
    /// A meter without any measurement.
    ///
    /// # Panics
    /// Never: there is a meter for every layout.
    #[must_use]
    pub fn new(rate: SampleRate, layout: ChannelLayout, history: MeterHistory) -> Self {
        Self::with(rate, layout, history, false)
    }

    /// The same, but a single channel counts as two equal ones, as it is heard from two
    /// loudspeakers: 3 LU more. Other layouts are measured as usual.
    ///
    /// # Panics
    /// Never: there is a meter for every layout.
    #[must_use]
    pub fn dual_mono(rate: SampleRate, layout: ChannelLayout, history: MeterHistory) -> Self {
        Self::with(rate, layout, history, true)
    }

    fn with(
        rate: SampleRate,
        layout: ChannelLayout,
        history: MeterHistory,
        dual_mono: bool,
    ) -> Self {
        let config = MeterConfig {
            history,
            positions: positions(layout, dual_mono),
            range_hop: RangeHop::Tenth,
            call_peaks: true,
            coarse: true,
            ..MeterConfig::new(rate, layout, MeterMode::ALL)
        };
        #[allow(clippy::expect_used, reason = "a layout has 1 to 64 channels, dual mono alone")]
        let meter = Meter::new(config).expect("a meter for a layout");
        Self {
            meter,
            dual_mono,
            loudness: Loudness::default(),
            filled: 0,
            true_peak: 0.0,
            sample_peak: 0.0,
            hops: 0,
        }
    }

    /// Measures interleaved frames; returns whether the figures have changed, which happens once in
    /// 100 ms of audio.
    ///
    /// # Real-time
    /// Does not wait; does not allocate with [`MeterHistory::Histogram`].
    pub fn push(&mut self, samples: &[f32]) -> bool {
        let channels = self.channels();
        let mut rest = samples;
        let mut changed = false;
        while rest.len() >= channels {
            let frames = (rest.len() / channels).min(self.meter.hop() - self.filled);
            let (run, behind) = rest.split_at(frames * channels);
            self.feed_meter(run, frames);
            if self.filled == self.meter.hop() {
                self.update_figures();
                changed = true;
            }
            rest = behind;
        }
        changed
    }

    /// The last figures.
    #[must_use]
    pub const fn loudness(&self) -> Loudness {
        self.loudness
    }

    /// The last figures without M, S and the current peaks, for a source that is silent now.
    #[must_use]
    pub const fn loudness_in_silence(&self) -> Loudness {
        Loudness {
            momentary: None,
            short_term: None,
            current_true_peak: None,
            current_sample_peak: None,
            ..self.loudness
        }
    }

    /// Brings integrated loudness and range up to date, which may lag with a long exact history;
    /// returns the last figures.
    pub fn finish(&mut self) -> Loudness {
        self.update_integrated();
        self.loudness
    }

    /// Clears everything.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn reset(&mut self) {
        self.meter.reset();
        self.loudness = Loudness::default();
        self.reset_windows();
    }

    /// The next audio does not continue the last: windows start again, figures of the whole
    /// continue.
    ///
    /// # Real-time
    /// Does not allocate.
    pub fn interrupt(&mut self) {
        self.meter.start_at(self.meter.frames());
        self.loudness = self.loudness_in_silence();
        self.reset_windows();
    }

    /// Continues with another rate or layout; figures of the whole continue.
    ///
    /// # Real-time
    /// Allocates.
    pub fn set_format(&mut self, rate: SampleRate, layout: ChannelLayout) {
        // As in `new`, there is a meter for every layout.
        let _ = self.meter.change_format(rate, &positions(layout, self.dual_mono));
        self.loudness = self.loudness_in_silence();
        self.reset_windows();
    }

    fn channels(&self) -> usize {
        self.meter.config().positions.len()
    }

    const fn reset_windows(&mut self) {
        (self.filled, self.hops) = (0, 0);
        (self.true_peak, self.sample_peak) = (0.0, 0.0);
    }

    fn feed_meter(&mut self, samples: &[f32], frames: usize) {
        self.filled += frames;
        self.meter.add(samples);
        self.true_peak = self.greatest(self.true_peak, Meter::last_true_peak);
        self.sample_peak = self.greatest(self.sample_peak, Meter::last_sample_peak);
    }

    fn greatest(&self, start: f64, of: impl Fn(&Meter, usize) -> Option<f64>) -> f64 {
        (0..self.channels()).filter_map(|channel| of(&self.meter, channel)).fold(start, f64::max)
    }

    fn update_figures(&mut self) {
        self.filled = 0;
        self.hops += 1;
        let meter = &self.meter;
        let lufs = |value: Option<Lufs>| value.filter(|value| value.get().is_finite());
        let full = |hops: u64, value: Option<Lufs>| lufs(value.filter(|_| self.hops >= hops));
        let mut new = Loudness {
            momentary: full(MOMENTARY_HOPS, meter.momentary()),
            short_term: full(SHORT_TERM_HOPS, meter.short_term()),
            current_true_peak: decibels(core::mem::take(&mut self.true_peak)),
            current_sample_peak: decibels(core::mem::take(&mut self.sample_peak)),
            ..self.loudness
        };
        new.measured += HOP;
        let long = |span: Span, value: Option<Lufs>| lufs(value.filter(|_| new.measured >= span));
        new.max_momentary = long(MOMENTARY, meter.max_momentary());
        new.max_short_term = long(SHORT_TERM, meter.max_short_term());
        new.true_peak = decibels(self.greatest(0.0, Meter::true_peak));
        new.sample_peak = decibels(self.greatest(0.0, Meter::sample_peak));
        self.loudness = new;
        if self.is_due(new.measured) {
            self.update_integrated();
        }
    }

    fn update_integrated(&mut self) {
        let read = &mut self.loudness;
        read.integrated = self.meter.integrated().filter(|lufs| lufs.get().is_finite());
        let long = read.integrated.is_some() && read.measured >= SHORT_TERM;
        read.range = if long { self.meter.range() } else { None };
    }

    /// Whether integrated loudness and range are due, which pass over the history: once a second in
    /// a station, as Tech 3341 requires, and as soon as they exist. An exact history is displayed,
    /// so it is read ten times a second, and less often as it grows, so that the work stays the
    /// same.
    fn is_due(&self, measured: Span) -> bool {
        let every = match self.meter.config().history {
            MeterHistory::Histogram if measured == MOMENTARY || measured == SHORT_TERM => 1,
            MeterHistory::Histogram => 10,
            _ => 1 + measured.as_nanos() / EXACT_AT_10_HZ.as_nanos(),
        };
        self.hops.is_multiple_of(u64::try_from(every).unwrap_or(1))
    }
}

fn decibels(amplitude: f64) -> Option<Db> {
    Some(Db::from_amplitude(amplitude)).filter(|db| db.get().is_finite())
}

/// 100 ms, the grid of the meter.
const HOP: Span = Span::from_millis(100);
const MOMENTARY: Span = Span::from_millis(400);
const SHORT_TERM: Span = Span::from_secs(3);
const MOMENTARY_HOPS: u64 = 4;
const SHORT_TERM_HOPS: u64 = 30;

/// Up to this length an exact history is read at every hop: some 3,000 values to be sorted each
/// time.
const EXACT_AT_10_HZ: Span = Span::from_secs(300);

fn positions(layout: ChannelLayout, dual_mono: bool) -> Vec<ChannelPosition> {
    match layout {
        ChannelLayout::MONO if dual_mono => vec![ChannelPosition::DualMono],
        _ => ChannelPosition::default_for(layout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Tone;
    use crate::source::{BLOCK_SAMPLES, Source};
    use aulos_core::{Block, Frames, Instant};

    const QUANTUM: Frames = Frames(960);

    fn meter() -> LoudnessMeter {
        LoudnessMeter::new(SampleRate::HZ_48000, ChannelLayout::STEREO, MeterHistory::Histogram)
    }

    /// Feeds a meter with quanta of 20 ms of a tone.
    fn push_tone(meter: &mut LoudnessMeter, dbfs: f64, quanta: usize) {
        let (rate, layout) = (SampleRate::HZ_48000, ChannelLayout::STEREO);
        let mut tone = Tone::new(997.0, Db::new(dbfs), rate, layout, QUANTUM);
        let mut block = Block::with_capacity(rate, layout, BLOCK_SAMPLES);
        for _ in 0..quanta {
            tone.pull(Instant::ZERO, &mut block);
            meter.push(block.samples());
        }
    }

    fn near(value: Option<Lufs>, expected: f64, tolerance: f64) -> bool {
        value.is_some_and(|value| (value.get() - expected).abs() <= tolerance)
    }

    /// BS.1770: 997 Hz at 0 dBFS in one channel reads -3.01 LKFS, in both channels 0.0.
    #[test]
    fn a_tone_in_both_channels_reads_its_own_level() {
        let mut meter = meter();
        push_tone(&mut meter, -20.0, 500);
        let read = meter.loudness();
        assert_eq!(read.measured, Span::from_secs(10));
        assert!(near(read.momentary, -20.0, 0.01), "{read:?}");
        assert!(near(read.short_term, -20.0, 0.01), "{read:?}");
        assert!(near(read.integrated, -20.0, 0.06), "a histogram has steps of 0.1 LU: {read:?}");
        let peaks = [read.true_peak, read.sample_peak, read.current_true_peak];
        assert!(peaks.iter().flatten().all(|peak| (peak.get() + 20.0).abs() < 0.1), "{read:?}");
        assert_eq!(read.range.map(Db::get), Some(0.0));
    }

    #[test]
    fn what_does_not_exist_is_absent() {
        let mut meter = meter();
        assert_eq!(meter.loudness(), Loudness::default());
        push_tone(&mut meter, -20.0, 19);
        let young = meter.loudness();
        assert_eq!((young.momentary, young.max_momentary), (None, None));
        assert!(young.sample_peak.is_some());
        push_tone(&mut meter, -20.0, 21);
        let older = meter.loudness();
        assert!(older.momentary.is_some() && older.integrated.is_some());
        assert_eq!((older.short_term, older.range), (None, None));
        meter.reset();
        meter.push(&[0.0; 2 * 48_000 * 5]);
        let silent = Loudness { measured: Span::from_secs(5), ..Loudness::default() };
        assert_eq!(meter.loudness(), silent);
    }

    #[test]
    fn after_an_interruption_windows_restart_and_integration_continues() {
        let mut meter = meter();
        push_tone(&mut meter, -20.0, 200);
        meter.interrupt();
        assert_eq!(meter.loudness().momentary, None);
        push_tone(&mut meter, -20.0, 15);
        let read = meter.loudness();
        assert_eq!(read.momentary, None, "{read:?}");
        assert!(near(read.integrated, -20.0, 0.06), "{read:?}");
        assert_eq!(read.measured, Span::from_millis(4_300));
    }

    #[test]
    fn loudness_figures_continue_at_another_rate() {
        let mut meter = meter();
        push_tone(&mut meter, -20.0, 200);
        meter.set_format(SampleRate::HZ_44100, ChannelLayout::MONO);
        meter.push(&[0.0; 44_100]);
        let read = meter.loudness();
        assert!(near(read.integrated, -20.0, 0.06), "{read:?}");
        assert_eq!((read.momentary, read.measured), (None, Span::from_secs(5)));
    }

    #[test]
    fn dual_mono_is_3_lu_more_of_one_channel_before_and_behind_a_change() {
        let tone: Vec<f32> = (0..48_000u16).map(|n| (0.13 * f32::from(n)).sin()).collect();
        let read = |mut meter: LoudnessMeter| {
            meter.push(&tone);
            let momentary = meter.loudness().momentary.unwrap().get();
            meter.set_format(SampleRate::HZ_44100, ChannelLayout::MONO);
            meter.push(&tone);
            [momentary, meter.loudness().momentary.unwrap().get()]
        };
        let make = [LoudnessMeter::new, LoudnessMeter::dual_mono];
        let [one, two] = make.map(|make| {
            read(make(SampleRate::HZ_48000, ChannelLayout::MONO, MeterHistory::Histogram))
        });
        for (one, two) in one.into_iter().zip(two) {
            assert!((two - one - 3.01).abs() < 0.01, "{one} {two}");
        }
        let stereo = make.map(|make| {
            let mut meter =
                make(SampleRate::HZ_48000, ChannelLayout::STEREO, MeterHistory::Histogram);
            meter.push(&tone);
            meter.loudness()
        });
        assert_eq!(stereo[0], stereo[1]);
    }
}

//! Runs a case on the meter and on every reference, and compares.

use aulos_core::{ChannelLayout, SampleRate};
use aulos_dsp::meter::{Meter, MeterConfig, MeterHistory, MeterMode, NonFinitePolicy, RangeHop};
use ebur128::EbuR128;

use super::case::{
    AddStep, Case, I, LRA, S, SAMPLE_PEAK, SampleForm, Step, StreamFormat, TRUE_PEAK, position,
};
use super::definition::Definition;
use super::libebur128::{Figure, Libebur128, LibraryMeter, Peak};
use super::test_signal::TestRng;

/// Below this rate the references' filter is unstable, and only their peaks are compared.
const LOUDNESS_FROM: u32 = 4_000;
/// Below this rate the references' windows are shorter than what they sum: libebur128 accesses
/// memory out of bounds, the crate panics.
const JUDGES_FROM: u32 = 150;

pub(crate) fn run(case: &Case, original: Option<Libebur128>) -> Result<(), String> {
    let mut comparison = Comparison::new(case, original);
    for step in &case.steps {
        match step {
            Step::Add(hear) => comparison.feed(hear)?,
            Step::Window(ms) => comparison.set_window(*ms),
            Step::History(ms) => comparison.set_history(*ms),
            Step::Change(shape) => comparison.change(shape),
            Step::Reset => comparison.reset(),
        }
        comparison.compare().map_err(|what| format!("{what}, after {step:?}"))?;
    }
    Ok(())
}

struct Comparison<'a> {
    case: &'a Case,
    shape: StreamFormat,
    ours: Meter,
    original: Option<LibraryMeter>,
    of: Option<Libebur128>,
    other: Option<EbuR128>,
    definition: Option<Definition>,
    /// The longest window that can be read, in milliseconds.
    longest: u32,
    rejected: u64,
    /// The greatest sample so far.
    loudest: f64,
    /// The crate miscounts if its history was limited.
    limited: bool,
}

impl<'a> Comparison<'a> {
    fn new(case: &'a Case, original: Option<Libebur128>) -> Self {
        let shape = case.shape.clone();
        let fit = case.always_at_least(JUDGES_FROM);
        let of = original.filter(|_| fit);
        let histogram = if case.histogram { 64 } else { 0 };
        Self {
            ours: Meter::new(case.config()).unwrap(),
            original: of
                .map(|of| LibraryMeter::new(of, shape.rate, &shape.map, case.mode | histogram)),
            of,
            // A NaN affects its integrated loudness as well.
            other: (fit && !case.spoil).then(|| crate_meter(case, &shape)),
            definition: (!case.spoil).then(|| Definition::new(&shape, case.tenth)),
            longest: if case.measures(S) { 3_000 } else { 400 },
            rejected: 0,
            loudest: 0.0,
            limited: false,
            shape,
            case,
        }
    }

    fn feed(&mut self, hear: &AddStep) -> Result<(), String> {
        let mut draw = TestRng::new(hear.seed);
        let channels = self.shape.map.len();
        let AddStep { sound, level, frames, .. } = *hear;
        let heard = sound.make(&mut draw, self.shape.rate, channels, frames, level);
        let mut rest = &heard[..];
        // The references sum whole windows for each reading.
        let mut readings = 1;
        while !rest.is_empty() {
            let frames = 1 + draw.below(hear.largest.max(1));
            let (call, behind) = rest.split_at((frames * channels).min(rest.len()));
            self.call(call, hear.form, hear.planar);
            rest = behind;
            if readings > 0 && draw.once_in(20) {
                readings -= 1;
                let all = self.compare_windows().and_then(|()| self.compare_last_peaks());
                all.map_err(|what| format!("{what}, within {hear:?}"))?;
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &[f64], form: SampleForm, planar: bool) {
        const WIDE: f64 = 2_147_483_648.0;
        let heard: Vec<f64> = match form {
            SampleForm::I16 => {
                let samples: Vec<i16> = call.iter().map(|x| (x * 32_768.0) as i16).collect();
                self.call_as(&samples, planar, LibraryMeter::add_i16, EbuR128::add_frames_i16);
                samples.iter().map(|&x| f64::from(x) / 32_768.0).collect()
            }
            SampleForm::I32 => {
                let samples: Vec<i32> = call.iter().map(|x| (x * WIDE) as i32).collect();
                self.call_as(&samples, planar, LibraryMeter::add_i32, EbuR128::add_frames_i32);
                samples.iter().map(|&x| f64::from(x) / WIDE).collect()
            }
            SampleForm::F32 => {
                let samples: Vec<f32> = call.iter().map(|&x| x as f32).collect();
                self.add_ours(&samples, planar);
                let clean: Vec<f32> =
                    samples.iter().map(|&x| self.admit_sample(x, x.is_finite())).collect();
                self.add_judges(&clean, LibraryMeter::add_f32, EbuR128::add_frames_f32);
                clean.iter().map(|&x| f64::from(x)).collect()
            }
            SampleForm::F64 => {
                self.add_ours(call, planar);
                let clean: Vec<f64> =
                    call.iter().map(|&x| self.admit_sample(x, x.is_finite())).collect();
                self.add_judges(&clean, LibraryMeter::add_f64, EbuR128::add_frames_f64);
                clean
            }
        };
        self.loudest = heard.iter().fold(self.loudest, |most, x| most.max(x.abs()));
        if let Some(definition) = &mut self.definition {
            definition.add(&heard);
        }
    }

    /// The references' input for a sample: silence instead of a value that is not finite.
    fn admit_sample<T: Default>(&mut self, sample: T, finite: bool) -> T {
        if finite || self.case.spoil {
            return sample;
        }
        self.rejected += 1;
        T::default()
    }

    fn call_as<T: aulos_dsp::meter::MeterSample>(
        &mut self,
        samples: &[T],
        planar: bool,
        original: impl Fn(&mut LibraryMeter, &[T]),
        other: impl Fn(&mut EbuR128, &[T]) -> Result<(), ebur128::Error>,
    ) {
        self.add_ours(samples, planar);
        self.add_judges(samples, original, other);
    }

    fn add_ours<T: aulos_dsp::meter::MeterSample>(&mut self, samples: &[T], planar: bool) {
        if !planar {
            return self.ours.add(samples);
        }
        let channels = self.shape.map.len();
        let plane = |channel| samples.iter().skip(channel).step_by(channels).copied().collect();
        let planes: Vec<Vec<T>> = (0..channels).map(plane).collect();
        self.ours.add_planar(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }

    fn add_judges<T>(
        &mut self,
        samples: &[T],
        original: impl Fn(&mut LibraryMeter, &[T]),
        other: impl Fn(&mut EbuR128, &[T]) -> Result<(), ebur128::Error>,
    ) {
        if let Some(state) = &mut self.original {
            original(state, samples);
        }
        if let Some(meter) = &mut self.other {
            other(meter, samples).unwrap();
        }
    }

    fn set_window(&mut self, ms: u32) {
        self.ours.set_max_window(ms).unwrap();
        self.longest = ms.max(if self.case.measures(S) { 3_000 } else { 400 });
        // libebur128 allocates a thousand times the memory that it needs.
        (self.original, self.of) = (None, None);
        if let Some(meter) = &mut self.other {
            // It keeps its windows if they are long enough already; ours restart.
            meter.set_max_window(self.longest + 1).unwrap();
            meter.set_max_window(ms).unwrap();
        }
        if let Some(definition) = &mut self.definition {
            definition.clear_windows();
        }
    }

    fn set_history(&mut self, ms: u32) {
        let range_ms = if self.case.tenth { 300 } else { 3_000 };
        let (blocks, ranges) = (ms as usize / 100, ms as usize / range_ms);
        self.ours.set_history(MeterHistory::Entries { blocks, ranges });
        if let Some(state) = &mut self.original {
            state.set_history(ms);
        }
        self.limited = true;
        if let Some(definition) = &mut self.definition {
            definition.set_history(ms);
        }
    }

    fn change(&mut self, shape: &StreamFormat) {
        let StreamFormat { rate, map } = shape;
        // Without a change, the references continue unaffected.
        if *rate == self.shape.rate && map.len() == self.shape.map.len() {
            return;
        }
        let positions: Vec<_> = map.iter().map(|&number| position(number)).collect();
        self.ours.change_format(SampleRate::new(*rate).unwrap(), &positions).unwrap();
        if let Some(state) = &mut self.original {
            state.change(*rate, map);
        }
        if let Some(meter) = &mut self.other {
            meter.change_parameters(map.len() as u32, *rate).unwrap();
            meter.set_channel_map(&crate_map(map)).unwrap();
        }
        if let Some(definition) = &mut self.definition {
            definition.change(shape);
        }
        self.shape = shape.clone();
    }

    fn reset(&mut self) {
        self.ours.reset();
        self.rejected = 0;
        if let (Some(state), Some(of)) = (&mut self.original, self.of) {
            let histogram = if self.case.histogram { 64 } else { 0 };
            let StreamFormat { rate, map } = &self.shape;
            *state = LibraryMeter::new(of, *rate, map, self.case.mode | histogram);
            // It has no reset, and a new one loses the history's limit.
            let forgets = self.case.steps.iter().any(|step| matches!(step, Step::History(_)));
            if forgets {
                self.original = None;
            }
        }
        if let Some(meter) = &mut self.other {
            meter.reset();
        }
        if let Some(definition) = &mut self.definition {
            let mut new = Definition::new(&self.shape, self.case.tenth);
            new.limits_of(definition);
            *definition = new;
        }
    }

    fn compare(&self) -> Result<(), String> {
        self.compare_windows()?;
        self.compare_programme()?;
        self.compare_last_peaks()?;
        self.compare_peaks()?;
        if !self.case.spoil && self.ours.rejected() != self.rejected {
            return Err(format!("rejected {}, not {}", self.ours.rejected(), self.rejected));
        }
        Ok(())
    }

    fn compare_windows(&self) -> Result<(), String> {
        let ms = self.longest * 3 / 4;
        let frames = u64::from(self.shape.rate) * u64::from(ms) / 1000;
        let momentary = self.read_window("momentary", 4 * self.ours.hop());
        let short_term = self.read_window("short-term", 30 * self.ours.hop());
        let window = self.read_window("window", frames as usize);
        let maxima = [
            Reading::new("greatest momentary", self.ours.max_momentary()),
            Reading::new("greatest short-term", self.ours.max_short_term()),
        ];
        let has_s = self.case.measures(S);
        if let Some(definition) = &self.definition {
            self.check_definition(momentary, definition.momentary())?;
            self.check_definition(window, definition.window(ms))?;
            if has_s {
                self.check_definition(short_term, definition.short_term())?;
            }
            if self.case.maxima {
                self.check_definition(maxima[0], definition.maxima()[0])?;
                if has_s {
                    self.check_definition(maxima[1], definition.maxima()[1])?;
                }
            }
        }
        if self.shape.rate < LOUDNESS_FROM {
            return Ok(());
        }
        if let Some(state) = &self.original {
            self.check_reference(ORIGINAL, momentary, state.read(Figure::Momentary))?;
            self.check_reference(ORIGINAL, window, state.window(ms))?;
            if has_s {
                self.check_reference(ORIGINAL, short_term, state.read(Figure::ShortTerm))?;
            }
        }
        if let Some(meter) = &self.other {
            self.check_reference(CRATE, momentary, meter.loudness_momentary().ok())?;
            // Summing windows is most of the work, and libebur128 has done so.
            if self.original.is_none() {
                self.check_reference(CRATE, window, meter.loudness_window(ms).ok())?;
            }
            if has_s {
                self.check_reference(CRATE, short_term, meter.loudness_shortterm().ok())?;
            }
        }
        Ok(())
    }

    /// From the energy, because NaN reads as silence in LUFS.
    fn read_window(&self, what: &'static str, frames: usize) -> Reading {
        Reading(what, self.ours.window_energy(frames).map(aulos_dsp::meter::loudness))
    }

    fn compare_programme(&self) -> Result<(), String> {
        let integrated = Reading::new("integrated", self.ours.integrated());
        let threshold = Reading::new("threshold", self.ours.relative_threshold());
        let range = Reading("range", self.ours.range().map(aulos_core::Db::get));
        let (has_i, has_range) = (self.case.measures(I), self.case.measures(LRA));
        if let Some(definition) = self.definition.as_ref().filter(|_| !self.case.histogram) {
            if has_i {
                self.check_definition(integrated, definition.integrated())?;
                self.check_definition(threshold, definition.threshold())?;
            }
            if has_range {
                self.check_definition(range, definition.range())?;
            }
        }
        if !self.case.always_at_least(LOUDNESS_FROM) {
            return Ok(());
        }
        let has_range = has_range && !self.case.tenth;
        if let Some(state) = &self.original {
            if has_i {
                self.check_reference(ORIGINAL, integrated, state.read(Figure::Integrated))?;
                self.check_reference(ORIGINAL, threshold, state.read(Figure::Threshold))?;
            }
            if has_range {
                self.check_reference(ORIGINAL, range, state.read(Figure::Range))?;
            }
        }
        if let Some(meter) = self.other.as_ref().filter(|_| !self.limited) {
            if has_i {
                self.check_reference(CRATE, integrated, meter.loudness_global().ok())?;
                // After silence only, the crate has no threshold at all, and no range.
                let lufs = meter.relative_threshold().unwrap();
                let theirs = Some(if lufs == f64::NEG_INFINITY { -70.0 } else { lufs });
                self.check_reference(CRATE, threshold, theirs)?;
            }
            if has_range {
                let lu = meter.loudness_range().unwrap();
                self.check_reference(CRATE, range, Some(if lu.is_nan() { 0.0 } else { lu }))?;
            }
        }
        Ok(())
    }

    fn compare_peaks(&self) -> Result<(), String> {
        for channel in 0..self.shape.map.len() {
            let judge =
                |figure| self.original.as_ref().and_then(|state| state.peak(figure, channel));
            if self.case.measures(SAMPLE_PEAK) {
                let ours = self.ours.sample_peak(channel);
                let other = self.other.as_ref().and_then(|m| m.sample_peak(channel as u32).ok());
                same("sample peak", channel, ours, judge(Peak::Sample), 0.0)?;
                same("sample peak, crate", channel, ours, other, 0.0)?;
            }
            if self.case.measures(TRUE_PEAK) {
                let ours = self.ours.true_peak(channel);
                let other = self.other.as_ref().and_then(|m| m.true_peak(channel as u32).ok());
                same("true peak", channel, ours, judge(Peak::True), PEAK)?;
                same("true peak, crate", channel, ours, other, CRATE_PEAK)?;
            }
        }
        Ok(())
    }

    fn compare_last_peaks(&self) -> Result<(), String> {
        let Some(state) = &self.original else { return Ok(()) };
        for channel in 0..self.shape.map.len() {
            if self.case.measures(SAMPLE_PEAK) {
                let theirs = state.peak(Peak::LastSample, channel);
                same(
                    "last sample peak",
                    channel,
                    self.ours.last_sample_peak(channel),
                    theirs,
                    0.0,
                )?;
            }
            if self.case.measures(TRUE_PEAK) {
                let theirs = state.peak(Peak::LastTrue, channel);
                same("last true peak", channel, self.ours.last_true_peak(channel), theirs, PEAK)?;
            }
        }
        Ok(())
    }

    /// 1e-9 LU compared with the definition, more if it is faint compared with the audio before it.
    fn check_definition(&self, Reading(what, ours): Reading, theirs: f64) -> Result<(), String> {
        let steep = (f64::from(self.shape.rate) / 192_000.0).max(1.0);
        let within = 1e-9 * (0.1 * steep * self.contrast(theirs)).max(1.0);
        close(what, ours, Some(theirs), within).map_err(|what| format!("{what} by definition"))
    }

    /// 1e-9 LU compared with a reference up to 48 kHz. Above, and for passages that are faint
    /// compared with the audio before them, the references' single section of fourth order loses
    /// precision; the definition does not.
    fn check_reference(
        &self,
        by: &str,
        Reading(what, ours): Reading,
        theirs: Option<f64>,
    ) -> Result<(), String> {
        let highest = self.case.shapes().map(|shape| shape.rate).max().unwrap_or(0);
        let steep = (f64::from(highest) / 34_000.0).powi(4).max(1.0);
        let steep = if highest > 48_000 { steep } else { 1.0 };
        let within = 1e-9 * steep * (3.0 * self.contrast(ours.unwrap_or(0.0))).max(1.0);
        close(what, ours, theirs, within).map_err(|what| format!("{what} by {by}"))
    }

    /// How much louder the loudest sample was, as a ratio of amplitudes.
    fn contrast(&self, lufs: f64) -> f64 {
        self.loudest / 10f64.powf(lufs.min(0.0) / 20.0)
    }
}

const ORIGINAL: &str = "libebur128";
const CRATE: &str = "the crate";
/// libebur128 computes and reports in f32 between samples.
const PEAK: f64 = 2e-7;
/// The crate's taps are f32 as well.
const CRATE_PEAK: f64 = 4e-6;

#[derive(Clone, Copy)]
struct Reading(&'static str, Option<f64>);

impl Reading {
    fn new(what: &'static str, value: Option<aulos_core::Lufs>) -> Self {
        Self(what, value.map(aulos_core::Lufs::get))
    }
}

fn close(what: &str, ours: Option<f64>, theirs: Option<f64>, within: f64) -> Result<(), String> {
    let (Some(mine), Some(yours)) = (ours, theirs) else {
        return Err(format!("{what}: {ours:?}, not {theirs:?}"));
    };
    // Far below all gates every implementation reads rounding errors.
    let nothing = mine < -180.0 && yours < -180.0;
    let same = mine == yours || (mine - yours).abs() <= within || nothing;
    if same || (mine.is_nan() && yours.is_nan()) {
        return Ok(());
    }
    Err(format!("{what}: {mine}, not {yours}, {:e} apart", mine - yours))
}

/// Compares amplitudes, with `within` relative to the greater; passes without a reference value.
fn same(
    what: &str,
    channel: usize,
    ours: Option<f64>,
    theirs: Option<f64>,
    within: f64,
) -> Result<(), String> {
    let (Some(mine), Some(yours)) = (ours, theirs) else {
        return if theirs.is_none() { Ok(()) } else { Err(format!("{what}: none")) };
    };
    if mine == yours || (mine - yours).abs() <= within * mine.max(yours) {
        return Ok(());
    }
    Err(format!("{what} of channel {channel}: {mine}, not {yours}, {:e} apart", mine - yours))
}

impl Case {
    fn measures(&self, bits: i32) -> bool {
        self.mode & bits == bits
    }

    fn shapes(&self) -> impl Iterator<Item = &StreamFormat> {
        let changes = self.steps.iter().filter_map(|step| match step {
            Step::Change(shape) => Some(shape),
            _ => None,
        });
        core::iter::once(&self.shape).chain(changes)
    }

    fn always_at_least(&self, rate: u32) -> bool {
        self.shapes().all(|shape| shape.rate >= rate)
    }

    fn config(&self) -> MeterConfig {
        let mut mode = MeterMode::MOMENTARY;
        for (bits, more) in [
            (S, MeterMode::SHORT_TERM),
            (I, MeterMode::INTEGRATED),
            (LRA, MeterMode::RANGE),
            (SAMPLE_PEAK, MeterMode::SAMPLE_PEAK),
            (TRUE_PEAK, MeterMode::TRUE_PEAK),
        ] {
            mode = if self.measures(bits) { mode | more } else { mode };
        }
        mode = if self.maxima { mode | MeterMode::MAXIMA } else { mode };
        let StreamFormat { rate, map } = &self.shape;
        let layout = ChannelLayout::new(map.len()).unwrap();
        let mut config = MeterConfig::new(SampleRate::new(*rate).unwrap(), layout, mode);
        config.positions = map.iter().map(|&number| position(number)).collect();
        config.history =
            if self.histogram { MeterHistory::Histogram } else { MeterHistory::Unbounded };
        config.range_hop = if self.tenth { RangeHop::Tenth } else { RangeHop::Second };
        config.non_finite =
            if self.spoil { NonFinitePolicy::Propagate } else { NonFinitePolicy::Silence };
        config.call_peaks = true;
        config.kernel = self.kernel;
        config
    }
}

fn crate_meter(case: &Case, shape: &StreamFormat) -> EbuR128 {
    use ebur128::Mode as M;
    let mut mode = M::M;
    for (bits, more) in [
        (S, M::S),
        (I, M::I),
        (LRA, M::LRA),
        (SAMPLE_PEAK, M::SAMPLE_PEAK),
        (TRUE_PEAK, M::TRUE_PEAK),
    ] {
        mode = if case.measures(bits) { mode | more } else { mode };
    }
    mode = if case.histogram { mode | M::HISTOGRAM } else { mode };
    let mut meter = EbuR128::new(shape.map.len() as u32, shape.rate, mode).unwrap();
    meter.set_channel_map(&crate_map(&shape.map)).unwrap();
    meter
}

#[rustfmt::skip]
fn crate_map(map: &[u8]) -> Vec<ebur128::Channel> {
    use ebur128::Channel::*;
    const ALL: [ebur128::Channel; 32] = [
        Unused, Left, Right, Center, LeftSurround, RightSurround, DualMono, MpSC, MmSC, Mp060,
        Mm060, Mp090, Mm090, Mp135, Mm135, Mp180, Up000, Up030, Um030, Up045, Um045, Up090, Um090,
        Up110, Um110, Up135, Um135, Up180, Tp000, Bp000, Bp045, Bm045,
    ];
    map.iter().map(|&number| ALL[usize::from(number)]).collect()
}

//! Files brought to a loudness: what `aulos normalize` does, apart from what it prints.
//!
//! ```text
//!  one gain:  file -> meter;  file -> [48 kHz] -> gain [-> limiter] -> meter -> new file
//!  live:      file -> meter, [48 kHz] -> Normaliser (look-ahead) ----> meter -> new file
//!  Opus:      ... -> new file -> decoder -> meter; once more if the codec has lifted the peaks
//! ```

mod batch;
mod error;
mod framed;
mod input;
mod save;
mod stage;
mod tags;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use aulos_core::{Db, Lufs, SampleRate, SampleSpec};
use aulos_dsp::meter::{self, ChannelPosition, Meter};
use aulos_dsp::normalize::{Bound, CannotNormalise, Linear, Mode, Settings};

pub use batch::{NormalizeEvent, NormalizeItem, NormalizeResult, plan_folder, plan_in_place, run};
pub use error::NormalizeError;
pub use save::OutputContainer;

use crate::decode::FileInfo;
use crate::scan::LoudnessSummary;
use input::{InputFile, RateConverter};
use save::{OutputFile, OutputSpec, OutputTarget};
use stage::GainStage;
use tags::Tags;

/// What is wanted.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "who calls says everything")]
pub struct NormalizeConfig {
    /// Loudness, ceiling and the rest.
    pub settings: Settings,
    /// How the loudness is reached.
    pub method: NormalizeMethod,
    /// Of Opus, in bits per second.
    pub bitrate: u32,
    /// The files of a folder get one gain. For the live manner this means nothing.
    pub album: bool,
    /// Measure only, and write nothing.
    pub dry_run: bool,
}

/// How the loudness is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormalizeMethod {
    /// One gain for all of it; where the peaks forbid it, what they allow.
    Linear,
    /// One gain for all of it, and the limiter where the peaks would pass the ceiling. The range is
    /// kept but for what the limiter takes.
    Limited,
    /// The gain that live sound gets.
    Live(Mode),
}

/// One file that is to become another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "who calls says everything")]
pub struct NormalizeTask {
    /// The file.
    pub from: PathBuf,
    /// The new file, which is the same where it is replaced.
    pub to: PathBuf,
    /// Whether that is meant.
    pub in_place: bool,
    /// Whether folders that are missing on the way to the new file are made.
    pub create_folders: bool,
    /// What the new file is; by its name, if not said.
    pub container: Option<OutputContainer>,
}

/// What became of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputFileState {
    /// It is there.
    Written,
    /// The file is in its place already, and needs no other gain.
    Unchanged,
    /// It was only measured what would have to be done.
    Planned,
}

/// What was done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NormalizeOutcome {
    /// What became of the new file.
    pub state: OutputFileState,
    /// Of the file.
    pub before: LoudnessSummary,
    /// Of the new file; of Opus, as it is decoded.
    pub after: LoudnessSummary,
    /// The gain, when there was one for all.
    pub linear: Option<Linear>,
    /// What the limiter took where it took most; zero or less. `None` when there was none.
    pub reduction: Option<Db>,
    /// Samples that were not finite, or absurdly great, and became silence.
    pub rejected: u64,
    /// Packets of the file that were damaged.
    pub damaged: u64,
    /// How long it is.
    pub seconds: f64,
    /// What the new file is.
    pub container: OutputContainer,
    /// The rates of both files.
    pub rates: [SampleRate; 2],
    /// Tags that could not be carried over.
    pub tags_lost: Vec<String>,
}

/// Normalises a file and writes it to its new place, where it appears once all is well. `progress`
/// hears which part of all work is done, as far as that can be known, and can stop it. `album` are
/// the figures by which the gain goes, if not by the file's own.
///
/// A file that is replaced keeps its mode, and its owner as far as the system lets us; it is dated
/// anew, and a hard link becomes a file of its own. Links are followed.
///
/// # Errors
/// [`NormalizeError`]; nothing has been written then, and what was there is as it was.
pub fn normalize_file(
    task: &NormalizeTask,
    wishes: &NormalizeConfig,
    album: Option<&LoudnessSummary>,
    mut progress: impl FnMut(f64) -> ControlFlow<()>,
) -> Result<NormalizeOutcome, NormalizeError> {
    wishes.settings.check().map_err(CannotNormalise::from).map_err(NormalizeError::Settings)?;
    let is_same = || {
        let real = std::fs::canonicalize(&task.from).ok();
        real.is_some() && std::fs::canonicalize(&task.to).ok() == real
    };
    if !task.in_place && is_same() {
        return Err(NormalizeError::SameFile);
    }
    let container = container_of(task)?;
    let spot = OutputTarget::new(&task.to)?;
    let mut work = FileJob {
        from: &task.from,
        wishes,
        container,
        passes: 1,
        pass: 0,
        progress: &mut progress,
    };
    let measured = match wishes.method {
        NormalizeMethod::Live(_) if !wishes.dry_run => None,
        _ => Some(work.measure(&task.from)?),
    };
    let plan = match (wishes.method, &measured) {
        (NormalizeMethod::Live(_), _) | (_, None) => None,
        (_, Some(measured)) => Some(work.plan(album.unwrap_or(&measured.loudness))),
    };
    if let Some(measured) = measured
        && (wishes.dry_run || (task.in_place && is_on_target(plan, &measured.loudness, wishes)))
    {
        let state =
            if wishes.dry_run { OutputFileState::Planned } else { OutputFileState::Unchanged };
        return Ok(work.outcome_without_writing(measured, plan, state));
    }
    let tags = Tags::read(&task.from, container);
    work.write(&spot, plan, tags)
}

fn container_of(task: &NormalizeTask) -> Result<OutputContainer, NormalizeError> {
    if let Some(container) = task.container.or_else(|| OutputContainer::from_path(&task.to)) {
        return Ok(container);
    }
    if !task.in_place {
        return Err(NormalizeError::UnsupportedContainer);
    }
    let ending = task.from.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_ogg = ["ogg", "oga"].iter().any(|name| ending.eq_ignore_ascii_case(name));
    if is_ogg && InputFile::open(&task.from)?.decoder.info().codec == "opus" {
        return Ok(OutputContainer::Opus);
    }
    Err(NormalizeError::InPlace)
}

/// Whether a file needs no other gain than it has.
fn is_on_target(plan: Option<Linear>, before: &LoudnessSummary, wishes: &NormalizeConfig) -> bool {
    let peak = before.true_peak.unwrap_or(Db::SILENCE);
    let gain = plan.map_or(Db::ZERO, |plan| plan.gain);
    let over = (peak - wishes.settings.ceiling).get();
    plan.is_some() && gain.get().abs() <= TARGET_TOLERANCE_LU && over <= TARGET_TOLERANCE_LU
}

struct MeasuredFile {
    loudness: LoudnessSummary,
    rates: [SampleRate; 2],
    seconds: f64,
    rejected: u64,
    damaged: u64,
}

struct FileJob<'a> {
    from: &'a Path,
    wishes: &'a NormalizeConfig,
    container: OutputContainer,
    passes: u32,
    pass: u32,
    progress: &'a mut dyn FnMut(f64) -> ControlFlow<()>,
}

impl FileJob<'_> {
    fn measure(&mut self, path: &Path) -> Result<MeasuredFile, NormalizeError> {
        self.passes += 1;
        let mut input = InputFile::open(path)?;
        let rate = input.decoder.info().rate;
        let mut meter = self.meter(rate, input.positions())?;
        while input.next()? {
            meter.add(input.block.samples());
            self.report_progress(&input)?;
        }
        self.pass += 1;
        Ok(self.finish_measurement(&input, &meter))
    }

    fn finish_measurement(&self, input: &InputFile, meter: &Meter) -> MeasuredFile {
        let rate = input.decoder.info().rate;
        MeasuredFile {
            loudness: loudness_of(meter),
            rates: [rate, self.container.rate(rate)],
            seconds: rate.span(meter.frames()).as_secs_f64(),
            rejected: input.rejected,
            damaged: input.decoder.damaged(),
        }
    }

    fn plan(&self, loudness: &LoudnessSummary) -> Linear {
        let peak = loudness.true_peak.unwrap_or(Db::SILENCE);
        let integrated = loudness.integrated.unwrap_or(Lufs::SILENCE);
        Linear::plan(integrated, peak, &self.wishes.settings)
    }

    fn outcome_without_writing(
        &self,
        it: MeasuredFile,
        plan: Option<Linear>,
        state: OutputFileState,
    ) -> NormalizeOutcome {
        let after = if state == OutputFileState::Unchanged {
            it.loudness
        } else {
            LoudnessSummary::default()
        };
        NormalizeOutcome {
            state,
            before: it.loudness,
            after,
            linear: plan,
            reduction: None,
            rejected: it.rejected,
            damaged: it.damaged,
            seconds: it.seconds,
            container: self.container,
            rates: it.rates,
            tags_lost: Vec::new(),
        }
    }

    /// Writes the new file; when a codec has lifted its peaks above the ceiling, once more, lower.
    fn write(
        &mut self,
        spot: &OutputTarget,
        mut plan: Option<Linear>,
        tags: Tags,
    ) -> Result<NormalizeOutcome, NormalizeError> {
        let Settings { ceiling, target, .. } = self.wishes.settings;
        let mut settings = self.wishes.settings.clone();
        for attempt in 0.. {
            let limits = self.wishes.method == NormalizeMethod::Limited
                && plan.is_some_and(|plan| plan.bound == Some(Bound::Ceiling));
            if let Some(plan) = plan.as_mut().filter(|_| limits) {
                (plan.gain, plan.bound) = (self.gain_through_limiter(plan, &settings)?, None);
            }
            let (mut outcome, file) = self.write_attempt(spot, plan, limits, &settings, &tags)?;
            if self.container == OutputContainer::Opus {
                outcome.after = self.measure(file.path())?.loudness;
            }
            let peak = outcome.after.true_peak.unwrap_or(Db::SILENCE);
            let over = (peak - ceiling).get();
            // At few bits a codec leaves out what is heard; a limiter can make room for it.
            let off = outcome.after.integrated.map_or(0.0, |lufs| (target - lufs).get());
            let is_live = matches!(self.wishes.method, NormalizeMethod::Live(_));
            let is_off = (limits || is_live) && off.abs() > CODEC_TOLERANCE_LU;
            let is_good = over <= CEILING_TOLERANCE_DB && !is_off;
            if is_good || attempt == MAX_ATTEMPTS || self.container != OutputContainer::Opus {
                file.commit()?;
                outcome.tags_lost = tags.lost;
                return Ok(outcome);
            }
            if is_off {
                let mut aim = settings.target.get() + off;
                if is_live {
                    aim = aim.clamp(target.get() - MAX_SHIFT_LU, target.get() + MAX_SHIFT_LU);
                }
                settings.target = Lufs::new(aim.clamp(TARGET_RANGE_LUFS.0, TARGET_RANGE_LUFS.1));
            }
            // The codec adds so much to what went in, or nearly.
            let lower = Db::new(if over > CEILING_TOLERANCE_DB {
                over + CEILING_TOLERANCE_DB
            } else {
                0.0
            });
            settings.ceiling = settings.ceiling - lower;
            if let Some(plan) = &mut plan {
                if limits {
                    plan.bound = Some(Bound::Ceiling);
                } else {
                    (plan.gain, plan.bound) = (plan.gain - lower, Some(Bound::Ceiling));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The gain with which the target is reached behind the limiter.
    fn gain_through_limiter(
        &mut self,
        plan: &Linear,
        settings: &Settings,
    ) -> Result<Db, NormalizeError> {
        let mut trial = *plan;
        // From where the last attempt stood, if there was one.
        let first = plan.gain.get().max(plan.wanted.get());
        let most = settings.max_gain.get().min(plan.wanted.get() + MAX_MAKEUP_LU);
        trial.gain = Db::new(first.min(most));
        // The trial before this one: its gain, and what came out.
        let mut before: Option<(f64, Lufs)> = None;
        for _ in 0..MAX_TRIALS {
            self.passes += 1;
            let came_out = self.try_gain(trial, settings)?;
            self.pass += 1;
            let Some(came_out) = came_out else { break };
            let off = (settings.target - came_out).get();
            let gain = trial.gain.get();
            // The harder it limits, the less of a decibel more comes out.
            let slope = before.map_or(1.0, |(old, lufs)| (came_out - lufs).get() / (gain - old));
            let next = (gain + off / slope.clamp(MIN_SLOPE, 1.0)).min(most);
            if off.abs() <= TRIAL_TOLERANCE_LU || (next - gain).abs() <= TRIAL_TOLERANCE_LU {
                break;
            }
            before = Some((gain, came_out));
            trial.gain = Db::new(next);
        }
        Ok(trial.gain)
    }

    /// How loud it would be with this gain and the limiter.
    fn try_gain(
        &mut self,
        plan: Linear,
        settings: &Settings,
    ) -> Result<Option<Lufs>, NormalizeError> {
        let mut input = InputFile::open(self.from)?;
        let FileInfo { rate, layout, .. } = *input.decoder.info();
        let mut config = meter::MeterConfig::new(rate, layout, meter::MeterMode::INTEGRATED);
        config.positions = self.positions(input.positions());
        let mut meter = new_meter(config)?;
        let mut stage = GainStage::limited(plan, settings, rate, layout);
        let mut put = |samples: &[f32]| {
            meter.add(samples);
            Ok(())
        };
        while input.next()? {
            stage.process(input.block.samples_mut(), &mut put)?;
            self.report_progress(&input)?;
        }
        stage.drain(&mut put)?;
        Ok(meter.integrated().filter(|lufs| lufs.get().is_finite()))
    }

    /// Writes the whole file, but not yet under its name.
    fn write_attempt(
        &mut self,
        spot: &OutputTarget,
        plan: Option<Linear>,
        limits: bool,
        settings: &Settings,
        tags: &Tags,
    ) -> Result<(NormalizeOutcome, OutputFile), NormalizeError> {
        let mut input = InputFile::open(self.from)?;
        let FileInfo { rate: from, layout, codec, bits, .. } = *input.decoder.info();
        let rate = self.container.rate(from);
        let form = OutputSpec {
            container: self.container,
            spec: SampleSpec { rate, layout, format: self.container.format(codec, bits) },
            from,
            frames: input.expected(rate),
            speakers: input.decoder.speakers(),
            bitrate: self.wishes.bitrate,
            tags,
        };
        let positions = self.positions(input.positions());
        let mut stage = match (self.wishes.method, plan) {
            (NormalizeMethod::Live(mode), _) => {
                GainStage::live(mode, settings, rate, input.positions())?
            }
            (_, Some(plan)) if limits => GainStage::limited(plan, settings, rate, layout),
            (_, plan) => {
                GainStage::Gain(plan.unwrap_or_else(|| self.plan(&LoudnessSummary::default())))
            }
        };
        if from != rate && !CONVERTIBLE_HZ.contains(&from.hz()) {
            return Err(NormalizeError::UnsupportedRate(from));
        }
        let mut conversion =
            (from != rate).then(|| RateConverter::new(layout.channels(), from, rate));
        let (mut before, mut after) =
            (self.meter(from, positions.clone())?, self.meter(rate, positions)?);
        let mut out = OutputFile::create(spot, &form)?;
        let mut put = |samples: &[f32]| {
            after.add(samples);
            out.write(samples).map_err(NormalizeError::Save)
        };
        while input.next()? {
            before.add(input.block.samples());
            match &mut conversion {
                Some(conversion) => conversion
                    .process(input.block.samples(), &mut |part| stage.process(part, &mut put))?,
                None => stage.process(input.block.samples_mut(), &mut put)?,
            }
            self.report_progress(&input)?;
        }
        if let Some(conversion) = &mut conversion {
            conversion.drain(&mut |part| stage.process(part, &mut put))?;
        }
        stage.drain(&mut put)?;
        out.close().map_err(NormalizeError::Save)?;
        self.pass += 1;
        let measured = self.finish_measurement(&input, &before);
        let mut outcome = self.outcome_without_writing(measured, plan, OutputFileState::Written);
        outcome.after = loudness_of(&after);
        outcome.reduction = matches!(stage, GainStage::Delayed(_)).then(|| stage.reduction());
        Ok((outcome, out))
    }

    fn meter(
        &self,
        rate: SampleRate,
        positions: Vec<ChannelPosition>,
    ) -> Result<Meter, NormalizeError> {
        let mode =
            meter::MeterMode::INTEGRATED | meter::MeterMode::RANGE | meter::MeterMode::TRUE_PEAK;
        let layout = aulos_core::ChannelLayout::new(positions.len());
        // There is no file without a channel.
        let layout = layout.unwrap_or(aulos_core::ChannelLayout::MONO);
        let mut config = meter::MeterConfig::new(rate, layout, mode | meter::MeterMode::MAXIMA);
        config.positions = self.positions(positions);
        new_meter(config)
    }

    fn positions(&self, mut positions: Vec<ChannelPosition>) -> Vec<ChannelPosition> {
        if self.wishes.settings.dual_mono {
            positions.fill(ChannelPosition::DualMono);
        }
        positions
    }

    #[allow(clippy::cast_precision_loss, reason = "a part of all")]
    fn report_progress(&mut self, input: &InputFile) -> Result<(), NormalizeError> {
        let all = input.decoder.info().frames.filter(|all| all.0 > 0);
        let part = all.map_or(0.0, |all| (input.frames as f64 / all.0 as f64).min(1.0));
        let done = (f64::from(self.pass) + part) / f64::from(self.passes.max(self.pass + 1));
        match (self.progress)(done) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(NormalizeError::Stopped),
        }
    }
}

fn new_meter(config: meter::MeterConfig) -> Result<Meter, NormalizeError> {
    let wrong = |error| NormalizeError::Settings(CannotNormalise::Meter(error));
    Meter::new(config).map_err(wrong)
}

fn loudness_of(meter: &Meter) -> LoudnessSummary {
    let seconds = meter.config().rate.span(meter.frames()).as_secs_f64();
    let options = crate::scan::ScanOptions { true_peak: true, ..Default::default() };
    LoudnessSummary::from_measurement(&meter.measurement(), seconds, &options)
}

/// A gain that nobody hears, and for which no file is written anew; so much a peak may be above the
/// ceiling, by another meter or by rounding.
const TARGET_TOLERANCE_LU: f64 = 0.1;
/// So near to the ceiling is below it, and so far below it is aimed at after an attempt.
const CEILING_TOLERANCE_DB: f64 = 0.05;
/// What a codec may be off behind the limiter before it gets another attempt, and the targets that
/// there are.
const CODEC_TOLERANCE_LU: f64 = 0.1;
const TARGET_RANGE_LUFS: (f64, f64) = (-70.0, -5.0);
/// By how much a gain that moves may aim beside the target to make up for a codec, in LU: what it is
/// off beyond that belongs to the programme.
const MAX_SHIFT_LU: f64 = 1.0;
/// Attempts to bring a codec below the ceiling; each comes nearer by most of what was missing.
const MAX_ATTEMPTS: u32 = 3;
/// Trials for the gain in front of the limiter; each leaves a fraction of what was missing.
const MAX_TRIALS: u32 = 5;
const TRIAL_TOLERANCE_LU: f64 = 0.03;
/// A step goes at most three times as far as what is missing.
const MIN_SLOPE: f64 = 1.0 / 3.0;
/// More than what a limiter took from the loudness of music is not given back, in LU.
const MAX_MAKEUP_LU: f64 = 12.0;
/// The rates that the resampler brings to Opus' own.
const CONVERTIBLE_HZ: core::ops::RangeInclusive<u32> = 8_000..=384_000;

//! Loudness normalization of files: `aulos normalize` without its output.
//!
//! ```text
//!  one gain:  file -> meter;  file -> [48 kHz] -> gain [-> limiter] -> meter -> new file
//!  live:      file -> meter, [48 kHz] -> normalizer (look-ahead) ----> meter -> new file
//!  Opus:      ... -> new file -> decoder -> meter; once more if the codec has raised the peaks
//! ```

mod batch;
mod container;
mod error;
mod framed;
mod input;
mod save;
mod spec;
mod stage;
mod tags;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use aulos_core::{Db, Lufs, SampleRate, SampleSpec};
use aulos_dsp::meter::{self, ChannelPosition, Meter};
use aulos_dsp::normalize::{GainLimit, LinearGain, LookAhead, NormalizerError, Settings};

pub use batch::{NormalizeEvent, NormalizeItem, NormalizeResult, plan_folder, plan_in_place, run};
pub use container::OutputContainer;
pub use error::NormalizeError;

use crate::decode::{CONVERTIBLE_HZ, FileInfo, FileWarning, RateConverter};
use crate::scan::LoudnessSummary;
use input::InputFile;
use save::{OutputFile, OutputTarget};
use spec::OutputSpec;
use stage::GainStage;
use tags::Tags;

/// The configuration of a run.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the caller sets every field")]
pub struct NormalizeConfig {
    /// Target loudness, true peak ceiling, and others.
    pub settings: Settings,
    /// How the target loudness is reached.
    pub method: NormalizeMethod,
    /// The bit rate of Opus in bits per second.
    pub bitrate: u32,
    /// Applies one gain to all files of a folder. Has no effect with the live method.
    pub album: bool,
    /// Replaces existing files, as in place.
    pub overwrite: bool,
    /// Measures only, and writes nothing.
    pub dry_run: bool,
    /// Replaces a damaged file by its readable part.
    pub keep_going: bool,
}

/// How the target loudness is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormalizeMethod {
    /// One gain for the whole file, limited by its peaks.
    Linear,
    /// One gain for the whole file, with the limiter where the peaks would exceed the ceiling.
    /// Apart from the limiting, the dynamics are kept.
    Limited,
    /// The time-varying gain of live audio.
    Live(LookAhead),
}

/// A file and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the caller sets every field")]
pub struct NormalizeTask {
    /// The input file.
    pub from: PathBuf,
    /// The output file; the same as the input for a replacement.
    pub to: PathBuf,
    /// Whether the output replaces the input.
    pub in_place: bool,
    /// Whether missing directories of the output are created.
    pub create_folders: bool,
    /// The output format; without one the extension decides.
    pub container: Option<OutputContainer>,
}

/// What was done with the output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputFileState {
    /// It was written.
    Written,
    /// The file is already in place and needs no other gain.
    Unchanged,
    /// A dry run: nothing was written.
    Planned,
}

/// The outcome of a normalization.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NormalizeOutcome {
    /// What was done with the output file.
    pub state: OutputFileState,
    /// The loudness of the input.
    pub before: LoudnessSummary,
    /// The loudness of the output; for Opus, as decoded.
    pub after: LoudnessSummary,
    /// The gain, if it was constant.
    pub linear: Option<LinearGain>,
    /// The greatest gain reduction of the limiter, zero or negative. `None` without a limiter.
    pub reduction: Option<Db>,
    /// Samples that were not finite or above +20 dBFS, and became silence.
    pub rejected: u64,
    /// Damaged packets of the input.
    pub damaged: u64,
    /// What the input does otherwise than its header says.
    pub warnings: Vec<FileWarning>,
    /// The duration.
    pub seconds: f64,
    /// The format of the output.
    pub container: OutputContainer,
    /// The sample rates of input and output.
    pub rates: [SampleRate; 2],
    /// Tags that could not be converted.
    pub tags_lost: Vec<String>,
}

/// Normalizes a file and writes the output, which appears under its name when it is complete.
/// `progress` gets the completed share of the work, as far as it is known, and can stop it. With
/// `album`, the gain follows from that loudness and not from the file's own.
///
/// A replaced file keeps its mode, and its owner where the system permits. It gets a new
/// modification time, and a hard link becomes a separate file. Symbolic links are followed.
///
/// # Errors
/// [`NormalizeError`]; nothing has been written then, and existing files are unchanged.
pub fn normalize_file(
    task: &NormalizeTask,
    normalize_config: &NormalizeConfig,
    album: Option<&LoudnessSummary>,
    mut progress: impl FnMut(f64) -> ControlFlow<()>,
) -> Result<NormalizeOutcome, NormalizeError> {
    normalize_config
        .settings
        .validate()
        .map_err(NormalizerError::from)
        .map_err(NormalizeError::Settings)?;
    let is_same = || {
        let real = std::fs::canonicalize(&task.from).ok();
        real.is_some() && std::fs::canonicalize(&task.to).ok() == real
    };
    if !task.in_place && is_same() {
        return Err(NormalizeError::SameFile);
    }
    let may_replace = task.in_place || normalize_config.overwrite || normalize_config.dry_run;
    if !may_replace && std::fs::metadata(&task.to).is_ok_and(|it| it.is_file() && it.len() > 0) {
        return Err(NormalizeError::Exists);
    }
    let container = container_of(task)?;
    let spot = OutputTarget::new(&task.to)?;
    let mut work = FileJob {
        from: &task.from,
        normalize_config,
        container,
        may_lose_damage: true,
        passes: 1,
        pass: 0,
        progress: &mut progress,
    };
    let measured = match normalize_config.method {
        NormalizeMethod::Live(_) if !normalize_config.dry_run => None,
        _ => Some(work.measure(&task.from)?),
    };
    let plan = match (normalize_config.method, &measured) {
        (NormalizeMethod::Live(_), _) | (_, None) => None,
        (_, Some(measured)) => Some(work.plan(album.unwrap_or(&measured.loudness))),
    };
    if let Some(measured) = measured
        && (normalize_config.dry_run
            || (task.in_place && is_on_target(plan, &measured.loudness, normalize_config)))
    {
        let state = if normalize_config.dry_run {
            OutputFileState::Planned
        } else {
            OutputFileState::Unchanged
        };
        return Ok(work.outcome_without_writing(measured, plan, state));
    }
    work.may_lose_damage = !task.in_place || normalize_config.keep_going;
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

/// Whether a file needs no gain change.
fn is_on_target(
    plan: Option<LinearGain>,
    before: &LoudnessSummary,
    normalize_config: &NormalizeConfig,
) -> bool {
    let peak = before.true_peak.unwrap_or(Db::SILENCE);
    let gain = plan.map_or(Db::ZERO, |plan| plan.gain);
    let over = (peak - normalize_config.settings.ceiling).get();
    plan.is_some() && gain.get().abs() <= TARGET_TOLERANCE_LU && over <= TARGET_TOLERANCE_LU
}

struct MeasuredFile {
    loudness: LoudnessSummary,
    rates: [SampleRate; 2],
    seconds: f64,
    rejected: u64,
    damaged: u64,
    warnings: Vec<FileWarning>,
}

struct FileJob<'a> {
    from: &'a Path,
    normalize_config: &'a NormalizeConfig,
    container: OutputContainer,
    /// Whether an output without the damaged parts may be committed.
    may_lose_damage: bool,
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
            warnings: input.warnings(),
        }
    }

    fn plan(&self, loudness: &LoudnessSummary) -> LinearGain {
        let peak = loudness.true_peak.unwrap_or(Db::SILENCE);
        let integrated = loudness.integrated.unwrap_or(Lufs::SILENCE);
        LinearGain::plan(integrated, peak, &self.normalize_config.settings)
    }

    fn outcome_without_writing(
        &self,
        it: MeasuredFile,
        plan: Option<LinearGain>,
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
            warnings: it.warnings,
            seconds: it.seconds,
            container: self.container,
            rates: it.rates,
            tags_lost: Vec::new(),
        }
    }

    /// Writes the output; if a codec has raised its peaks above the ceiling, once more with less
    /// gain.
    fn write(
        &mut self,
        spot: &OutputTarget,
        mut plan: Option<LinearGain>,
        tags: Tags,
    ) -> Result<NormalizeOutcome, NormalizeError> {
        let Settings { ceiling, target, .. } = self.normalize_config.settings;
        let mut settings = self.normalize_config.settings.clone();
        for attempt in 0.. {
            let limits = self.normalize_config.method == NormalizeMethod::Limited
                && plan.is_some_and(|plan| plan.limit == Some(GainLimit::Ceiling));
            if let Some(plan) = plan.as_mut().filter(|_| limits) {
                (plan.gain, plan.limit) = (self.gain_through_limiter(plan, &settings)?, None);
            }
            let (mut outcome, file) = self.write_attempt(spot, plan, limits, &settings, &tags)?;
            if outcome.damaged > 0 && !self.may_lose_damage {
                return Err(NormalizeError::Damaged(outcome.damaged));
            }
            if self.container == OutputContainer::Opus {
                outcome.after = self.measure(file.path())?.loudness;
            }
            let peak = outcome.after.true_peak.unwrap_or(Db::SILENCE);
            let over = (peak - ceiling).get();
            // At low bit rates a codec removes audible parts; with a limiter the gain can
            // compensate for that.
            let off = outcome.after.integrated.map_or(0.0, |lufs| (target - lufs).get());
            let is_live = matches!(self.normalize_config.method, NormalizeMethod::Live(_));
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
            // The codec raises the peaks by about the same amount next time.
            let lower = Db::new(if over > CEILING_TOLERANCE_DB {
                over + CEILING_TOLERANCE_DB
            } else {
                0.0
            });
            settings.ceiling = settings.ceiling - lower;
            if let Some(plan) = &mut plan {
                if limits {
                    plan.limit = Some(GainLimit::Ceiling);
                } else {
                    (plan.gain, plan.limit) = (plan.gain - lower, Some(GainLimit::Ceiling));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Finds the gain that reaches the target behind the limiter.
    fn gain_through_limiter(
        &mut self,
        plan: &LinearGain,
        settings: &Settings,
    ) -> Result<Db, NormalizeError> {
        let mut trial = *plan;
        // Starts from the last attempt, if there was one.
        let first = plan.gain.get().max(plan.requested.get());
        let most = settings.max_gain.get().min(plan.requested.get() + MAX_MAKEUP_LU);
        trial.gain = Db::new(first.min(most));
        // The previous trial: its gain, and the resulting loudness.
        let mut before: Option<(f64, Lufs)> = None;
        for _ in 0..MAX_TRIALS {
            self.passes += 1;
            let came_out = self.try_gain(trial, settings)?;
            self.pass += 1;
            let Some(came_out) = came_out else { break };
            let off = (settings.target - came_out).get();
            let gain = trial.gain.get();
            // The more the limiter reduces, the less loudness a decibel of gain adds.
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

    /// The loudness with this gain and the limiter.
    fn try_gain(
        &mut self,
        plan: LinearGain,
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

    /// Writes the complete file under its temporary name.
    fn write_attempt(
        &mut self,
        spot: &OutputTarget,
        plan: Option<LinearGain>,
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
            bitrate: self.normalize_config.bitrate,
            tags,
        };
        let positions = self.positions(input.positions());
        let mut stage = match (self.normalize_config.method, plan) {
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
        // A file always has a channel.
        let layout = layout.unwrap_or(aulos_core::ChannelLayout::MONO);
        let mut config = meter::MeterConfig::new(rate, layout, mode | meter::MeterMode::MAXIMA);
        config.positions = self.positions(positions);
        new_meter(config)
    }

    fn positions(&self, mut positions: Vec<ChannelPosition>) -> Vec<ChannelPosition> {
        if self.normalize_config.settings.dual_mono {
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
    let wrong = |error| NormalizeError::Settings(NormalizerError::Meter(error));
    Meter::new(config).map_err(wrong)
}

fn loudness_of(meter: &Meter) -> LoudnessSummary {
    let seconds = meter.config().rate.span(meter.frames()).as_secs_f64();
    let options = crate::scan::ScanOptions { true_peak: true, ..Default::default() };
    LoudnessSummary::from_measurement(&meter.measurement(), seconds, &options)
}

/// An inaudible gain, for which no file is rewritten; also the tolerance above the ceiling for
/// other meters and rounding.
const TARGET_TOLERANCE_LU: f64 = 0.1;
/// The tolerance of the ceiling, and the margin below it after an attempt.
const CEILING_TOLERANCE_DB: f64 = 0.05;
/// The tolerated deviation of a codec behind the limiter, and the range of targets.
const CODEC_TOLERANCE_LU: f64 = 0.1;
const TARGET_RANGE_LUFS: (f64, f64) = (-70.0, -5.0);
/// The greatest correction of the target for the live method to compensate for a codec, in LU: a
/// larger deviation is a property of the programme.
const MAX_SHIFT_LU: f64 = 1.0;
/// Attempts to bring the peaks of a codec below the ceiling; each removes most of the excess.
const MAX_ATTEMPTS: u32 = 3;
/// Trials for the gain in front of the limiter; each removes most of the deviation.
const MAX_TRIALS: u32 = 5;
const TRIAL_TOLERANCE_LU: f64 = 0.03;
/// Limits a step to three times the deviation.
const MIN_SLOPE: f64 = 1.0 / 3.0;
/// The most makeup gain for the loudness that a limiter has removed, in LU.
const MAX_MAKEUP_LU: f64 = 12.0;

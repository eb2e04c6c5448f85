//! `aulos normalize`: normalizes the loudness of files.

mod output;
mod signals;

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use aulos_core::{Db, Lufs};
use aulos_dsp::normalize::{Mode, Settings};
use aulos_files::decode::{DecodeError, OpenError};
use aulos_files::normalize::{
    self, NormalizeConfig, NormalizeError, NormalizeEvent, NormalizeItem, NormalizeMethod,
    NormalizeResult, NormalizeTask, OutputContainer, OutputFileState,
};
use aulos_server::exit::{Exit, Failure};
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::is_reader_open;
use super::scan::{LoudnessTarget, ceiling, plain};
use signals::StopFlag;

#[derive(Debug, Args)]
#[command(override_usage = "aulos normalize [OPTIONS] <IN> <OUT>
       aulos normalize [OPTIONS] --in-place <FILE|FOLDER>...")]
#[allow(clippy::struct_excessive_bools, reason = "each is a command line switch")]
pub(super) struct NormalizeArgs {
    /// Input file, in any format that `aulos scan` reads, and output file: .wav, .flac or .opus,
    /// replaced if it exists; or input folder and output folder
    #[arg(required = true, num_args = 1.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Replace the input files; a folder stands for the audio files in it and in its subfolders
    #[arg(long)]
    in_place: bool,
    /// Target loudness: -70 to -5 LUFS, or a preset as in `aulos scan --target`
    ///
    /// The default is that of broadcasting (EBU R 128), as in a station. `aulos scan` has -18 LUFS,
    /// the reference of ReplayGain tags, which players expect.
    #[arg(long, value_name = "LUFS|PRESET", default_value = "-23", allow_hyphen_values = true)]
    target: LoudnessTarget,
    /// Maximum true peak, -30 to 0 dBTP
    #[arg(
        long,
        value_name = "DB",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = ceiling
    )]
    true_peak: Db,
    /// How the gain is computed
    #[arg(long, value_name = "MODE", default_value = "linear")]
    mode: NormalizeMode,
    /// Reach the target with one gain, and limit the peaks above --true-peak
    #[arg(long)]
    limit: bool,
    /// Loudness range that the modes full, mid and low keep, 1 to 50 LU: quiet passages stay up to
    /// this far below the target, loud ones up to half of it above [default: one gain, which keeps
    /// the range, and the limiter]
    #[arg(long, value_name = "LU", value_parser = range)]
    lra: Option<Db>,
    /// Measure a mono file as played by two loudspeakers (+3 LU)
    #[arg(long)]
    dual_mono: bool,
    /// Apply the same gain to all files of a folder, so that the folder reaches the target
    #[arg(long)]
    album: bool,
    /// Format of the output files of a folder [default: that of the input; flac if it cannot be
    /// written]
    #[arg(long, value_name = "FORMAT", conflicts_with = "in_place")]
    format: Option<OutputFormat>,
    /// Opus bit rate of all channels together, 6 to 510 kbit/s [default: 192]
    #[arg(long, value_name = "KBPS", value_parser = bitrate)]
    bitrate: Option<u32>,
    /// Number of files processed in parallel, 1 to 256 [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Measure, print what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NormalizeMode {
    /// One gain, from a measurement of the whole file
    Linear,
    /// Time-varying gain of a station with 3 s of look-ahead, and a limiter; needs --lra
    Full,
    /// As full, with 400 ms of look-ahead
    Mid,
    /// As full, with 5 ms of look-ahead
    Low,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Wav,
    Flac,
    Opus,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos normalize in.wav out.wav       -23 LUFS, at most -1 dBTP, one gain
  aulos normalize --target -16 in.mp3 out.flac
  aulos normalize --target spotify --limit in.wav out.opus
  aulos normalize --mode full --lra 7 in.wav out.wav
  aulos normalize --album music/ normalized/
  aulos normalize --in-place --dry-run music/

One gain changes neither the loudness range nor the balance. If the peaks do
not allow the gain, a lower one is applied and reported; --limit reaches the
target and reports the gain reduction of the limiter. The modes full, mid and
low work as in a station if --lra is given; without --lra they are the same as
--limit.

The output has the sample rate, channels and tags of the input, without the
ReplayGain and R128 gains, which no longer apply; tags that cannot be kept are
reported. WAVE keeps the sample format and becomes RF64 beyond 4 GiB; 16 and 24
bits are dithered. Opus has 48 kHz and one or two channels; its loudness and
peaks are those of the decoded audio.

A file is written under a hidden name in its folder and renamed when it is
complete: after a crash or a power failure there is either the old file or the
new one. With --in-place, files that need less than 0.1 dB are left unchanged.
Mode and owner are kept; the modification time changes; a symbolic link is
followed; a hard link becomes a separate file.

Exit codes: 3 if some of several files failed.";

pub(super) fn run(args: &NormalizeArgs, quiet: bool) -> Result<Exit, Failure> {
    let (items, single) = args.items()?;
    let options = args.options()?;
    let stop = StopFlag::new()?;
    let jobs = args.jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut run = NormalizeRun {
        args,
        quiet,
        single,
        bar: bar(quiet, items.len()),
        files: items.len(),
        done: [0; 4],
        failure: None,
        output: Ok(()),
    };
    run.begin();
    normalize::run(items, jobs.min(MAX_JOBS), &options, |event| {
        run.handle_event(event);
        if stop.is_set() || run.output.is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| Failure::new(Exit::Internal, format!("cannot start a thread: {error}")))?;
    run.end(stop.is_set())
}

impl NormalizeArgs {
    /// The files, and whether a single file was given by name.
    fn items(&self) -> Result<(Vec<NormalizeItem>, bool), Failure> {
        let usage = |what: &str| Failure::new(Exit::Usage, what.to_owned());
        if self.in_place {
            let single = self.paths.len() == 1 && !self.paths[0].is_dir();
            return Ok((normalize::plan_in_place(&self.paths), single));
        }
        let [from, to] = &self.paths[..] else {
            return Err(usage(
                "expected two paths, IN and OUT; use --in-place to replace the input files",
            ));
        };
        if !from.is_dir() {
            let container = self.format.map(OutputFormat::container);
            let (from, to) = (from.clone(), to.clone());
            let task =
                NormalizeTask { from, to, in_place: false, create_folders: false, container };
            return Ok((vec![NormalizeItem { task, error: None }], true));
        }
        let name = plain(&to.to_string_lossy());
        if to.exists() && !to.is_dir() {
            return Err(usage(&format!(
                "{name}: is a file, but IN is a folder; OUT must be a folder too"
            )));
        }
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        if real(to).is_some() && real(from) == real(to) {
            return Err(usage(&format!("{name}: is also the input folder; use --in-place")));
        }
        Ok((normalize::plan_folder(from, to, self.format.map(OutputFormat::container)), false))
    }

    fn options(&self) -> Result<NormalizeConfig, Failure> {
        let usage = |what: &str| Err(Failure::new(Exit::Usage, what.to_owned()));
        let live = |mode| match self.lra {
            Some(_) => NormalizeMethod::Live(mode),
            None => NormalizeMethod::Limited,
        };
        let manner = match self.mode {
            NormalizeMode::Linear if self.lra.is_some() => {
                return usage(
                    "--lra needs --mode full, mid or low: the mode linear keeps the range",
                );
            }
            _ if self.limit && self.lra.is_some() => {
                return usage(
                    "--limit (one gain) excludes --lra (time-varying gain): omit one of them",
                );
            }
            NormalizeMode::Linear if self.limit => NormalizeMethod::Limited,
            NormalizeMode::Linear => NormalizeMethod::Linear,
            NormalizeMode::Full => live(Mode::Full),
            NormalizeMode::Mid => live(Mode::Mid),
            NormalizeMode::Low => live(Mode::Low),
        };
        if self.album && matches!(manner, NormalizeMethod::Live(_)) {
            return usage(
                "--album (one gain) excludes --lra (time-varying gain): omit one of them",
            );
        }
        let default = Settings::default();
        // A file may need any gain, so the gain limits of a station do not apply.
        let settings = Settings {
            target: self.target.lufs(),
            ceiling: self.true_peak,
            range: self.lra.unwrap_or(default.range),
            min_gain: Db::new(-60.0),
            max_gain: Db::new(60.0),
            dual_mono: self.dual_mono,
            ..default
        };
        let Self { album, dry_run, .. } = *self;
        let bitrate =
            self.bitrate.unwrap_or(aulos_engine::encode::OpusPacketEncoder::DEFAULT_BITRATE);
        Ok(NormalizeConfig { settings, method: manner, bitrate, album, dry_run })
    }
}

impl OutputFormat {
    const fn container(self) -> OutputContainer {
        match self {
            Self::Wav => OutputContainer::Wave,
            Self::Flac => OutputContainer::Flac,
            Self::Opus => OutputContainer::Opus,
        }
    }
}

/// A normalization run.
struct NormalizeRun<'a> {
    args: &'a NormalizeArgs,
    quiet: bool,
    /// A single file given by name: it gets its own table and exit code.
    single: bool,
    bar: ProgressBar,
    files: usize,
    /// Counts: written, unchanged, planned, failed.
    done: [usize; 4],
    failure: Option<Failure>,
    output: io::Result<()>,
}

impl NormalizeRun<'_> {
    fn begin(&mut self) {
        if !self.single && !self.args.json {
            self.output = output::write(&output::header());
        }
    }

    fn handle_event(&mut self, event: NormalizeEvent) {
        match event {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part")]
            NormalizeEvent::Progress(part, files) => {
                self.bar.set_position((part * f64::from(BAR_STEPS)) as u64);
                if !self.single {
                    self.bar.set_message(format!("{files}/{} files, ", self.files));
                }
            }
            NormalizeEvent::Finished(row) => self.row(&row),
        }
    }

    fn row(&mut self, row: &NormalizeResult) {
        let at = match &row.result {
            Ok(outcome) if outcome.state == OutputFileState::Written => 0,
            Ok(outcome) if outcome.state == OutputFileState::Unchanged => 1,
            Ok(_) => 2,
            Err(_) => 3,
        };
        self.done[at] += 1;
        if matches!(row.result, Err(NormalizeError::Stopped)) {
            return;
        }
        let remarks =
            row.result.as_ref().map_or_else(|_| Vec::new(), |it| output::remarks(it, self.args));
        let text = match (self.args.json, &row.result) {
            (true, _) => output::json(row, self.args, &remarks),
            (false, Ok(outcome)) if self.single => output::table(outcome),
            (false, _) if self.single => String::new(),
            (false, _) => output::line(row),
        };
        if self.output.is_ok() {
            self.output = self.bar.suspend(|| output::write(&text));
        }
        let name = plain(&row.task.to.to_string_lossy());
        for line in remarks.iter().filter(|_| !self.quiet) {
            self.bar.suspend(|| eprintln!("{name}: {line}"));
        }
        if let Err(error) = &row.result {
            let failure = failure(&row.task, error);
            if !self.single && self.args.json {
                self.bar.suspend(|| eprintln!("{}", failure.message));
            }
            self.failure = Some(failure);
        }
    }

    fn end(self, stopped: bool) -> Result<Exit, Failure> {
        self.bar.finish_and_clear();
        if !is_reader_open(self.output)? {
            return Ok(Exit::Ok);
        }
        let [written, unchanged, planned, failed] = self.done;
        if stopped {
            let left = self.files - written - unchanged - planned;
            let rest =
                if self.single { String::new() } else { format!(", {left} file(s) not processed") };
            return Err(Failure::new(Exit::Stopped, format!("stopped by a signal{rest}")));
        }
        if !self.single && !self.quiet {
            let planned =
                if planned > 0 { format!(", {planned} to be written") } else { String::new() };
            eprintln!("{written} written, {unchanged} unchanged, {failed} failed{planned}");
        }
        match self.failure {
            None => Ok(Exit::Ok),
            Some(failure) if self.single => Err(failure),
            Some(failure) if self.files == 1 => Ok(failure.exit),
            Some(_) => Ok(Exit::SomeFailed),
        }
    }
}

fn failure(task: &NormalizeTask, error: &NormalizeError) -> Failure {
    let of_input = |exit| (exit, &task.from);
    let (exit, path) = match error {
        NormalizeError::Find(error) if error.is_no_input() => of_input(Exit::NoInput),
        NormalizeError::Open(OpenError::NoSuchFile) => of_input(Exit::NoInput),
        NormalizeError::Open(OpenError::Permission) => of_input(Exit::Permission),
        NormalizeError::Open(OpenError::Io(_)) | NormalizeError::Decode(DecodeError::Io(_)) => {
            of_input(Exit::Io)
        }
        NormalizeError::Find(_)
        | NormalizeError::Open(_)
        | NormalizeError::Decode(_)
        | NormalizeError::FormatChanges
        | NormalizeError::UnsupportedRate(_) => of_input(Exit::Data),
        NormalizeError::Settings(why) => return Failure::new(Exit::Usage, why.to_string()),
        NormalizeError::UnsupportedContainer
        | NormalizeError::SameFile
        | NormalizeError::InPlace => (Exit::Usage, &task.to),
        NormalizeError::ReadOnly => (Exit::Permission, &task.to),
        NormalizeError::Internal => of_input(Exit::Internal),
        NormalizeError::Stopped => of_input(Exit::Stopped),
        NormalizeError::Save(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            (Exit::Permission, &task.to)
        }
        NormalizeError::Save(why) if why.kind() == io::ErrorKind::StorageFull => {
            (Exit::Io, &task.to)
        }
        _ => (Exit::CannotCreate, &task.to),
    };
    Failure::new(exit, format!("{}: {error}", plain(&path.to_string_lossy())))
}

/// Parses a loudness range.
fn range(text: &str) -> Result<Db, String> {
    match text.parse() {
        Ok(lu) if (1.0..=50.0).contains(&lu) => Ok(Db::new(lu)),
        _ => Err("a loudness range is a number from 1 to 50 LU".to_owned()),
    }
}

/// Parses a bit rate in kbit/s.
fn bitrate(text: &str) -> Result<u32, String> {
    match text.strip_suffix(['k', 'K']).unwrap_or(text).parse::<u32>() {
        Ok(kbps) if (6..=510).contains(&kbps) => Ok(kbps * 1_000),
        _ => Err("a bit rate is a number from 6 to 510 kbit/s".to_owned()),
    }
}

fn bar(quiet: bool, files: usize) -> ProgressBar {
    if quiet || files == 0 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(BAR_STEPS.into()), ProgressDrawTarget::stderr());
    // The template is a constant and valid; the default would do as well.
    bar.with_style(
        ProgressStyle::with_template("{wide_bar} {msg}{percent} %, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// Smallest deviation from the target that is reported, in LU: the tolerance of EBU R 128.
const REPORTED_ERROR_LU: f64 = 0.5;
/// Resolution of the progress bar.
const BAR_STEPS: u32 = 1_000;
/// Limit of parallel files: each takes memory, and more than the number of processors is no faster.
const MAX_JOBS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The reached loudness, if it deviates from the target by a reportable amount.
fn missed_loudness(after: Option<Lufs>, target: Lufs) -> Option<Lufs> {
    after.filter(|lufs| (*lufs - target).get().abs() > REPORTED_ERROR_LU)
}

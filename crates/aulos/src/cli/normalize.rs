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
#[allow(clippy::struct_excessive_bools, reason = "each is a switch that somebody types")]
pub(super) struct NormalizeArgs {
    /// A file, in any format that `aulos scan` reads, and the new one: .wav, .flac or .opus, replaced
    /// if it is there. Or a folder, and a folder for the new files
    #[arg(required = true, num_args = 1.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Replace the files themselves; of a folder, the sound files in it and below
    #[arg(long)]
    in_place: bool,
    /// How loud it is to be: LUFS, or a name as in `aulos scan --target`
    #[arg(long, value_name = "LUFS|PRESET", default_value = "-23", allow_hyphen_values = true)]
    target: LoudnessTarget,
    /// The highest true peak
    #[arg(
        long,
        value_name = "DB",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = ceiling
    )]
    true_peak: Db,
    /// One gain for all of it, or the gain that a station would have
    #[arg(long, value_name = "MODE", default_value = "linear")]
    mode: NormalizeMode,
    /// Reach the target also where the peaks forbid it: one gain, and the limiter takes them down
    #[arg(long)]
    limit: bool,
    /// In the modes of a station, how quiet passages may stay, 1 to 50 LU below the rest, and how
    /// loud, half of that above [default: the range is kept, by one gain and the limiter]
    #[arg(long, value_name = "LU", value_parser = range)]
    lra: Option<Db>,
    /// One channel is going to be heard from two loudspeakers (+3 LU)
    #[arg(long)]
    dual_mono: bool,
    /// Give all files of a folder one gain, by which the folder reaches the target
    #[arg(long)]
    album: bool,
    /// What the files of a folder become [default: what they are; what is not written here, flac]
    #[arg(long, value_name = "FORMAT", conflicts_with = "in_place")]
    format: Option<OutputFormat>,
    /// Of Opus, for all channels together
    #[arg(long, value_name = "KBPS", value_parser = bitrate)]
    bitrate: Option<u32>,
    /// How many files at a time [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Measure, say what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NormalizeMode {
    /// One gain, from a measurement of the whole; nothing else changes
    Linear,
    /// The gain of a station, with a look-ahead of 3 s, and a limiter; --lra says how far it moves
    Full,
    /// The same with 400 ms
    Mid,
    /// The same with 5 ms
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
  aulos normalize in.wav out.wav              -23 LUFS, -1 dBTP, one gain
  aulos normalize --target -16 in.mp3 out.flac
  aulos normalize --target spotify --limit in.wav out.opus
  aulos normalize --mode full --lra 7 in.wav out.wav    as a station would sound
  aulos normalize --album music/ louder/      every file below, to the same place below louder/
  aulos normalize --in-place --dry-run music/ what would be done

With one gain, the range, the balance and every detail stay as they are. Where the peaks do not allow
the gain, it is what they allow, and that is said; --limit reaches the target, and says what the
limiter took. The modes full, mid and low are those of a station when --lra says how much range there
may be; without --lra the range is kept, and they are the same as --limit.

The new file has the rate, the channels and the tags of the old one, without ReplayGain and R128
gains, which are wrong now; what could not be kept is said. WAVE keeps the sample format, and beyond
4 GiB is RF64; 16 and 24 bits are dithered. Opus is 48 kHz, of one or two channels; loudness and
peaks are those of what a decoder gives.

A file is written beside its place under a hidden name and gets its name when it is complete: whoever
kills a run, or pulls the plug, finds the old file or the new one. With --in-place, files that need
less than 0.1 dB are not touched; mode and owner stay, the time of modification is new, a link is
followed, and a hard link becomes a file of its own.

Ends with 3 when some of several files failed.";

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
    .map_err(|error| Failure::new(Exit::Internal, format!("no threads: {error}")))?;
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
                "two paths are needed, IN and OUT; to replace the files themselves, --in-place",
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
            return Err(usage(&format!("{name} is a file, and IN is a folder: give a folder")));
        }
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        if real(to).is_some() && real(from) == real(to) {
            return Err(usage(&format!("{name} is the folder that is read: use --in-place")));
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
                return usage("--lra is for the modes full, mid and low: one gain keeps the range");
            }
            _ if self.limit && self.lra.is_some() => {
                return usage("--limit is one gain, --lra a gain that moves: leave one out");
            }
            NormalizeMode::Linear if self.limit => NormalizeMethod::Limited,
            NormalizeMode::Linear => NormalizeMethod::Linear,
            NormalizeMode::Full => live(Mode::Full),
            NormalizeMode::Mid => live(Mode::Mid),
            NormalizeMode::Low => live(Mode::Low),
        };
        if self.album && matches!(manner, NormalizeMethod::Live(_)) {
            return usage(
                "--album is one gain for all files, --lra a gain that moves: leave one out",
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
            let said = if self.single { String::new() } else { format!(", {left} file(s) left") };
            return Err(Failure::new(Exit::Stopped, format!("stopped{said}")));
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
        _ => Err("a range is a number of LU between 1 and 50".to_owned()),
    }
}

/// Parses a bit rate in kbit/s.
fn bitrate(text: &str) -> Result<u32, String> {
    match text.strip_suffix(['k', 'K']).unwrap_or(text).parse::<u32>() {
        Ok(kbps) if (6..=510).contains(&kbps) => Ok(kbps * 1_000),
        _ => Err("a bit rate is a number of kb/s between 6 and 510".to_owned()),
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

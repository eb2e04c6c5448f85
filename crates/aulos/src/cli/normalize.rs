//! `aulos normalize`: normalizes the loudness of files.

mod args;
mod output;
mod signals;

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::thread::available_parallelism;

use aulos_files::decode::{FileDecodeError, OpenError};
use aulos_files::normalize::{
    self, NormalizeError, NormalizeEvent, NormalizeResult, NormalizeTask, OutputFileState,
};
use aulos_server::exit::{Exit, Failure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(super) use args::NormalizeArgs;

use super::output::SideReport;
use super::output::console::{note, write_now};
use super::scan::plain;
use signals::StopFlag;

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

An output file that exists is kept and reported, unless --force is given. The
output has the sample rate, channels and tags of the input, without the
ReplayGain and R128 gains, which no longer apply; tags that cannot be kept are
reported. WAVE keeps the sample format and becomes RF64 beyond 4 GiB; 16 and 24
bits are dithered. Opus has 48 kHz and one or two channels; its loudness and
peaks are those of the decoded audio.

A file is written under a hidden name in its folder and renamed when it is
complete: after a crash or a power failure there is either the old file or the
new one. With --in-place, files that need less than 0.1 dB are left unchanged.
Mode and owner are kept; the modification time changes; a symbolic link is
followed; a hard link becomes a separate file.

A file that is damaged or cut off is written as far as it can be read, marked
as damaged, and counts as failed; --in-place does not replace it.

Exit codes: 3 if some of several files failed, 65 if the only file is damaged.";

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
        damaged: 0,
        failure: None,
        output: SideReport::new(),
    };
    run.begin();
    normalize::run(items, jobs.min(MAX_JOBS), &options, |event| {
        run.handle_event(event);
        if stop.is_set() || !run.goes_on() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| Failure::new(Exit::Internal, format!("cannot start a thread: {error}")))?;
    run.end(stop.is_set())
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
    /// Files whose readable part was processed.
    damaged: usize,
    failure: Option<Failure>,
    output: SideReport,
}

impl NormalizeRun<'_> {
    fn begin(&mut self) {
        if !self.single && !self.args.json {
            self.output.print(&output::row_header());
        }
    }

    /// Without rows, a run goes on only if it writes files.
    const fn goes_on(&self) -> bool {
        self.output.is_open() || !self.args.dry_run
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
            (false, _) => output::format_row(row),
        };
        self.bar.suspend(|| self.output.print(&text));
        let name = plain(&row.task.to.to_string_lossy());
        for line in remarks.iter().filter(|_| !self.quiet) {
            self.bar.suspend(|| write_now(format_args!("{name}: {line}")));
        }
        let failure = match &row.result {
            Err(error) => failure(&row.task, error),
            Ok(outcome) if outcome.damaged > 0 && !self.args.keep_going => {
                self.damaged += 1;
                let from = plain(&row.task.from.to_string_lossy());
                Failure::new(Exit::Data, format!("{from}: {}", output::damage(outcome)))
            }
            Ok(_) => return,
        };
        if !self.single && self.args.json {
            self.bar.suspend(|| write_now(&failure.message));
        }
        self.failure = Some(failure);
    }

    fn end(self, stopped: bool) -> Result<Exit, Failure> {
        self.bar.finish_and_clear();
        if !self.goes_on() {
            return self.output.finish().map(|()| Exit::Ok);
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
            let damaged = match self.damaged {
                0 => String::new(),
                damaged => format!(", {damaged} damaged"),
            };
            note!("{written} written, {unchanged} unchanged, {failed} failed{damaged}{planned}");
        }
        match self.failure {
            None => self.output.finish().map(|()| Exit::Ok),
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
        NormalizeError::Open(OpenError::Io(_)) | NormalizeError::Decode(FileDecodeError::Io(_)) => {
            of_input(Exit::Io)
        }
        NormalizeError::Find(_)
        | NormalizeError::Open(_)
        | NormalizeError::Decode(_)
        | NormalizeError::Damaged(_)
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

/// Resolution of the progress bar.
const BAR_STEPS: u32 = 1_000;
/// Limit of parallel files: each takes memory, and more than the number of processors is no faster.
const MAX_JOBS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

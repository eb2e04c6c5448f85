//! `aulos scan`: the loudness of files and folders.

mod output;
mod target;

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use aulos_dsp::meter::{Measurement, RangeHop};
use aulos_io::scan::{self, Event, Found, Loudness, Options, Report, ScanError};
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::{Exit, Failure};
use output::{Format, Row, Rows};
use target::Target;

#[derive(Debug, Args)]
pub(super) struct ScanArgs {
    /// Files and folders; of a folder, the sound files in it and below
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a header
    #[arg(long)]
    csv: bool,
    /// Also print each folder as an album: its files measured as one programme
    #[arg(long)]
    album: bool,
    /// Also measure the peak between samples, which takes longer
    #[arg(long)]
    true_peak: bool,
    /// The loudness that the gain leads to: LUFS, or replaygain (-18), ebu (-23), atsc (-24), arib
    /// (-24), op59 (-24)
    #[arg(long, value_name = "LUFS|PRESET", default_value = "-18", allow_hyphen_values = true)]
    target: Target,
    /// Measure one channel as it is heard from two loudspeakers (+3 LU)
    #[arg(long)]
    dual_mono: bool,
    /// How often the loudness range takes a value: 1s as libebur128, 100ms as FFmpeg
    #[arg(long, value_name = "HOP", default_value = "1s")]
    lra_hop: Hop,
    /// How many files at a time; 1 uses one thread in all [default: one per processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Hop {
    #[value(name = "1s")]
    Second,
    #[value(name = "100ms")]
    Tenth,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  aulos scan music/                        a table
  aulos scan --album --true-peak music/    each folder as well, and peaks between samples
  aulos scan --json *.flac | jq .integrated_lufs
  aulos scan --csv --target ebu programme.wav > programme.csv

Ends with 3 when files could not be measured, or only in part; when there was one file only, with 65
if it is bad; and with 66 when nothing could be read, as in a folder without sound.";

pub(super) fn run(args: &ScanArgs, quiet: bool) -> Result<Exit, Failure> {
    let options = Options {
        true_peak: args.true_peak,
        dual_mono: args.dual_mono,
        range_hop: match args.lra_hop {
            Hop::Second => RangeHop::Second,
            Hop::Tenth => RangeHop::Tenth,
        },
        keep: args.album,
        curve: false,
    };
    let files = scan::find(&args.paths);
    let jobs = args.jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut scan = Scan::new(args, &options, files.len(), quiet);
    scan.begin();
    run_files(&mut scan, files, jobs, &options)?;
    scan.albums();
    scan.end()
}

fn run_files(
    scan: &mut Scan<'_>,
    files: Vec<Found>,
    jobs: NonZeroUsize,
    options: &Options,
) -> Result<(), Failure> {
    scan::run(files, jobs.min(MOST_JOBS), options, |event| scan.take(event))
        .map_err(|error| Failure::new(Exit::Internal, format!("no threads: {error}")))
}

/// A scan under way.
struct Scan<'a> {
    args: &'a ScanArgs,
    options: &'a Options,
    rows: Rows,
    bar: ProgressBar,
    /// Seconds of sound measured.
    seconds: f64,
    albums: Vec<Album>,
    measured: usize,
    failed: usize,
    /// Whether all that failed was no input.
    no_input: bool,
    output: io::Result<()>,
}

impl<'a> Scan<'a> {
    fn new(args: &'a ScanArgs, options: &'a Options, files: usize, quiet: bool) -> Self {
        let format = match (args.json, args.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Table { true_peak: args.true_peak },
        };
        Self {
            args,
            options,
            rows: Rows::new(format),
            bar: progress(files, quiet),
            seconds: 0.0,
            albums: Vec::new(),
            measured: 0,
            failed: 0,
            no_input: true,
            output: Ok(()),
        }
    }

    fn begin(&mut self) {
        self.output = self.rows.header();
    }

    fn take(&mut self, event: Event) -> ControlFlow<()> {
        match event {
            Event::Waiting => self.bar.tick(),
            Event::Measured(seconds) => {
                self.seconds += seconds;
                let took = self.bar.elapsed().as_secs_f64().max(1e-3);
                self.bar.set_message(format!("{:.0} x real time", self.seconds / took));
                self.bar.inc(1);
            }
            Event::Report(report) => self.file(report),
        }
        if self.output.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn file(&mut self, report: Report) {
        if self.args.album {
            Album::of(&mut self.albums, &report).add(&report);
        }
        match report.error {
            None => self.measured += 1,
            Some(error) => {
                self.failed += 1;
                self.no_input &= error.is_no_input();
            }
        }
        let rate = report.shape.map(|shape| shape.rate.hz());
        let row = Row {
            path: &report.path,
            error: report.error.map(|error| error.to_string()),
            sample_rate: rate,
            channels: report.shape.map(|shape| shape.layout.channels()),
            seconds: report.shape.map(|shape| shape.seconds),
            loudness: report.loudness,
            gain: self.args.target.gain(report.loudness.integrated),
        };
        self.print(&row);
    }

    /// After all files, in the order in which their folders came.
    fn albums(&mut self) {
        for album in std::mem::take(&mut self.albums) {
            if self.output.is_err() {
                return;
            }
            let loudness = album.whole.as_ref().map_or_else(Loudness::default, |whole| {
                Loudness::of(whole, album.seconds, self.options)
            });
            let row = Row {
                path: &album.folder,
                error: album.error(),
                sample_rate: album.rate.common(),
                channels: album.channels.common(),
                seconds: album.whole.as_ref().map(|_| album.seconds),
                loudness,
                gain: self.args.target.gain(loudness.integrated),
            };
            self.print(&row);
        }
    }

    fn print(&mut self, row: &Row<'_>) {
        if self.output.is_ok() {
            self.output = self.bar.suspend(|| self.rows.print(row));
        }
    }

    fn end(self) -> Result<Exit, Failure> {
        self.bar.finish_and_clear();
        match self.output {
            // Whoever closed the pipe has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            Err(error) => {
                return Err(Failure::new(Exit::Io, format!("standard output: {error}")));
            }
            Ok(()) => {}
        }
        Ok(match (self.measured, self.failed) {
            (_, 0) => Exit::Ok,
            (0, _) if self.no_input => Exit::NoInput,
            (0, 1) => Exit::Data,
            _ => Exit::SomeFailed,
        })
    }
}

fn progress(files: usize, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(files as u64), ProgressDrawTarget::stderr());
    // The template is a constant; were it wrong, the default would do.
    bar.with_message("0 x real time").with_style(
        ProgressStyle::with_template("{wide_bar} {pos}/{len} files, {msg}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// The files of one folder.
struct Album {
    folder: PathBuf,
    whole: Option<Measurement>,
    rate: Common<u32>,
    channels: Common<usize>,
    seconds: f64,
    files: usize,
    failed: usize,
}

impl Album {
    /// The album that a file is in; files of a folder may come apart, with its subfolders between.
    fn of<'a>(albums: &'a mut Vec<Self>, report: &Report) -> &'a mut Self {
        // A folder without sound is what is reported, not something in a folder.
        let is_folder =
            matches!(report.error, Some(ScanError::NothingInFolder | ScanError::Folder(_)));
        let folder = if is_folder { Some(&*report.path) } else { report.path.parent() };
        let folder =
            folder.filter(|folder| *folder != Path::new("")).unwrap_or_else(|| Path::new("."));
        let at = albums.iter().rposition(|album| album.folder == folder).unwrap_or_else(|| {
            albums.push(Self {
                folder: folder.into(),
                whole: None,
                rate: Common::Nothing,
                channels: Common::Nothing,
                seconds: 0.0,
                files: 0,
                failed: 0,
            });
            albums.len() - 1
        });
        &mut albums[at]
    }

    fn add(&mut self, report: &Report) {
        self.files += 1;
        let (Some(part), Some(shape)) = (&report.kept, report.shape) else {
            self.failed += 1;
            return;
        };
        self.rate.add(shape.rate.hz());
        self.channels.add(shape.layout.channels());
        self.seconds += shape.seconds;
        match &mut self.whole {
            // All have a history of one kind.
            Some(whole) => drop(whole.merge(part)),
            None => self.whole = Some((**part).clone()),
        }
    }

    fn error(&self) -> Option<String> {
        let (failed, files) = (self.failed, self.files);
        (failed > 0).then(|| format!("{failed} of {files} file(s) could not be measured"))
    }
}

/// A property that an album has if all its files share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Common<T> {
    Nothing,
    One(T),
    Several,
}

impl<T: Copy + PartialEq> Common<T> {
    fn add(&mut self, value: T) {
        *self = match *self {
            Self::Nothing => Self::One(value),
            Self::One(known) if known == value => Self::One(known),
            _ => Self::Several,
        };
    }

    fn common(self) -> Option<T> {
        match self {
            Self::One(value) => Some(value),
            Self::Nothing | Self::Several => None,
        }
    }
}

/// Threads; more than any machine has processors would only cost memory.
const MOST_JOBS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
